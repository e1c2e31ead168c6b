"""Sealing: the segment restores the bucket without varvefs, bit for bit; awkward names and sizes."""
import os
import struct
import sys
import threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

FRAME = 2 << 20


def awkward(top):
    """Makes a tree of everything that is easily got wrong."""
    top = os.fsencode(top)

    def j(*names):
        return os.path.join(top, *names)
    for name, size in (("empty", 0), ("one", 1), ("tar-block", 512), ("tar-block+1", 513),
                       ("frame-header", FRAME - 512), ("frame-1", FRAME - 1), ("frame", FRAME),
                       ("frame+1", FRAME + 1), ("frames", 2 * FRAME + 12345)):
        put(j(b"sizes-" + name.encode()), lines.text(size, size))
    put(j(b"random"), os.urandom(3 * FRAME + 77))
    for name in (b"n" * 255, b"new\nline", b"\xff\xfe\x80 not utf-8", "unicode-\u00e9-\u4e2d".encode(),
                 b"*.example.com.log", b"[a-z]?{x,y}\\", b" leading and trailing ", b"-rf", b"--help",
                 b"tab\tquote'\"$(x)`y`", b"\x01\x02\x7f", b"PaxHeaders.0", b"a", b"a.b", b"a-b"):
        put(j(name), b"content of " + name)
    os.makedirs(j(b"a.dir", b"empty"))
    os.makedirs(j(b"empty-dir"))
    put(j(b"a.dir", b"x"), b"in a.dir\n")
    os.symlink(b"sizes-one", j(b"link"))
    os.symlink(b"t" * 3000, j(b"link-long"))
    os.symlink(b"to\nnewline\xff", j(b"link-odd"))
    deep = top
    while len(deep) - len(top) < 3700:
        deep = os.path.join(deep, b"d" * 100)
    deep = os.path.join(deep, b"e" * (3999 - (len(deep) - len(top)) - 100))
    os.makedirs(deep)
    put(os.path.join(deep, b"f" * 98), b"deep")
    for name, ns in ((b"before-1970", -86400 * 10**9 - 123456789), (b"epoch", 0), (b"nano", 1),
                     (b"after-2038", 2**31 * 10**9 + 999999999),
                     (b"year-2200", 7258118400 * 10**9 + 1)):
        put(j(b"time-" + name), name)
        os.utime(j(b"time-" + name), ns=(ns, ns))
    for name, mode, uid, gid in ((b"m000", 0, 0, 0), (b"m777", 0o777, 1, 2), (b"m444", 0o444, 65534, 3),
                                 (b"big-ids", 0o640, 2**31 + 5, 2**31 - 2)):
        put(j(name), name)
        os.chown(j(name), uid, gid)
        os.chmod(j(name), mode)
    os.chmod(j(b"a.dir"), 0o511)
    os.chown(j(b"a.dir"), 5, 6)


@timeout(120)
def test_case16_restores_bit_for_bit(t):
    """`zstd -dc | tar x` and bsdtar restore all of it: bytes, names, modes, owners, times in ns."""
    # A short path, so that 4,000 bytes below current/ fit into PATH_MAX.
    m = t.mount()
    awkward(m.path(".staging"))
    for e in os.listdir(os.fsencode(m.path(".staging"))):
        os.rename(os.path.join(os.fsencode(m.path(".staging")), e),
                  os.path.join(os.fsencode(m.cur()), e))
    append(os.path.join(os.fsencode(m.cur()), b"*.example.com.stream.log"), b"a stream\n")
    want = tree(m.cur())
    deepest = max(want, key=len)
    ok(len(deepest) >= 3900, f"a path of {len(deepest)} bytes")
    old = m.next()
    same_tree(tree(m.path(old)), want, "closing")
    m.wait_sealed(old, seconds=60)
    same_tree(tree(m.path(old)), want, "sealed, through the mount")
    to = m.restore(old)
    same_tree(tree(to), want, "restored by tar")
    for d in (b"a.dir", b"a.dir/empty", b"empty-dir"):
        eq(os.stat(os.path.join(os.fsencode(to), d)).st_mtime_ns,
           os.stat(os.path.join(os.fsencode(m.path(old)), d)).st_mtime_ns, f"the time of {d!r}, in ns")
    got = tree(m.restore(old, "bsdtar"))
    # bsdtar reads a fraction before 1970 the wrong way round (libarchive's pax_time).
    got[b"time-before-1970"]["mtime"] = want[b"time-before-1970"]["mtime"]
    same_tree(got, want, "restored by bsdtar")
    names = t.sh(f"zstd -q -dc {m.segment(old)} | tar --null --quoting-style=literal "
                 "--show-transformed-names -tf -").stdout
    for n in (b"sizes-frame", b"*.example.com.log", b"new\nline", b"\xff\xfe\x80 not utf-8"):
        ok(n in names, f"tar tf lists {n!r}")
    m.varve("verify")
    m.remount()
    same_tree(tree(m.path(old)), want, "after a remount")
    t.run(["zstd", "-q", "-t", m.segment(old)])


