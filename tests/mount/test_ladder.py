"""Where the kernel can't be let write, the daemon does, with the same result: the way down is taken by
itself, and said in one line at the mount and in `varve status`."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
KERNEL = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())


def said(m, pattern):
    """The one line of the log, `varve status` and .varve/status.json agree, and say this."""
    def lines():
        return [l for l in m.log().splitlines() if re.search(r"writes to '", l)]
    # It is said once the kernel was tried, which a mount that answers already need not have been.
    wait_until(lambda: len(lines()) >= len(m.logs), 10, "one line a mount")
    eq(len(lines()), len(m.logs), f"one line a mount: {lines()}")
    has(lines()[-1], pattern, "the line at the mount")
    has(m.mode(), pattern, "status.json")
    has(m.varve("status").stdout, rf"(?m)^writes +.*{pattern}", "varve status")


def story(m):
    """A held writer over two boundaries, one of them within a line; late data, truncation, a reader."""
    fd, r = os.open(m.cur("x"), APPEND), None
    os.write(fd, b"1\nbegun, ")
    r = os.open(m.cur("x"), os.O_RDONLY)
    a = m.next()
    os.write(fd, b"ended\n2\n")
    os.fsync(fd)
    append(m.path(a, "x"), b"late\n")
    eq(os.pread(r, 100, 0), b"1\nbegun, ended\nlate\n", "the reader of the older bucket")
    b = m.next()
    os.write(fd, b"to be emptied\n")
    m.t.sh(f": > {m.cur('x')}")
    os.write(fd, b"3\n")
    append(m.cur("x"), b"4\n")
    os.close(fd)
    os.close(r)
    want = [(a, b"1\nbegun, ended\nlate\n"), (b, b"2\n"), (m.open_name(), b"3\n4\n")]
    eq(m.history("x"), want, "the buckets")
    m.shift(61)
    m.wait_sealed(a, b)
    eq(m.history("x"), want, "two of them sealed")
    m.remount()
    eq(m.history("x"), want, "after a remount")
    m.varve("verify")


def test_passthrough_where_it_can_be(t):
    m = t.mount("bucket=1h,grace=1m,passthrough=yes")
    if KERNEL >= (6, 9) and "libfuse" not in m.mode():
        said(m, r"passthrough$")
    else:
        said(m, "served by the daemon: .*(kernel|libfuse)")
    story(m)


def test_it_is_the_default(t):
    want = t.mount("bucket=1h,passthrough=yes").mode()
    t.run([VARVEFS, "-o", "bucket=1h", t.path("store"), mkdirs(t.path("mnt"))])
    got = json.loads(read(t.path("mnt/.varve/status.json")))["mode"]
    t.run(["umount", t.path("mnt")])
    eq(got, want, "without the option")


def test_passthrough_no(t):
    m = t.mount("bucket=1h,grace=1m,passthrough=no")
    said(m, "served by the daemon: .*passthrough=no")
    story(m)


def test_worm(t):
    """worm takes the kernel out of the way, so that every write is looked at."""
    m = t.mount("bucket=1h,grace=1m,worm,passthrough=yes")
    said(m, "served by the daemon: .*worm")
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"1\n")
    raises(errno.EPERM, os.ftruncate, fd, 0)
    raises(errno.EPERM, os.unlink, m.cur("x"))
    a = m.next()
    os.write(fd, b"2\n")
    eq(m.history("x"), [(a, b"1\n"), (m.open_name(), b"2\n")], "both buckets")
    os.close(fd)


def test_an_ordinary_user(t):
    """Without CAP_SYS_ADMIN the kernel takes no backing file. (Only the user itself reaches its mount.)"""
    os.chmod(t.dir, 0o777)
    m = t.mount("bucket=1h,grace=1m,passthrough=yes", user=NOBODY)

    def as_user(script, **kw):
        return t.sh(script, user=NOBODY, group=NOBODY, extra_groups=[], **kw).stdout.decode()
    wait_until(lambda: "status" in as_user(f"ls {m.mnt}/.varve", rc=None), 10, "it answers")
    has(as_user(f"cat {m.mnt}/.varve/status.json"), "served by the daemon: .*CAP_SYS_ADMIN",
        "status.json")
    wait_until(lambda: "writes to '" in m.log(), 10, "the line at the mount")
    has(m.log(), r"writes to '.*CAP_SYS_ADMIN", "the line at the mount")
    has(as_user(f"{VARVE} status {m.store}"), r"(?m)^writes +.*CAP_SYS_ADMIN", "varve status")
    old = bucket_name(m.now(), "1h")
    # A held descriptor over a boundary, as above.
    p = t.spawn(["sh", "-c", f"exec >> {m.mnt}/current/x; echo 1; read go; echo 2"],
                stdin=subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[])
    wait_until(lambda: as_user(f"cat {m.mnt}/current/x", rc=None) == "1\n", 15, "its first line")
    m.shift(3600)
    wait_until(lambda: "boundary:" in m.log(), 15, "the boundary")
    p.communicate(b"go\n", timeout=10 * SLOW)
    eq(as_user(f"cat {m.mnt}/{old}/x; echo --; cat {m.mnt}/current/x"), "1\n--\n2\n", "both buckets")


def test_a_stacked_filesystem_beneath(t):
    """A container's own root is an overlay: the kernel does not stack on it."""
    top = t.volume(64)
    for d in ("lower", "upper", "work", "merged"):
        os.mkdir(os.path.join(top, d))
    t.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={top}/lower,upperdir={top}/upper,"
           f"workdir={top}/work,userxattr", os.path.join(top, "merged")])
    m = t.mount("bucket=1h,grace=1m,passthrough=yes,min-free=0",
                store=os.path.join(top, "merged/store"))
    said(m, "served by the daemon: .*" + ("stacked" if KERNEL >= (6, 9) else ""))
    story(m)
    m.stop()


main(jobs=3)
