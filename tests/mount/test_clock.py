"""Clock steps back, forward and over years; the daemon stopped, killed, unmounted over boundaries."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
MONTHS8 = 243 * 86400

# A writer in a process of its own: one line every 2 ms until the stop file is there.
WRITER = """
import os, sys, time
sys.path.insert(0, sys.argv[3])
import lines
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
n = 0
while not os.path.exists(sys.argv[2]):
    os.write(fd, lines.line("w", n))
    n += 1
    time.sleep(0.002)
print(n)
"""


def writer(t, m):
    lib = os.path.dirname(sys.modules["lines"].__file__)
    return t.spawn([sys.executable, "-c", WRITER, m.cur("x"), t.path("stop"), lib],
                   stdout=subprocess.PIPE)


def written(t, p):
    put(t.path("stop"), b"")
    return int(p.communicate(timeout=30 * SLOW)[0])


def stays(m, name, seconds=1.3):
    """The open bucket stays this one; the keeper of time has had the time to do otherwise."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        eq(m.open_name(), name, "the open bucket")
        time.sleep(0.02)


def test_step_back(t):
    """Time never runs backwards: the current bucket stays until the clock catches up."""
    m = t.mount()
    append(m.cur("x"), b"1\n")
    first = m.next()
    name = m.open_name()
    append(m.cur("x"), b"2\n")
    m.expect("clock")
    m.shift(-3 * 3600)
    append(m.cur("x"), b"3\n")
    stays(m, name)
    eq(m.status()["clock"], "behind", "what status says of the clock")
    m.remount()
    eq(m.open_name(), name, "after a remount with the clock still back")
    append(m.cur("x"), b"4\n")
    m.shift(3 * 3600)
    stays(m, name, 0.3)
    m.next()
    append(m.cur("x"), b"5\n")
    eq([d for _, d in m.history("x")], [b"1\n", b"2\n3\n4\n", b"5\n"], "each line once")
    eq(len(set(m.buckets())), 2, "no second bucket of one name")
    eq(m.history("x")[0][0], first, "the first")


def test_step_forward_of_one_window(t):
    m = t.mount()
    append(m.cur("x"), b"1\n")
    old = m.open_name()
    m.shift(next_start(m.now(), "1h") - m.now() + 1, synced=False)
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "1h"), 5, "a step within a window")
    eq(read(m.path(old, "x")), b"1\n", "the old bucket")


def test_case11_eight_months_ahead_and_back(t):
    """Lines are written while the clock is eight months ahead: all found, nothing expired."""
    m = t.mount("bucket=1h,grace=100ms,keep=10d")
    append(m.cur("x"), b"before\n")
    sealed = m.next_sealed()
    name = m.open_name()
    append(m.cur("x"), b"good\n")
    m.expect("clock")
    m.shift(MONTHS8, synced=False)
    append(m.cur("x"), b"ahead\n")
    stays(m, name)
    append(m.cur("y"), b"also ahead\n")
    eq(m.status()["clock"], "untrusted", "what status says of the clock")
    m.shift(-MONTHS8, synced=False)
    append(m.cur("x"), b"back\n")
    stays(m, name)
    eq(m.status()["clock"], "good", "the clock is good again")
    eq(m.history("x"), [(sealed, b"before\n"), (name, b"good\nahead\nback\n")], "every line")
    eq(read(m.cur("y")), b"also ahead\n", "every file")
    eq(m.audit_of("expire", sealed), [], "nothing expired")
    m.next()
    eq(len(m.buckets()), len(set(m.buckets())), "no second bucket of one name")


def test_forward_jump_when_synchronised(t):
    """The kernel says that it is synchronised: the jump is believed at once."""
    m = t.mount("bucket=1h,grace=100ms")
    append(m.cur("x"), b"1\n")
    old = m.open_name()
    m.shift(MONTHS8, synced=True)
    new = bucket_name(m.now(), "1h")
    wait_until(lambda: m.open_name() == new, 5, "the window of the new time")
    append(m.cur("x"), b"2\n")
    eq(m.history("x"), [(old, b"1\n"), (new, b"2\n")], "one bucket each, none in between")


def test_forward_jump_after_clock_trust(t):
    m = t.mount("bucket=1h,grace=100ms,clock-trust=3s")
    append(m.cur("x"), b"1\n")
    old = m.open_name()
    m.expect("clock")
    m.shift(MONTHS8, synced=False)
    stays(m, old, 1.5)
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "1h"), 8, "believed after 3 s")
    append(m.cur("x"), b"2\n")
    eq([d for _, d in m.history("x")], [b"1\n", b"2\n"], "both lines")


