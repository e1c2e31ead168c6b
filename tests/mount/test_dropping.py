"""Dropping by hand: rmdir, rm -r, rm of one sealed file, drop and undrop; readers; cost; space."""
import os
import sys
import threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def with_bucket(t, options="bucket=1h,grace=100ms", files=None):
    """A mount with one sealed bucket of these {path: bytes}. Returns (mount, bucket)."""
    m = t.mount(options)
    for p, data in (files or {"d/x": b"x\n", "y": b"y\n"}).items():
        mkdirs(os.path.dirname(m.cur(p)))
        append(m.cur(p), data)
    return m, m.next_sealed()


def used(path):
    """Allocated bytes below a path."""
    total = 0
    for top, dirs, files in os.walk(path):
        for f in files + dirs:
            try:
                total += os.lstat(os.path.join(top, f)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def test_rmdir_drops_and_undrop_takes_back(t):
    m, b = with_bucket(t)
    before = tree(m.path(b))
    ino = os.stat(m.path(b, "y")).st_ino
    os.rmdir(m.path(b))
    ok(b not in os.listdir(m.mnt), "gone from the listing at once")
    raises(errno.ENOENT, os.stat, m.path(b))
    raises(errno.ENOENT, os.stat, m.path(b, "y"))
    ok(not os.path.exists(os.path.join(m.store, "sealed", b)), "gone from sealed/")
    ok(any(b in e for e in os.listdir(os.path.join(m.store, "trash"))), "it is in the trash")
    line, = m.audit_of("drop", b)
    eq((line["cause"], line["uid"], line["files"]), ("hand", 0, 2), f"the audit line: {line}")
    ok(line.get("pid", 0) > 0 and line.get("bytes", 0) > 0, f"who and how much: {line}")
    m.varve("undrop", None, b)
    same_tree(tree(m.path(b)), before, "back as it was")
    eq(os.stat(m.path(b, "y")).st_ino, ino, "with the same inode number")
    ok(m.audit_of("undrop", b), "undrop's audit line")
    m.remount()
    same_tree(tree(m.path(b)), before, "after a remount")
    m.varve("drop", None, b)
    m.kill()
    m.start()
    ok(b not in m.buckets(), "a drop is durable")
    m.varve("undrop", None, b)
    same_tree(tree(m.path(b)), before, "undropped by the next daemon")


def test_undrop_ends(t):
    m, b = with_bucket(t, "bucket=1h,grace=100ms,undrop=2m")
    os.rmdir(m.path(b))
    m.shift(121)
    wait_until(lambda: os.listdir(os.path.join(m.store, "trash")) == [], 10, "the trash is empty")
    r = m.varve("undrop", None, b, rc=1)
    has(r.stderr, b, "the message names the bucket")


def test_names_come_back_free(t):
    """Dropped, then the same path of another bucket: nothing of the old one is seen."""
    m, b = with_bucket(t)
    append(m.cur("y"), b"second\n")
    c = m.next_sealed()
    os.rmdir(m.path(b))
    eq(read(m.path(c, "y")), b"second\n", "the other bucket")
    eq(m.buckets(), [c], "what is left")


def test_rm_r(t):
    files = {f"d{i}/f{j}": b"%d %d\n" % (i, j) for i in range(4) for j in range(700)}
    for how in (["rm", "-r"], ["rm", "-rf"], ["rm", "-r", "--one-file-system"]):
        m, b = with_bucket(t, files=files)
        t.run([*how, m.path(b)])
        ok(b not in os.listdir(m.mnt), f"{how}: the bucket is gone")
        ok(m.audit_of("drop", b), "an audit line")
        m.remount()
        ok(b not in os.listdir(m.mnt), f"{how}: after a remount")
        m.stop()


def test_rm_of_one_sealed_file(t):
    """Gone from sight at once and for good, inside a bucket that survives."""
    m, b = with_bucket(t, files={"d/secret": b"s\n", "d/keep": b"k\n", "e/only": b"o\n"})
    held = os.open(m.path(b, "d/secret"), os.O_RDONLY)
    t.run(["rm", m.path(b, "d/secret")])
    eq(os.listdir(m.path(b, "d")), ["keep"], "listing")
    raises(errno.ENOENT, os.stat, m.path(b, "d/secret"))
    eq(os.pread(held, 10, 0), b"s\n", "an open handle reads on")
    os.close(held)
    raises(errno.ENOTEMPTY, os.rmdir, m.path(b, "d"))
    raises(errno.ENOTEMPTY, os.rmdir, m.path(b, "e"))
    t.run(["rm", "-r", m.path(b, "e")])
    eq(sorted(os.listdir(m.path(b))), ["d"], "a directory inside a sealed bucket, by rm -r")
    for end in (m.kill, m.stop):
        end()
        m.start()
        eq(os.listdir(m.path(b, "d")), ["keep"], "after a restart")
        raises(errno.ENOENT, open, m.path(b, "d/secret"))
        eq(sorted(os.listdir(m.path(b))), ["d"], "after a restart: the directory")
    eq(read(m.path(b, "d/keep")), b"k\n", "its neighbour")
    eq(m.varve("ls", None, b).stdout.count(b"secret"), 0, "varve ls")
    m.varve("cat", None, f"{b}/d/secret", rc=1)
    m.varve("verify")
    m.varve("drop", None, b)
    m.varve("undrop", None, b)
    eq(os.listdir(m.path(b, "d")), ["keep"], "dropped and undropped: it stays gone")


def test_rmdir_posix(t):
    m, b = with_bucket(t, "bucket=1h,grace=100ms,rmdir=posix")
    raises(errno.ENOTEMPTY, os.rmdir, m.path(b))
    eq(read(m.path(b, "y")), b"y\n", "untouched")
    t.run(["rm", "-r", m.path(b)])
    ok(b not in m.buckets(), "rm -r works as anywhere")


def test_current_held_and_closing(t):
    m = t.mount("bucket=1h,grace=30m")
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"closing one\n")
    raises(errno.EBUSY, os.rmdir, m.cur())
    raises((errno.EBUSY, errno.ENOTDIR), os.rmdir, m.path(m.open_name()))
    raises(errno.EBUSY, os.rmdir, m.path(".staging"))
    m.varve("drop", None, m.open_name(), rc=1)
    closing = m.next()
    m.varve("hold", None, closing)
    raises(errno.EBUSY, os.rmdir, m.path(closing))
    m.varve("drop", None, closing, rc=1)
    m.varve("unhold", None, closing)
    os.rmdir(m.path(closing))
    ok(closing not in m.buckets(), "a closing bucket can be dropped by hand")
    os.write(fd, b"of the new bucket\n")
    eq(read(m.cur("x")), b"of the new bucket\n", "its writer goes on in the new bucket")
    os.close(fd)
    m.varve("undrop", None, closing)
    eq(read(m.path(closing, "x")), b"closing one\n", "and it comes back")
    m.shift(1801)
    m.wait_sealed(closing)
    eq(read(m.path(closing, "x")), b"closing one\n", "and is sealed in the end")


