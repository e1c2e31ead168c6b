"""The admin tool, as a person and as a program uses it: on a mount, on a store, and misused."""
import os
import pty
import select
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

COMMANDS = ("status", "seal", "drop", "undrop", "hold", "unhold", "retention", "verify", "ls", "cat",
            "audit", "clock accept")


def two_sealed(t, options="bucket=1h,grace=100ms,keep=5h"):
    m = t.mount(options)
    mkdirs(m.cur("nginx"))
    append(m.cur("nginx/access.log"), lines.text(300000))
    append(m.cur("app.log"), b"first\n")
    a = m.next_sealed()
    append(m.cur("app.log"), b"second\n")
    b = m.next_sealed()
    append(m.cur("app.log"), b"third\n")
    return m, a, b


def test_status(t):
    m, a, b = two_sealed(t)
    st = m.status()
    by = {x["name"]: x for x in st["buckets"]}
    eq(list(by), [a, b, m.open_name()], "the buckets, oldest first")
    eq([x["state"] for x in st["buckets"]], ["sealed", "sealed", "open"], "their states")
    eq((by[a]["files"], by[a]["bytes"]), (2, 300006), "files and bytes")
    ok(0 < by[a]["allocated_bytes"] < 200000, f"compressed bytes: {by[a]}")
    ok(by[a]["ratio"] > 1.5, f"the ratio: {by[a]}")
    eq(by[a]["goes_by"], "keep", "what takes it")
    ok(by[a]["age_seconds"] > 3000, f"its age: {by[a]}")
    eq((st["totals"]["buckets"], st["totals"]["bytes"]), (3, 300006 + 7 + 6), "totals")
    eq(st["bucket_length"], "1h", "the length")
    text = m.varve("status").stdout.decode()
    for word in (a, b, m.open_name(), "sealed", "open"):
        has(text, word, "the table for people")
    at_mount = m.varve("status", None, "--json", at=m.mnt).stdout
    eq([x["name"] for x in json.loads(at_mount)["buckets"]], list(by), "by the mount point")
    m.stop()
    r = m.varve("status", None, "--json", rc=None)
    if r.returncode == 0:  # not mounted: either told, or an error that says so
        eq([x["name"] for x in json.loads(r.stdout)["buckets"]][:2], [a, b], "status, not mounted")
    else:
        has(r.stderr, "mount|daemon|running", "status of a store that is not mounted")


def test_seal(t):
    m = t.mount("bucket=1h,grace=1h")
    append(m.cur("x"), b"1\n")
    r = m.varve("seal", None, m.open_name(), rc=1)
    has(r.stderr, m.open_name(), "the open bucket can't be sealed")
    old = m.next()
    ok(not m.is_sealed(old), "in its grace")
    m.varve("seal", None, old)
    ok(m.is_sealed(old), "sealed when the command returns")
    eq(read(m.path(old, "x")), b"1\n", "the bytes")
    append(m.cur("x"), b"2\n")
    second = m.next()
    m.varve("seal")
    ok(m.is_sealed(second), "without a name: all that are closing")
    m.varve("seal", None, "2001-01-01T00Z", rc=1)


def test_drop_undrop_hold(t):
    m, a, b = two_sealed(t, "bucket=1h,grace=100ms")
    m.varve("drop", None, a)
    eq(m.buckets(), [b], "dropped")
    m.varve("drop", None, a, rc=1)
    m.varve("undrop", None, a)
    eq(m.buckets(), [a, b], "undropped")
    m.varve("undrop", None, a, rc=1)
    m.varve("hold", None, a)
    eq({x["name"]: x["held"] for x in m.status()["buckets"]}[a], True, "status tells the hold")
    m.varve("drop", None, a, rc=1)
    m.varve("unhold", None, a)
    m.varve("drop", None, a, at=m.mnt)
    eq(m.buckets(), [b], "dropped, by the mount point")
    for cmd in ("drop", "hold", "undrop"):
        r = m.varve(cmd, None, "2001-01-01T00Z", rc=1)
        has(r.stderr, "2001-01-01T00Z", f"{cmd} of what is not there")
    for evil in ("../open", "current", ".staging", "", "a/b", "2001-01-01T00Z/../../x"):
        r = m.varve("drop", None, evil, rc=None)
        ok(r.returncode in (1, 2) and r.stderr, f"drop {evil!r}: {r.returncode}")
    eq(m.buckets(), [b], "nothing else was touched")


def test_ls_and_cat(t):
    """Both also on a store that is not mounted."""
    m, a, b = two_sealed(t)
    want = read(m.path(a, "nginx/access.log"))
    for state in ("mounted", "not mounted"):
        out = m.varve("ls").stdout.decode()
        ok(a in out and b in out, f"{state}: ls lists the buckets: {out}")
        out = m.varve("ls", None, a).stdout.decode()
        ok("app.log" in out and "nginx" in out, f"{state}: ls of a bucket: {out}")
        out = m.varve("ls", None, f"{a}/nginx").stdout.decode()
        has(out, "access.log", f"{state}: ls of a directory in it")
        out = m.varve("ls", "-R").stdout.decode().splitlines()
        ok(out[:3] == [f"{a}/app.log", f"{a}/nginx", f"{a}/nginx/access.log"] and f"{b}/app.log" in out,
           f"{state}: ls -R of the store: {out}")
        out = m.varve("ls", "-Rl0").stdout.decode().split("\0")
        ok(out[0].startswith("-rw") and out[0].endswith(f" {a}/app.log") and out[-1] == "",
           f"{state}: ls -Rl0 of the store: {out}")
        same_bytes(m.varve("cat", None, f"{a}/nginx/access.log").stdout, want, f"{state}: cat")
        eq(m.varve("cat", None, f"{b}/app.log").stdout, b"second\n", f"{state}: cat")
        r = m.varve("cat", None, f"{a}/no/such", rc=1)
        has(r.stderr, "no/such", f"{state}: cat of what is not there")
        m.varve("ls", None, "2001-01-01T00Z", rc=1)
        if state == "mounted":
            eq(m.varve("cat", None, f"{m.open_name()}/app.log").stdout, b"third\n", "cat, open bucket")
            m.stop()
    ok(b"third\n" in m.varve("cat", None, f"{bucket_name(m.now(), '1h')}/app.log").stdout,
       "cat of the bucket that was open, not mounted")


