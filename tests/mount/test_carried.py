"""What is held over a boundary: its bytes before it are the older bucket's, for good, whatever is done to
the name, the file or the bucket on either side; what is written after it is the newer one's.

Where writes are passed through to the kernel, the writer goes on in the very part that holds the older
bucket's bytes; where they are served, in a new one. Nothing here may tell the two apart.
"""
import mmap
import os
import sys
import threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
OLD = b"old 1\nold 2\n"


def held(m, name="x", data=OLD):
    """A stream with data in it and its writer's descriptor."""
    fd = os.open(m.cur(name), APPEND)
    os.write(fd, data)
    return fd


def facts(path):
    """What stat and the xattrs say of a file, but for what a seal changes (the blocks) and for the
    times of reading."""
    st = os.stat(path)
    xattrs = {k: os.getxattr(path, k) for k in os.listxattr(path)
              if not k.startswith("user.varve.")}
    return {"ino": st.st_ino, "mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid),
            "size": st.st_size, "mtime": st.st_mtime_ns, "xattrs": xattrs}


def beside(call, *args):
    """Begins a system call beside the test: its thread, and the list that its error, if any, is put into."""
    wrong = []

    def run():
        try:
            call(*args)
        except OSError as e:
            wrong.append(e)
    th = threading.Thread(target=run)
    th.start()
    return th, wrong


def seal(m, name):
    """Lets a bucket's grace end, without another boundary, and waits until it is sealed."""
    if not m.is_sealed(name):
        m.shift(1801)
        m.wait_sealed(name)


def through_all_states(m, old, name, what):
    """Checks that an older bucket's file is OLD and stays the same file while closing, after a restart,
    sealed, and after another."""
    was = facts(m.path(old, name))
    for step in (lambda: None, m.remount, lambda: seal(m, old), m.remount):
        step()
        eq(read(m.path(old, name)), OLD, f"{what}: the older bucket")
        eq(facts(m.path(old, name)), was, f"{what}: its attributes")
    m.varve("verify")


# -- what is done to the name in the newer bucket ---------------------------------------------------

def unlink(m, fd):
    os.unlink(m.cur("x"))
    os.write(fd, b"into nowhere\n")
    return None


def unlink_and_make_anew(m, fd):
    os.unlink(m.cur("x"))
    append(m.cur("x"), b"anew\n")
    os.write(fd, b"into nowhere\n")
    return b"anew\n"


def truncate(m, fd):
    os.truncate(m.cur("x"), 0)
    os.write(fd, b"on\n")
    return b"on\n"


def truncate_by_shell(m, fd):
    m.t.sh(f": > {m.cur('x')}")
    os.write(fd, b"on\n")
    append(m.cur("x"), b"and on\n")
    return b"on\nand on\n"


def truncate_twice(m, fd):
    for i in range(2):
        os.ftruncate(fd, 0)
        os.write(fd, b"%d\n" % i)
    return b"1\n"


def start_over_by_redirection(m, fd):
    m.t.sh(f"echo fresh > {m.cur('x')}")
    os.write(fd, b"on\n")
    return b"fresh\non\n"


def rename(m, fd):
    os.rename(m.cur("x"), m.cur("x.1"))
    os.write(fd, b"on\n")
    eq(read(m.cur("x.1")), b"new\non\n", "under its new name")
    return None


def rotate(m, fd):
    os.rename(m.cur("x"), m.cur("x.1"))
    append(m.cur("x"), b"the next\n")
    os.write(fd, b"on\n")
    eq(read(m.cur("x.1")), b"new\non\n", "under its new name")
    return b"the next\n"


def rename_over(m, fd):
    put(m.path(".staging/y"), b"published\n")
    os.rename(m.path(".staging/y"), m.cur("x"))
    os.write(fd, b"into nowhere\n")
    return b"published\n"


def rename_over_another(m, fd):
    append(m.cur("y"), b"to be replaced\n")
    os.rename(m.cur("x"), m.cur("y"))
    os.write(fd, b"on\n")
    eq(read(m.cur("y")), b"new\non\n", "under the other's name")
    return None


