"""Reading: any offset and size, many readers, mmap, ordinary tools, files that grow; stat, du, df."""
import ctypes
import mmap
import os
import random
import sys
import threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def three_states(t, data):
    """A mount with the same file in a sealed, a closing and the open bucket: {state: path}."""
    m = t.mount("bucket=1h,grace=30m")
    put(m.cur("x"), data)
    sealed = m.next()
    m.shift(1801)
    m.wait_sealed(sealed)
    put(m.cur("x"), data)
    closing = m.next()
    put(m.cur("x"), data)
    return m, {"sealed": m.path(sealed, "x"), "closing": m.path(closing, "x"), "open": m.cur("x")}


def test_any_offset_and_size(t):
    data = lines.text(5 << 20) + os.urandom(3 << 20) + b"\0" * 100000
    m, paths = three_states(t, data)
    r = random.Random(7)
    for state, p in paths.items():
        fd = os.open(p, os.O_RDONLY)
        eq(os.fstat(fd).st_size, len(data), f"{state}: size")
        for _ in range(150):
            off = r.choice([r.randrange(len(data) + 5000), r.randrange(4) << 21, len(data) - r.randrange(9)])
            n = r.choice([0, 1, 2, 511, 4096, 4097, 70000, 1 << 20, 3 << 20])
            got = os.pread(fd, n, off)
            want = data[off:off + n]
            if len(got) < len(want):  # a read may be short, never empty or wrong
                ok(got, f"{state}: nothing at {off}")
                want = want[:len(got)]
            same_bytes(got, want, f"{state}: {n} bytes at {off}")
        same_bytes(read(p), data, f"{state}: the whole")
        os.close(fd)


def resident(path):
    """Which pages of a file the kernel has."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    size = os.path.getsize(path)
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    fd = os.open(path, os.O_RDONLY)
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    eq(libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages), 0, "mincore")
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    return [p & 1 for p in pages]


def test_a_read_at_random_brings_its_frame(t):
    """What was decompressed for 4 KiB is in the page cache, all of it, and right."""
    data = lines.text(7 << 20)
    m = t.mount()
    put(m.cur("x"), data)
    path = m.path(m.next_sealed(), "x")
    m.remount()
    fd = os.open(path, os.O_RDONLY)
    eq(os.pread(fd, 4096, 3 << 20), data[3 << 20:(3 << 20) + 4096], "the read")
    wait_until(lambda: sum(resident(path)) > 400, 10, "the frame is in the page cache")
    ok(sum(resident(path)) <= 2 * 512 + 64, "and not all of the file")
    same_bytes(read(path), data, "the whole")
    os.close(fd)


def test_many_readers(t):
    data = lines.text(6 << 20)
    m, paths = three_states(t, data)
    wrong = []

    def reader(seed, p):
        r = random.Random(seed)
        fd = os.open(p, os.O_RDONLY)
        for _ in range(60):
            off = r.randrange(len(data))
            got = os.pread(fd, 50000, off)
            if got != data[off:off + len(got)] or not got:
                wrong.append(f"{p} at {off}: {len(got)} bytes")
        os.close(fd)
    threads = [threading.Thread(target=reader, args=(s, p)) for s in range(8) for p in paths.values()]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    eq(wrong, [], "24 readers at random offsets")


def test_mmap(t):
    data = lines.text(5 << 20)
    m, paths = three_states(t, data)
    with open(paths["sealed"], "rb") as f:
        for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            with mmap.mmap(f.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mm:
                eq(mm[3000000:3000100], data[3000000:3000100], "a page in the middle")
                same_bytes(mm[:], data, "a mapping of a sealed file")
                eq(mm.find(b"no such text"), -1, "searched through")
        with mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE,
                       prot=mmap.PROT_READ | mmap.PROT_WRITE) as mm:
            mm[0:3] = b"own"
    same_bytes(read(paths["sealed"]), data, "a private change stays private")
    for state in ("closing", "open"):
        mapped(t, paths[state], data, state)


MAPPER = """
import mmap, sys
with open(sys.argv[1], "rb") as f:
    mm = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