def test_verify(t):
    m, a, b = two_sealed(t)
    for state in ("mounted", "not mounted"):
        r = m.varve("verify")
        ok(r.returncode == 0, f"{state}: verify is clean")
        if state == "mounted":
            m.varve("verify", None, at=m.mnt)
            m.stop()
    seg = m.segment(a)
    raw = bytearray(read(seg))
    raw[len(raw) // 3] ^= 1
    put(seg, bytes(raw))
    r = m.varve("verify", rc=1)
    has(r.stdout + r.stderr, "access.log", "what is wrong, by name")
    has(r.stdout + r.stderr, a, "in which bucket")
    ok(b not in (r.stderr.decode()), "and nothing of the good one")


def test_verify_shows_progress_on_a_terminal(t):
    m = t.mount("bucket=1h,grace=100ms")
    put(m.cur("x"), os.urandom(20 << 20))
    m.next_sealed()
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(VARVE, [VARVE, "verify", m.store], m.environment())
    seen = b""
    while True:
        ready, _, _ = select.select([fd], [], [], 30 * SLOW)
        ok(ready, "verify ends")
        try:
            piece = os.read(fd, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    _, status = os.waitpid(pid, 0)
    eq(os.waitstatus_to_exitcode(status), 0, f"verify on a terminal: {seen[-300:]!r}")
    has(seen, r"\d+ ?%", "a progress bar")
    ok(b"\r" in seen, "drawn over itself")


def test_audit(t):
    m, a, b = two_sealed(t)
    m.varve("drop", None, a)
    text = m.varve("audit").stdout.decode()
    for word in ("seal", "drop", a, b):
        has(text, word, "varve audit")
    m.stop()
    has(m.varve("audit").stdout, a, "also when it is not mounted")
    seals = m.audit_of("seal", a)
    eq(len(seals), 1, "one line a seal")
    ok(seals[0]["files"] == 2 and seals[0]["bytes"] == 300006, f"counts: {seals[0]}")
    has(seals[0]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "its time")


def test_clock_accept(t):
    m = t.mount()
    m.varve("clock", "accept", None)


def test_help_and_misuse(t):
    """--help with an example each; errors on stderr; 0, 1 (failed), 2 (misused)."""
    m, a, b = two_sealed(t)
    for c in COMMANDS:
        r = t.run([VARVE, *c.split(), "--help"])
        has(r.stdout, f"varve {c}", f"{c} --help")
        has(r.stdout, "(?i)example", f"{c} --help: an example")
        eq(r.stderr, b"", f"{c} --help: nothing on stderr")
        has(t.run([VARVE, "--help"]).stdout, c.split()[0], "varve --help tells of it")
    for args in ([], ["frobnicate"], ["status"], ["status", "--no-such", m.store], ["drop", m.store],
                 ["clock"], ["clock", "reject", m.store], ["cat", m.store], ["hold", m.store]):
        r = t.run([VARVE, *args], rc=2)
        ok(r.stderr and not r.stdout, f"varve {args}: on stderr only: {r.stdout} {r.stderr}")
    for args in (["status", t.path("nowhere")], ["verify", t.path("nowhere")],
                 ["ls", t.path("nowhere")], ["drop", t.path("nowhere"), a]):
        r = t.run([VARVE, *args], rc=1)
        has(r.stderr, "nowhere", f"varve {args}: the message names it")
        eq(r.stdout, b"", "nothing on stdout")
    has(t.run([VARVE, "--version"]).stdout, r"\d+\.\d+", "--version")
    empty = mkdirs(t.path("empty"))
    t.run([VARVE, "status", empty], rc=1)
    eq(os.listdir(empty), [], "a folder that is no store is left alone")


def test_socket_checks_who_asks(t):
    m, a, b = two_sealed(t)
    who = dict(user=NOBODY, group=NOBODY, extra_groups=[])
    for args in (["status", m.store], ["drop", m.store, a], ["status", m.mnt], ["drop", m.mnt, a]):
        r = t.run([VARVE, *args], rc=1, **who)
        ok(r.stderr, f"varve {args} by a stranger says why not")
    ok(a in m.buckets(), "nothing was dropped")
    # Also when the store's folder is open to all: the peer's uid counts, not the folder's mode.
    os.chmod(m.store, 0o755)
    for name in os.listdir(m.store):
        if name.endswith(".sock"):
            os.chmod(os.path.join(m.store, name), 0o666)
    r = t.run([VARVE, "drop", m.store, a], rc=1, **who)
    ok(a in m.buckets(), f"nothing was dropped: {r.stderr}")


main(jobs=3)
