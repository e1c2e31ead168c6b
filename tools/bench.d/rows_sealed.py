"""Sealed data: making it, and reading it back."""
import contextlib
import os
import random
import re
import time

from data import KINDS, log_file, log_tree
from frame import Failure, Measure, below, cost, faster, informal, row, throughput

MB = 1000 * 1000
LEVEL = "9"  # the default of seal-level


# -- making it ------------------------------------------------------------------------------------

def _seal(b, m, bucket):
    """Seals a bucket that is closing."""
    b.run([b.varve, "seal", "--timeout", "20m", m.mnt, bucket])


def _fill(b, m, folder):
    """Copies a folder's content into the current bucket, and passes a boundary. The bucket."""
    b.run(["cp", "-r", folder + "/.", m.cur()])
    return m.pass_boundary()


@row("seal-1gb", "sealing 1 GB of logs in 20 files, level 9, two threads", "tar c | zstd -9 -T2",
     "time <= 1.1 x, size <= 1.05 x, peak memory of the daemon <= 128 MiB")
def seal_1gb(b):
    zstd = b.need("zstd")
    tree = b.path("tree")
    log_tree(b, tree, b.size(1000 * MB, 10 * MB), 20)
    out = b.path("rival.tar.zst")

    def ours():
        with b.mount("bucket=1d,seal-threads=2", clock=True) as m:
            bucket = _fill(b, m, tree)
            b.drop_caches()
            start = time.monotonic()
            _seal(b, m, bucket)
            took = time.monotonic() - start
            m.wait_sealed(bucket)
            size, peak = os.path.getsize(m.segment(bucket)), m.status("VmHWM") / 1024
        b.remove(m.store)
        return took, size / MB, peak

    def rival():
        b.drop_caches()
        took = b.timed(["sh", "-c", f'tar c -C "$1" . | {zstd} -q -f -{LEVEL} -T2 -o "$2"', "sh",
                        tree, out])
        size = os.path.getsize(out)
        b.remove(out)
        b.sync()
        return took, size / MB, None

    times, sizes, peaks = b.pairs(ours, {"tar | zstd": rival}, warm=False)
    return [Measure("time, from the request until it is durable and removed from open/", "s",
                    times[0], cost(1.1), times[1]),
            Measure("size", "MB", sizes[0], cost(1.05), sizes[1]),
            Measure("peak memory of the daemon", "MiB", peaks[0], below(128, "MiB"), worst=True)]


# -- reading it -----------------------------------------------------------------------------------

def _squashfs(b, folder):
    """A folder as squashfs, mounted by the kernel. Returns its mountpoint, and the image."""
    image, mnt = b.path(f"image{next(b.numbers)}"), b.folder(f"squashfs{next(b.numbers)}")
    b.run([b.need("mksquashfs", "squashfs-tools"), folder, image, "-comp", "zstd", "-b", "1M",
           "-Xcompression-level", LEVEL, "-no-progress", "-quiet"])
    b.run(["mount", "-t", "squashfs", "-o", "loop,ro", image, mnt])
    return mnt, image