def move_folder(m, fd):
    mkdirs(m.cur("d"))
    os.rename(m.cur("x"), m.cur("d/x"))
    os.rename(m.cur("d"), m.cur("e"))
    os.write(fd, b"on\n")
    eq(read(m.cur("e/x")), b"new\non\n", "in the moved folder")
    return None


def copytruncate(m, fd):
    m.t.run(["cp", m.cur("x"), m.cur("x.1")])
    os.truncate(m.cur("x"), 0)
    os.write(fd, b"on\n")
    eq(read(m.cur("x.1")), b"new\n", "the copy")
    return b"on\n"


def dress(m, fd):
    os.chmod(m.cur("x"), 0o600)
    os.chown(m.cur("x"), 5, 6)
    os.setxattr(m.cur("x"), "user.k", b"new")
    os.setxattr(m.cur("x"), "user.more", b"new")
    os.utime(m.cur("x"), ns=(10**18, 10**18 + 1))
    os.fchmod(fd, 0o604)
    os.write(fd, b"on\n")
    return b"new\non\n"


def done_to_the_name(action, sealed_first):
    def test(t):
        m = t.mount("bucket=1h,grace=30m")
        fd = held(m)
        os.setxattr(m.cur("x"), "user.k", b"old")
        os.chmod(m.cur("x"), 0o640)
        old = m.next()
        os.write(fd, b"new\n")
        was = facts(m.path(old, "x"))
        eq(was["size"], len(OLD), "the older bucket's size")
        if sealed_first:
            seal(m, old)
        want = action(m, fd)
        got = read(m.cur("x")) if os.path.exists(m.cur("x")) else None
        eq(got, want, "current/ after it")
        eq(facts(m.path(old, "x")), was, "the older bucket's file")
        os.close(fd)
        through_all_states(m, old, "x", action.__name__)
        eq(facts(m.path(old, "x")), was, "the older bucket's file in the end")
        got = read(m.cur("x")) if os.path.exists(m.cur("x")) else None
        eq(got, want, "current/ after all that")
        then = m.next()
        if want is not None:
            seal(m, then)
        got = read(m.path(then, "x")) if os.path.exists(m.path(then, "x")) else None
        eq(got, want, "the newer bucket, sealed")
        eq(read(m.path(old, "x")), OLD, "the older one still")
    return test


for _action in (unlink, unlink_and_make_anew, truncate, truncate_by_shell, truncate_twice,
                start_over_by_redirection, rename, rotate, rename_over, rename_over_another,
                move_folder, copytruncate, dress):
    for _sealed in (False, True):
        _name = f"test_{_action.__name__}_{'once_sealed' if _sealed else 'while_closing'}"
        globals()[_name] = done_to_the_name(_action, _sealed)


# -- what is done before the boundary ---------------------------------------------------------------

def test_renamed_while_held_goes_on_under_its_new_name(t):
    m = t.mount("bucket=1h,grace=30m")
    fd = held(m)
    os.rename(m.cur("x"), m.cur("x.1"))
    old = m.next()
    os.write(fd, b"new\n")
    eq(read(m.path(old, "x.1")), OLD, "the older bucket")
    eq(read(m.cur("x.1")), b"new\n", "the newer one")
    os.close(fd)
    through_all_states(m, old, "x.1", "renamed while held")
    eq(os.listdir(m.path(old)), ["x.1"], "nothing else")


def test_unlinked_or_replaced_while_held_does_not_come_back(t):
    m = t.mount("bucket=1h,grace=30m")
    gone, replaced = held(m, "gone"), held(m, "replaced")
    os.unlink(m.cur("gone"))
    put(m.path(".staging/y"), b"published\n")
    os.rename(m.path(".staging/y"), m.cur("replaced"))
    old = m.next()
    for fd in (gone, replaced):
        os.write(fd, b"into nowhere\n")
    eq(os.listdir(m.path(old)), ["replaced"], "the older bucket")
    eq(read(m.path(old, "replaced")), b"published\n", "what replaced it")
    m.next()
    for fd in (gone, replaced):
        os.write(fd, b"into nowhere\n")
        os.fsync(fd)
        os.close(fd)
    m.remount()
    ok("gone" not in os.listdir(m.cur()), "it does not come back")
    m.shift(1801)
    m.wait_all_sealed()
    eq([d for _, d in m.history("replaced") if d], [b"published\n"], "nor does the other")


