"""A slow request never keeps the others: fsyncs and changes that the disk holds up, many at once."""
import os
import sys
import threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
SLOW_ONES = 60
# How long the disk hangs at the least, and how long nothing else may.
HANGS, AT_MOST = 1.5, 1.0


def disk_on_a_disk(t, megabytes):
    """Two volumes: freezing the outer one makes the inner one's disk hang in its flushes."""
    outer = t.volume(megabytes * 2)
    image, inner = os.path.join(outer, "inner.img"), t.path("inner")
    with open(image, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, megabytes << 20)
    t.run(["mkfs.ext4", "-q", "-m", "0", "-b", "4096", "-E", "lazy_itable_init=0", image])
    os.mkdir(inner)
    t.run(["mount", "-o", "loop", image, inner])
    return outer, inner


class Frozen:
    """A filesystem that takes no writes inside the `with`."""

    def __init__(self, t, where):
        self.t, self.where = t, where

    def __enter__(self):
        self.t.run(["fsfreeze", "-f", self.where])
        # Whatever happens to this process: a frozen disk would hang the machine's sync(2).
        self.guard = self.t.spawn(["sh", "-c", f"sleep 30; fsfreeze -u '{self.where}'"])
        return self

    def __exit__(self, *_):
        self.t.run(["fsfreeze", "-u", self.where])
        self.guard.kill()
        self.guard.wait()


class Doing:
    """calls, each in a thread of its own."""

    def __init__(self, calls):
        self.results = [None] * len(calls)
        self.threads = [threading.Thread(target=self.one, args=(i, c), daemon=True)
                        for i, c in enumerate(calls)]
        for x in self.threads:
            x.start()

    def one(self, i, call):
        try:
            self.results[i] = call() or 0
        except OSError as e:
            self.results[i] = -e.errno

    def waiting(self):
        return self.results.count(None)

    def end(self, seconds=30):
        deadline = time.monotonic() + seconds * SLOW
        for x in self.threads:
            x.join(max(0.1, deadline - time.monotonic()))
        eq(self.waiting(), 0, "all have been answered")
        return self.results


def none_slow(seconds, *calls):
    """Repeats the calls for so long; none may take longer than AT_MOST."""
    ends, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        for call in calls:
            begun = time.monotonic()
            call()
            took = time.monotonic() - begun
            ok(took < AT_MOST * SLOW, f"{call} took {took:.2f} s")
        rounds += 1
    return rounds


