"""Writers outlive the daemon: it is killed under load, a boundary passes, it is started again.

Where writes are passed through to the kernel, no write(2) on a held descriptor fails, and the next daemon
finds every line; where they are served by the daemon, writers fail, and what was acknowledged is there.
VARVE_TEST_KILLS: how often it is killed in the long test (5).
"""
import os
import random
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
KILLS = int(os.environ.get("VARVE_TEST_KILLS", "5"))
FILES = ("a", "b", "c", "d")


def write(t, m, numbers):
    """A writer a file, each from its own number on, at some thousand lines a second."""
    return [t.spawn([LOADGEN, "write", "-p", "50", "-l", f, "-f", str(numbers[f]), m.cur(f)],
                    stdout=subprocess.PIPE) for f in FILES]


def ended(writers):
    """{file: (number of the line after the last acknowledged one, errno)}"""
    for p in writers:
        p.terminate()
    out = [p.communicate(timeout=30 * SLOW)[0].decode().split()[:3] for p in writers]
    return {f: (int(n), int(error)) for f, n, error in out}


def check(t, m, letter, want):
    """All lines of one file, bucket by bucket; the number of the line after the last one."""
    names = sorted(m.root())
    r = t.run([LOADGEN, "check", f"{letter}=0-{want}", "--",
               *[f"0:0:{m.path(b, letter)}" for b in names]], rc=None, seconds=120)
    said = r.stdout.decode()
    eq(r.returncode, 0, f"{letter}: {said}\n{m.log()[-2000:]}")
    return int(said.split()[-1])


@timeout(60 + 12 * KILLS)
def test_killed_under_load(t):
    m = t.mount("bucket=1s,grace=300ms,seal-level=1,min-free=0", clock=False)
    m.expect("outlived", "were written to since")
    passes, r = m.passes(), random.Random(7)
    next_line = dict.fromkeys(FILES, 0)
    writers = write(t, m, next_line)
    for i in range(KILLS):
        time.sleep(0.2 + r.random() * 1.5)
        m.kill(helpers=i % 2 == 0)
        time.sleep(r.random() * 2)  # in which boundaries pass, and writers go on
        if not passes:
            for f, (n, error) in ended(writers).items():
                ok(error in DEAD, f"round {i}: {f} met {os.strerror(error)}")
                next_line[f] = n
        m.start()
        if passes:
            eq([p.poll() for p in writers], [None] * 4, f"round {i}: the writers run")
            ok(i == 0 or "outlived" in m.log(), "the next daemon says that somebody still writes")
        else:
            for f in FILES:
                n = check(t, m, f, "?")
                ok(n - next_line[f] in (0, 1), f"round {i}: {f} has {n} lines, acknowledged "
                   f"{next_line[f]}")
                next_line[f] = n
            writers = write(t, m, next_line)
    time.sleep(0.5)
    got = ended(writers)
    for f, (n, error) in got.items():
        eq(error, 0, f"{f}: no write fails")
        check(t, m, f, n)
    last = m.open_name()
    wait_until(lambda: m.open_name() != last, 5, "the last window passes")
    m.wait_all_sealed(60)
    for f, (n, _) in got.items():
        check(t, m, f, n)
    m.remount()
    for f, (n, _) in got.items():
        check(t, m, f, n)
    m.varve("verify", seconds=120)
    print(f"{KILLS} kills, {sum(n for n, _ in got.values())} lines, {len(m.root())} buckets, "
          f"{'passthrough' if passes else 'served'}")


# -- one step at a time -----------------------------------------------------------------------------