def test_sparse_files(t):
    m = t.mount()
    with open(m.path(".staging/sparse"), "wb") as f:
        f.write(b"head")
        f.seek(40 << 20)
        f.write(b"middle")
        f.truncate(100 << 20)
    os.rename(m.path(".staging/sparse"), m.cur("sparse"))
    want = b"head" + b"\0" * ((40 << 20) - 4) + b"middle" + b"\0" * ((60 << 20) - 6)
    old = m.next_sealed()
    same_bytes(read(m.path(old, "sparse")), want, "sealed")
    same_bytes(read(os.path.join(m.restore(old), "sparse")), want, "restored")
    ok(os.stat(m.segment(old)).st_size < 1 << 20, "holes cost next to nothing")


def test_xattrs_and_acls_are_restored(t):
    m = t.mount()
    append(m.cur("x"), b"1\n")
    os.setxattr(m.cur("x"), "user.origin", b"sensor \xff\0 7")
    t.run(["setfacl", "-m", "u:65534:rw", m.cur("x")])
    acl = t.run(["getfacl", "-n", "x"], cwd=m.cur()).stdout
    old = m.next_sealed()
    for where in (m.path(old), ):
        eq(os.getxattr(os.path.join(where, "x"), "user.origin"), b"sensor \xff\0 7", "sealed xattr")
        eq(t.run(["getfacl", "-n", "x"], cwd=where).stdout, acl, "sealed ACL")
    to = mkdirs(t.path("to"))
    t.sh(f"zstd -q -dc {m.segment(old)} | tar --xattrs --xattrs-include='*' --acls -xpf - -C {to}")
    eq(os.getxattr(os.path.join(to, "x"), "user.origin"), b"sensor \xff\0 7", "restored by tar")
    eq(t.run(["getfacl", "-n", "x"], cwd=to).stdout, acl, "restored by tar: the ACL")
    ok(not [n for n in os.listxattr(os.path.join(to, "x")) if n.startswith("user.varve")],
       "the store's own xattrs are not in the segment")


def test_segment_is_seekable_zstd(t):
    """Independent frames of about 2 MiB, then the index in a skippable frame, then the seek table of
    zstd's published format: another reader finds every frame by it."""
    m = t.mount()
    data = lines.text(9 << 20)
    put(m.cur("x"), data)
    old = m.next_sealed()
    raw = read(m.segment(old))
    count, flags, magic = struct.unpack("<IBI", raw[-9:])
    eq(hex(magic), "0x8f92eab1", "the seek table's magic at the end")
    entry = 12 if flags & 0x80 else 8
    table = len(raw) - 9 - entry * count
    eq(struct.unpack("<II", raw[table - 8:table]), (0x184D2A5E, entry * count + 9),
       "the seek table is a skippable frame")
    at, plain, total = 0, [], 0
    for i in range(count):
        csize, dsize = struct.unpack("<II", raw[table + i * entry:table + i * entry + 8])
        if dsize:
            eq(raw[at:at + 4], b"\x28\xb5\x2f\xfd", f"frame {i} is where the table says")
            with open(t.path("frame"), "wb") as f:
                f.write(raw[at:at + csize])
            got = t.run(["zstd", "-q", "-dc", t.path("frame")]).stdout
            eq(len(got), dsize, f"frame {i} decompresses alone")
            ok(dsize <= FRAME + (64 << 10), f"frame {i} is about 2 MiB: {dsize}")
            plain.append(got)
            total += 1
        at += csize
    ok(total >= 4, f"{total} frames")
    ok(data in b"".join(plain), "the file is in the concatenation")
    eq(at, table - 8, "the table accounts for every byte before it")
    ok(len(raw) < len(data) * 0.6, f"compressed: {len(raw)} of {len(data)}")


