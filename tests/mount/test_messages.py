"""Messages: one line each for mount, boundary, seal, drop and every fault; stderr or syslog."""
import os
import socket
import stat
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402


def said(m, pattern):
    return [l for l in m.log().splitlines() if re.search(pattern, l)]


def one(m, pattern, what):
    found = wait_until(lambda: said(m, pattern), 5, lambda: f"{what}: /{pattern}/ in\n{m.log()}")
    eq(len(found), 1, f"one line for {what}: {found}")
    return found[0]


def test_one_line_each(t):
    m = t.mount("bucket=1h,grace=100ms")
    l = one(m, r"(?i)mount", "the mount")
    ok(m.mnt in l or m.store in l, f"it says where: {l}")
    put(m.cur("x"), lines.text(500000))
    append(m.cur("y"), b"y\n")
    old = m.next_sealed()
    one(m, rf"(?i)boundary.*{m.open_name()}|{old}.*->.*{m.open_name()}", "the boundary")
    l = one(m, rf"(?i)\bseal.*{old}|{old}.*\bseal", "the seal")
    has(l, r"\b2 files", "files")
    has(l, r"(KiB|MiB|bytes|\bB\b|KB)", "bytes")
    has(l, r"\d\.\d+ ?(x|:1|times)|ratio", "ratio")
    has(l, r"\d ?(s|ms|seconds)\b", "seconds")
    os.rmdir(m.path(old))
    l = one(m, rf"(?i)drop.*{old}|{old}.*drop", "the drop")
    has(l, r"uid|pid|hand|by", "by whom")
    m.stop()
    ok(not [l for l in m.log().splitlines() if not l.strip()], "no empty lines")


def test_an_expiry_says_why(t):
    m = t.mount("bucket=1h,grace=100ms,max-buckets=2")
    names = []
    for _ in range(3):
        append(m.cur("x"), b"x\n")
        names.append(m.next_sealed())
    l = one(m, rf"(?i)(drop|expir).*{names[0]}|{names[0]}.*(drop|expir)", "the expiry")
    has(l, "max-buckets", "why")


def test_control_characters_are_not_printed(t):
    """A file name with escape sequences can't forge or garble a log line."""
    m = t.mount("bucket=1h,grace=100ms")
    m.expect(".")
    evil = "x\n\x1b[31mvarvefs: forged"
    put(m.cur(evil), os.urandom(100000))
    old = m.next_sealed()
    m.stop()
    raw = bytearray(read(m.segment(old)))
    raw[50000] ^= 1
    put(m.segment(old), bytes(raw))
    m.start()
    try:
        read(m.path(old, evil))
        raise Failure("the damaged file reads")
    except OSError as e:
        eq(e.errno, errno.EIO, "the damaged file")
    wait_until(lambda: said(m, old), 5, "a log line for the fault")
    ok("\x1b" not in m.log(), "no escape sequence in the log")
    ok(not [l for l in m.log().splitlines() if l.startswith("\x1b") or l == "varvefs: forged"],
       "no forged line")
    r = m.varve("verify", rc=1)
    ok(b"\x1b" not in r.stdout + r.stderr, "none in verify's output")


def test_syslog_in_the_background(t):
    """Without -f, the lines go to syslog (in a mount namespace with a /dev of the test's own)."""
    s, mnt, dev = t.path("store"), mkdirs(t.path("mnt")), mkdirs(t.path("dev"))
    for name, (a, b) in (("null", (1, 3)), ("zero", (1, 5)), ("fuse", (10, 229)), ("urandom", (1, 9))):
        os.mknod(os.path.join(dev, name), 0o666 | stat.S_IFCHR, os.makedev(a, b))
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind(os.path.join(dev, "log"))
    log.settimeout(0.2)
    r = t.run(["unshare", "-m", "sh", "-c", f"mount --make-rprivate / && mount --bind {dev} /dev && "
               f"{VARVEFS} -o bucket=1s,grace=100ms {s} {mnt} && echo x >> {mnt}/current/x && "
               f"sleep 2.5 && rmdir {mnt}/????-??-??T*[0-9]Z 2>/dev/null; umount {mnt}"])
    got = []
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        try:
            got.append(log.recv(8192).decode(errors="replace"))
        except TimeoutError:
            if any("seal" in g for g in got):
                break
    text = "\n".join(got)
    has(text, r"<\d+>.*varvefs", "syslog's priority and the program's name")
    has(text, "(?i)mount", "the mount's line")
    has(text, "(?i)seal", "the seal's line")
    eq((r.stdout, r.stderr), (b"", b""), "nothing on the terminal")


def test_faults_are_said_once(t):
    m = t.mount("bucket=1h,grace=100ms")
    put(m.cur("x"), os.urandom(300000))
    old = m.next_sealed()
    m.stop()
    raw = bytearray(read(m.segment(old)))
    raw[100000] ^= 1
    put(m.segment(old), bytes(raw))
    m.expect("frame|checksum|damaged|corrupt")
    m.start()
    for _ in range(20):
        raises(errno.EIO, read, m.path(old, "x"))
    l = said(m, rf"(frame|checksum|damaged|corrupt).*{old}|{old}.*(frame|checksum|damaged|corrupt)")
    ok(1 <= len(l) <= 3, f"said once, not at each read: {len(l)}\n{m.log()}")
    ok(m.status()["faults"] >= 1, "and counted in status")


main(jobs=3)