class Writer:
    """A held descriptor that is opened anew only when it must be, and what its file must hold."""

    def __init__(self, m, path):
        self.m, self.path, self.want = m, path, b""
        self.fd = os.open(m.cur(path), APPEND)

    def write(self, data):
        """Writes; returns whether the descriptor took it."""
        try:
            ok(os.write(self.fd, data) == len(data), "a short write")
            self.want += data
            return True
        except OSError as e:
            if e.errno not in DEAD:
                raise
            return False

    def again(self, data):
        """After a restart: the held descriptor if it is one that outlives the daemon, else a new one."""
        if not self.write(data):
            self.close()
            self.fd = os.open(self.m.cur(self.path), APPEND)
            ok(self.write(data), "a fresh descriptor")

    def close(self):
        try:
            os.close(self.fd)
        except OSError as e:  # what belongs to a dead mount is closed all the same
            ok(e.errno in DEAD, f"close: {e}")

    def check(self, what):
        same_bytes(b"".join(d for _, d in self.m.history(self.path)), self.want,
                   f"{self.path}, {what}")


def parts_of(m, path):
    """{bucket: (inode, size)} of a path's parts on the disk beneath."""
    out = {}
    for b in os.listdir(os.path.join(m.store, "open")):
        p = os.path.join(m.store, "open", b, "default/0", path)
        if os.path.exists(p):
            st = os.stat(p)
            out[b] = (st.st_ino, st.st_size)
    return out


@timeout(90)
def test_windows_without_a_daemon(t):
    """What was written meanwhile is the bucket's that was current; windows without a daemon have none."""
    m = t.mount("bucket=1h,grace=1m")
    m.expect("outlived", "were written to since")
    x, passes = Writer(m, "x"), m.passes()
    x.write(b"1\n")
    a = m.open_name()
    for i in range(3):
        m.kill(helpers=i == 0)
        eq(x.write(b"down %d\n" % i), passes, "a write while there is no daemon")
        m.shift(3 * 3600)
        eq(x.write(b"still down %d, " % i), passes, "another, windows later")
        m.start()
        if passes:
            has(m.log(), "outlived", "it is said that a writer is there")
        x.again(b"up %d\n" % i)
        x.check(f"after start {i}")
        if i == 0 and passes:
            # Who was within a line when the daemon came back could still end it.
            eq(m.history("x")[0], (a, b"1\ndown 0\nstill down 0, up 0\n"), "the bucket of before")
        x.write(b"and on %d\n" % i)
        x.check(f"with a line more after start {i}")
        m.next()
        x.write(b"after a boundary %d\n" % i)
        x.check(f"a boundary after start {i}")
    names = [b for b, _ in m.history("x")]
    ok(len(names) <= 8, f"no bucket for windows without a daemon: {names}")
    before = [h for h in m.history("x") if h[1]]
    m.next()
    m.shift(61)
    m.wait_all_sealed()
    eq([h for h in m.history("x") if h[1]], before, "sealed, the same")
    x.write(b"after the seal\n")
    x.check("after the seals")
    x.close()
    m.remount()
    x.check("in the end")
    m.varve("verify")


@timeout(90)
def test_an_orphans_part_is_never_removed_under_it(t):
    """Sealed, dropped, the trash emptied: the writer of an earlier daemon still loses no line. Once it
    is gone, the path's next part begins anew."""
    m = t.mount("bucket=1h,grace=100ms,undrop=0s")
    m.expect("outlived", "were written to since")
    x, passes = Writer(m, "x"), m.passes()
    x.write(b"0\n")
    m.kill()
    x.write(b"down\n")
    m.start()
    x.again(b"1\n")
    kept = []
    for i in range(4):
        a = m.next()
        x.write(b"window %d\n" % i)
        m.wait_sealed(a)
        x.write(b"after the seal %d\n" % i)
        data = read(m.path(a, "x"))
        if i % 2:
            kept.append((a, data))
        else:
            at = sum(len(d) for _, d in kept)
            eq(x.want[at:at + len(data)], data, f"what is dropped with {a}")
            x.want = x.want[:at] + x.want[at + len(data):]
            os.rmdir(m.path(a))
            wait_until(lambda: os.listdir(os.path.join(m.store, "trash")) == [], 10, "an empty trash")
        if i == 1:
            m.kill()
            x.write(b"down again\n")
            m.start()
            x.again(b"up again\n")
        x.check(f"window {i}")
    x.close()
    # That nobody is left is seen at the next start; what is written then begins a part anew.
    m.remount()
    if passes:
        ok("outlived" not in read(m.logs[-1]).decode(), "nobody is left")
    m.next_sealed()
    append(m.cur("x"), b"a part of its own\n")
    eq(parts_of(m, "x")[m.open_name()][1], 18, "the next part begins anew")
    for b, d in kept:
        eq(read(m.path(b, "x")), d, f"{b}")
    m.varve("verify")