def test_clock_accept(t):
    m = t.mount("bucket=1h,grace=100ms")
    append(m.cur("x"), b"1\n")
    old = m.open_name()
    m.expect("clock")
    m.shift(MONTHS8, synced=False)
    stays(m, old, 1.2)
    m.varve("clock", "accept", None)
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "1h"), 5, "accepted")
    ok(any(a["event"] == "clock-accept" for a in m.audit()), "an audit line")


def test_years_ahead_at_mount(t):
    m = t.mount("bucket=1h,grace=100ms,keep=10d")
    append(m.cur("x"), b"1\n")
    old = m.open_name()
    m.stop()
    m.expect("clock")
    m.shift(2 * 365 * 86400, synced=False)
    m.start()
    stays(m, old)
    append(m.cur("x"), b"2\n")
    eq(read(m.cur("x")), b"1\n2\n", "it goes on in the bucket that was open")
    m.varve("clock", "accept", None)
    new = bucket_name(m.now(), "1h")
    wait_until(lambda: m.open_name() == new, 5, "accepted")


def test_eighty_days_ahead_at_mount(t):
    """Up to 90 days beyond the high-water mark are believed at mount."""
    m = t.mount("bucket=1h,grace=100ms")
    append(m.cur("x"), b"1\n")
    old = m.open_name()
    m.stop()
    m.shift(80 * 86400, synced=False)
    m.start()
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "1h"), 5, "believed")
    m.wait_sealed(old)
    eq(m.buckets(), [old], "no bucket for the windows between")


def test_sigstop_over_boundaries(t):
    """The daemon is stopped for three windows: the writer waits, no line is lost or doubled."""
    m = t.mount("bucket=1s,grace=200ms", clock=False)
    p = writer(t, m)
    wait_until(lambda: os.path.exists(m.cur("x")) and os.stat(m.cur("x")).st_size, 5, "it writes")
    for _ in range(2):
        m.proc.send_signal(signal.SIGSTOP)
        time.sleep(3.2)
        m.proc.send_signal(signal.SIGCONT)
        time.sleep(1.2)
    n = written(t, p)
    lines.check([d for _, d in m.history("x")], {"w": n})
    append(m.cur("x"), b"")
    m.varve("verify")


def test_killed_over_boundaries(t):
    """Killed in one window, started three later: nothing acknowledged is missing or doubled."""
    m = t.mount("bucket=1s,grace=200ms", clock=False)
    through = m.passes()
    n = 0
    for _ in range(3):
        fd = os.open(m.cur("x"), APPEND)
        ends = time.monotonic() + 1.3
        while time.monotonic() < ends:
            os.write(fd, lines.line("w", n))
            n += 1
            time.sleep(0.001)
        m.kill()
        if through:
            os.write(fd, lines.line("w", n))
            n += 1
        else:
            raises((errno.ENOTCONN, errno.ECONNABORTED), os.write, fd, b"x")
        try:
            os.close(fd)
        except OSError:
            pass
        time.sleep(2.5)
        m.start()
        lines.check([d for _, d in m.history("x")], {"w": n})
    m.varve("verify")


def test_unmounted_over_boundaries(t):
    m = t.mount("bucket=1s,grace=200ms", clock=False)
    n = 0
    for _ in range(3):
        for _ in range(300):
            append(m.cur("x"), lines.line("w", n))
            n += 1
        m.stop()
        time.sleep(1.5)
        m.start()
    m.wait_all_sealed()
    lines.check([d for _, d in m.history("x")], {"w": n})


def test_case10_off_for_three_windows(t):
    """What was open is sealed under its own name, retention applies, no empty bucket is invented."""
    m = t.mount("bucket=1h,grace=100ms,keep=5h")
    append(m.cur("x"), b"oldest\n")
    oldest = m.next_sealed()
    m.next()
    m.next()
    append(m.cur("x"), b"when it stopped\n")
    open_then = m.open_name()
    empty = m.buckets()
    m.stop()
    m.shift(3 * 3600)
    m.start()
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "1h"), 5, "now's window is open")
    m.wait_sealed(open_then)
    wait_until(lambda: oldest not in m.buckets(), 5, "the oldest has expired")
    eq(read(m.path(open_then, "x")), b"when it stopped\n", "sealed under its own name")
    ok(set(m.buckets()) <= set(empty) | {open_then}, f"no bucket was invented: {m.buckets()}")
    # A bucket that is being dropped is gone from sight before its line is written.
    wait_until(lambda: m.audit_of("expire", oldest), 5, "the expiry's audit line")
    m.kill()  # the same with a daemon that was killed
    m.shift(3 * 3600)
    m.start()
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "1h"), 5, "now's window is open")
    wait_until(lambda: open_then not in m.buckets(), 5, "expired in its turn")


main(jobs=3)