def test_case14_reader_of_a_dropped_bucket(t):
    """rmdir and rm -r both succeed, the reader reads to the end, space is back when it closes."""
    data = os.urandom(12 << 20)
    for how in ("rmdir", "rm -r"):
        m, b = with_bucket(t, "bucket=1h,grace=100ms,undrop=0s", {"big": data, "d/small": b"s"})
        fd = os.open(m.path(b, "big"), os.O_RDONLY)
        got = os.read(fd, 1000)
        before = used(m.store)
        t.sh(f"{how} {m.path(b)}")
        ok(b not in os.listdir(m.mnt), f"{how}: gone")
        while True:
            piece = os.read(fd, 1 << 20)
            if not piece:
                break
            got += piece
        same_bytes(got, data, f"{how}: the reader reads to the end")
        eq(os.fstat(fd).st_size, len(data), "its size")
        os.close(fd)
        wait_until(lambda: used(m.store) < before - (10 << 20), 10,
                   lambda: f"{how}: space is back: {used(m.store)} of {before}")
        wait_until(lambda: not os.listdir(os.path.join(m.store, "trash")), 10, "an empty trash")
        eq(m.buckets(), [], "no left-over names")
        m.stop()


def test_case14_mapping_and_directory_of_a_dropped_bucket(t):
    import mmap
    data = lines.text(5 << 20)
    m, b = with_bucket(t, "bucket=1h,grace=100ms,undrop=0s", {"d/big": data})
    with open(m.path(b, "d/big"), "rb") as f:
        mm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    dfd = os.open(m.path(b, "d"), os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir(m.path(b))
    same_bytes(mm[:], data, "the mapping reads on")
    mm.close()
    try:
        os.listdir(dfd)
    except OSError as e:
        ok(e.errno in (errno.ESTALE, errno.ENOENT), f"a held directory: {e}")
    raises((errno.ESTALE, errno.ENOENT), os.open, "big", os.O_RDONLY, dir_fd=dfd)
    os.close(dfd)


@timeout(90)
def test_case19_fifty_readers_while_it_is_dropped(t):
    """Nobody waits, nothing deadlocks; each reads right bytes or is told that it is gone."""
    data = lines.text(3 << 20)
    m, b = with_bucket(t, files={f"f{i}": data for i in range(5)})
    wrong, reading, ended = [], [0], [0]
    gate = threading.Event()

    def reader(i):
        p = m.path(b, f"f{i % 5}")
        try:
            fd = os.open(p, os.O_RDONLY)
        except OSError as e:
            wrong.append(f"open: {e}")
            return
        reading[0] += 1
        gate.wait(20 * SLOW)
        off = 0
        while True:
            got = os.pread(fd, 100000, off)
            if not got:
                break
            if got != data[off:off + len(got)]:
                wrong.append(f"{p}: wrong bytes at {off}")
            off += len(got)
        if off != len(data):
            wrong.append(f"{p}: {off} bytes")
        os.close(fd)
        # and by name: there, or gone
        try:
            read(p)
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.ESTALE):
                wrong.append(f"by name: {e}")
        ended[0] += 1
    threads = [threading.Thread(target=reader, args=(i,)) for i in range(50)]
    for th in threads:
        th.start()
    wait_until(lambda: reading[0] == 50, 20, "fifty readers are there")
    gate.set()
    began = time.monotonic()
    os.rmdir(m.path(b))
    took = time.monotonic() - began
    for th in threads:
        th.join(40 * SLOW)
    eq(wrong, [], "what the readers met")
    eq(ended[0], 50, "all ended")
    ok(took < 1 * SLOW, f"the drop waited {took:.2f} s")