@timeout(60)
def test_an_orphan_whose_name_went(t):
    """Unlinked, renamed and replaced under the next daemon, while its writer goes on."""
    m = t.mount("bucket=1h,grace=100ms")
    m.expect("outlived", "were written to since")
    w = {n: Writer(m, n) for n in ("gone", "moved", "replaced", "emptied")}
    passes = m.passes()
    for x in w.values():
        x.write(b"before\n")
    m.kill()
    m.start()
    for x in w.values():
        x.again(b"after\n")
    os.unlink(m.cur("gone"))
    os.rename(m.cur("moved"), m.cur("moved.1"))
    put(m.path(".staging/new"), b"published\n")
    os.rename(m.path(".staging/new"), m.cur("replaced"))
    os.truncate(m.cur("emptied"), 0)
    for n, x in w.items():
        ok(x.write(b"on\n"), f"{n} goes on")
    eq(sorted(os.listdir(m.cur())), ["emptied", "moved.1", "replaced"], "the names")
    eq(read(m.cur("moved.1")), b"before\nafter\non\n", "the renamed one")
    eq(read(m.cur("replaced")), b"published\n", "the replaced one")
    eq(read(m.cur("emptied")), b"on\n", "the emptied one")
    a = m.next_sealed()
    for n, x in w.items():
        ok(x.write(b"next\n"), f"{n} goes on after a boundary")
    eq(read(m.path(a, "moved.1")), b"before\nafter\non\n", "the renamed one, sealed")
    eq(read(m.cur("moved.1")), b"next\n", "goes on under its new name")
    eq(read(m.path(a, "replaced")), b"published\n", "the replaced one, sealed")
    eq((read(m.path(a, "emptied")), read(m.cur("emptied"))), (b"on\n", b"next\n"), "the emptied one")
    ok("gone" not in os.listdir(m.cur()) + os.listdir(m.path(a)), "the unlinked one")
    m.remount()
    eq(read(m.cur("moved.1")), b"next\n", "after another start")
    m.varve("verify")
    print("passthrough" if passes else "served")


def start_beyond(t, point):
    """A mount with four held files, whose daemon will exit at the point's next arrival: those that
    come with each start are behind it."""
    for n in range(1, 9):
        m = t.mount("bucket=1h,grace=1m", start=False)
        m.expect("test: exits at crash point", "outlived", "were written to since")
        try:
            m.start(ready=False, env={"VARVE_TEST_CRASH": f"{point}:{n}"})
            wait_until(lambda: m.proc.poll() is not None or m.is_mounted(), 10, "it starts")
            w = {f: Writer(m, f) for f in ("whole", "middle", "idle")}
            gone = Writer(m, "gone")
            os.unlink(m.cur("gone"))
            for _ in range(3):  # what the start set going has come to its end by then
                m.varve("status", rc=None)
            os.stat(m.cur())
            return m, w, gone
        except OSError as e:
            wait_until(lambda: m.proc.poll() is not None, 10, f"it ended: {e}")
            eq(m.proc.returncode, 86, f"{e}")
    raise Failure(f"{point} is come by at each start, again and again")


