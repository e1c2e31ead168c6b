"""Following a log over boundaries: tail -F, tail -f, and a shipper that knows files by inode."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def follow(t, m, args, name="out"):
    out = open(t.path(name), "wb")
    return t.spawn(["tail", "-n", "+1", *args, m.cur("x")], stdout=out,
                   stderr=open(t.path(name + ".err"), "wb"))


def steady(fd, first, seconds, pause=0.004):
    """Writes numbered lines for a while; returns the next number."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        os.write(fd, lines.line("w", first))
        first += 1
        time.sleep(pause)
    return first


@timeout(90)
def test_case13_tail_F_shows_each_line_once(t):
    m = t.mount("bucket=3s,grace=1s", clock=False)
    fd = os.open(m.cur("x"), APPEND)
    n = 0
    os.write(fd, lines.line("w", n))
    n += 1
    p = follow(t, m, ["-F", "-s", "0.1", "--max-unchanged-stats=1"])
    n = steady(fd, n, 13)
    wait_until(lambda: read(t.path("out")).count(b"\n") >= n, 10,
               lambda: f"tail -F shows {n} lines, it has {read(t.path('out')).count(bytes([10]))}; "
               f"{read(t.path('out.err'))}")
    time.sleep(0.5)
    p.kill()
    lines.check([read(t.path("out"))], {"w": n})
    ok(b"truncated" not in read(t.path("out.err")), f"no truncation: {read(t.path('out.err'))}")
    ok(len(m.history("x")) >= 4, "over four buckets or more")
    os.close(fd)


@timeout(90)
def test_case13_tail_F_as_it_is(t):
    """tail -F with its own defaults (it looks at the name again after 5 quiet seconds)."""
    m = t.mount("bucket=1h,grace=10m")
    fd = os.open(m.cur("x"), APPEND)
    p = follow(t, m, ["-F"])
    n = steady(fd, 0, 1)
    m.next()
    n = steady(fd, n, 1)
    wait_until(lambda: read(t.path("out")).count(b"\n") >= n, 25, "all lines of two buckets")
    n = steady(fd, n, 1)
    wait_until(lambda: read(t.path("out")).count(b"\n") >= n, 10, "and those that came after")
    p.kill()
    lines.check([read(t.path("out"))], {"w": n})
    os.close(fd)


@timeout(60)
def test_case13_tail_f_ends_at_the_old_file(t):
    """tail -f stays with the file it opened and ends at that file's last byte."""
    m = t.mount("bucket=1h,grace=300ms")
    fd = os.open(m.cur("x"), APPEND)
    n = steady(fd, 0, 0.5)
    p = follow(t, m, ["-f", "-s", "0.1"])
    n = steady(fd, n, 0.5)
    os.write(fd, b"unfinished ")
    old = m.next()
    os.write(fd, b"but then it is\n")
    after = steady(fd, n, 0.3)
    want = lines.lines("w", 0, n) + b"unfinished but then it is\n"
    wait_until(lambda: len(read(t.path("out"))) >= len(want), 10, "tail -f shows the old file")
    m.wait_sealed(old)
    steady(fd, after, 0.5)
    time.sleep(0.5)
    same_bytes(read(t.path("out")), want, "tail -f, sealed meanwhile")
    eq(p.poll(), None, "it goes on")
    eq(read(t.path("out.err")), b"", "without a complaint")
    p.kill()
    os.close(fd)


class Shipper:
    """What log shippers do: find files by (device, inode), keep an offset for each, ship what is new.
    It looks into current/ and at every bucket's directory, on every round."""

    def __init__(self, m):
        self.m = m
        self.files = {}  # (dev, ino): [fd, offset]
        self.shipped = []

    def round(self):
        m = self.m
        paths = [m.cur("x")] + [m.path(b, "x") for b in m.buckets()]
        for p in paths:
            try:
                fd = os.open(p, os.O_RDONLY)
            except FileNotFoundError:
                continue
            st = os.fstat(fd)
            key = (st.st_dev, st.st_ino)
            if key in self.files:
                os.close(fd)
            else:
                self.files[key] = [fd, 0]
        for state in sorted(self.files.items(), key=lambda kv: kv[0][1]):
            f = state[1]
            while True:
                got = os.pread(f[0], 1 << 20, f[1])
                if not got:
                    break
                f[1] += len(got)
                self.shipped.append((state[0][1], got))


@timeout(90)
def test_case13_shipper_by_inode_sees_each_line_once(t):
    m = t.mount("bucket=2s,grace=500ms", clock=False)
    fd = os.open(m.cur("x"), APPEND)
    s, n, ends = Shipper(m), 0, time.monotonic() + 9
    while time.monotonic() < ends:
        n = steady(fd, n, 0.15, 0.002)
        s.round()
    os.close(fd)
    s.round()
    by_file = {}
    for ino, got in s.shipped:
        by_file[ino] = by_file.get(ino, b"") + got
    # In the order in which they came up: numbers are given once, not in the order of time.
    lines.check(list(by_file.values()), {"w": n})
    ok(len(by_file) >= 4, f"{len(by_file)} files over four buckets or more")
    for f in s.files.values():
        os.close(f[0])


def test_inotify_sees_appends(t):
    """What goes through the mount fires as on any filesystem (a shipper by inotify is woken)."""
    m = t.mount()
    append(m.cur("x"), b"0\n")
    libc = ctypes.CDLL(None, use_errno=True)
    ifd = libc.inotify_init1(os.O_NONBLOCK)
    ok(libc.inotify_add_watch(ifd, os.fsencode(m.cur("x")), 2) > 0, "a watch")
    append(m.cur("x"), b"1\n")
    wait_until(lambda: inotify_read(ifd), 5, "IN_MODIFY")
    os.close(ifd)


def inotify_read(fd):
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


main(jobs=3)
