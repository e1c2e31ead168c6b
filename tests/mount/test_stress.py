"""Everything at once over 1 s buckets: appends, renames, removals, readers, seals, drops, questions."""
import os
import random
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

SECONDS = 12

# One writer: its own files, its own random course. Prints what it acknowledged. Every line it ever
# wrote is in exactly one of its files (names w<N>*), in some bucket.
WRITER = """
import os, random, sys, time
sys.path.insert(0, sys.argv[1])
import lines
top, me, seconds = sys.argv[2], sys.argv[3], float(sys.argv[4])
r = random.Random(me)
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
n, ends = 0, time.monotonic() + seconds
held = os.open(f"{top}/{me}.log", APPEND)
names = 0
while time.monotonic() < ends:
    k = r.random()
    if k < 0.85:
        for _ in range(r.randrange(1, 20)):
            os.write(held, lines.line(me, n))
            n += 1
    elif k < 0.90:
        os.close(held)
        held = os.open(f"{top}/{me}.log", APPEND)
    elif k < 0.92:
        os.fsync(held)
    elif k < 0.94:  # rotation by hand, without telling the writer at first
        try:
            os.rename(f"{top}/{me}.log", f"{top}/{me}.log.{names}")
        except FileNotFoundError:
            pass
        names += 1
        os.write(held, lines.line(me, n))
        n += 1
        os.close(held)
        held = os.open(f"{top}/{me}.log", APPEND)
    elif k < 0.96:  # what is no log: made, renamed, removed
        d = f"{top}/scratch-{me}"
        os.makedirs(d + "/a/b", exist_ok=True)
        for f in ("x", "a/y", "a/b/z"):
            fd = os.open(f"{d}/{f}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(fd, b"scratch" * 100)
            os.close(fd)
        os.rename(d, d + ".moved")
        for at, ds, fs in os.walk(d + ".moved", topdown=False):
            for f in fs:
                try:
                    os.unlink(os.path.join(at, f))
                except FileNotFoundError:
                    pass  # a boundary came between
            for s in ds:
                os.rmdir(os.path.join(at, s))
        os.rmdir(d + ".moved")
    elif k < 0.98:
        half = lines.line(me, n)
        os.write(held, half[:len(half) // 2])
        time.sleep(r.random() * 0.01)
        os.write(held, half[len(half) // 2:])
        n += 1
    else:
        try:
            os.chmod(f"{top}/{me}.log", r.choice([0o600, 0o640, 0o644]))
        except FileNotFoundError:
            pass
        time.sleep(0.005)
os.close(held)
print(n)
"""

READER = """
import os, random, sys, time
mnt, seconds = sys.argv[1], float(sys.argv[2])
r, ends, got = random.Random(1), time.monotonic() + seconds, 0
while time.monotonic() < ends:
    try:
        top = os.path.join(mnt, r.choice([e for e in os.listdir(mnt) if not e.startswith(".")]))
        for at, ds, fs in os.walk(top):
            for f in fs:
                data = open(os.path.join(at, f), "rb").read()
                if b"\\0" in data:
                    print("NULs in", at, f)
                    sys.exit(1)
                got += len(data)
    except (FileNotFoundError, OSError) as e:
        if e.errno not in (2, 116):
            raise
print(got)
"""


def collect(m, buckets, out):
    """Adds each writer's lines in these buckets, file by file: {tag: [pieces]}."""
    for b in buckets:
        for f in sorted(os.listdir(m.path(b))):
            if re.match(r"w\d\.log", f):
                out.setdefault(f.split(".")[0], []).append(read(m.path(b, f)))
    return out


@timeout(150)
def test_everything_at_once(t):
    m = t.mount("bucket=1s,grace=200ms,undrop=0s", clock=False)
    lib = os.path.dirname(lines.__file__)
    writers = [t.spawn([sys.executable, "-c", WRITER, lib, m.cur(), f"w{i}", str(SECONDS)],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(3)]
    readers = [t.spawn([sys.executable, "-c", READER, m.mnt, str(SECONDS)],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    r, dropped, kept = random.Random(3), 0, {}
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        m.varve("status")
        sealed = [b for b in m.buckets() if m.is_sealed(b)]
        if len(sealed) > 3:  # the oldest goes, and what it held is remembered
            collect(m, sealed[:1], kept)
            if r.random() < 0.5:
                os.rmdir(m.path(sealed[0]))
            else:
                t.run(["rm", "-rf", m.path(sealed[0])])
            dropped += 1
        m.varve("seal", rc=None)
        time.sleep(0.1)
    counts = {}
    for i, p in enumerate(writers):
        out, err = p.communicate(timeout=60 * SLOW)
        eq(p.returncode, 0, f"writer {i}: {err.decode()[-1500:]}")
        counts[f"w{i}"] = int(out)
    for p in readers:
        out, err = p.communicate(timeout=60 * SLOW)
        eq(p.returncode, 0, f"a reader: {out} {err.decode()[-1500:]}")
    last = m.open_name()
    wait_until(lambda: m.open_name() != last, 5, "the last window passes")
    m.wait_all_sealed()
    collect(m, m.buckets(), kept)
    for tag, n in counts.items():
        found = []
        for piece in kept[tag]:
            ok(not piece or piece.endswith(b"\n"), f"{tag}: a piece ends inside a line")
            mine = [lines.parse(l)[1] for l in piece.split(b"\n")[:-1]]
            eq(mine, sorted(mine), f"{tag}: in order within each file")
            found += mine
        eq(len(found), len(set(found)), f"{tag}: no line twice")
        eq(set(range(n)) - set(found), set(), f"{tag}: no line lost")
    before = {b: tree(m.path(b)) for b in m.buckets()}
    m.remount()
    for b, was in before.items():
        same_tree(tree(m.path(b)), was, f"{b} after a remount")
    m.varve("verify")
    print(f"{sum(counts.values())} lines, {dropped} buckets dropped, {len(before)} kept")


main()