def test_same_bytes_before_during_and_after(t):
    """Readers on descriptors opened before and new ones see the same bytes while a bucket seals."""
    m = t.mount("bucket=1h,grace=300ms,seal-threads=1,seal-level=9")
    data = {f"f{i}": lines.text(2 << 20, i) for i in range(3)}
    for n, d in data.items():
        put(m.cur(n), d)
    early = {n: os.open(m.cur(n), os.O_RDONLY) for n in data}
    inos = {n: os.fstat(fd).st_ino for n, fd in early.items()}
    wrong, stop, rounds = [], threading.Event(), [0]
    old = m.next()

    def reader(n):
        while not stop.is_set():
            for how, got in (("by name", read(m.path(old, n))),
                             ("held", os.pread(early[n], len(data[n]) + 5, 0))):
                got = got if how == "by name" else got + os.pread(early[n], 1 << 23, len(got))
                if got != data[n]:
                    wrong.append(f"{n} {how}: {len(got)} bytes")
            if os.stat(m.path(old, n)).st_ino != inos[n]:
                wrong.append(f"{n}: its inode number changed")
            rounds[0] += 1
    threads = [threading.Thread(target=reader, args=(n,)) for n in data]
    for th in threads:
        th.start()
    try:
        m.wait_sealed(old, seconds=50)
        time.sleep(0.3)
    finally:
        stop.set()
        for th in threads:
            th.join()
    eq(wrong, [], "what any reader saw")
    ok(rounds[0] > 8, f"{rounds[0]} rounds of reading")
    for fd in early.values():
        os.close(fd)