@timeout(120)
def test_fsyncs_that_hang_keep_nobody(t):
    """More fsyncs than there are threads wait for the disk: appends, reads and lookups go on."""
    outer, inner = disk_on_a_disk(t, 128)
    m = t.mount("bucket=1h,grace=100ms", store=os.path.join(inner, "store"))
    put(m.cur("sealed.log"), b"line\n" * 200000)
    sealed = m.next_sealed()
    fds = [os.open(m.cur(f"f{i}"), APPEND) for i in range(SLOW_ONES)]
    held = os.open(m.cur("held"), APPEND)
    for fd in fds + [held]:
        os.write(fd, b"first\n")
        os.fsync(fd)
    for fd in fds:
        os.write(fd, b"second\n")
    with Frozen(t, outer):
        fsyncs = Doing([lambda fd=fd: os.fsync(fd) for fd in fds])
        rounds = none_slow(HANGS, lambda: os.write(held, b"more\n"),
                           lambda: os.stat(m.cur("f0")), lambda: os.path.exists(m.cur("none")),
                           lambda: read(m.cur("held")), lambda: read(m.path(sealed, "sealed.log")),
                           lambda: os.listdir(m.cur()), lambda: m.varve("status"))
        ok(fsyncs.waiting() > SLOW_ONES // 2, f"fsyncs hang on the disk: {fsyncs.waiting()}")
    eq(set(fsyncs.end()), {0}, "the fsyncs, once the disk is back")
    eq(read(m.cur("held")).count(b"more\n"), rounds, "every append")
    for fd in fds + [held]:
        os.close(fd)
    m.stop()


@timeout(120)
def test_changes_that_hang_keep_nobody(t):
    """More creations, removals and appends than there are loop threads are held up: what only reads goes on."""
    disk = t.volume(64)
    m = t.mount("bucket=1h,grace=100ms", store=os.path.join(disk, "store"))
    put(m.cur("sealed.log"), b"line\n" * 200000)
    sealed = m.next_sealed()
    for i in range(12):
        os.mkdir(m.cur(f"d{i}"))
    append(m.cur("there"), b"here\n")
    fds = [os.open(m.cur(f"f{i}"), os.O_RDWR | os.O_APPEND | os.O_CREAT) for i in range(12)]
    for fd in fds:
        os.write(fd, b"first\n")
    os.sync()
    with Frozen(t, disk):
        calls = [lambda fd=fd: os.write(fd, b"second\n") and 0 for fd in fds]
        for i in range(12):
            calls += [lambda i=i: os.mkdir(m.cur(f"d{i}/new")),
                      lambda i=i: append(m.cur(f"d{i}/file"), b"x\n"),
                      lambda i=i: os.chmod(m.cur(f"d{i}"), 0o700)]
        changes = Doing(calls)
        none_slow(HANGS, lambda: os.stat(m.cur("there")), lambda: read(m.cur("there")),
                  lambda: read(m.path(sealed, "sealed.log")), lambda: os.listdir(m.mnt))
        ok(changes.waiting() > len(calls) // 2, f"changes hang on the disk: {changes.waiting()}")
    eq(set(changes.end()), {0}, "the changes, once the disk is back")
    for i in range(12):
        eq(read(m.cur(f"d{i}/file")), b"x\n", "what was made meanwhile")
        eq(read(m.cur(f"f{i}")), b"first\nsecond\n", "what was appended meanwhile")
    for fd in fds:
        os.close(fd)
    m.stop()


def nice_of(m, name):
    """The nice values of the daemon's threads of that name."""
    out = set()
    for task in os.listdir(f"/proc/{m.proc.pid}/task"):
        stat = read(f"/proc/{m.proc.pid}/task/{task}/stat")
        if stat.split(b"(")[1].startswith(name):
            out.add(int(stat.rpartition(b")")[2].split()[16]))
    return out


@timeout(60)
def test_readers_give_way(t):
    """What decompresses for readers runs behind those who append."""
    m = t.mount("bucket=1h,grace=100ms")
    put(m.cur("x"), os.urandom(1 << 20) * 12)
    sealed = m.next_sealed()
    ok(len(read(m.path(sealed, "x"))) == 12 << 20, "all of it")
    here = os.getpriority(os.PRIO_PROCESS, 0)
    eq(nice_of(m, b"varve-read") | nice_of(m, b"varve-frames"), {here + 5}, "the readers' threads")
    eq(nice_of(m, b"varve-loop"), {here}, "the loop's")
    m.stop()


def threads_of(m, name):
    n = 0
    for task in os.listdir(f"/proc/{m.proc.pid}/task"):
        try:
            n += read(f"/proc/{m.proc.pid}/task/{task}/comm").startswith(name)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return n


@timeout(120)
def test_threads_go_when_idle(t):
    """What a crowd of requests began ends again, and an idle daemon's loop stays asleep."""
    m = t.mount("bucket=1h,grace=100ms,passthrough=no")
    base = threads_of(m, b"varve-loop")
    ok(2 <= base <= 4, f"{base} loop threads")
    fds = [os.open(m.cur(f"f{i}"), APPEND) for i in range(30)]

    def work(fd):
        for _ in range(20):
            os.write(fd, b"line\n")
            os.fsync(fd)
    eq(set(Doing([lambda fd=fd: work(fd) for fd in fds]).end()), {0}, "appends and fsyncs")
    wait_until(lambda: threads_of(m, b"varve-sync") == 0, 30, "the workers have ended", step=0.1)
    eq(threads_of(m, b"varve-loop"), base, "loop threads as at first")

    def switches():
        n = 0
        for task in os.listdir(f"/proc/{m.proc.pid}/task"):
            p = f"/proc/{m.proc.pid}/task/{task}"
            if read(p + "/comm").startswith(b"varve-loop"):
                n += int(re.search(rb"\nvoluntary_ctxt_switches:\s+(\d+)", read(p + "/status")).group(1))
        return n
    before = switches()
    time.sleep(2)
    eq(switches(), before, "times that the idle loop woke up")
    for fd in fds:
        os.close(fd)
    m.stop()


@timeout(60)
def test_the_end_does_not_wait_for_the_queue(t):
    """SIGTERM while the disk hangs: when it is back, the daemon ends, and what was queued has an answer."""
    outer, inner = disk_on_a_disk(t, 128)
    m = t.mount("bucket=1h,grace=100ms", store=os.path.join(inner, "store"))
    fds = [os.open(m.cur(f"f{i}"), APPEND) for i in range(SLOW_ONES)]
    for fd in fds:
        os.write(fd, b"line\n")
    with Frozen(t, outer):
        fsyncs = Doing([lambda fd=fd: os.fsync(fd) for fd in fds])
        wait_until(lambda: threads_of(m, b"varve-sync") > 0, 10, "fsyncs are queued")
        m.proc.send_signal(signal.SIGTERM)
        m.proc.send_signal(signal.SIGTERM)
        time.sleep(0.5)
    for r in fsyncs.end():
        ok(r in (0, -errno.ENOTCONN, -errno.ECONNABORTED, -errno.EIO), f"an fsync: {r}")
    wait_until(lambda: m.proc.poll() is not None, 20, "the daemon ends")
    eq(m.proc.returncode, 0, "its exit status")
    for fd in fds:
        os.close(fd)


@timeout(60)
def test_read_ahead_is_raised(t):
    """Where the daemon may, a sequential reader asks for 1 MiB at a time."""
    m = t.mount("bucket=1h,grace=100ms")
    dev = os.stat(m.mnt).st_dev
    knob = f"/sys/class/bdi/{os.major(dev)}:{os.minor(dev)}/read_ahead_kb"
    wait_until(lambda: int(read(knob)) >= 1024, 5, lambda: f"read-ahead is raised: {read(knob)}")
    m.stop()


@timeout(60)
def test_a_close_asks_nobody(t):
    """close(2) makes no round trip: while the daemon is stopped, descriptors of every mode close."""
    m = t.mount("bucket=1h,grace=100ms")
    append(m.cur("x"), b"line\n")
    fds = [os.open(m.cur("x"), f) for f in (os.O_RDONLY, APPEND, os.O_WRONLY, os.O_RDWR)]
    os.write(fds[1], b"more\n")
    child = os.fork()
    if child == 0:  # if it hangs, it hangs alone
        os.kill(m.proc.pid, signal.SIGSTOP)
        for fd in fds:
            os.close(fd)
        os._exit(0)
    for fd in fds:
        os.close(fd)
    try:
        wait_until(lambda: os.waitpid(child, os.WNOHANG)[0], 5, "the descriptors are closed")
    finally:
        os.kill(m.proc.pid, signal.SIGCONT)
    m.stop()


main()