def _sealed_file(b, size):
    """A file of the three kinds of lines, a third of each; a store where it is sealed, and its path
    there."""
    folder = b.folder("plain")
    path = os.path.join(folder, "all.log")
    with open(path, "wb") as f:
        for i, kind in enumerate(KINDS):
            b.run([b.tool("logs"), kind, str(i + 1), str(size // 3 + (size % 3) * (i == 0))],
                  stdout=f)
    store = b.path("store")
    with b.mount(store=store, clock=True) as m:
        bucket = _fill(b, m, folder)
        _seal(b, m, bucket)
    return path, store, os.path.join(bucket, "all.log")


def _cat(b, path):
    return b.timed(["cat", path])


@row("read-cold", "reading a sealed file of 240 MB in order, cold (cat)",
     "zstd -dc of the same; squashfs (zstd, 1 MiB blocks)",
     "time <= 0.7 x zstd -dc, <= 1.0 x squashfs")
def read_cold(b):
    zstd = b.need("zstd")
    path, store, name = _sealed_file(b, b.size(240 * MB, 10 * MB))
    packed = b.path("all.log.zst")
    b.run([zstd, "-q", "-" + LEVEL, path, "-o", packed])
    mnt, image = _squashfs(b, os.path.dirname(path))
    in_squashfs = os.path.join(mnt, os.path.basename(path))

    with b.mount(store=store, clock=True) as m:
        def ours():
            m.remount(cold=True)
            return _cat(b, m.path(name))

        def with_zstd():
            b.drop_caches()
            return b.timed([zstd, "-dc", packed])

        def squashfs():
            b.run(["umount", mnt])
            b.drop_caches()
            b.run(["mount", "-t", "squashfs", "-o", "loop,ro", image, mnt])
            return _cat(b, in_squashfs)

        mine, others = b.pairs(ours, {"zstd -dc": with_zstd, "squashfs": squashfs})
    return [Measure("time", "s", mine, cost(0.7), {"zstd -dc": others["zstd -dc"]}),
            Measure("time", "s", mine, cost(1.0), {"squashfs": others["squashfs"]})]


PAGES = "passthrough_hp"  # with its cache, without passthrough: pages of FUSE's, nothing else


@row("read-warm", "reading a sealed file of 240 MB in order, again",
     "cat of the plain file on ext4; libfuse's passthrough_hp, for orientation",
     "throughput >= 0.9 x")
def read_warm(b):
    size = b.size(240 * MB, 10 * MB)
    path, store, name = _sealed_file(b, size)
    example = b.libfuse_example("passthrough_hp")
    with b.mount(store=store, clock=True) as m, contextlib.ExitStack() as more:
        paths = {"ext4": path}
        if example:
            # Its page cache is kept from open to open: no more than FUSE's pages are in it.
            mnt = b.folder("hp")
            more.enter_context(b.served([example, "--foreground", "--nopassthrough",
                                         os.path.dirname(path), mnt], mnt))
            paths[PAGES] = os.path.join(mnt, os.path.basename(path))
        mine, others = b.pairs(lambda: size / MB / _cat(b, m.path(name)),
                               {n: lambda p=p: size / MB / _cat(b, p) for n, p in paths.items()},
                               runs=3 * b.runs)
    out = [Measure("throughput", "MB/s", mine, throughput(0.9), {"ext4": others["ext4"]})]
    if example:
        out += [Measure("throughput: the limit, FUSE's page cache", "MB/s", mine,
                        informal(lower=False), {PAGES: others[PAGES]}),
                Measure("throughput: that limit itself", "MB/s", others[PAGES],
                        informal(lower=False), {"ext4": others["ext4"]})]
    return out


def _random_reads(path, size, count, seed=1):
    """Reads a second: 4 KiB each, at offsets from a seed."""
    places = random.Random(seed)
    offsets = [places.randrange(size // 4096) * 4096 for _ in range(count)]
    start = time.monotonic()
    fd = os.open(path, os.O_RDONLY)
    for offset in offsets:
        if len(os.pread(fd, 4096, offset)) != 4096:
            raise Failure(f"a short read of {path} at {offset}")
    os.close(fd)
    return count / (time.monotonic() - start)


@row("read-random", "4 KiB reads at random in a sealed file of 1 GB, cold",
     "squashfs (zstd, 1 MiB blocks)", "reads a second >= 1.0 x")
def read_random(b):
    size = b.size(1000 * MB, 20 * MB)
    path, store, name = _sealed_file(b, size)
    mnt, image = _squashfs(b, os.path.dirname(path))
    lines = []
    with b.mount(store=store, clock=True) as m:
        for count in (b.size(500, 50), b.size(4000, 100)):
            def ours():
                m.remount(cold=True)
                return _random_reads(m.path(name), size, count)

            def squashfs():
                b.run(["umount", mnt])
                b.drop_caches()
                b.run(["mount", "-t", "squashfs", "-o", "loop,ro", image, mnt])
                return _random_reads(os.path.join(mnt, "all.log"), size, count)

            mine, others = b.pairs(ours, {"squashfs": squashfs})
            lines.append(Measure(f"reads a second, {count} reads", "1/s", mine, throughput(1.0),
                                 others))
    return lines


# -- searching it ---------------------------------------------------------------------------------

PATTERN = "checkout/order.*500"


def _days(b, m, folder, days, streams, size):
    """Sealed days in a store, and the same as plain files in folder/DAY/."""
    for day in range(days):
        here = os.path.join(folder, f"day{day:02}")
        os.makedirs(here)
        for i in range(streams):
            log_file(b, os.path.join(here, f"{KINDS[i % 3]}{i:02}.log"), KINDS[i % 3], size,
                     day * 100 + i)
        bucket = _fill(b, m, here)
        _seal(b, m, bucket)


def _grep(b, args, path):
    """Seconds that a search takes, and how many lines it finds."""
    start = time.monotonic()
    found = b.run(["sh", "-c", args, "sh", PATTERN, path])
    took = time.monotonic() - start
    return took, sum(int(n) for n in re.findall(r":(\d+)$", found, re.M))


@row("grep", "grep -r over 30 sealed days of 20 streams of 800 kB, cold and warm",
     "zgrep over .gz files, zstdgrep over .zst files; warm: grep -r over plain files",
     "cold >= 5 x and >= 1.5 x faster; warm <= 1.1 x the time")
def grep(b):
    zstd, gzip = b.need("zstd"), b.need("gzip")
    b.need("zgrep", "gzip"), b.need("zstdgrep", "zstd")
    plain, store = b.folder("plain"), b.path("store")
    with b.mount(store=store, clock=True) as m:
        _days(b, m, plain, b.size(30, 3), b.size(20, 4), b.size(800_000, 50_000))
    packed = {}
    for kind, args in (("zst", [zstd, "-q", "--rm", "-r", "-" + LEVEL]), ("gz", [gzip, "-r"])):
        packed[kind] = b.path(kind)
        b.run(["cp", "-r", plain, packed[kind]])
        b.run([*args, packed[kind]])

    def search(args, path, cold=True):
        def run():
            if cold:
                b.drop_caches()
            took, found = _grep(b, args, path)
            counts.add(found)
            return took
        return run

    counts = set()
    with b.mount(store=store, clock=True) as m:
        # The view by the open bucket's own name is not sealed; it is empty.
        mine_dir = m.mnt
        ours = search('grep -rc "$1" "$2"/2*; true', mine_dir, cold=False)

        def cold():
            m.remount(cold=True)
            return ours()

        mine, others = b.pairs(cold, {
            "zgrep": search('find "$2" -name "*.gz" -exec zgrep -c "$1" {} +; true', packed["gz"]),
            "zstdgrep": search('find "$2" -name "*.zst" -exec zstdgrep -c "$1" {} +; true',
                               packed["zst"])})
        again, plains = b.pairs(ours, {"grep -r": search('grep -rc "$1" "$2"; true', plain, False)},
                                runs=3 * b.runs)
    if len(counts) != 1:
        raise Failure(f"they do not find the same: {counts} lines")
    return [Measure("time, cold", "s", mine, faster(5), {"zgrep": others["zgrep"]}),
            Measure("time, cold", "s", mine, faster(1.5), {"zstdgrep": others["zstdgrep"]}),
            Measure("time, warm", "s", again, cost(1.1), plains)]