def test_truncated_while_held_before_the_boundary(t):
    m = t.mount("bucket=1h,grace=30m")
    fd = held(m, data=b"to be emptied\n")
    os.truncate(m.cur("x"), 0)
    os.write(fd, OLD)
    old = m.next()
    os.write(fd, b"new\n")
    eq(read(m.cur("x")), b"new\n", "the newer bucket")
    os.close(fd)
    through_all_states(m, old, "x", "truncated before")


# -- more than one boundary, more than one writer ----------------------------------------------------

def test_carried_over_five_boundaries(t):
    """With and without something written in each window; every one of them seals on its own."""
    m = t.mount("bucket=1h,grace=30m")
    fd, want, inos = held(m), [(m.open_name(), OLD)], set()
    for i in range(5):
        m.next()
        data = b"" if i in (1, 3) else b"window %d\n" % i * (i + 1)
        if data:
            os.write(fd, data)
            want.append((m.open_name(), data))
        eq(read(m.cur("x")), data, f"window {i}")
        eq(os.stat(m.cur("x")).st_size, len(data), f"its size in window {i}")
        for b, d in want:
            eq(read(m.path(b, "x")), d, f"{b} in window {i}")
    inos = {b: os.stat(m.path(b, "x")).st_ino for b, _ in want}
    eq(len(set(inos.values())), len(want), "each bucket's file has a number of its own")
    m.shift(1801)
    last = m.next()
    m.shift(1801)
    m.wait_sealed(last)
    os.write(fd, b"the end\n")
    os.close(fd)
    m.remount()
    eq([(b, d) for b, d in m.history("x") if d], want + [(m.open_name(), b"the end\n")], "in the end")
    eq({b: os.stat(m.path(b, "x")).st_ino for b in inos}, inos, "the numbers, sealed and remounted")
    m.varve("verify")


def test_a_window_in_which_nothing_is_written_has_no_file(t):
    """Held into a bucket and closed there, or held over the whole of it, without a byte."""
    m = t.mount("bucket=1h,grace=30m")
    closed, over = held(m, "closed"), held(m, "over")
    append(m.cur("busy"), b"1\n")
    a = m.next()
    append(m.cur("busy"), b"2\n")
    eq((os.stat(m.cur("closed")).st_size, os.stat(m.cur("over")).st_size), (0, 0), "both are empty")
    os.close(closed)
    b = m.next()
    append(m.cur("busy"), b"3\n")
    os.write(over, b"yet\n")
    os.close(over)
    seal(m, b)
    eq(sorted(os.listdir(m.path(a))), ["busy", "closed", "over"], "the first bucket")
    eq(os.listdir(m.path(b)), ["busy"], "the second has what was written to it")
    eq(sorted(os.listdir(m.cur())), ["busy", "closed", "over"], "current/")
    eq(read(m.cur("over")), b"yet\n", "what came after it")
    m.remount()
    eq(os.listdir(m.path(b)), ["busy"], "after a remount")


def test_empty_files_that_are_there_and_that_are_not(t):
    """Truncated after it held something, a file is there, over a remount as well; one that never held anything in
    its bucket is not, whatever was truncated."""
    m = t.mount("bucket=1h,grace=5m")
    names = ("emptied", "never", "emptied-before")
    fds = [os.open(m.cur(n), APPEND) for n in names]
    os.write(fds[0], b"old\n")
    os.write(fds[2], b"gone\n")
    os.truncate(m.cur("emptied-before"), 0)
    first = m.next()
    os.write(fds[0], b"new\n")
    os.truncate(m.cur("emptied"), 0)
    os.truncate(m.cur("never"), 0)
    second = m.next()

    def look(what):
        eq(sorted(os.listdir(m.path(first))), sorted(names), f"the first, {what}")
        eq(os.listdir(m.path(second)), ["emptied"], f"the second, {what}")
        eq(read(m.path(second, "emptied")), b"", f"what is in it, {what}")
    look("closing")
    for fd in fds:
        os.close(fd)
    m.remount()
    look("after a remount")


