"""Names: mounting, sealing, listing and removing many files and buckets."""
import glob
import os
import time

from data import small_files
from frame import SOURCE, Failure, Measure, below, cost, faster, informal, row

LEVEL = "9"  # the default of seal-level


def _mkbuckets(b):
    """The path of the program that makes sealed buckets, with varvefs's own encoder."""
    out = b.path("mkbuckets")
    src = os.path.join(SOURCE, "src")
    if not os.path.exists(out):
        b.run(["cc", "-std=gnu17", "-O2", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-pthread", "-I",
               src, "-o", out, os.path.join(SOURCE, "tools/bench.d/mkbuckets.c"),
               *glob.glob(src + "/format/*.c"), *glob.glob(src + "/base/*.c"), "-lzstd", "-lxxhash"])
    return out


def _sealed_store(b, buckets, files, size):
    """A store with so many sealed days of so many files of so many bytes."""
    store = b.path(f"store{next(b.numbers)}")
    with b.mount(store=store):
        pass
    b.run([_mkbuckets(b), store, str(buckets), str(files), str(size)])
    return store


@row("mount-10k", "mounting a store of 10,000 sealed buckets of 100 files, until ls of its root answers",
     None, "<= 300 ms, <= 64 MiB resident")
def mount_10k(b):
    n = b.size(10_000, 50)
    store = _sealed_store(b, n, 100, 1024)
    with b.mount(store=store):
        pass
    times = {True: [], False: []}
    rss = []
    mnt = b.folder("mnt")
    for cold in (True, False):
        for _ in range(b.runs):
            if cold:
                b.drop_caches()
            start = time.monotonic()
            b.run([b.varvefs, store, mnt])
            seen = len(os.listdir(mnt))
            times[cold].append((time.monotonic() - start) * 1000)
            if seen != n + 3:
                raise Failure(f"ls shows {seen} names instead of {n + 3}")
            with open(os.path.join(store, "lock"), encoding="ascii") as f:
                with open(f"/proc/{int(f.read())}/status", encoding="ascii") as s:
                    rss.append(int(s.read().split("VmRSS:")[1].split()[0]) / 1024)
            b.run(["umount", mnt])
            _wait_unlocked(b, store)
    return [Measure("cold, until ls answers", "ms", times[True], below(300, "ms")),
            Measure("warm, until ls answers", "ms", times[False], below(300, "ms")),
            Measure("resident memory", "MiB", rss, below(64, "MiB"), worst=True)]


def _wait_unlocked(b, store):
    """Until a daemon in the background has ended."""
    b.run(["flock", "-w", "60", os.path.join(store, "lock"), "true"])


@row("seal-100k", "sealing 100,000 files of 1 KiB, level 9, two threads",
     "tar c | zstd -9 -T2; mksquashfs -comp zstd (once)", "time <= 1.1 x of the faster")
def seal_100k(b):
    zstd = b.need("zstd")
    tree = small_files(b, b.path("tree"), b.size(100_000, 500), 1024)
    template, out = b.path("template"), b.path("rival")
    with b.mount("bucket=1d", store=template) as m:
        b.run(["cp", "-r", tree + "/.", m.cur()])

    def ours():
        store = b.path(f"store{next(b.numbers)}")
        b.run(["cp", "-a", template, store])
        with b.mount("bucket=1d,seal-threads=2", store=store, clock=True) as m:
            bucket = m.pass_boundary()
            b.sync()
            start = time.monotonic()
            b.run([b.varve, "seal", "--timeout", "20m", m.mnt, bucket])
            took = time.monotonic() - start
            peak = m.status("VmHWM") / 1024
        b.remove(store)
        b.sync()
        return took, peak

    def tar():
        took = b.timed(["sh", "-c", f'tar c -C "$1" . | {zstd} -q -f -{LEVEL} -T2 -o "$2" && sync "$2"',
                        "sh", tree, out])
        b.remove(out)
        b.sync()
        return took, None

    times, peaks = b.pairs(ours, {"tar | zstd": tar})
    squash = b.timed([b.need("mksquashfs", "squashfs-tools"), tree, out, "-comp", "zstd",
                      "-Xcompression-level", LEVEL, "-no-progress", "-quiet"])
    return [Measure("time", "s", times[0], cost(1.1), times[1],
                    note=f"mksquashfs: {squash:.0f} s; ours reads back and compares, and is durable"),
            Measure("peak memory of the daemon", "MiB", peaks[0], informal())]


@row("names", "find, and ls -lR, over 100,000 sealed files in 100 folders, cold and warm",
     "squashfs (zstd, 1 MiB blocks) of the same, mounted by the kernel", "speed >= 0.5 x")
