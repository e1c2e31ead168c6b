"""Four writers at full speed on held descriptors over twenty boundaries (eight, served by the daemon).

Every line once, whole, in its writer's order, in a bucket whose window holds its time within 100 ms;
also written in two halves, without newlines at all, and with `cut=byte`.
"""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

# The goal's twenty are for the default way. Sanitized, or served by the daemon, there are fewer: what takes
# the time is the waiting for them.
BOUNDARIES = 6 if SANITIZED else 20 if PASSTHROUGH else 8


def load(t, args, files):
    """Starts the writers; returns the process."""
    return t.spawn([LOADGEN, "write", *args, *files], stdout=subprocess.PIPE)


class Written:
    """What the writers acknowledged, {letter: lines} in .lines; none may have met an error. .late_ms: by
    how much a thread that only sleeps until each full second woke up too late at the worst."""

    def __init__(self, p, seconds):
        out = p.communicate(timeout=seconds * SLOW)[0].decode().split("\n")[:-1]
        eq(p.returncode, 0, "the writers end")
        self.lines = {}
        for line in out[:-1]:
            letter, n, error = line.split()
            eq(int(error), 0, f"writer {letter} met {os.strerror(int(error))} after {n} lines")
            self.lines[letter] = int(n)
        self.late_ms = float(out[-1].split()[1])

    def of(self, files, f):
        """Those of one of the files, which were given in the order of the letters."""
        return {k: n for (k, n), at in zip(self.lines.items(), files) if at == f}


def pieces(m, path):
    """START:END:FILE of each bucket, as `loadgen check` wants them: by their own names, which lead to
    the same file also behind the next boundary."""
    out = []
    for n in sorted(m.root()):
        start = datetime.datetime.strptime(n + "+0000", "%Y-%m-%dT%H%M%SZ%z").timestamp()
        out.append(f"{int(start)}000000000:{int(start) + 1}000000000:{m.path(n, path)}")
    return out


def check(t, m, path, written, files=None, args=(), tolerance_ms=100):
    # What the machine itself is late by is not the daemon's fault; it has a few things to do.
    tolerance_ms = tolerance_ms * SLOW + 3 * written.late_ms
    of = written.of(files or [path], path)
    r = t.run([LOADGEN, "check", "-t", str(tolerance_ms), *args,
               *[f"{k}=0-{n}" for k, n in of.items()], "--", *pieces(m, path)], rc=None,
              seconds=120)
    said = r.stdout.decode()
    eq(r.returncode, 0, f"{path} (a sleeper was {written.late_ms} ms late): {said}")
    print(f"{path}: {said.splitlines()[0]}; a sleeper was {written.late_ms} ms late")
    return int(said.split()[3])


def states(m):
    return sorted({b["state"] for b in m.status()["buckets"]})


OPTIONS = "bucket=1s,grace=300ms,seal-level=1,min-free=0"
# Two writers share a file, two have their own.
FILES = ["shared", "shared", "c", "d"]


def run(t, m, files, *args):
    return Written(load(t, ["-s", str(BOUNDARIES + 0.5), *args], [m.cur(f) for f in files]),
                   BOUNDARIES + 30)


@timeout(240)
def test_whole_lines(t):
    m = t.mount(OPTIONS, clock=False)
    written = run(t, m, FILES)
    # All kinds of buckets at once: the open one, those that wait for their seal, sealed ones.
    print(f"{sum(written.lines.values())} lines; buckets are {', '.join(states(m))}")
    for f in ("shared", "c", "d"):
        ok(check(t, m, f, written, FILES) >= BOUNDARIES, f"{f} is in {BOUNDARIES} buckets or more")
    m.wait_all_sealed(120)
    for f in ("shared", "c", "d"):
        check(t, m, f, written, FILES)
    m.varve("verify", seconds=120)


@timeout(240)
def test_halves(t):
    """Each line by two writes with a pause between: most boundaries come in the middle of one."""
    m = t.mount(OPTIONS, clock=False)
    files = list("abcd")
    written = run(t, m, files, "-2", "-p", "1000")
    for f in files:
        ok(check(t, m, f, written, files) >= BOUNDARIES, f"{f} is in {BOUNDARIES} buckets or more")
    m.wait_all_sealed(60)
    for f in files:
        check(t, m, f, written, files)


@timeout(240)
def test_without_newlines(t):
    """No line ever ends: a bucket gets at most 64 KiB of what came after it; no byte is harmed."""
    m = t.mount(OPTIONS, clock=False)
    written = run(t, m, FILES, "-n")
    # Those 64 KiB may take a writer longer than 100 ms; the grace is the end of it.
    for f in ("shared", "c", "d"):
        n = check(t, m, f, written, FILES, ["-n", "-c"], 400)
        ok(n >= BOUNDARIES, f"{f} is in {BOUNDARIES} buckets or more")


@timeout(240)
def test_cut_at_a_byte(t):
    """cut=byte: with lines in halves, a boundary cuts between the halves, at once."""
    m = t.mount(OPTIONS + ",cut=byte", clock=False)
    files = list("abcd")
    written = run(t, m, files, "-2", "-p", "1000")
    cut = 0
    for f in files:
        n = check(t, m, f, written, files, ["-c"])
        ok(n >= BOUNDARIES, f"{f} is in {BOUNDARIES} buckets or more")
        cut += sum(not d.endswith(b"\n") for _, d in m.history(f) if d)
    ok(cut > 0, "some lines are cut")
    print(f"{cut} lines are cut by {4 * BOUNDARIES} boundaries")


main(jobs=4)
