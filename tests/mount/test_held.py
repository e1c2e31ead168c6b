"""Held descriptors over a boundary, at every power of ten up to 10,000, and the pause they cost."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT

# A process of its own that appends all the time and tells the longest time one append took.
PROBE = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
n, longest = 0, 0.0
print("ready", flush=True)
while not os.path.exists(sys.argv[2]):
    for _ in range(200):
        began = time.perf_counter()
        os.write(fd, b"%09d\\n" % n)
        longest = max(longest, time.perf_counter() - began)
        n += 1
print(n, longest)
"""


def held(t, count):
    m = t.mount("bucket=1h,grace=10m")
    per = 500
    fds = []
    for i in range(count):
        if i % per == 0:
            mkdirs(m.cur(f"d{i // per}"))
        fds.append(os.open(m.cur(f"d{i // per}/{i}.log"), APPEND))
    for i, fd in enumerate(fds):
        os.write(fd, b"before %d\n" % i if i % 10 else b"before %d, not ended" % i)
    probe = t.spawn([sys.executable, "-c", PROBE, m.cur("probe"), t.path("stop")],
                    stdout=subprocess.PIPE)
    eq(probe.stdout.readline(), b"ready\n", "the probe runs")
    time.sleep(0.1)
    began = time.monotonic()
    old = m.next()
    took = time.monotonic() - began
    for i, fd in enumerate(fds):
        os.write(fd, b"after %d\n" % i if i % 10 else b" yet %d\nafter %d\n" % (i, i))
    put(t.path("stop"), b"")
    n, longest = probe.stdout.read().split()
    print(f"{count} held descriptors: the longest append took {float(longest) * 1000:.1f} ms, "
          f"boundary seen after {took * 1000:.0f} ms")
    ok(float(longest) < 2 * SLOW, f"the pause is bounded: {longest} s")
    for i, fd in enumerate(fds):
        p = f"d{i // per}/{i}.log"
        want = (b"before %d\n" % i if i % 10 else b"before %d, not ended yet %d\n" % (i, i))
        got = read(m.path(old, p))
        if got != want:
            raise Failure(f"{p} in {old}: {got!r}, wanted {want!r}")
        got = read(m.cur(p))
        if got != b"after %d\n" % i:
            raise Failure(f"{p} in the new bucket: {got!r}")
        os.close(fd)
    m.shift(601)
    m.wait_sealed(old, seconds=60)
    pieces = m.history("probe")
    eq(b"".join(d for _, d in pieces), b"".join(b"%09d\n" % i for i in range(int(n))),
       "the probe's lines")
    for i in range(0, count, max(1, count // 50)):
        p = f"d{i // per}/{i}.log"
        eq(read(m.path(old, p)), b"before %d\n" % i if i % 10 else
           b"before %d, not ended yet %d\n" % (i, i), f"{p} once sealed")


def test_held_1(t):
    held(t, 1)


def test_held_10(t):
    held(t, 10)


def test_held_100(t):
    held(t, 100)


def test_held_1000(t):
    held(t, 1000)


@timeout(180)
def test_held_10000(t):
    held(t, 10000)


main(jobs=1)
