"""The live path: appending, and what else goes on while programs append."""
from frame import Measure, row, throughput

KIB = 1024
SIZES = {"128B": 128, "4K": 4 * KIB, "128K": 128 * KIB}


def _count(b, size, threads):
    """Appends a thread: about a second's work, and no more than 512 MiB in all."""
    full = min(600_000, (512 << 20) // size) // threads
    return b.size(full, max(20, full // 200))


def _appender(b, folder, size, threads, count):
    """A function that appends to fresh files in a folder and returns MB/s."""
    def run():
        prefix = f"{folder}/append{next(b.numbers)}"
        got = b.load("append", "-t", threads, "-s", size, "-n", count, prefix)
        for i in range(threads):
            b.remove(f"{prefix}.{i}")
        b.sync()
        return got["mb_s"]
    return run


def _against_ext4(size, threads):
    def measure(b):
        count = _count(b, size, threads)
        with b.mount() as m:
            mine, others = b.pairs(
                _appender(b, m.cur(), size, threads, count),
                {"ext4": _appender(b, b.folder("native"), size, threads, count)})
        return Measure("throughput", "MB/s", mine, throughput(0.95), others)
    return measure


for _name, _size in SIZES.items():
    for _threads in (1, 4):
        _who = "1 writer" if _threads == 1 else f"{_threads} writers, a file each"
        row(f"append-{_name}-{_threads}", f"{_name} appends on a held descriptor, {_who}",
            "the same on ext4", "throughput >= 0.95 x")(_against_ext4(_size, _threads))
