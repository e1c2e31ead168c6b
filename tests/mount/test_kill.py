"""The daemon killed at each step of boundary, seal and drop, and a hundred times at random.

Crash points are read from the source, so that a new one is tried without being listed here. After
each death: remount; nothing acknowledged is missing, nothing is there twice, nothing is left over,
`varve verify` is clean, and life goes on.
"""
import os
import random
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT, errno.EBADF)


class Died(Exception):
    """The daemon ended at its crash point."""


class Story:
    """A fixed course of appends, publishing, boundaries, seals, an unlink and a drop, which knows
    what was acknowledged and what was only begun."""

    def __init__(self, t, m):
        self.t, self.m = t, m
        self.lines = 0          # acknowledged lines of x
        self.begun_line = False
        self.objects = {}       # path: bytes, acknowledged
        self.begun = {}         # path: bytes, perhaps
        self.removed = set()    # (bucket, path) whose unlink was acknowledged
        self.removing = None    # or only begun
        self.dropped = set()
        self.dropping = None
        self.whole = False      # the directory d/whole was published

    def dead(self):
        return self.m.proc.poll() is not None

    def do(self, call, *args):
        """A system call through the mount: its result, or Died."""
        try:
            return call(*args)
        except OSError as e:
            if e.errno in DEAD:
                deadline = time.monotonic() + 2 * SLOW
                while time.monotonic() < deadline:
                    if self.dead():
                        raise Died
                    time.sleep(0.005)
            raise

    def until(self, condition, what, seconds=15):
        def check():
            if self.dead():
                raise Died
            try:
                return condition()
            except OSError as e:
                if e.errno in DEAD:
                    return False
                raise
        return wait_until(check, seconds, what)

    def append(self, n):
        fd = self.do(os.open, self.m.cur("x"), APPEND)
        try:
            for _ in range(n):
                self.begun_line = True
                self.do(os.write, fd, lines.line("w", self.lines))
                self.lines += 1
                self.begun_line = False
            self.do(os.fsync, fd)
        finally:
            try:
                os.close(fd)
            except OSError:
                pass

    def publish(self, name, data):
        p = self.m.path(".staging", name)
        fd = self.do(os.open, p, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.do(os.write, fd, data)
        self.do(os.close, fd)
        self.begun[name] = data
        self.do(os.rename, p, self.m.cur(name))
        self.objects[name] = self.begun.pop(name)

    def boundary(self):
        m = self.m
        old = self.do(m.open_name)
        at = next_start(m.now(), "1h")
        m.shift(at - m.now() + 0.002)
        want = bucket_name(at, "1h")
        self.until(lambda: m.open_name() == want, f"{want} is open")
        return old

    def sealed(self, bucket):
        self.m.past_jitter()
        self.until(lambda: self.m.is_sealed(bucket), f"{bucket} is sealed")

    def tell(self):
        m = self.m
        self.do(os.mkdir, m.cur("d"))
        self.append(30)
        self.publish("o1", lines.text(60000))
        self.publish("o2", b"two\n")
        self.do(os.mkdir, m.path(".staging/whole"))
        self.do(put, m.path(".staging/whole/page"), b"html")
        self.do(os.rename, m.path(".staging/whole"), m.cur("d/whole"))
        self.whole = True
        self.do(os.rename, m.cur("o2"), m.cur("o3"))
        self.objects["o3"] = self.objects.pop("o2")
        a = self.boundary()
        self.append(10)
        self.sealed(a)
        self.append(5)
        self.removing = (a, "o3")
        self.do(os.unlink, m.path(a, "o3"))
        self.removed.add(self.removing)
        self.removing = None
        b = self.boundary()
        self.append(5)
        self.sealed(b)
        self.dropping = a
        self.do(os.rmdir, m.path(a))
        self.dropped.add(a)
        self.dropping = None
        self.until(lambda: os.listdir(os.path.join(m.store, "trash")) == [], "the trash is empty")
        c = self.boundary()
        self.sealed(c)
        self.append(5)
        m.proc.terminate()
        m.proc.wait(15 * SLOW)
        if m.proc.returncode == 86:
            raise Died

    def check(self):
        """After the remount. The first bucket may be gone, with what it held, if its drop was begun."""
        m = self.m
        m.wait_all_sealed()
        pieces = m.history("x")
        names = m.buckets()
        eq(names, sorted(set(names)), "no bucket twice")
        whole = b"".join(d for _, d in pieces)
        first = lines.parse(whole.split(b"\n", 1)[0])[1] if whole else self.lines
        if self.dropped or self.dropping:
            ok(first in ((30,) if self.dropped else (0, 30)), f"lines from {first} on, after a drop")
        else:
            eq(first if self.lines else 0, 0, "the first line")
        found = [lines.parse(l)[1] for l in whole.split(b"\n")[:-1]]
        counts = (self.lines, self.lines + 1) if self.begun_line else (self.lines,)
        ok(found == list(range(first, first + len(found))), f"in order, once: {found[:5]}...")
        ok(first + len(found) in counts, f"lines up to {first + len(found)}, acknowledged {self.lines}")
        if first == 0 and self.lines:
            here = {e: read(m.path(b, e)) for b in names for e in os.listdir(m.path(b))
                    if e not in ("x", "d")}
            here.update({e: read(m.cur(e)) for e in os.listdir(m.cur()) if e not in ("x", "d")})
            for p, data in self.objects.items():
                if any(p == r[1] for r in self.removed):
                    ok(p not in here, f"{p} was removed")
                elif not (self.removing and self.removing[1] == p) and not self.renaming(p, here):
                    eq(here.get(p), data, f"the published {p}")
            at = [m.path(b, "d/whole") for b in names + ["current"]  # the folder outlives its bucket
                  if os.path.exists(m.path(b, "d/whole/page"))]
            ok(len(at) <= 1 and (at or not self.whole), f"the published directory, once: {at}")
            for p in at:
                eq(read(os.path.join(p, "page")), b"html", "whole")
            ok(set(here) <= set(self.objects) | set(self.begun) | {"o3"}, f"nothing else: {set(here)}")
        self.tidy()
        m.varve("verify")

    def renaming(self, p, here):
        return p == "o2" and here.get("o3") == self.objects[p]

    def tidy(self):
        m = self.m
        wait_until(lambda: os.listdir(os.path.join(m.store, "trash")) == [], 10, "an empty trash")
        open_name = m.open_name()
        wait_until(lambda: [b for b in os.listdir(os.path.join(m.store, "open")) if b != open_name]
                   == [], 10, "nothing left in open/")
        for top, dirs, files in os.walk(os.path.join(m.store, "sealed")):
            for f in files:
                ok(re.fullmatch(r"[^.].*\.tar\.zst", f), f"a leftover in sealed/: {f}")

    def go_on(self):
        """Life goes on: a line, a boundary, a seal, a drop."""
        m = self.m
        append(m.cur("after"), b"after\n")
        b = m.next_sealed()
        eq(read(m.path(b, "after")), b"after\n", "the next bucket")
        os.rmdir(m.path(b))
        ok(b not in m.buckets(), "dropped")


def die_at(point):
    def test(t):
        m = t.mount("bucket=1h,grace=100ms,undrop=0s", start=False)
        m.expect("test: exits at crash point")
        env = {"VARVE_TEST_CRASH": point}
        story = Story(t, m)
        died = False
        try:
            m.start(ready=False, env=env)
            story.until(lambda: m.is_mounted() and os.stat(m.cur()), "the mount answers")
            story.tell()
        except Died:
            died = True
        if not died:  # reached only by a start that finds something to do
            m.start()
            append(m.cur("x"), lines.line("w", story.lines))
            story.lines += 1
            m.next()
            m.kill()
            try:
                m.start(ready=False, env=env)
                story.until(lambda: m.is_mounted() and os.stat(m.cur()), "the mount answers")
                story.until(lambda: all(m.is_sealed(b) for b in m.buckets()), "sealed")
                m.kill()
            except Died:
                died = True
        ok(died, f"the daemon never came by the crash point {point}")
        eq(m.proc.returncode, 86, "it ended there")
        m.start()
        story.check()
        m.remount()
        story.check()
        story.go_on()
    test.seconds = 90
    return test


for _point in crash_points():
    globals()["test_crash_" + re.sub(r"\W", "_", _point)] = die_at(_point)
    globals()["test_crash_" + re.sub(r"\W", "_", _point) + "_second_time"] = die_at(_point + ":2") \
        if _point.split(".")[0] in ("seal", "boundary") else None


def test_there_are_crash_points(t):
    have = crash_points()
    for step in ("boundary", "seal", "drop"):
        ok(any(p.startswith(step + ".") for p in have), f"points named {step}.*: {have}")


@timeout(200)
def test_case05_killed_a_hundred_times_while_sealing(t):
    """Each start finishes or redoes it; no half bucket to be seen, no leftover."""
    m = t.mount("bucket=1h,grace=0s,seal-level=12")
    r = random.Random(5)
    times = 40 if SANITIZED else 100
    want, n = {}, 0
    for i in range(times):
        data = {f"f{k}": lines.text(r.randrange(1, 400000), i * 10 + k) for k in range(3)}
        for p, d in data.items():
            put(m.cur(p), d)
        append(m.cur("x"), lines.lines("w", n, 20))
        n += 20
        b = m.next()
        want[b] = data
        time.sleep(r.random() * 0.12)
        m.kill()
        m.start()
        # No half bucket: what is seen of it is whole at any moment.
        for p, d in data.items():
            same_bytes(read(m.path(b, p)), d, f"after kill {i}: {p} in {b}")
    m.wait_all_sealed(60)
    for b, data in want.items():
        eq(sorted(os.listdir(m.path(b))), ["f0", "f1", "f2", "x"], f"{b} lists")
        for p, d in data.items():
            same_bytes(read(m.path(b, p)), d, f"{p} in {b}")
    lines.check([d for _, d in m.history("x")], {"w": n})
    Story(t, m).tidy()
    m.varve("verify")
    print(f"{times} kills, {len(m.buckets())} buckets")


@timeout(120)
def test_killed_while_writing(t):
    """SIGKILL at random moments of appending, creating and renaming: what was acknowledged is there."""
    m = t.mount("bucket=1h,grace=100ms")
    r, n, made = random.Random(6), 0, set()
    for i in range(20):
        p = t.spawn([sys.executable, "-c", WRITER, m.cur(), str(n), os.path.dirname(lines.__file__)],
                    stdout=subprocess.PIPE, bufsize=0)  # communicate() would lose what is buffered
        first = p.stdout.readline()
        time.sleep(r.random() * 0.15)
        m.kill()
        out = (first + p.communicate(timeout=20 * SLOW)[0]).split(b"\n")
        acked = [l for l in out[:-1]]
        n_before = n
        n = max([n] + [int(l[2:]) + 1 for l in acked if l.startswith(b"a ")])
        made |= {l[2:].decode() for l in acked if l.startswith(b"m ")}
        m.start()
        got = b"".join(d for _, d in m.history("x"))
        found = got.count(b"\n")
        ok(found in (n, n + 1), f"round {i}: {found} lines, acknowledged {n} (from {n_before})")
        lines.check([got], {"w": found})
        n = found
        here = set(os.listdir(m.cur()))
        ok(made <= here, f"round {i}: files made and acknowledged: {sorted(made - here)[:5]} missing")
    m.next_sealed()
    m.varve("verify")


WRITER = """
import os, sys
sys.path.insert(0, sys.argv[3])
import lines
top, n = sys.argv[1], int(sys.argv[2])
out = lambda s: os.write(1, s.encode())
try:
    fd = os.open(top + "/x", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        os.write(fd, lines.line("w", n))
        out(f"a {n}\\n")
        if n % 7 == 0:
            name = f"made-{n}"
            os.close(os.open(top + "/tmp-" + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            os.rename(top + "/tmp-" + name, top + "/" + name)
            out(f"m {name}\\n")
        n += 1
except OSError:
    pass
"""


main(jobs=3)
