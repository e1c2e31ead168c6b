"""Held files on the disk beneath: what power loss, a drop, a seal and a full volume leave of them, what is
given back, and what `varve` reads of it without the mount."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def held(m, name, data):
    fd = os.open(m.cur(name), APPEND)
    write_all(fd, data)
    return fd


def part(m, bucket, name):
    return os.path.join(m.store, "open", bucket, "default/0", name)


def allocated(top):
    """Bytes on disk below a folder, each file once."""
    seen = {}
    for at, _, files in os.walk(top):
        for f in files:
            try:
                st = os.lstat(os.path.join(at, f))
                seen[st.st_ino] = st.st_blocks * 512
            except FileNotFoundError:
                pass
    return sum(seen.values())


def seal(m, name):
    if not m.is_sealed(name):
        m.shift(61)
        m.wait_sealed(name)


# -- power loss -------------------------------------------------------------------------------------

def cut_to(share_of_a, share_of_b):
    """The part comes back shorter than the record says."""
    def test(t):
        m = t.mount("bucket=1h,grace=1m")
        passes = m.passes()
        old_data, new_data = lines.lines("a", 0, 100), lines.lines("b", 0, 100)
        fd = held(m, "x", old_data)
        old = m.next()
        write_all(fd, new_data)
        os.fsync(fd)
        new = m.open_name()
        m.kill()
        try:
            os.close(fd)
        except OSError:
            pass
        a = old_data[:round(len(old_data) * share_of_a)]
        b = new_data[:round(len(new_data) * share_of_b)]
        if passes:
            eq(os.stat(part(m, old, "x")).st_ino, os.stat(part(m, new, "x")).st_ino, "one part, two names")
            os.truncate(part(m, old, "x"), len(a + b))
        else:
            os.truncate(part(m, old, "x"), len(a))
            os.truncate(part(m, new, "x"), len(b))
        m.start()
        for what in ("at the start", "after another"):
            eq((os.stat(m.path(old, "x")).st_size, os.stat(m.path(new, "x")).st_size),
               (len(a), len(b)), f"the sizes {what}")
            eq(m.history("x"), [(old, a), (new, b)], what)
            m.remount()
        append(m.cur("x"), b"after the loss\n")
        eq(m.history("x"), [(old, a), (new, b + b"after the loss\n")], "and it goes on")
        fd = os.open(m.cur("x"), APPEND)
        third = m.next()
        os.write(fd, b"third\n")
        # What the loss left unfinished is ended by the next line, at the most.
        got = m.history("x")
        eq(got[0], (old, a), "the oldest")
        eq(b"".join(d for _, d in got[1:]), b + b"after the loss\nthird\n", "the others")
        os.close(fd)
        seal(m, third)
        eq(m.history("x"), got, "sealed")
        m.varve("verify")
    return test


test_power_loss_within_the_older_range = cut_to(0.505, 0)
test_power_loss_to_nothing = cut_to(0, 0)
test_power_loss_at_the_mark = cut_to(1, 0)
test_power_loss_within_the_newer_range = cut_to(1, 0.505)


# -- a full volume ----------------------------------------------------------------------------------

@timeout(90)
def test_reserved_blocks_are_not_for_writers(t):
    """An ordinary user can't fill, through the mount, what the filesystem beneath keeps for root; and a
    boundary, a drop and a seal work on what is left."""
    where = t.volume(96, reserve=20)
    reserve = (lambda st: (st.f_bfree - st.f_bavail) * st.f_frsize)(os.statvfs(where))
    ok(reserve > 10 << 20, f"there is a reserve: {reserve}")
    m = t.mount("bucket=1h,grace=1m,min-free=0,undrop=0s", store=os.path.join(where, "store"))
    m.expect("(?i)space|free")
    append(m.cur("first"), b"1\n")
    first = m.next()
    seal(m, first)
    for n in ("x", "y"):
        append(m.cur(n), b"")
        os.chmod(m.cur(n), 0o666)
    fd = held(m, "log", b"begun\n")
    who = dict(user=NOBODY, group=NOBODY, extra_groups=[])
    r = t.sh(f"fallocate -n -l 95M {m.cur('y')}", rc="fail", **who)
    has(r.stderr, "No space left", "what an ordinary user gets by fallocate")
    left = (lambda st: st.f_bfree * st.f_frsize)(os.statvfs(where))
    ok(left > reserve * 0.85, f"by fallocate {left} bytes are left of a reserve of {reserve}")
    os.truncate(m.cur("y"), 0)
    os.unlink(m.cur("y"))
    append(m.cur("y"), b"")
    os.chmod(m.cur("y"), 0o666)
    # By the kernel where it can be (append only), by the daemon in any case (read-write).
    for how, n in ((">>", "x"), ("1<>", "y")):
        r = t.sh(f"cat /dev/zero {how} {m.cur(n)}", rc="fail", **who)
        has(r.stderr, "No space left", f"what an ordinary user gets by {how}")
        left = (lambda st: st.f_bfree * st.f_frsize)(os.statvfs(where))
        ok(left > reserve * 0.85, f"by {how} {left} bytes are left of a reserve of {reserve}")
    old = m.next()
    eq(read(m.path(old, "log")), b"begun\n", "the boundary")
    os.rmdir(m.path(first))
    ok(first not in m.buckets(), "the drop")
    os.unlink(m.path(old, "x"))
    os.unlink(m.path(old, "y"))
    wait_until(lambda: os.statvfs(where).f_bavail > 0, 20, "space is back")
    write_all(fd, b"goes on\n")
    os.close(fd)
    eq(m.history("log"), [(old, b"begun\n"), (m.open_name(), b"goes on\n")], "the writer goes on")
    seal(m, old)
    m.varve("verify")
    m.stop()


# -- what it takes on the disk ------------------------------------------------------------------------

def test_space_is_counted_once_and_given_back(t):
    m = t.mount("bucket=1h,grace=1m")
    size = 8 << 20
    data = lines.text(size)
    fd = held(m, "x", data[:-1] + b"\n")
    old = m.next()
    os.write(fd, b"the next\n")
    os.fsync(fd)
    eq(os.stat(m.cur("x")).st_blocks <= 64, True,
       f"the newer file's blocks: {os.stat(m.cur('x')).st_blocks}")
    blocks = os.stat(m.path(old, "x")).st_blocks * 512
    ok(size * 0.95 < blocks < size * 1.1, f"the older file's blocks: {blocks} bytes")
    du = int(t.run(["du", "-s", "--block-size=1", m.mnt]).stdout.split()[0])
    ok(size * 0.95 < du < size * 1.2, f"du of both: {du}")
    st = m.status()
    ok(size * 0.95 < st["totals"]["allocated_bytes"] < size * 1.2, f"the status: {st['totals']}")
    seal(m, old)
    wait_until(lambda: allocated(os.path.join(m.store, "open")) < 1 << 20, 20,
               lambda: f"the older range is given back: {allocated(os.path.join(m.store, 'open'))}")
    eq(read(m.cur("x")), b"the next\n", "the newer file")
    ok(m.status()["totals"]["allocated_bytes"] < size * 0.6, f"the status: {m.status()['totals']}")
    # Many windows later the part has grown, what it takes has not.
    for i in range(5):
        b = m.next()
        os.write(fd, data[:1 << 20])
        os.write(fd, b"\n")
        m.shift(61)
        if i:
            m.wait_sealed(b)
    wait_until(lambda: allocated(os.path.join(m.store, "open")) < 3 << 20, 20,
               lambda: f"given back: {allocated(os.path.join(m.store, 'open'))}")
    # With its holder gone, the next window's part begins anew.
    os.close(fd)
    m.next()
    append(m.cur("x"), b"anew\n")
    eq(os.stat(part(m, m.open_name(), "x")).st_size, 5, "a part of its own")
    m.varve("verify")


def test_numbers_are_kept(t):
    """(st_ino, path) of every bucket's file: unique, and the same by stat, by listing, through sealing
    and remounts."""
    m = t.mount("bucket=1h,grace=1m")
    fds = [held(m, f"{i}", b"0\n") for i in range(5)]
    for w in range(3):
        m.next()
        for fd in fds:
            os.write(fd, b"%d\n" % (w + 1))

    def numbers():
        out = {}
        for b in sorted(m.root()):
            with os.scandir(m.path(b)) as it:
                for e in it:
                    out[b, e.name] = e.inode()
                    eq(os.stat(e.path).st_ino, e.inode(), f"{b}/{e.name}: stat and listing agree")
        return out
    was = numbers()
    eq(len(was), 20, "four buckets of five files")
    eq(len(set(was.values())), 20, "no number twice")
    for step in (m.remount, lambda: (m.shift(61), m.wait_all_sealed()), m.remount,
                 lambda: (m.kill(), m.start())):
        step()
        eq(numbers(), was, "the numbers")
        if step == m.remount:
            for fd in fds:
                try:
                    os.close(fd)
                except OSError:
                    pass
            fds = []


# -- drops and removals --------------------------------------------------------------------------------

def dropped(how, sealed_first):
    def test(t):
        m = t.mount("bucket=1h,grace=1m,undrop=1h")
        fds = {n: held(m, n, b"old " + n.encode() + b"\n") for n in ("a", "b")}
        old = m.next()
        for fd in fds.values():
            os.write(fd, b"new\n")
        if sealed_first:
            seal(m, old)
        was = tree(m.path(old))
        if how == "rmdir":
            os.rmdir(m.path(old))
        else:
            m.varve("drop", None, old)
        ok(old not in os.listdir(m.mnt), "gone from sight")
        for n, fd in fds.items():
            os.write(fd, b"after the drop\n")
            eq(read(m.cur(n)), b"new\nafter the drop\n", f"{n} in the newer bucket")
        m.kill()
        m.expect("outlived", "were written to since")
        m.start()
        eq({n: read(m.cur(n)) for n in fds}, dict.fromkeys(fds, b"new\nafter the drop\n"),
           "after a restart")
        second = m.next()
        eq(read(m.path(second, "a")), b"new\nafter the drop\n", "closing")
        m.varve("undrop", None, old)
        same_tree(tree(m.path(old)), was, "back again")
        m.varve("verify")
        os.rmdir(m.path(old))
        m.stop()
        # Nobody can take it back any more: what it held is removed, what the newer one has is not.
        m.start(options="bucket=1h,grace=1m,undrop=0s")
        wait_until(lambda: os.listdir(os.path.join(m.store, "trash")) == [], 10, "an empty trash")
        seal(m, second)
        for n in fds:
            eq(read(m.path(second, n)), b"new\nafter the drop\n", f"{n}, sealed")
        m.varve("verify")
        for fd in fds.values():
            try:
                os.close(fd)
            except OSError:
                pass
    return test


for _how in ("rmdir", "varve_drop"):
    for _sealed in (False, True):
        globals()[f"test_{_how}_{'once_sealed' if _sealed else 'while_closing'}"] = \
            dropped(_how, _sealed)


def test_removing_a_file_of_the_older_bucket(t):
    """rm of it while it is closing: the newer bucket's file of the same part stays, it does not come
    back, and the older one seals without it."""
    m = t.mount("bucket=1h,grace=1m")
    fds = {n: held(m, n, b"old\n") for n in ("gone", "kept", "sealed-then-gone")}
    old = m.next()
    for fd in fds.values():
        os.write(fd, b"new\n")
    r = os.open(m.path(old, "gone"), os.O_RDONLY)
    os.unlink(m.path(old, "gone"))
    raises(errno.ENOENT, os.stat, m.path(old, "gone"))
    eq(os.read(r, 100), b"old\n", "who has it open reads on")
    os.close(r)
    for n, fd in fds.items():
        os.write(fd, b"newer\n")
        eq(read(m.cur(n)), b"new\nnewer\n", n)
    m.remount()
    eq(sorted(os.listdir(m.path(old))), ["kept", "sealed-then-gone"], "after a remount")
    seal(m, old)
    eq(sorted(os.listdir(m.path(old))), ["kept", "sealed-then-gone"], "sealed")
    os.unlink(m.path(old, "sealed-then-gone"))
    m.remount()
    eq(os.listdir(m.path(old)), ["kept"], "in the end")
    for n, fd in fds.items():
        eq(read(m.cur(n)), b"new\nnewer\n", f"{n} in the end")
        try:
            os.close(fd)
        except OSError:
            pass
    m.varve("verify")


# -- without the mount ---------------------------------------------------------------------------------

def test_varve_reads_it_with_and_without_a_mount(t):
    m = t.mount("bucket=1h,grace=1m")
    m.expect("outlived", "were written to since")
    passes = m.passes()
    x, y = held(m, "x", b"x old\n"), held(m, "y", b"y old\nbegun, ")
    old = m.next()
    new = m.open_name()
    os.write(x, b"x new\n")

    def look(files, what):
        for p, want in files.items():
            eq(m.varve("cat", None, p).stdout, want, f"varve cat {p}, {what}")
        for b in (old, new):
            listed = m.varve("ls", "-l", None, b).stdout.decode().splitlines()
            for p, want in files.items():
                if p.startswith(b) and want:
                    line = next((l for l in listed if l.split()[-1] == p.split("/")[1]), None)
                    ok(line and str(len(want)) in line.split(), f"varve ls {p}, {what}: {line} "
                       f"(it has {len(want)} bytes)")
        m.varve("verify")
    files = {f"{old}/x": b"x old\n", f"{old}/y": b"y old\nbegun, ", f"{new}/x": b"x new\n"}
    look(files, "mounted")
    m.kill()
    look(files, "with no daemon")
    if passes:
        os.write(x, b"x more\n")
        os.write(y, b"ended\ny new\n")
        files = {f"{old}/x": b"x old\n", f"{old}/y": b"y old\nbegun, ended\n",
                 f"{new}/x": b"x new\nx more\n", f"{new}/y": b"y new\n"}
        look(files, "with no daemon, and writers that go on")
    m.start()
    look(files, "mounted again")
    seal(m, old)
    look(files, "one sealed")
    m.kill()
    look(files, "one sealed, with no daemon")
    for fd in (x, y):
        try:
            os.close(fd)
        except OSError:
            pass


main(jobs=3)
