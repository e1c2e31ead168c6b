"""The live path: appending, and what else goes on while programs append."""
import contextlib
import os
import platform
import re
import subprocess
import time

from data import log_tree
from frame import SOURCE, Failure, Measure, below, cost, informal, row, throughput, wait_until

KIB = 1024
SIZES = {"128B": 128, "4K": 4 * KIB, "128K": 128 * KIB}
SERVED = "bucket=1d,passthrough=no"


# -- appends on held descriptors ------------------------------------------------------------------

def _appender(b, folder, size, threads, count, *more):
    """A function that appends to fresh files in a folder and returns MB/s."""
    def run():
        prefix = f"{folder}/append{next(b.numbers)}"
        got = b.load("append", "-t", threads, "-s", size, "-n", count, *more, prefix)
        for i in range(threads):
            b.remove(f"{prefix}.{i}")
        b.sync()
        return got["mb_s"]
    return run


def _has_passthrough():
    """Whether the kernel has it at all, by its version."""
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 9)


@contextlib.contextmanager
def _bare(b, *modes):
    """Mounts of the least that a FUSE filesystem can do (bare.c): {"bare MODE": mountpoint}. They show
    how far from the kernel's own limit ours is, and are no rivals."""
    mounts = {}
    for mode in modes:
        if mode == "passthrough" and not _has_passthrough():
            continue
        mnt, folder = b.folder(f"bare-{mode}"), b.folder(f"bare-{mode}-source")
        mounts[f"bare {mode}"] = b.served([b.tool("bare"), mode, folder, mnt], mnt)
    for m in mounts.values():
        m.__enter__()
    yield {name: m.mnt for name, m in mounts.items()}
    for m in mounts.values():
        m.stop()


def _with_limits(what, unit, mine, goal, others, note=""):
    """The measure against the rivals, and one against each of bare.c's mounts, for orientation."""
    rivals = {n: v for n, v in others.items() if not n.startswith("bare ")}
    out = [Measure(what, unit, mine, goal, rivals, note=note)]
    for name, values in others.items():
        if name not in rivals:
            out.append(Measure(f"{what}: the limit, {name}", unit, mine, informal(goal.lower),
                               {name: values}))
    return out


