"""The checks themselves can fail: a lost, doubled, split or harmed line is found; a late test ends."""
import os
import subprocess
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402


def found(pieces, counts):
    try:
        lines.check(pieces, counts)
    except Failure:
        return True
    return False


def test_line_checker_finds_each_harm(t):
    a, b = lines.lines("a", 0, 50), lines.lines("a", 50, 50)
    ok(not found([a, b], {"a": 100}), "whole lines in order are right")
    ok(found([a, b], {"a": 101}), "a line missing at the end")
    ok(found([a, lines.lines("a", 51, 49)], {"a": 100}), "a line lost in the middle")
    ok(found([a, lines.line("a", 49) + b], {"a": 100}), "a line doubled")
    ok(found([b, a], {"a": 100}), "out of order")
    ok(found([(a + b)[:70], (a + b)[70:]], {"a": 100}), "a line split over two buckets")
    ok(found([a + b"\0" * 10, b], {"a": 100}), "NULs")
    ok(found([a.replace(b"b", b"c", 1), b], {"a": 100}), "a changed byte")


def test_names(t):
    for at, length, name in [(0, "1d", "1970-01-01"), (1796077530, "1s", "2026-11-30T222530Z"),
                             (1796077530, "15m", "2026-11-30T2215Z"),
                             (1796077530, "6h", "2026-11-30T18Z"), (1796077530, "1w", "2026-W49"),
                             (1796077530, "1mo", "2026-11"), (1609459200, "1w", "2020-W53"),
                             (4107542399, "1d", "2100-02-28"), (4107542400, "1d", "2100-03-01")]:
        eq(bucket_name(at, length), name, f"the bucket of {at} at length {length}")


def test_runner_ends_what_a_test_leaves(t):
    """A test that hangs with a child of its own is a failure, and its child is gone."""
    pidfile = t.path("pid")
    script = t.path("test_hangs.py")
    with open(script, "w") as f:
        f.write(f"""import sys, time
sys.path.insert(0, {os.path.dirname(sys.modules['varvetest'].__file__)!r})
from varvetest import *
@timeout({1 / SLOW})
def test_hangs(t):
    p = t.spawn(["sh", "-c", "setsid sleep 1000 & echo $! > {pidfile}; wait"])
    time.sleep(1000)
def test_fails(t):
    eq(1, 2, "one is two")
main()
""")
    r = t.run([sys.executable, script], rc=1)
    has(r.stdout, r"FAIL test_hangs .*not done within", "a test that hangs")
    has(r.stdout, r"FAIL test_fails", "the one after it ran")
    has(r.stdout, r"0 passed, 2 failed", "the sum")
    pid = int(read(pidfile))
    ok(not os.path.exists(f"/proc/{pid}"), "the sleeping grandchild is gone")


main()
