"""Four writers at full speed on held descriptors over twenty boundaries.

Every line once, whole, in its writer's order, in a bucket whose window holds its time within 100 ms;
also written in two halves, without newlines at all, and with `cut=byte`.
"""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

# Sanitized, there are fewer boundaries: what takes the time is the waiting for them.
BOUNDARIES = 6 if SANITIZED else 20


def load(t, args, files):
    """Starts the writers; returns the process."""
    return t.spawn([LOADGEN, "write", *args, *files], stdout=subprocess.PIPE)


def counts(p, seconds):
    """What the writers acknowledged: {letter: lines}; none may have met an error."""
    out = p.communicate(timeout=seconds * SLOW)[0].decode().split("\n")[:-1]
    eq(p.returncode, 0, "the writers end")
    got = {}
    for line in out:
        letter, n, error = line.split()
        eq(int(error), 0, f"writer {letter} met {os.strerror(int(error))} after {n} lines")
        got[letter] = int(n)
    return got


def pieces(m, path):
    """START:END:FILE of each bucket, as `loadgen check` wants them: by their own names, which lead to
    the same file also behind the next boundary."""
    out = []
    for n in sorted(m.root()):
        start = datetime.datetime.strptime(n + "+0000", "%Y-%m-%dT%H%M%SZ%z").timestamp()
        out.append(f"{int(start)}000000000:{int(start) + 1}000000000:{m.path(n, path)}")
    return out


def check(t, m, path, written, args=(), tolerance_ms=100):
    r = t.run([LOADGEN, "check", "-t", str(tolerance_ms * SLOW), *args,
               *[f"{k}=0-{n}" for k, n in written.items()], "--", *pieces(m, path)], rc=None,
              seconds=120)
    said = r.stdout.decode()
    eq(r.returncode, 0, f"{path}: {said}")
    print(f"{path}: {said.splitlines()[0]}")
    return int(said.split()[3])


def states(m):
    return sorted({b["state"] for b in m.status()["buckets"]})


@timeout(240)
def test_whole_lines(t):
    """Two writers share a file, two have their own."""
    m = t.mount("bucket=1s,grace=300ms,seal-level=1,min-free=0", clock=False)
    m.expect("behind")
    files = ["shared", "shared", "c", "d"]
    written = counts(load(t, ["-s", str(BOUNDARIES + 0.5)], [m.cur(f) for f in files]),
                     BOUNDARIES + 30)
    # All kinds of buckets at once: the open one, those that wait for their seal, sealed ones.
    print(f"{sum(written.values())} lines; buckets are {', '.join(states(m))}")
    for f in ("shared", "c", "d"):
        of = {k: n for (k, n), at in zip(written.items(), files) if at == f}
        ok(check(t, m, f, of) >= BOUNDARIES, f"{f} is in {BOUNDARIES} buckets or more")
    m.wait_all_sealed(120)
    for f in ("shared", "c", "d"):
        check(t, m, f, {k: n for (k, n), at in zip(written.items(), files) if at == f})
    m.varve("verify", seconds=120)


@timeout(240)
def test_halves(t):
    """Each line by two writes with a pause between: most boundaries come in the middle of one."""
    m = t.mount("bucket=1s,grace=300ms,seal-level=1,min-free=0", clock=False)
    written = counts(load(t, ["-s", str(BOUNDARIES + 0.5), "-2", "-p", "1000"],
                          [m.cur(f) for f in "abcd"]), BOUNDARIES + 30)
    for k, n in written.items():
        ok(check(t, m, k, {k: n}) >= BOUNDARIES, f"{k} is in {BOUNDARIES} buckets or more")
    m.wait_all_sealed(60)
    for k, n in written.items():
        check(t, m, k, {k: n})


@timeout(240)
def test_without_newlines(t):
    """No line ever ends: a bucket gets at most 64 KiB of what came after it; no byte is harmed."""
    m = t.mount("bucket=1s,grace=300ms,seal-level=1,min-free=0", clock=False)
    files = ["shared", "shared", "c", "d"]
    written = counts(load(t, ["-s", str(BOUNDARIES + 0.5), "-n"], [m.cur(f) for f in files]),
                     BOUNDARIES + 30)
    # Those 64 KiB may take a writer longer than 100 ms; the grace is the end of it.
    tolerance_ms = 400
    for f in ("shared", "c", "d"):
        of = {k: n for (k, n), at in zip(written.items(), files) if at == f}
        ok(check(t, m, f, of, ["-n", "-c"], tolerance_ms) >= BOUNDARIES, f"{f} is in many buckets")


main(jobs=1)
