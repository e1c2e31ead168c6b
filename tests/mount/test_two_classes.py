"""A store with two classes and two tablets each, made by hand: read, dropped, sealed, verified."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

PLACES = [("default", "0"), ("default", "1"), ("audit", "0"), ("audit", "1")]


def open_by_hand(m):
    """Stops a daemon and puts parts for four places into its open bucket. Returns its name."""
    append(m.cur("made-by-varvefs"), b"m\n")
    b = m.open_name()
    m.stop()
    for k, (cls, tablet) in enumerate(PLACES):
        top = os.path.join(m.store, "open", b, cls, tablet)
        mkdirs(os.path.join(top, f"{cls}{tablet}", "sub"))
        put(os.path.join(top, f"{cls}{tablet}", "sub", "x.log"), lines.text(50000, k))
        put(os.path.join(top, f"{cls}{tablet}", "y"), f"{cls}{tablet}\n".encode())
        put(os.path.join(top, f"top-{cls}{tablet}"), b"top\n")
    m.start()
    return b


def wait_sealed(m, b):
    m.past_jitter()
    wait_until(lambda: all(os.path.exists(m.segment(b, c, n)) for c, n in PLACES), 10, "four segments")
    wait_until(lambda: not os.path.exists(os.path.join(m.store, "open", b)), 10, "no part is left")


def test_sealed(t):
    """A bucket of four segments, copied by hand into a store that has never known but one."""
    donor = t.mount("bucket=1h,grace=100ms")
    b = open_by_hand(donor)
    want = tree(donor.cur())
    eq(donor.next(), b, "the bucket that was open")
    wait_sealed(donor, b)
    donor.stop()
    m = t.mount("bucket=1h,grace=100ms", offset_ns=donor.offset_ns)
    m.stop()
    t.run(["cp", "-a", os.path.join(donor.store, "sealed", b), os.path.join(m.store, "sealed")])
    m.start()
    same_tree(tree(m.path(b)), want, "read through the mount")
    eq(sorted(os.listdir(m.path(b))), sorted(p.decode() for p in want if b"/" not in p), "listing")
    m.varve("verify")
    for cls, tablet in PLACES:
        eq(m.varve("cat", None, f"{b}/{cls}{tablet}/y").stdout, f"{cls}{tablet}\n".encode(),
           f"varve cat from {cls}/{tablet}")
    t.run(["rm", m.path(b, "audit1/y")])
    ok(not os.path.exists(m.path(b, "audit1/y")), "one file of one tablet is removed")
    eq(read(m.path(b, "default1/y")), b"default1\n", "the others are there")
    st = [x for x in m.status()["buckets"] if x["name"] == b]
    ok(sum(x["files"] for x in st) >= 11, f"status counts all tablets: {st}")
    m.remount()
    ok(not os.path.exists(m.path(b, "audit1/y")), "after a remount")
    raw = bytearray(read(m.segment(b, "audit", "0")))
    raw[len(raw) // 4] ^= 1
    m.stop()
    put(m.segment(b, "audit", "0"), bytes(raw))
    m.expect(".")
    m.start()
    has((lambda r: r.stdout + r.stderr)(m.varve("verify", rc=1)), "audit0", "verify names what is hurt")
    eq(read(m.path(b, "default0/y")), b"default0\n", "nothing else suffers")
    os.rmdir(m.path(b))
    ok(not os.path.exists(os.path.join(m.store, "sealed", b)), "dropped whole")
    eq(m.buckets(), [], "nothing is left")
    m.varve("undrop", None, b)
    eq(read(m.path(b, "default0/y")), b"default0\n", "and taken back whole")


def test_open(t):
    """Parts in four places of open/: read, appended to, sealed into four segments, verified."""
    m = t.mount("bucket=1h,grace=100ms")
    b = open_by_hand(m)
    for k, (cls, tablet) in enumerate(PLACES):
        x = m.cur(f"{cls}{tablet}/sub/x.log")
        same_bytes(read(x), lines.text(50000, k), f"read from {cls}/{tablet}")
        append(x, b"through the mount\n")
    want = tree(m.cur())
    eq(m.next(), b, "the bucket that was open")
    wait_sealed(m, b)
    same_tree(tree(m.path(b)), want, "sealed")
    for cls, tablet in PLACES:
        names = t.sh(f"zstd -q -dc {m.segment(b, cls, tablet)} | tar tf -").stdout.decode().split()
        ok(f"top-{cls}{tablet}" in [n.removeprefix("./") for n in names],
           f"the segment of {cls}/{tablet} has its own: {names}")
    m.varve("verify")
    m.remount()
    same_tree(tree(m.path(b)), want, "after a remount")
    os.rmdir(m.path(b))
    eq(m.buckets(), [], "dropped")


main()