def held_over_a_crash(point):
    """The daemon exits at one of its crash points on the way over a boundary and a seal, while writers
    hold files: one at a line's end, one in the middle, one that writes nothing more, one unlinked."""
    def test(t):
        m, w, gone = start_beyond(t, point)
        w["whole"].write(b"w 1\n")
        w["middle"].write(b"m 1\nm 2 begun, ")
        w["idle"].write(b"i 1\n")
        gone.write(b"g\n")
        first = m.open_name()

        def dead():
            return m.proc.poll() is not None

        def step(condition, what):
            def done():
                try:
                    return dead() or condition()
                except OSError as e:
                    if e.errno in DEAD + (errno.ENOENT,):
                        return False
                    raise
            wait_until(done, 20, what)

        def over(text):
            at = next_start(m.now(), "1h")
            m.shift(at - m.now() + 0.002)
            step(lambda: m.open_name() == bucket_name(at, "1h"), "the boundary")
            # Died in the middle of it: those that can write go on.
            again = dead()
            for x in (w["whole"], w["middle"]):
                x.write(b"%s, ended\nnew %s\nbegun, " % (text, text))
            gone.write(b"g\n")
            if again:
                restart()
            for x in (w["whole"], w["middle"]):
                x.again(b"ended\n")

        def restart():
            eq(m.proc.returncode, 86, "it ended at the crash point")
            m.start()
            step(lambda: m.open_name(), "it is back")

        over(b"1")
        m.shift(61)
        m.past_jitter()
        step(lambda: m.is_sealed(first), "the seal")
        if point.startswith("seal.") and len(m.logs) == 1:
            wait_until(dead, 20, "it dies at its crash point")
        died = len(m.logs) > 1 or dead()
        for x in (w["whole"], w["middle"]):
            x.write(b"more\n")
        if dead():
            restart()
        for x in w.values():
            x.check("after the restart")
        for x in (w["whole"], w["middle"]):
            x.again(b"and more\n")
            x.check("and a line more")
        over(b"2")
        died = died or len(m.logs) > 1
        for x in w.values():
            x.check("after another boundary")
        m.shift(61)
        m.wait_all_sealed()
        for x in w.values():
            x.check("all sealed")
        m.next()
        m.shift(61)
        m.wait_all_sealed()
        m.remount()
        for x in w.values():
            x.check("after a remount")
        ok("gone" not in os.listdir(m.cur()), "the unlinked one stays so")
        eq([b for b in os.listdir(os.path.join(m.store, "open")) if b != m.open_name()], [],
           "nothing is left in open/")
        m.varve("verify")
        ok(died or "carry." in point and not m.passes(), f"the daemon never came by {point}")
    test.seconds = 90
    return test


for _point in crash_points():
    if _point.split(".")[0] not in ("publish", "drop"):
        globals()["test_crash_" + re.sub(r"\W", "_", _point)] = held_over_a_crash(_point)


@timeout(120)
def test_killed_around_boundaries(t):
    """SIGKILL at chance moments around a boundary, with fifty held files, whole lines and begun ones."""
    m = t.mount("bucket=1h,grace=1m")
    m.expect("outlived", "were written to since")
    r = random.Random(11)
    w = [Writer(m, f"{i:02d}") for i in range(50)]
    rounds = 5 if SANITIZED else 12
    for i in range(rounds):
        for k, x in enumerate(w):
            x.write(b"%d before\n%s" % (i, b"begun, " if (k + i) % 3 == 0 else b""))
        m.shift(next_start(m.now(), "1h") - m.now() + 0.001)
        ends = time.monotonic() + r.random() * 0.03
        while time.monotonic() < ends:
            for x in r.sample(w, 5):
                x.write(b"%d over\n" % i)
        m.kill()
        for x in r.sample(w, 10):
            x.write(b"%d down, " % i)
        if i % 3 == 2:
            m.shift(2 * 3600)
        m.start()
        for x in w:
            x.again(b"%d up\n" % i)
        for x in w[i % 5::5]:
            x.check(f"round {i}")
    m.next()
    m.shift(61)
    m.wait_all_sealed(60)
    for x in w:
        x.check("in the end")
        x.close()
    m.varve("verify")


main(jobs=3)
