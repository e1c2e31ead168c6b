"""A full backing disk: nothing acknowledged is lost, sealing stops and resumes, drops still work."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
ALLOWED = r"space|ENOSPC|short|free"


def filler(where, leave):
    """Fills a volume but for `leave` bytes with a file beside the store."""
    p = os.path.join(where, "filler")
    st = os.statvfs(where)
    fd = os.open(p, os.O_WRONLY | os.O_CREAT)
    size = max(4096, st.f_bavail * st.f_frsize - leave)
    while True:
        try:
            os.posix_fallocate(fd, 0, size)
            break
        except OSError as e:  # the daemon has taken some of it meanwhile
            if e.errno != errno.ENOSPC or size <= 4096:
                raise
            size -= min(64 << 10, size - 4096)
    os.close(fd)
    return p


@timeout(120)
def test_case06_full_while_appending(t):
    """The writer gets ENOSPC, a short write is counted right, what was acknowledged is there."""
    where = t.volume(96)
    m = t.mount("bucket=1h,grace=100ms,min-free=0", store=os.path.join(where, "store"))
    m.expect(ALLOWED)
    f = filler(where, 12 << 20)
    fd, acked = os.open(m.cur("x"), APPEND), []
    block = lines.lines("w", 0, 20000)
    refused = False
    for i in range(0, len(block) * 20, 37000):
        piece = (block * 2)[i % len(block):i % len(block) + 37000]
        try:
            n = os.write(fd, piece)
        except OSError as e:
            eq(e.errno, errno.ENOSPC, "what a writer gets")
            refused = True
            break
        acked.append(piece[:n])
    ok(refused, "the disk is full")
    whole = b"".join(acked)
    same_bytes(read(m.cur("x")), whole, "what was acknowledged, and no more")
    raises(errno.ENOSPC, write_all, fd, b"y" * (1 << 20))
    got = read(m.cur("x"))
    ok(got.startswith(whole), "still there")
    m.kill()  # the same after a crash on the full disk
    m.start()
    same_bytes(read(m.cur("x")), got, "after a crash")
    os.unlink(f)
    append(m.cur("x"), b"room again\n")
    same_bytes(read(m.cur("x")), got + b"room again\n", "it goes on")
    old = m.next_sealed()
    same_bytes(read(m.path(old, "x")), got + b"room again\n", "sealed")
    m.varve("verify")
    m.stop()


@timeout(120)
def test_case06_full_while_sealing(t):
    """No empty or short sealed file; parts stay until their segment is durable; sealing resumes."""
    where = t.volume(128)
    m = t.mount("bucket=1h,grace=100ms,min-free=0", store=os.path.join(where, "store"))
    m.expect(ALLOWED)
    data = os.urandom(24 << 20)
    put(m.cur("x"), data)
    f = filler(where, 8 << 20)
    old = m.next()
    m.past_jitter()
    wait_until(lambda: re.search(rf"{old}", m.log().split("boundary")[-1]) and
               re.search("(?i)space|ENOSPC", m.log()), 20, "a line says that there is no space")
    ok(not os.path.exists(m.segment(old)), "no segment stands")
    same_bytes(read(m.path(old, "x")), data, "the bytes are there all the time")
    ok(len([l for l in m.log().splitlines() if re.search("(?i)space|ENOSPC", l)]) <= 3, "said once")
    append(m.cur("y"), b"small writes go on\n")
    m.remount()
    same_bytes(read(m.path(old, "x")), data, "after a remount")
    os.unlink(f)
    m.wait_sealed(old, seconds=30)
    same_bytes(read(m.path(old, "x")), data, "sealed once there was room")
    m.varve("verify")
    m.stop()


@timeout(120)
def test_boundary_and_drop_on_a_full_disk(t):
    where = t.volume(96)
    m = t.mount("bucket=1h,grace=100ms,min-free=0,undrop=0s", store=os.path.join(where, "store"))
    m.expect(ALLOWED)
    put(m.cur("big"), os.urandom(20 << 20))
    append(m.cur("x"), b"1\n")
    a = m.next_sealed()
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"2\n")
    filler(where, 0)
    with open(os.path.join(where, "filler2"), "wb", buffering=0) as f:  # the last blocks too
        try:
            while True:
                f.write(b"z" * 4096)
        except OSError as e:
            eq(e.errno, errno.ENOSPC, "the volume is full to the brim")
    b = m.next()
    eq(read(m.path(b, "x")), b"2\n", "a boundary on a full disk")
    os.rmdir(m.path(a))
    ok(a not in m.buckets(), "a drop on a full disk")
    wait_until(lambda: os.statvfs(where).f_bavail * 4096 > 15 << 20, 10, "its space is back")
    write_all(fd, b"3\n")
    eq(read(m.cur("x")), b"3\n", "writers go on")
    os.close(fd)
    m.wait_sealed(b)
    ok(m.audit_of("drop", a), "the audit line")
    m.varve("verify")
    m.stop()


@timeout(120)
def test_policy_makes_room_before_a_writer_meets_enospc(t):
    """min-free drops the oldest while one writer writes three times the volume."""
    where = t.volume(128)
    m = t.mount("bucket=1s,grace=100ms,min-free=25%", store=os.path.join(where, "store"), clock=False)
    m.expect(ALLOWED)
    fd, wrote, began = os.open(m.cur("x"), APPEND), 0, time.monotonic()
    while wrote < 300 << 20:
        write_all(fd, os.urandom(256 << 10))
        wrote += 256 << 10
        if wrote % (2 << 20) == 0:
            os.fsync(fd)  # no faster than the disk, on which a drop has to wait, too
        time.sleep(max(0, began + wrote / (16 << 20) - time.monotonic()))
    os.close(fd)
    ok(any(a["event"] == "expire" and a["cause"] == "min-free" for a in m.audit()), "policy dropped")
    print(f"{wrote >> 20} MiB through a volume of 128 MiB in {time.monotonic() - began:.0f} s")
    m.stop()


main(jobs=2)