def test_one_holds_and_one_reopens(t):
    """A held descriptor and `>>` again and again, on one file, over boundaries, by two threads."""
    m = t.mount("bucket=1s,grace=200ms", clock=False)
    ends, counts, wrong = time.monotonic() + 4.5, {}, []

    def holder():
        fd, n = os.open(m.cur("x"), APPEND), 0
        while time.monotonic() < ends:
            os.write(fd, lines.line("held", n))
            n += 1
        os.close(fd)
        counts["held"] = n

    def reopener():
        n = 0
        while time.monotonic() < ends:
            append(m.cur("x"), lines.line("anew", n))
            n += 1
        counts["anew"] = n

    def safely(f):
        try:
            f()
        except OSError as e:
            wrong.append(f"{f.__name__}: {e}")
    threads = [threading.Thread(target=safely, args=(f,)) for f in (holder, reopener)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    eq(wrong, [], "no open or write fails")
    lines.check([d for _, d in m.history("x")], counts)
    m.wait_all_sealed()
    lines.check([d for _, d in m.history("x")], counts)
    ok(len(m.history("x")) >= 5, "over four boundaries or more")


def test_opens_racing_the_end_of_a_part(t):
    """Readers by the dated path and writers that reopen, while boundaries and seals come as fast as can
    be: each open finds its file, each read its bytes."""
    m = t.mount("bucket=1h,grace=0s")
    stop, wrong = threading.Event(), []
    fd = held(m, data=b"0\n")
    # What each bucket's file must be: known before anybody looks, and never to change.
    known = {}

    def reader():
        while not stop.is_set():
            for b, want in list(known.items()):
                try:
                    got = read(m.path(b, "x"))
                except OSError as e:
                    got = e
                if got != want:
                    wrong.append(f"{b}: {got!r}, wanted {want!r}")
                    return

    def opener():
        while not stop.is_set():
            try:
                for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR):
                    os.close(os.open(m.cur("x"), flags))
            except OSError as e:
                wrong.append(f"an open: {e}")
                return
    threads = [threading.Thread(target=f) for f in (reader, reader, opener)]
    for th in threads:
        th.start()
    try:
        for i in range(1, 40):
            want = b"%d\n" % (i - 1)
            old = m.next()
            os.write(fd, b"%d\n" % i)
            eq(read(m.path(old, "x")), want, f"{old}")
            known[old] = want
            if len(known) > 6:
                del known[min(known)]
            if wrong:
                break
        m.wait_all_sealed()
    finally:
        stop.set()
        for th in threads:
            th.join()
    eq(wrong, [], "nobody met an error")
    os.close(fd)


# -- what readers see --------------------------------------------------------------------------------

def test_sizes_seen_through_another_node(t):
    """A descriptor sees at once what was written by another path to the file, in size and in bytes."""
    m = t.mount("bucket=1h,grace=30m")
    w = held(m)
    r = os.open(m.cur("x"), os.O_RDONLY)
    size = len(OLD)

    def look(what):
        eq(os.fstat(r).st_size, size, f"{what}: the size")
        eq(os.lseek(r, 0, os.SEEK_END), size, f"{what}: SEEK_END")
        eq(len(os.pread(r, 4096, 0)), size, f"{what}: the bytes")
        eq(os.stat(m.path(m.old, "x")).st_size, size, f"{what}: the size by the dated path")
    m.old = m.open_name()
    for i in range(20):
        size += os.write(w, b"held\n")
        look("after a held descriptor's write")
        append(m.cur("x"), b"by name\n")
        size += 8
        look("after a write by name")
    m.old = m.next()
    for i in range(20):
        os.write(w, b"the next bucket's\n")
        look("after the next bucket's writes")
        append(m.path(m.old, "x"), b"late\n")
        size += 5
        look("after late data")
    eq(os.stat(m.cur("x")).st_size, 20 * 18, "the newer file's size")
    os.close(w)
    os.close(r)