def test_callers_cost_does_not_depend_on_size(t):
    """rmdir of a bucket of one file and of one of 5,000 files and 30 MB."""
    m = t.mount("bucket=1h,grace=50ms")
    times = {}
    for kind in ("small", "large", "small", "large"):
        if kind == "large":
            for d in range(10):
                os.mkdir(m.cur(f"d{d}"))
                for i in range(300):
                    append(m.cur(f"d{d}/{i}"), b"x" * 100)
            put(m.cur("noise"), os.urandom(20 << 20))
        append(m.cur("x"), b"x\n")
        b = m.next_sealed()
        began = time.perf_counter()
        os.rmdir(m.path(b))
        times.setdefault(kind, []).append(time.perf_counter() - began)
        t.sh(f"rm -rf {m.cur()}/*")
    print(", ".join(f"{k} {min(v) * 1000:.1f} ms" for k, v in times.items()))
    ok(min(times["large"]) < min(times["small"]) * 5 + 0.05 * SLOW, f"{times}")


def test_space_comes_back(t):
    m, b = with_bucket(t, "bucket=1h,grace=50ms,undrop=0s", {"noise": os.urandom(30 << 20)})
    before = used(m.store)
    ok(before > 30 << 20, f"the bucket takes space: {before}")
    os.rmdir(m.path(b))
    wait_until(lambda: used(m.store) < before - (29 << 20), 10, "its space is back")
    wait_until(lambda: os.listdir(os.path.join(m.store, "trash")) == [], 5, "the trash is empty")


def test_trash_counts_as_free(t):
    """What a hand dropped stays for undrop, but counts as free in statfs."""
    where = t.volume(200)
    m = t.mount("bucket=1h,grace=50ms,undrop=1h,min-free=0", store=os.path.join(where, "store"))
    put(m.cur("noise"), os.urandom(40 << 20))
    b = m.next_sealed()
    free = os.statvfs(m.mnt)
    os.rmdir(m.path(b))
    def grown():
        now = os.statvfs(m.mnt)
        return (now.f_bavail - free.f_bavail) * now.f_frsize > 35 << 20
    wait_until(grown, 5, "statfs counts the trash as free")
    m.varve("undrop", None, b)
    eq(os.stat(m.path(b, "noise")).st_size, 40 << 20, "and it can still be taken back")


def test_permissions(t):
    """A stranger can't drop, nor remove a sealed file; the owner of current/ can."""
    m, b = with_bucket(t)
    who = dict(user=NOBODY, group=NOBODY, extra_groups=[])
    t.run(["rmdir", m.path(b)], rc=1, **who)
    t.run(["rm", "-f", m.path(b, "y")], rc=1, **who)
    t.run(["rm", "-rf", m.path(b)], rc=1, **who)
    eq(read(m.path(b, "y")), b"y\n", "untouched")
    r = t.run([VARVE, "drop", m.store, b], rc=1, **who)
    ok(r.stderr, "varve drop by a stranger says why not")
    ok(b in m.buckets(), "still there")


def test_drop_while_the_mount_is_busy(t):
    """Buckets are dropped one after another while writers and seals go on."""
    m = t.mount("bucket=1s,grace=100ms,undrop=0s", clock=False)
    fd, n, dropped, ends = os.open(m.cur("x"), APPEND), 0, {}, time.monotonic() + 7
    while time.monotonic() < ends:
        os.write(fd, lines.line("w", n))
        n += 1
        for b in m.buckets():
            if m.is_sealed(b):
                dropped[b] = read(m.path(b, "x")) if os.path.exists(m.path(b, "x")) else b""
                os.rmdir(m.path(b))
        time.sleep(0.001)
    os.close(fd)
    kept = m.history("x")
    lines.check([dropped[b] for b in sorted(dropped)] + [d for _, d in kept], {"w": n})
    ok(len(dropped) >= 4, f"dropped {sorted(dropped)}")


main(jobs=3)