def test_idle_priority(t):
    """The compressors run at idle priority, and on more than one core at once."""
    m = t.mount("bucket=1h,grace=200ms,seal-level=12")
    put(m.cur("x"), lines.text(4 << 20) * 3)
    old = m.next()
    idle, busy = set(), set()

    def look():
        now = {}
        for tid in os.listdir(f"/proc/{m.proc.pid}/task"):
            try:
                with open(f"/proc/{m.proc.pid}/task/{tid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            now[tid] = (int(fields[11]) + int(fields[12]), int(fields[16]), int(fields[38]))
        # On a machine that is never idle they are lifted after a while, and do most of their work then.
        idle.update(tid for tid, (ticks, nice, policy) in now.items() if policy == 5 or nice == 19)
        busy.update(tid for tid in idle & now.keys() if now[tid][0] > 5)
        return m.is_sealed(old)
    m.past_jitter()
    wait_until(look, 60, "sealed", 0.02)
    ok(busy, "threads of idle priority did the work")
    print(f"{len(busy)} threads at idle priority")


def test_nothing_left_behind(t):
    m = t.mount("bucket=1h,grace=200ms")
    for i in range(3):
        append(m.cur("d/x") if os.path.isdir(mkdirs(m.cur("d"))) else "", b"%d\n" % i)
        m.next_sealed()
    for b in m.buckets():
        eq(os.listdir(os.path.join(m.store, "sealed", b)), ["default"], f"sealed/{b}")
        eq(os.listdir(os.path.join(m.store, "sealed", b, "default")), ["0.tar.zst"], "one tablet")
    left = [b for b in os.listdir(os.path.join(m.store, "open")) if b != m.open_name()]
    eq(left, [], "nothing in open/ but the open bucket")


def test_case15_one_flipped_byte(t):
    """EIO for that frame, never wrong bytes, never a short read with success; the rest reads."""
    m = t.mount()
    data = os.urandom(11 << 20)  # incompressible: a frame holds about 2 MiB of it
    put(m.cur("big"), data)
    put(m.cur("aaa-before"), b"before\n")
    put(m.cur("zzz-after"), b"after\n")
    old = m.next_sealed()
    m.stop()
    seg = m.segment(old)
    with open(seg, "r+b") as f:
        f.seek(5 << 20)
        byte = f.read(1)
        f.seek(5 << 20)
        f.write(bytes([byte[0] ^ 0x10]))
    m.expect(r"frame|checksum|damaged|corrupt")
    m.start()
    eq(sorted(os.listdir(m.path(old))), ["aaa-before", "big", "zzz-after"], "the bucket lists")
    eq(read(m.path(old, "aaa-before")), b"before\n", "what is before it")
    eq(read(m.path(old, "zzz-after")), b"after\n", "what is after it")
    eq(os.stat(m.path(old, "big")).st_size, len(data), "its size")
    fd = os.open(m.path(old, "big"), os.O_RDONLY)
    good = bad = 0
    for off in range(0, len(data), 65536):
        want = data[off:off + 65536]
        try:
            got = os.pread(fd, 65536, off)
        except OSError as e:
            eq(e.errno, errno.EIO, f"the error at {off}")
            bad += len(want)
            continue
        same_bytes(got, want[:len(got)], f"the bytes at {off}")
        good += len(got)
        if len(got) < len(want):  # what is missing must be an error, not an end
            raises(errno.EIO, os.pread, fd, 65536, off + len(got))
            bad += len(want) - len(got)
    os.close(fd)
    ok(0 < bad <= 3 * FRAME, f"{bad} bytes can't be read, {good} can")
    r = t.run(["cat", m.path(old, "big")], rc=1)
    same_bytes(r.stdout, data[:len(r.stdout)], "cat gets what is before, then fails")
    ok("EIO" in os.strerror(5) or b"Input/output" in r.stderr, f"{r.stderr}")
    r = m.varve("verify", rc=1)
    has(r.stdout + r.stderr, "big", "verify names the file")
    has(r.stdout + r.stderr, r"\d{6,}", "and the range")
    has(r.stdout + r.stderr, old, "and the bucket")
    ok(len([l for l in m.log().splitlines() if re.search("frame|checksum|damaged|corrupt", l)]) <= 3,
       "a clear log line or two, not one a read")


def test_damaged_index(t):
    """A corrupt index or a cut segment: mount succeeds, the bucket is there, EIO, verify fails."""
    for how in ("tail cut", "index flipped", "all zero", "empty"):
        m = t.mount()
        put(m.cur("x"), os.urandom(100000))
        put(m.cur("y"), b"y")
        hurt = m.next_sealed()
        put(m.cur("x"), b"fine\n")
        fine = m.next_sealed()
        m.stop()
        seg = m.segment(hurt)
        raw = bytearray(read(seg))
        if how == "tail cut":
            raw = raw[:-30]
        elif how == "index flipped":
            at = raw.rindex(b"\x5e\x2a\x4d\x18") - 40
            raw[at] ^= 0xff
        elif how == "all zero":
            raw = bytes(len(raw))
        else:
            raw = b""
        put(seg, bytes(raw))
        m.expect(".")
        m.start()
        eq(m.buckets(), [hurt, fine], f"{how}: both buckets are listed")
        eq(read(m.path(fine, "x")), b"fine\n", f"{how}: the other bucket reads")
        try:
            for e in os.listdir(m.path(hurt)):
                got = read(m.path(hurt, e))
                ok(got in (b"y",) or len(got) == 100000, f"{how}: wrong bytes of {e}")
        except OSError as e:
            eq(e.errno, errno.EIO, f"{how}: what a reader of it gets")
        has(m.log(), hurt, f"{how}: a log line names the bucket")
        r = m.varve("verify", rc=1)
        has(r.stdout + r.stderr, hurt, f"{how}: verify names it")
        os.rmdir(m.path(hurt))
        eq(m.buckets(), [fine], f"{how}: it can be dropped")
        m.stop()


main()