def test_sendfile_of_a_growing_file(t):
    """sendfile and splice go by the page cache, which is not told of what is appended: they must fail
    (callers fall back to read) or give the bytes, never NULs or an old end."""
    m = t.mount("bucket=1h,grace=30m")
    append(m.cur("x"), lines.lines("w", 0, 50))
    r = os.open(m.cur("x"), os.O_RDONLY)
    p = t.spawn([LOADGEN, "write", "-p", "50", m.cur("grows"), m.cur("grows")],
                stdout=subprocess.PIPE)
    wait_until(lambda: os.path.exists(m.cur("grows")) and os.stat(m.cur("grows")).st_size, 5, "grows")
    g = os.open(m.cur("grows"), os.O_RDONLY)
    refused = 0
    for i in range(100):
        if i == 50:
            m.next()
        src = g if i % 2 else os.open(m.cur("grows"), os.O_RDONLY)
        size = os.fstat(src).st_size
        out = os.open(t.path("copy"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            got = os.sendfile(out, src, 0, size + 100000)
            data = os.pread(out, got, 0)
            ok(got >= size and b"\0" not in data, f"copy {i}: {got} of {size} bytes, "
               f"{data.count(0)} NULs")
        except OSError as e:
            eq(e.errno, errno.EINVAL, f"copy {i}")
            refused += 1
        os.close(out)
        if src != g:
            os.close(src)
        # What tools make of it.
        if i % 20 == 0:
            size = os.stat(m.cur("grows")).st_size
            t.run(["cp", m.cur("grows"), t.path("copied")])
            data = read(t.path("copied"))
            ok(len(data) >= size and b"\0" not in data, f"cp {i}: {len(data)} of {size} bytes")
    p.terminate()
    p.communicate()
    rfd, wfd = os.pipe()
    try:
        n = os.splice(r, wfd, 100, offset_src=0)
        same_bytes(os.read(rfd, 100), lines.lines("w", 0, 50)[:n], "what a splice gives")
    except OSError as e:
        eq(e.errno, errno.EINVAL, "a splice")
    for fd in (r, g, rfd, wfd):
        os.close(fd)
    print(f"{refused} of 100 were refused")


# Prints what a private mapping of a file holds; a file that can't be mapped is SIGBUS or ENODEV.
MAPPER = """
import mmap, os, sys
fd = os.open(sys.argv[1], int(sys.argv[2]))
size = os.fstat(fd).st_size
try:
    m = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
except OSError as e:
    sys.exit(f"mmap: {e.errno}")
for go in sys.stdin.buffer:
    if go == b"close\\n":
        os.close(fd)
    os.write(1, m[:])
"""


class Mapper:
    """Another process that maps a file, since what a mapping may get is SIGBUS."""

    def __init__(self, t, path, flags=os.O_RDONLY):
        self.size = os.stat(path).st_size
        self.p = t.spawn([sys.executable, "-c", MAPPER, path, str(flags)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def look(self, want, what, say=b"look\n"):
        """The bytes are right, or there is no mapping of such a file at all."""
        try:
            self.p.stdin.write(say)
            self.p.stdin.flush()
        except BrokenPipeError:
            pass
        got = b""
        while len(got) < self.size:
            piece = os.read(self.p.stdout.fileno(), 1 << 16)
            if not piece:
                break
            got += piece
        if got:
            same_bytes(got, want, what)
        else:
            rc = self.p.wait()
            err = self.p.stderr.read()
            ok(rc == -signal.SIGBUS or b"mmap: 19" in err or b"mmap: 22" in err,
               f"{what}: the mapper ended with {rc}: {err}")
        return bool(got)


def test_reading_while_a_range_is_given_back(t):
    """A read that is under way while its bucket is sealed, and the range given back, gets the bytes and not the hole that is
    left of them."""
    pause = os.path.join(t.dir, "pause")
    m = t.mount("bucket=1h,grace=0s", env={"VARVE_TEST_PAUSE": "read.part:" + pause})
    data, got = lines.text(300000), []
    fd = held(m, "x", data)
    put(m.cur("wait"), b"")
    old = m.next()
    os.write(fd, b"new\n")
    part = os.path.join(m.store, "open", m.open_name(), "default", "0", "x")
    r = os.open(m.path(old, "x"), os.O_RDONLY)
    put(pause, b"")
    th = threading.Thread(target=lambda: got.append(os.pread(r, 100000, 100000)))
    th.start()
    if m.passes():
        wait_until(lambda: os.path.exists(pause + ".there"), 10, "the read has begun")
    m.wait_sealed(old)
    if m.passes():
        wait_until(lambda: os.stat(part).st_blocks * 512 < 100000, 20, "the range is given back")
    os.unlink(pause)
    th.join()
    same_bytes(got[0], data[100000:200000], "what is read")
    os.close(r)
    os.close(fd)


def test_truncation_while_a_line_ends(t):
    """The name is emptied behind a boundary, while the line that was unfinished there is finished: its rest is the older
    bucket's, and stays."""
    pause = os.path.join(t.dir, "pause")
    m = t.mount("bucket=1h,grace=30m", env={"VARVE_TEST_PAUSE": "truncate.carried:" + pause})
    fd = held(m, "x", b"half of a line, ")
    old = m.next()
    put(pause, b"")
    th, wrong = beside(os.truncate, m.cur("x"), 0)
    if m.passes():
        wait_until(lambda: os.path.exists(pause + ".there"), 10, "the truncation has begun")
    os.write(fd, b"and its rest\nnew\n")
    os.unlink(pause)
    th.join()
    eq(wrong, [], "truncate")
    eq(read(m.path(old, "x")), b"half of a line, and its rest\n", "the older bucket's")
    ok(read(m.cur("x")) in (b"", b"new\n"), "the newer one's")
    os.write(fd, b"on\n")
    ok(read(m.cur("x")) in (b"on\n", b"new\non\n"), "the newer one's, later")
    seal(m, old)
    eq(read(m.path(old, "x")), b"half of a line, and its rest\n", "the older bucket's, sealed")
    os.close(fd)


def test_truncation_that_a_boundary_overtakes(t):
    """It has begun before the boundary and is done behind it: the older bucket keeps all it had, the newer one is empty."""
    pause = os.path.join(t.dir, "pause")
    m = t.mount("bucket=1h,grace=30m", env={"VARVE_TEST_PAUSE": "truncate.part:" + pause})
    fd = held(m)
    put(pause, b"")
    th, wrong = beside(os.truncate, m.cur("x"), 0)
    wait_until(lambda: os.path.exists(pause + ".there"), 10, "the truncation has begun")
    if m.passes():
        old = m.next()
    os.unlink(pause)
    th.join()
    if not m.passes():
        old = m.next()
    eq(wrong, [], "truncate")
    os.write(fd, b"new\n")
    eq(read(m.path(old, "x")), OLD if m.passes() else b"", "the older bucket's")
    eq(read(m.cur("x")), b"new\n", "the newer one's")
    seal(m, old)
    eq(read(m.path(old, "x")), OLD if m.passes() else b"", "the older bucket's, sealed")
    os.close(fd)


def test_a_writer_that_lets_go_in_the_middle_of_a_boundary(t):
    """What it wrote behind the mark is the newer bucket's, though nobody holds the file any more when that is there."""
    pause = os.path.join(t.dir, "pause")
    m = t.mount("bucket=1h,grace=30m", env={"VARVE_TEST_PAUSE": "boundary.marked:" + pause})
    m.next()  # so that the daemon has what it takes ahead for the one that counts
    m.next()
    through, old = m.passes(), m.open_name()
    fd, half = held(m), held(m, "half", b"half of a line, ")
    kept = held(m, "kept")
    put(pause, b"")
    m.shift(next_start(m.now(), "1h") - m.now() + 0.001)
    wait_until(lambda: os.path.exists(pause + ".there"), 10, "the marks are set")
    os.write(fd, b"behind the mark\n")
    os.write(half, b"its rest\nand a line\n")
    os.close(fd)
    os.close(half)
    append(m.cur("x"), b"by name\n")
    append(m.cur("kept"), b"by name\n")
    os.chmod(m.cur("kept"), 0o600)
    os.unlink(pause)
    wait_until(lambda: m.open_name() != old, 10, "the boundary")
    os.write(kept, b"new\n")
    for _ in range(2):
        got = [read(m.path(old, n)) for n in ("x", "half", "kept")]
        now = [read(m.cur(n)) if os.path.exists(m.cur(n)) else b"" for n in ("x", "half", "kept")]
        eq([a + b for a, b in zip(got, now)], [OLD + b"behind the mark\nby name\n",
                                               b"half of a line, its rest\nand a line\n",
                                               OLD + b"by name\nnew\n"], "all of it, once")
        if through:
            eq(got, [OLD, b"half of a line, its rest\n", OLD], "the older bucket's")
        seal(m, old)
    os.close(kept)


FILES = 500  # the more, the longer a boundary sets its marks


def test_truncation_at_a_boundary(t):
    """`: > x.log` in the very moment of a boundary, as a job at midnight does it, empties what the name means by then; so do
    chmod and setfattr: they are never refused."""
    m = t.mount("bucket=1h,grace=0s")
    fds, stop, wrong = [held(m, f"{i}") for i in range(FILES)], threading.Event(), []

    def truncater(first):
        while not stop.is_set():
            for i in range(first, FILES, 7):
                try:
                    if i % 3 == 0:
                        os.truncate(m.cur(f"{i}"), 0)
                    elif i % 3 == 1:
                        os.chmod(m.cur(f"{i}"), 0o640)
                        os.setxattr(m.cur(f"{i}"), "user.x", b"1")
                    else:
                        os.close(os.open(m.cur(f"{i}"), os.O_WRONLY | os.O_APPEND | os.O_TRUNC))
                except OSError as e:
                    wrong.append(f"{i}: {e}")
    threads = [threading.Thread(target=truncater, args=(k,)) for k in range(2)]
    for th in threads:
        th.start()
    try:
        for _ in range(5 if SANITIZED else 15):
            for fd in fds:
                os.write(fd, b"a line\n" * 50)
            m.next()
    finally:
        stop.set()
        for th in threads:
            th.join()
    eq(wrong, [], "truncations, chmods, setxattrs")
    for fd in fds:
        os.close(fd)


@timeout(90)
def test_a_mapping_outlives_its_descriptor(t):
    """What a process has mapped keeps its bytes, also when the descriptor is closed and the bucket sealed: only then, when
    the mapping is gone, is the range given back."""
    m = t.mount("bucket=1h,grace=0s")
    if not m.passes():
        return  # there a growing file can't be mapped
    data = b"0123456789abcde\n" * 16384
    fds = [held(m, name, data) for name in ("x", "y")]
    r = os.open(m.cur("x"), os.O_RDONLY)
    mapped = mmap.mmap(r, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    os.close(r)
    old = m.next()
    for fd in fds:
        os.write(fd, b"new\n")
    m.wait_sealed(old)

    def kept(name):
        return os.stat(os.path.join(m.store, "open", m.open_name(), "default", "0", name)).st_blocks * 512
    wait_until(lambda: kept("y") < 64 << 10, 30, "what nobody has mapped is given back")
    ok(kept("x") >= len(data), "what somebody has mapped is not")
    same_bytes(bytes(mapped), data, "the mapping")
    mapped.close()
    wait_until(lambda: kept("x") < 64 << 10, 60, "it is given back, too")
    eq(read(m.cur("x")), b"new\n", "what came since")
    eq(read(m.path(old, "x")), data, "what is sealed")
    for fd in fds:
        os.close(fd)


def test_private_mappings(t):
    """A mapping shows the file's own bytes (or is refused), before, over and after boundary and seal,
    also when its range is given back on the disk beneath, also when its descriptor is closed."""
    m = t.mount("bucket=1h,grace=30m")
    data = lines.lines("w", 0, 5000)
    fd = held(m, data=data)
    mappers = [Mapper(t, m.cur("x")), Mapper(t, m.cur("x")), Mapper(t, m.cur("x"), os.O_RDWR)]
    mapped = [p.look(data, "while it is open") for p in mappers]
    old = m.next()
    os.write(fd, lines.lines("n", 0, 1000))
    newer = Mapper(t, m.cur("x"))
    mapped.append(newer.look(read(m.cur("x")), "the newer bucket's file"))
    if mapped[0]:
        mappers[0].look(data, "once closing", b"close\n")
    m.shift(1801)
    m.wait_sealed(old)
    os.fsync(fd)
    time.sleep(0.3)
    for p, is_mapped in zip(mappers, mapped):
        if is_mapped:
            p.look(data, "once sealed")
    same_bytes(read(m.path(old, "x")), data, "the sealed file")
    third = m.next()
    os.write(fd, b"the third\n")
    m.shift(1801)
    m.wait_sealed(third)
    for p, is_mapped in zip(mappers, mapped):
        if is_mapped:
            p.look(data, "once the next one is sealed, too")
    for p in mappers + [newer]:
        p.p.kill()
    # Once it is sealed, it can be mapped by everybody.
    ok(Mapper(t, m.path(old, "x")).look(data, "a mapping of the sealed file"), "it can be mapped")
    print(f"mapped while growing: {mapped}")
    os.close(fd)


def test_tail_F_over_a_boundary_within_a_line(t):
    """The output is exact and the size never shrinks: tail takes a shrunk file for a truncated one and
    prints it all again."""
    m = t.mount("bucket=1h,grace=30m")
    fd = held(m, data=b"first\nbegun, ")
    out, err = open(t.path("out"), "wb"), open(t.path("err"), "wb")
    p = t.spawn(["tail", "-n", "+1", "-F", "-s", "0.1", "--max-unchanged-stats=6", m.cur("x")],
                stdout=out, stderr=err)
    sizes, stop, wrong = {}, threading.Event(), []

    def watch():
        while not stop.is_set():
            for b in m.buckets():
                try:
                    size = os.stat(m.path(b, "x")).st_size
                except OSError as e:
                    wrong.append(f"{b}: {e}")
                    continue
                if size < sizes.get(b, 0):
                    wrong.append(f"{b}: {size} bytes after {sizes[b]}")
                sizes[b] = size
    th = threading.Thread(target=watch)
    th.start()
    want = b"first\nbegun, "
    try:
        wait_until(lambda: read(t.path("out")) == want, 10, "tail shows the beginning")
        for i in range(3):
            old = m.next()
            eq(read(m.cur("x")), b"", "the newer bucket is empty until the line is ended")
            time.sleep(0.15)
            os.write(fd, b"more, ")
            time.sleep(0.15)
            os.write(fd, b"ended %d\nnext %d\nbegun again, " % (i, i))
            want += b"more, ended %d\nnext %d\nbegun again, " % (i, i)
            ok(read(m.path(old, "x")).endswith(b"more, ended %d\n" % i), "the older bucket's end")
            eq(read(m.cur("x")), b"next %d\nbegun again, " % i, "the newer one's beginning")
            wait_until(lambda: read(t.path("out")) == want, 10,
                       lambda: f"tail shows {want!r}: {read(t.path('out'))!r} "
                       f"{read(t.path('err'))!r}")
    finally:
        stop.set()
        th.join()
    time.sleep(0.3)
    p.kill()
    eq(read(t.path("out")), want, "what tail showed")
    ok(b"truncated" not in read(t.path("err")), f"no truncation: {read(t.path('err'))}")
    eq(wrong, [], "no size shrinks")
    os.close(fd)


def test_late_data_while_a_line_is_unfinished(t):
    """No byte is lost or doubled, and what a reader of the older bucket has seen does not change."""
    m = t.mount("bucket=1h,grace=30m")
    fd = held(m, data=OLD + b"begun, ")
    old = m.next()
    seen = read(m.path(old, "x"))
    eq(seen, OLD + b"begun, ", "at the boundary")
    for what, act in [("late data", lambda: append(m.path(old, "x"), b"late\n")),
                      ("the line's end", lambda: os.write(fd, b"ended\nnew\n")),
                      ("more late data", lambda: append(m.path(old, "x"), b"later\n")),
                      ("the next line", lambda: os.write(fd, b"newer\n"))]:
        act()
        got = read(m.path(old, "x"))
        ok(got.startswith(seen), f"{what}: the older bucket had {seen!r}, has {got!r}")
        seen = got
    new = read(m.cur("x"))
    eq(sorted(seen + new), sorted(OLD + b"begun, ended\nnew\nnewer\nlate\nlater\n"), "every byte, once")
    for piece in (b"late\n", b"later\n"):
        ok(piece in seen, f"late data is the older bucket's: {seen!r}")
    ok(new.endswith(b"new\nnewer\n"), f"the next lines are the newer one's: {new!r}")
    os.close(fd)
    m.shift(1801)
    m.wait_sealed(old)
    eq(m.history("x"), [(old, seen), (m.open_name(), new)], "once sealed")


main(jobs=3)