def names(b):
    tree = small_files(b, b.path("tree"), b.size(100_000, 500), 1024)
    image, squash, store = b.path("image"), b.folder("squashfs"), b.path("store")
    b.run([b.need("mksquashfs", "squashfs-tools"), tree, image, "-comp", "zstd", "-b", "1M",
           "-no-progress", "-quiet"])
    with b.mount(store=store, clock=True) as m:
        b.run(["cp", "-r", tree + "/.", m.cur()])
        bucket = m.pass_boundary()
        b.run([b.varve, "seal", "--timeout", "20m", m.mnt, bucket])
    b.remove(tree)
    out = []
    with b.mount(store=store) as m:
        for what in (["find"], ["ls", "-lR"]):
            def ours(what=what):
                m.remount(cold=True)
                return tuple(b.timed([*what, m.path(bucket)]) for _ in range(2))

            def rival(what=what):
                b.run(["mount", "-t", "squashfs", "-o", "loop,ro", image, squash])
                b.drop_caches()
                took = tuple(b.timed([*what, squash]) for _ in range(2))
                b.run(["umount", squash])
                return took

            for state, (mine, others) in zip(("cold", "again"), b.pairs(ours, {"squashfs": rival})):
                out.append(Measure(f"{' '.join(what)}, {state}", "s", mine, faster(0.5), others))
    return out


def _remove_times(b, spec, before=None):
    """rmdir of fresh buckets, in ms. spec: files, bytes of each; before: what is done to each first."""
    store = _sealed_store(b, b.runs, *spec)
    took = []
    with b.mount("undrop=10m", store=store) as m:
        for name in m.buckets():
            if before:
                before(m.path(name))
            b.sync()
            start = time.monotonic()
            os.rmdir(m.path(name))
            took.append((time.monotonic() - start) * 1000)
    b.remove(store)
    return took


@row("rmdir", "rmdir of a sealed bucket of 1 file, 100,000 files, 10 GB", "rm -rf on ext4; btrfs "
     "subvolume delete", "<= 5 ms each, no growth with size")
def rmdir(b):
    many, gb = b.size(100_000, 500), b.size(1000, 1)
    out = []
    for what, spec in (("1 file", (1, 1024)), (f"{many:,} files", (many, 1024)),
                       (f"{gb / 100:g} GB in 10 files", (10, gb * 1_000_000))):
        out.append(Measure(f"rmdir, {what}", "ms", _remove_times(b, spec), below(5, "ms")))
    listed = _remove_times(b, (many, 1024), lambda path: b.run(["ls", "-lR", path]))
    tree = small_files(b, b.path("tree"), many, 1024)
    b.drop_caches()
    ext4 = b.timed(["rm", "-rf", tree]) * 1000
    image, mnt = b.path("image"), b.folder("btrfs")
    mkfs, btrfs = b.need("mkfs.btrfs", "btrfs-progs"), b.need("btrfs", "btrfs-progs")
    with open(image, "wb") as f:
        f.truncate(2 << 30)
    b.run([mkfs, "-q", image])
    b.run(["mount", "-o", "loop", image, mnt])
    sub = os.path.join(mnt, "sub")
    b.run([btrfs, "subvolume", "create", sub])
    small_files(b, sub, many, 1024)
    b.drop_caches()
    deleted = b.timed([btrfs, "subvolume", "delete", "-c", sub]) * 1000
    b.run([btrfs, "subvolume", "create", sub])
    small_files(b, sub, many, 1024)
    b.run(["ls", "-lR", sub])
    known = b.timed([btrfs, "subvolume", "delete", "-c", sub]) * 1000
    b.run(["umount", mnt])
    last = out[1]
    last.note = f"{many:,} files on ext4, rm -rf: {ext4:.0f} ms; btrfs subvolume delete: {deleted:.0f} ms"
    # The kernel has all its names then, and rmdir(2) drops them one by one.
    out.append(Measure(f"rmdir, {many:,} files, after ls -lR of it", "ms", listed, informal(),
                       note=f"btrfs subvolume delete after ls -lR of it: {known:.0f} ms"))
    return out


@row("rm-r", "rm -r of a sealed bucket of 100,000 files", "rm -r on ext4", "faster")
def rm_r(b):
    many = b.size(100_000, 500)
    store = _sealed_store(b, b.runs + 1, many, 1024)
    source = small_files(b, b.path("source"), many, 1024)
    with b.mount(store=store) as m:
        left = m.buckets()

        def ours():
            b.drop_caches()
            return b.timed(["rm", "-r", m.path(left.pop())])

        def ext4():
            tree = b.path("tree")
            b.run(["cp", "-r", source, tree])
            b.drop_caches()
            return b.timed(["rm", "-r", tree])

        mine, others = b.pairs(ours, {"ext4": ext4})
    return Measure("time", "s", mine, cost(1.0), others)