sys.stdout.buffer.write(mm[:])
"""


def mapped(t, path, want, what):
    """A private mapping of a file that may grow: refused (at mmap or at the touch), or the bytes as
    they are; never a stale tail."""
    r = t.run([sys.executable, "-c", MAPPER, path], rc=None)
    if r.returncode == 0:
        same_bytes(r.stdout, want, f"{what}: a mapping that is given")
    else:
        ok(r.returncode == -signal.SIGBUS or b"ENODEV" in r.stderr or b"No such device" in r.stderr,
           f"{what}: {r.returncode} {r.stderr[-300:]}")


def test_private_mapping_never_stale(t):
    m = t.mount()
    fd = os.open(m.cur("x"), APPEND)
    want = b""
    for i in range(8):
        l = b"%05d\n" % i * 150
        os.write(fd, l)
        want += l
        mapped(t, m.cur("x"), want, f"after {i + 1} writes")
    os.close(fd)


def test_ordinary_tools(t):
    """grep -r, less, find, tar c, rsync, sha256sum, wc, head, tail, cmp, diff -r, zgrep-free."""
    m = t.mount()
    src = mkdirs(t.path("src/web/api"))
    put(t.path("src/web/access.log"), lines.text(400000))
    put(os.path.join(src, "error.log"), b"one needle here\n" + lines.text(5000))
    put(t.path("src/empty"), b"")
    os.symlink("web/access.log", t.path("src/link"))
    t.run(["cp", "-a", t.path("src") + "/.", m.cur()])
    old = m.next()
    for state in ("closing", "sealed"):
        if state == "sealed":
            m.wait_sealed(old)
        d = m.path(old)
        r = t.run(["grep", "-r", "-c", "needle", d], rc=None)
        has(r.stdout, r"error.log:1", f"{state}: grep -r")
        eq(r.stderr, b"", f"{state}: grep -r has no complaint")
        t.run(["diff", "-r", t.path("src"), d])
        eq(t.sh(f"cd {d} && sha256sum web/access.log empty").stdout,
           t.sh(f"cd {t.path('src')} && sha256sum web/access.log empty").stdout, f"{state}: sha256sum")
        eq(t.sh(f"cd {d} && find . | sort").stdout,
           t.sh(f"cd {t.path('src')} && find . | sort").stdout, f"{state}: find")
        to = mkdirs(t.path(f"tar-{state}"))
        t.sh(f"tar --format=posix -cf - -C {d} . | tar xpf - -C {to}")
        same_tree(tree(to), tree(t.path("src")), f"{state}: tar c")
        t.run(["rsync", "-a", d + "/", t.path(f"rsync-{state}")])
        same_tree(tree(t.path(f"rsync-{state}")), tree(t.path("src")), f"{state}: rsync")
        same_bytes(t.run(["less", os.path.join(d, "web/access.log")]).stdout,
                   read(t.path("src/web/access.log")), f"{state}: less")
        eq(t.sh(f"tail -n 3 {d}/web/access.log; head -n 2 {d}/web/access.log; wc -c {d}/web/access.log "
                "| cut -d' ' -f1").stdout,
           t.sh("cd src; tail -n 3 web/access.log; head -n 2 web/access.log; wc -c web/access.log "
                "| cut -d' ' -f1", cwd=t.dir).stdout, f"{state}: tail, head, wc")
        t.run(["cp", os.path.join(d, "web/access.log"), t.path("copy")])
        t.run(["cmp", t.path("copy"), t.path("src/web/access.log")])
        t.sh(f"ls -laR {d} > /dev/null && stat {d}/web/access.log > /dev/null")


@timeout(90)
def test_sendfile_while_growing(t):
    """A busy log copied by sendfile, splice and read: a prefix of it each time, no NULs ever."""
    m = t.mount()
    x = m.cur("x")
    append(x, lines.lines("w", 0, 100))
    stop, n = threading.Event(), [100]

    def grow():
        fd = os.open(x, APPEND)
        while not stop.is_set():
            os.write(fd, lines.line("w", n[0]))
            n[0] += 1
        os.close(fd)
    th = threading.Thread(target=grow)
    th.start()
    held = os.open(x, os.O_RDONLY)
    copies = []
    try:
        for i in range(60):
            fd = held if i % 2 else os.open(x, os.O_RDONLY)
            size = os.fstat(fd).st_size
            out = os.open(t.path("copy"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            off = 0
            try:
                while off < size:
                    sent = os.sendfile(out, fd, off, size - off)
                    if not sent:
                        break
                    off += sent
            except OSError as e:
                eq(e.errno, errno.EINVAL, "sendfile: refused, so that callers fall back")
                while off < size:
                    got = os.pread(fd, size - off, off)
                    ok(got, f"bytes up to {size}, at {off}")
                    os.write(out, got)
                    off += len(got)
            os.close(out)
            copies.append(read(t.path("copy")))
            if fd != held:
                os.close(fd)
        for how in (["cp", "--reflink=never", x, t.path("cp")], ["sh", "-c", f"cat {x} > {t.path('cp')}"]):
            t.run(how)
            copies.append(read(t.path("cp")))
    finally:
        stop.set()
        th.join()
    whole = read(x)
    lines.check([whole], {"w": n[0]})
    for i, c in enumerate(copies):
        ok(b"\0" not in c, f"copy {i} has NULs")
        same_bytes(c, whole[:len(c)], f"copy {i}")
        ok(len(c) >= 100 * 20, f"copy {i} holds something")
    os.close(held)


def test_readers_of_a_growing_file_see_every_byte(t):
    m = t.mount()
    fd = os.open(m.cur("x"), APPEND)
    r = os.open(m.cur("x"), os.O_RDONLY)
    seen = b""
    for i in range(300):
        os.write(fd, lines.line("w", i))
        seen += os.read(r, 1 << 16)
        eq(os.fstat(r).st_size, len(seen), "the size follows at once")
        eq(os.stat(m.cur("x")).st_size, len(seen), "by name, too")
    lines.check([seen], {"w": 300})
    os.close(fd)
    os.close(r)


def test_stat_du_df(t):
    """st_blocks tells the compressed share, so du is true; df is the volume's."""
    m = t.mount()
    text, noise = lines.text(4 << 20), os.urandom(1 << 20)
    put(m.cur("text"), text)
    put(m.cur("noise"), noise)
    fs = os.statvfs(m.mnt)
    back = os.statvfs(m.store)
    eq(fs.f_frsize * fs.f_blocks, back.f_frsize * back.f_blocks, "the volume's size")
    ok(abs(fs.f_frsize * fs.f_bavail - back.f_frsize * back.f_bavail) < 1 << 30, "what is free")
    ok(abs(os.stat(m.cur("text")).st_blocks * 512 - len(text)) < 1 << 20, "an open file's blocks")
    ino = os.stat(m.cur("text")).st_ino
    old = m.next_sealed()
    st, sn = os.stat(m.path(old, "text")), os.stat(m.path(old, "noise"))
    eq((st.st_size, sn.st_size), (len(text), len(noise)), "sizes are the content's")
    eq((st.st_ino, st.st_nlink), (ino, 1), "the inode number stays")
    ok(st.st_blocks * 512 < len(text) * 0.6, f"text takes {st.st_blocks * 512}")
    ok(len(noise) * 0.4 < sn.st_blocks * 512 < len(noise) * 1.2, f"noise takes {sn.st_blocks * 512}")
    du = int(t.run(["du", "-s", "-B1", m.path(old)]).stdout.split()[0])
    real = os.stat(m.segment(old)).st_blocks * 512
    ok(abs(du - real) < max(65536, real // 5), f"du says {du}, the segment takes {real}")
    big = int(t.run(["du", "-s", "-b", m.path(old)]).stdout.split()[0])
    ok(big >= len(text) + len(noise), f"du -b says {big}")
    t.run(["df", m.mnt])
    eq(oct(os.stat(m.path(old)).st_mode & 0o170000), "0o40000", "a bucket is a directory")


def test_bucket_xattrs(t):
    """user.varve.*: state, ratio, digest of a bucket or file."""
    m = t.mount("bucket=1h,grace=10m")
    put(m.cur("x"), lines.text(300000))
    old = m.next()
    eq(os.getxattr(m.path(old), "user.varve.state"), b"closing", "a closing bucket's state")
    eq(os.getxattr(m.cur(), "user.varve.state"), b"open", "the open one's")
    m.shift(601)
    m.wait_sealed(old)
    eq(os.getxattr(m.path(old), "user.varve.state"), b"sealed", "a sealed bucket's state")
    ratio = float(os.getxattr(m.path(old), "user.varve.ratio"))
    ok(1.5 < ratio < 50, f"a bucket's ratio: {ratio}")
    digest = os.getxattr(m.path(old, "x"), "user.varve.digest").decode()
    ok(re.search(r"[0-9a-f]{32}", digest), f"a file's digest: {digest}")
    has(t.run(["getfattr", "-n", "user.varve.state", m.path(old)]).stdout, "sealed", "getfattr")
    raises((errno.ENODATA, errno.EOPNOTSUPP), os.getxattr, m.path(old), "user.varve.nonsense")


def test_directories(t):
    """readdir: each name once, types and inode numbers as stat has them, '.' and '..'; large ones."""
    m = t.mount()
    for i in range(1500):
        append(m.cur(f"file-{i:04d}"), b"x")
    os.mkdir(m.cur("dir"))
    os.symlink("x", m.cur("link"))
    old = m.next()
    for state in ("closing", "sealed"):
        if state == "sealed":
            m.wait_sealed(old)
        seen = {}
        with os.scandir(m.path(old)) as it:
            for e in it:
                ok(e.name not in seen, f"{state}: {e.name} twice")
                seen[e.name] = e
        eq(len(seen), 1502, f"{state}: entries")
        for name in ("file-0000", "file-1499", "dir", "link"):
            st = os.lstat(m.path(old, name))
            eq(seen[name].inode(), st.st_ino, f"{state}: {name}: readdir and stat agree")
            eq((seen[name].is_dir(follow_symlinks=False), seen[name].is_symlink()),
               (name == "dir", name == "link"), f"{state}: type of {name}")
        r = t.run(["ls", "-a", "-f", m.path(old)]).stdout.split()
        eq((r.count(b"."), r.count(b"..")), (1, 1), f"{state}: dots")
        raises(errno.ENOENT, os.stat, m.path(old, "nothing"))
        raises(errno.ENOTDIR, os.stat, m.path(old, "file-0000", "x"))
    ok(".varve" not in os.listdir(m.mnt), ".varve is hidden from ls")
    r = t.run(["ls", "-l", m.mnt]).stdout
    has(r, rf"{m.open_name()} -> current", "the root as a person sees it")


def test_status_views(t):
    """.varve/status.json and .varve/metrics."""
    m = t.mount()
    append(m.cur("x"), b"1\n")
    old = m.next_sealed()
    st = json.loads(read(m.path(".varve/status.json")))
    ok(any(b["name"] == old and b["state"] == "sealed" for b in st["buckets"]), f"status.json: {st}")
    has(read(m.path(".varve/metrics")), r"(?m)^varve", "metrics")
    eq(sorted({"status.json", "metrics"} & set(os.listdir(m.path(".varve")))),
       ["metrics", "status.json"], "listed in .varve/")
    raises((errno.EROFS, errno.EACCES, errno.EPERM), append, m.path(".varve/status.json"), b"x")
    t.run(["cat", m.path(".varve/status.json")], rc="fail", user=NOBODY, group=NOBODY)


main(jobs=3)
