"""The daemon dies while a bucket is sealed of which a part was carried on, or with half of the links made, and comes back in
the same window or in a later one: each line is there once."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def close(fd):
    try:
        os.close(fd)
    except OSError:  # the daemon that it was opened by is gone
        pass


def die_at(t, point):
    m = t.mount("bucket=1h,grace=300ms", start=False)
    m.start(env={"VARVE_TEST_CRASH": point})
    return m


def one(t, point, hold, later):
    """hold: the writer outlives the daemon; later: the window passes without one."""
    m = die_at(t, point)
    passes = m.passes()
    fd = os.open(m.cur("b"), APPEND)
    os.write(fd, b"one\n")
    a = m.next()
    os.write(fd, b"two\n")
    m.past_jitter()
    m.proc.wait(20 * SLOW)
    want = b"two\n"
    if later and passes:
        os.write(fd, b"three\n")
        want += b"three\n"
    if not hold:
        close(fd)
    m.shift(later * 3600)
    m.start()
    if hold and passes:
        os.write(fd, b"four\n")
        want += b"four\n"
    close(fd) if hold else None
    for what in ("after the start", "sealed"):
        h = m.history("b")
        eq(h[0], (a, b"one\n"), f"the sealed bucket, {what}")
        eq(b"".join(d for _, d in h[1:]), want, f"what came behind it, {what}")
        if what != "sealed":
            m.next()
            m.wait_all_sealed()
    m.varve("verify")


def each(t, point):
    for hold in (False, True):
        for later in (0, 1):
            one(t, point, hold, later)


def test_seal_written(t):
    each(t, "seal.written")


def test_seal_renamed(t):
    each(t, "seal.renamed")


def test_seal_committed(t):
    each(t, "seal.committed")


def test_seal_audited(t):
    each(t, "seal.audited")


def test_seal_removed(t):
    each(t, "seal.removed")


def test_half_of_the_links(t):
    """The folder of the newer bucket is there with some of its links; the others are made when nobody is in that window any
    more."""
    m = die_at(t, "carry.saved:4")
    if not m.passes():
        return
    names = [f"d/s{i:03d}" for i in range(100)]
    os.mkdir(m.cur("d"))
    fds = [os.open(m.cur(n), APPEND) for n in names]
    for fd in fds:
        os.write(fd, b"one\n")
    m.shift(3600)
    m.proc.wait(20 * SLOW)
    for fd in fds:
        os.write(fd, b"two\n")
    m.shift(3600)
    m.start()
    for fd in fds:
        os.write(fd, b"three\n")
        os.close(fd)
    m.next()
    m.wait_all_sealed()
    for n in names:
        eq([d for _, d in m.history(n) if d], [b"one\n", b"two\n", b"three\n"], n)
    m.varve("verify")


main(jobs=3)
