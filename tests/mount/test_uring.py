"""The mount option io_uring: what it does where it can be had, and that the mount goes on without."""
import fcntl
import os
import sys
import threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
SWITCH = "/sys/module/fuse/parameters/enable_uring"


class Switch:
    """The kernel's switch, set to a value while a mount is made; as it was before, behind it. There is
    one for all: whoever sets it holds a lock."""

    def __init__(self, value):
        self.value = value

    def __enter__(self):
        self.fd = os.open(SWITCH, os.O_RDONLY) if os.path.exists(SWITCH) else -1
        if self.fd >= 0:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            self.before = read(SWITCH).strip()
            put(SWITCH, self.value)
        return self

    def __exit__(self, *_):
        if self.fd >= 0:
            put(SWITCH, self.before)
            os.close(self.fd)


def use(t, m):
    """What a mount is for, from several threads at once."""
    wrong = []

    def one(i):
        try:
            fd = os.open(m.cur(f"w{i}"), APPEND)
            for n in range(300):
                os.write(fd, b"%d line %d\n" % (i, n))
                if n % 50 == 0:
                    os.fsync(fd)
            os.write(fd, b"x" * 1500000 + b"\n")
            os.close(fd)
            os.makedirs(m.cur(f"d{i}/a/b"))
            put(m.cur(f"d{i}/a/b/c"), b"c" * 5000)
            os.rename(m.cur(f"d{i}"), m.cur(f"e{i}"))
            os.symlink("target", m.cur(f"e{i}/link"))
            os.setxattr(m.cur(f"e{i}/a/b/c"), "user.k", b"v" * 100)
            eq(os.getxattr(m.cur(f"e{i}/a/b/c"), "user.k"), b"v" * 100, "an xattr")
            os.chmod(m.cur(f"e{i}/a/b/c"), 0o600)
            raises(errno.EPERM, os.truncate, m.cur(f"w{i}"), 5)
            os.unlink(m.cur(f"e{i}/link"))
        except (OSError, Failure) as e:
            wrong.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for x in threads:
        x.start()
    for x in threads:
        x.join(60 * SLOW)
    eq(wrong, [], "what went wrong")
    before = tree(m.cur())
    for i in range(8):
        want = b"".join(b"%d line %d\n" % (i, n) for n in range(300)) + b"x" * 1500000 + b"\n"
        same_bytes(read(m.cur(f"w{i}")), want, "the appends")
    old = m.next_sealed()
    same_tree(tree(m.path(old)), before, "sealed, with the same content")
    os.rmdir(m.path(old))
    ok(old not in m.buckets(), "it is dropped")


@timeout(120)
def test_switched_on(t):
    with Switch(b"Y"):
        m = t.mount("bucket=1h,grace=100ms,passthrough=no,io_uring")
    wait_until(lambda: "io_uring" in m.log(), 10, "a word about it")
    has(m.log(), "requests come over io_uring|without io_uring: ", "what is said at the mount")
    use(t, m)
    m.stop()


@timeout(120)
def test_switched_off(t):
    with Switch(b"N"):
        m = t.mount("bucket=1h,grace=100ms,passthrough=no,io_uring")
    # A mount may answer before it is said.
    wait_until(lambda: "io_uring" in m.log(), 10, "a word about it")
    has(m.log(), "without io_uring: [a-z]", "why not is said at the mount, in one line")
    eq(m.log().count("io_uring"), 1, "and once")
    use(t, m)
    m.stop()


@timeout(60)
def test_not_asked_for(t):
    with Switch(b"Y"):
        m = t.mount("bucket=1h,grace=100ms,passthrough=no")
    ok("io_uring" not in m.log(), "it is not used unasked")
    m.stop()


@timeout(60)
def test_ends_while_in_use(t):
    with Switch(b"Y"):
        m = t.mount("bucket=1h,grace=100ms,passthrough=no,io_uring")
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"line\n")
    m.proc.send_signal(signal.SIGTERM)
    wait_until(lambda: not m.is_mounted(), 10, "the mount is gone")
    os.write(fd, b"still served\n")
    m.proc.send_signal(signal.SIGTERM)
    wait_until(lambda: m.proc.poll() is not None, 20, "the daemon ends")
    eq(m.proc.returncode, 0, "its exit status")
    os.close(fd)
    m.start()
    eq(read(m.cur("x")), b"line\nstill served\n", "what was written")
    m.stop()


main()