def _against_ext4(size, threads):
    def measure(b):
        # About a second's work, and no more than 512 MiB in all.
        full = min(600_000, (512 << 20) // size) // threads
        count = b.size(full, max(20, full // 200))
        with b.mount() as m, _bare(b, "passthrough") as bare:
            mine, others = b.pairs(
                _appender(b, m.cur(), size, threads, count),
                {"ext4": _appender(b, b.folder("native"), size, threads, count),
                 **{n: _appender(b, mnt, size, threads, count) for n, mnt in bare.items()}})
        return _with_limits("throughput", "MB/s", mine, throughput(0.95), others)
    return measure


def _against_fuse(size, threads):
    def measure(b):
        full = min(60_000, (512 << 20) // size) // threads
        count = b.size(full, max(20, full // 200))
        mounts, note = {}, ""
        bindfs = [b.need("bindfs"), "-f"] + (["--multithreaded"] if threads > 1 else [])
        mnt, folder = b.folder("bindfs"), b.folder("bindfs-source")
        mounts["bindfs"] = b.served([*bindfs, folder, mnt], mnt)
        example = b.libfuse_example("passthrough_hp")
        if example:
            mnt, folder = b.folder("hp"), b.folder("hp-source")
            mounts["passthrough_hp"] = b.served(
                [example, "--foreground", "--nopassthrough", "--nocache", "--nosplice",
                 "--direct-io", "--single", folder, mnt], mnt)
        else:
            note = "without libfuse's example: its sources are not in subprojects/ (tools/setup)"
        with b.mount(SERVED) as m, _bare(b, "write", "nothing") as bare:
            for rival in mounts.values():
                rival.__enter__()
            mine, others = b.pairs(
                _appender(b, m.cur(), size, threads, count),
                {n: _appender(b, mnt, size, threads, count)
                 for n, mnt in [(n, r.mnt) for n, r in mounts.items()] + list(bare.items())})
            for rival in mounts.values():
                rival.stop()
        return _with_limits("throughput, served by the daemon", "MB/s", mine, throughput(1.5), others,
                            note=note)
    return measure


for _name, _size in SIZES.items():
    for _threads in (1, 4):
        _who = "1 writer" if _threads == 1 else f"{_threads} writers, a file each"
        _work = f"{_name} appends on a held descriptor, {_who}"
        row(f"append-{_name}-{_threads}", _work, "the same on ext4",
            "throughput >= 0.95 x")(_against_ext4(_size, _threads))
        row(f"served-{_name}-{_threads}", _work + ", with passthrough=no",
            "bindfs, libfuse's passthrough_hp without passthrough",
            "throughput >= 1.5 x")(_against_fuse(_size, _threads))


@row("fsync", "128 B appends on a held descriptor, fsync after each, 1 writer", "the same on ext4",
     "throughput >= 0.9 x")
def fsync(b):
    count = b.size(2000, 20)
    lines = []
    for what, options, mode in (("throughput", "bucket=1d", "passthrough"),
                                ("throughput, served by the daemon", SERVED, "write")):
        with b.mount(options) as m, _bare(b, mode) as bare:
            mine, others = b.pairs(
                _appender(b, m.cur(), 128, 1, count, "-f"),
                {"ext4": _appender(b, b.folder("native"), 128, 1, count, "-f"),
                 **{n: _appender(b, mnt, 128, 1, count, "-f") for n, mnt in bare.items()}})
        lines += _with_limits(what, "MB/s", mine, throughput(0.9), others)
    return lines


# -- open, append, close --------------------------------------------------------------------------

# What the kernel sends without anybody waiting for the answer.
UNWAITED = ("RELEASE", "RELEASEDIR", "FORGET", "BATCH_FORGET")


def _requests(b, options, prefix_count, cycles):
    """Requests that a caller waits for in one open-append-close, by name, as the daemon prints them."""
    with b.mount(options, args=("-d",)) as m:
        b.load("cycle", "-k", prefix_count, "-n", prefix_count, m.cur("cycle"))
        with open(m.log, encoding="utf-8", errors="replace") as f:
            before = len(f.read())
        b.load("cycle", "-k", prefix_count, "-n", cycles, m.cur("cycle"))
        m.stop()
        with open(m.log, encoding="utf-8", errors="replace") as f:
            text = f.read()[before:]
    count = {}
    for name in re.findall(r"opcode: ([A-Z_0-9]+) ", text):
        if name not in UNWAITED:
            count[name] = count.get(name, 0) + 1
    if not count:
        raise Failure("the daemon printed no requests")
    # The generator opens each file once more before it begins.
    return {name: n / (cycles + prefix_count) for name, n in count.items() if n > cycles / 2}


@row("open-append-close", "open for appending, append 128 B, close, over 100 files in turn", "ext4",
     "<= 25 us; at most one round trip that the caller waits for")
def open_append_close(b):
    count = b.size(100_000, 500)

    def cycle(folder):
        def run():
            got = b.load("cycle", "-k", 100, "-n", count, f"{folder}/cycle")
            b.sync()
            return got["us"]
        return run

    with b.mount() as m, _bare(b, "passthrough") as bare:
        mine, others = b.pairs(cycle(m.cur()), {"ext4": cycle(b.folder("native")),
                                                **{n: cycle(mnt) for n, mnt in bare.items()}})
    waited = _requests(b, "bucket=1d", 10, 100)
    trips = sum(waited.values())
    with b.mount(SERVED) as m:
        served, _ = b.pairs(cycle(m.cur()), {})
    note = ", ".join(f"{name} {n:.2f}" for name, n in waited.items())
    return [*_with_limits("time of one", "us", mine, below(25, "us"), others),
            Measure("round trips waited for", "a cycle", [trips], below(1, "a cycle"), note=note),
            Measure("time of one, served by the daemon", "us", served, informal())]


# -- boundaries -----------------------------------------------------------------------------------

def _stalls(options, what):
    def measure(b):
        period, files = 4, b.size(10_000, 200)
        seconds = b.size(4 * period, 5)
        near, far, native = [], [], []
        for _ in range(b.runs):
            with b.mount(f"bucket={period}s,{options}") as m:
                got = b.load("hold", "-t", 4, "-k", files, "-d", seconds, "-b", period,
                             m.cur("held"))
            near.append(got["near"]["max_us"] / 1e3)
            far.append(got["far"]["max_us"] / 1e3)
            b.sync()
            got = b.load("hold", "-t", 4, "-k", files, "-d", seconds, "-b", period,
                         os.path.join(b.folder("native"), "held"))
            native.append(max(got["near"]["max_us"], got["far"]["max_us"]) / 1e3)
            b.remove(b.path("native"))
            b.sync()
        return [Measure(f"longest stall within 1 s of a boundary{what}", "ms", near, below(20, "ms"),
                        {"ext4, at any time": native}, worst=True,
                        note="4 writers at full speed, in turn over "
                             f"{files:,} held descriptors; boundaries each {period} s"),
                Measure(f"longest stall at other times{what}", "ms", far, informal())]
    return measure


row("boundary-held", "the longest stall of a writer at a boundary, 10,000 held descriptors", None,
    "<= 20 ms")(_stalls("keep=1d", ""))
row("boundary-held-served", "the same with passthrough=no", None,
    "<= 20 ms")(_stalls("passthrough=no", ", served by the daemon"))


# -- appends while sealed data is made and read ---------------------------------------------------

def _p99(b, folder, seconds=None):
    """Latency of 128 B appends, one each millisecond."""
    got = b.load("pace", "-s", 128, "-i", 1000, "-d", seconds or b.size(5, 0.3), f"{folder}/paced")
    return got["near"]["p99_us"]


def _pingpong_p99(b):
    """The same of a byte to another process and back: of two wake-ups, and nothing else."""
    return b.load("pingpong", "-i", 1000, "-d", b.size(5, 0.3))["near"]["p99_us"]


def _beside(options, what):
    def measure(b):
        idle, sealing, reading, limits = [], [], [], {}
        size, files = b.size(512 << 20, 8 << 20), 8
        for i in range(b.runs):
            with b.mount(options, clock=True) as m:
                log_tree(b, m.cur("logs"), size, files, seed=i + 1)
                b.sync()
                idle.append(_p99(b, m.cur()))
                old = m.pass_boundary()
                wait_until(lambda: os.path.isdir(m.path(old)), 60, "the bucket is closing")
                sealer = b.spawn([b.varve, "seal", m.store, old], stdout=subprocess.DEVNULL)
                sealing.append(_p99(b, m.cur(), b.size(2, 0.1)))
                if not b.quick and sealer.poll() is not None:
                    raise Failure("the bucket was sealed before the appends were measured")
                m.wait_sealed(old)
                m.remount(cold=True)
                paths = [m.path(old, "logs", n) for n in sorted(os.listdir(m.path(old, "logs")))]
                readers = [b.spawn([b.tool("load"), "stream", *paths[k:], *paths[:k]],
                                   stdout=subprocess.DEVNULL) for k in (0, 2, 4, 6)]
                time.sleep(0.3)
                reading.append(_p99(b, m.cur()))
                if what:
                    with _bare(b, "write") as bare:
                        for name, mnt in bare.items():
                            limits.setdefault(name, []).append(_p99(b, mnt))
                    limits.setdefault("ping-pong over pipes", []).append(_pingpong_p99(b))
                for p in readers:
                    if p.poll() is not None:
                        raise Failure("a reader ended by itself")
                    b.end(p)
            b.remove(m.store)
        return [Measure(f"append p99 while a bucket is sealed{what}", "us", sealing, cost(2),
                        {"idle": idle}, note="128 B, one each millisecond"),
                Measure(f"append p99 while 4 readers stream sealed files{what}", "us", reading,
                        cost(2), {"idle": idle}),
                *[Measure(f"append p99 beside 4 readers: the limit, {name}", "us", reading,
                          informal(), {name: values}) for name, values in limits.items()]]
    return measure


row("append-beside", "latency (p99) of appends while 512 MiB are sealed, and while 4 readers stream "
    "sealed files", "the same while idle", "<= 2 x")(_beside("bucket=1d", ""))
row("append-beside-served", "the same with passthrough=no", "the same while idle",
    "<= 2 x")(_beside(SERVED, ", served by the daemon"))


# -- at rest --------------------------------------------------------------------------------------

def _switches(pid):
    """Voluntary context switches of all threads: {thread: (name, count)}."""
    out = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8") as f:
            text = f.read()
        out[tid] = (re.search(r"^Name:\s+(.*)$", text, re.M)[1],
                    int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1]))
    return out


@row("idle", "a day's bucket with 1,000 streams, at rest: resident memory, wake-ups", None,
     "<= 16 MiB; no wake-up but the timer's, one a second")
def idle(b):
    streams, seconds = b.size(1000, 50), b.size(10, 1)
    rss, wakes, threads = [], [], {}
    for _ in range(b.runs):
        with b.mount() as m:
            for i in range(streams):
                folder = m.cur(f"host={i % 40:02}")
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, f"app{i:04}.log"), "ab") as f:
                    f.write(b"one line\n" * 20)
            b.sync()
            time.sleep(b.size(3, 0.2))
            before = _switches(m.pid)
            time.sleep(seconds)
            after = _switches(m.pid)
            wakes.append(sum(n - before.get(tid, ("", 0))[1] for tid, (_, n) in after.items())
                         / seconds)
            for tid, (name, n) in after.items():
                more = n - before.get(tid, ("", 0))[1]
                if more:
                    threads[name] = threads.get(name, 0) + more
            rss.append(m.status("VmRSS") / 1024)
        b.remove(m.store)
    said = ", ".join(f"{n} {c / seconds / b.runs:.1f}" for n, c in threads.items())
    return [Measure("resident memory", "MiB", rss, below(16, "MiB")),
            Measure("wake-ups", "a second", wakes, below(1.05, "a second"), note=f"by thread: {said}")]
