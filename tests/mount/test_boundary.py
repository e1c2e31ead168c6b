"""The boundary: to which bucket each byte goes, what carries on, and what does not."""
import os
import sys
import threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def test_open_then_closing_then_sealed(t):
    """The open bucket is a link to current; past its window a directory of its own."""
    m = t.mount("bucket=1h,grace=10m")
    name = m.open_name()
    eq(name, bucket_name(m.now(), "1h"), "the open bucket's name")
    eq(os.readlink(m.path(name)), "current", "a link to current")
    append(m.path(name, "x"), b"by the dated name\n")
    eq(read(m.cur("x")), b"by the dated name\n", "the link leads to current")
    m.next()
    ok(not os.path.islink(m.path(name)) and os.path.isdir(m.path(name)), "a directory of its own")
    eq(read(m.path(name, "x")), b"by the dated name\n", "closing: complete and readable")
    ok(not m.is_sealed(name), "not sealed during its grace")
    eq(m.buckets(), [name], "the buckets of the root")
    m.shift(601)
    m.wait_sealed(name)
    eq(read(m.path(name, "x")), b"by the dated name\n", "sealed: the same bytes")
    eq(os.listdir(os.path.join(m.store, "open")) in ([], [m.open_name()]), True, "no part is left")


def test_case17_streams_carry_on_with_mode_owner_acl(t):
    """chmod, chown, setfacl, xattrs: the stream comes back with all of them; objects do not."""
    m = t.mount()
    mkdirs(m.cur("host=web1/app"))
    x = m.cur("host=web1/app/x.log")
    append(x, b"1\n")
    put(m.cur("object"), b"o")
    put(m.path(".staging/pub"), b"p")
    os.rename(m.path(".staging/pub"), m.cur("published"))
    os.chmod(x, 0o620)
    os.chown(x, 1000, 1001)
    os.setxattr(x, "user.team", b"blue")
    t.run(["setfacl", "-m", "u:65534:rw", x])
    os.chmod(m.cur("host=web1"), 0o2771 & 0o777)
    os.chown(m.cur("host=web1"), 7, 8)
    os.setxattr(m.cur("host=web1"), "user.kind", b"dir")
    acl = t.run(["getfacl", "-n", "-p", x]).stdout
    for _ in range(3):
        old = m.next_sealed()
        st = os.stat(x)
        eq((st.st_size, oct(st.st_mode & 0o777), st.st_uid, st.st_gid), (0, oct(0o660), 1000, 1001),
           "the stream: empty, with mode (its group bits are the ACL's mask) and owner")
        eq(t.run(["getfacl", "-n", "-p", x]).stdout, acl, "its ACL")
        eq(os.getxattr(x, "user.team"), b"blue", "its xattr")
        st = os.stat(m.cur("host=web1"))
        eq((oct(st.st_mode & 0o777), st.st_uid, st.st_gid), ("0o771", 7, 8), "the directory")
        eq(os.getxattr(m.cur("host=web1"), "user.kind"), b"dir", "the directory's xattr")
        eq(sorted(os.listdir(m.cur())), ["host=web1"], "objects do not carry on")
        t.sh(f"echo 2 >> {x}", user=NOBODY, group=NOBODY, extra_groups=[])
        sealed = os.stat(m.path(old, "host=web1/app/x.log"))
        eq((oct(sealed.st_mode & 0o777), sealed.st_uid, sealed.st_gid), ("0o660", 1000, 1001),
           "the sealed file has them too")
    m.remount()
    eq(t.run(["getfacl", "-n", "-p", x]).stdout, acl, "the ACL after a remount")


def test_streams_without_writes_are_not_in_the_bucket(t):
    m = t.mount()
    append(m.cur("busy"), b"1\n")
    append(m.cur("idle"), b"1\n")
    first = m.next_sealed()
    append(m.cur("busy"), b"2\n")
    eq(sorted(os.listdir(m.cur())), ["busy", "idle"], "both are there, one of them empty")
    second = m.next_sealed()
    eq(sorted(os.listdir(m.path(first))), ["busy", "idle"], "the first bucket")
    eq(os.listdir(m.path(second)), ["busy"], "the second has what was written")
    eq(t.sh(f"zstd -q -dc {m.segment(second)} | tar tf - | grep -v '/$'").stdout.decode().split(),
       ["busy"], "its segment too")


def test_unfinished_line_goes_to_the_old_bucket(t):
    m = t.mount("bucket=1h,grace=10m")
    x = m.cur("x")
    fd = os.open(x, APPEND)
    os.write(fd, b"whole\nabc")
    old = m.next()
    eq(os.stat(x).st_size, 0, "the new bucket reads as empty until the line is finished")
    os.write(fd, b"def")
    eq(read(x), b"", "still")
    eq(read(m.path(old, "x")), b"whole\nabcdef", "the old one gets the rest")
    os.write(fd, b"ghi\nfirst of the new\n")
    eq(read(m.path(old, "x")), b"whole\nabcdefghi\n", "to the end of the line")
    eq(read(x), b"first of the new\n", "the rest of that write is the new one's")
    os.write(fd, b"second\n")
    os.close(fd)
    m.shift(601)
    m.wait_sealed(old)
    eq(m.history("x"), [(old, b"whole\nabcdefghi\n"), (m.open_name(), b"first of the new\nsecond\n")],
       "in the end")


def test_unfinished_line_ends_with_the_grace(t):
    m = t.mount("bucket=1h,grace=10m")
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"never fini")
    old = m.next()
    m.shift(601)
    m.wait_sealed(old)
    os.write(fd, b"shed\nnext\n")
    os.close(fd)
    eq(m.history("x"), [(old, b"never fini"), (m.open_name(), b"shed\nnext\n")], "no byte is lost")


def test_unfinished_line_has_a_limit(t):
    """At most 64 KiB of a line's rest go to the old bucket."""
    m = t.mount("bucket=1h,grace=10m")
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"start")
    old = m.next()
    blob = b"z" * 300000
    write_all(fd, blob)
    os.write(fd, b"\nlast\n")
    os.close(fd)
    a, b = read(m.path(old, "x")), read(m.cur("x"))
    same_bytes(a + b, b"start" + blob + b"\nlast\n", "nothing is lost")
    ok(len(a) <= 5 + 65536, f"the old bucket got {len(a)} bytes")


def test_several_writers_and_an_unfinished_line(t):
    """Two descriptors on one file: whoever finishes the line, it is the old bucket's."""
    m = t.mount("bucket=1h,grace=10m")
    a, b = os.open(m.cur("x"), APPEND), os.open(m.cur("x"), APPEND)
    os.write(a, b"a begins, ")
    old = m.next()
    os.write(b, b"b ends\nb2\n")
    os.write(a, b"a2\n")
    eq(m.history("x"), [(old, b"a begins, b ends\n"), (m.open_name(), b"b2\na2\n")], "the line")
    os.close(a)
    os.close(b)


def test_case02_redirection_held_over_a_boundary(t):
    """`>` held over a boundary: the new bucket's file starts with text, no NULs, no hole."""
    m = t.mount("bucket=1h,grace=200ms")
    fd = os.open(m.cur("x"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"before the boundary\n" * 1000)
    old = m.next_sealed()
    for i in range(3):
        os.write(fd, b"after %d\n" % i)
    eq(m.history("x"), [(old, b"before the boundary\n" * 1000),
                        (m.open_name(), b"after 0\nafter 1\nafter 2\n")], "both buckets")
    eq(os.stat(m.cur("x")).st_blocks < 100, True, "no hole was made")
    os.close(fd)
    ok(os.path.exists(m.cur("x")), "it went on as a stream of that path")


def test_objects_stay_whole_during_the_grace(t):
    """A copy that runs over the boundary stays in the older bucket, whole."""
    m = t.mount("bucket=1h,grace=10m")
    fd = os.open(m.cur("copy"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"first half, ")
    old = m.next()
    os.write(fd, b"second half\nthird")
    os.fchmod(fd, 0o600)
    os.utime(fd, ns=(5 * 10**17, 5 * 10**17 + 1))
    os.close(fd)
    ok(not os.path.exists(m.cur("copy")), "nothing of it in the new bucket")
    m.shift(601)
    m.wait_sealed(old)
    eq(read(m.path(old, "copy")), b"first half, second half\nthird", "whole")
    st = os.stat(m.path(old, "copy"))
    eq((oct(st.st_mode & 0o777), st.st_mtime_ns), ("0o600", 5 * 10**17 + 1), "its metadata")


def test_late_data_by_the_dated_path(t):
    m = t.mount("bucket=1h,grace=10m")
    append(m.cur("d/x") if os.path.isdir(mkdirs(m.cur("d"))) else "", b"in time\n")
    old = m.next()
    late = os.open(m.path(old, "d/x"), os.O_WRONLY | os.O_APPEND)
    os.write(late, b"late\n")
    append(m.path(old, "d/new"), b"a late file\n")
    append(m.cur("d/x"), b"of the new bucket\n")
    raises(errno.EPERM, overwrite, m.path(old, "d/x"), what="overwriting by the dated path")
    eq(read(m.path(old, "d/x")), b"in time\nlate\n", "late data")
    m.shift(601)
    m.wait_sealed(old)
    raises(errno.EROFS, os.write, late, b"too late\n", what="a held late descriptor, once sealed")
    os.close(late)
    eq(read(m.path(old, "d/x")), b"in time\nlate\n", "sealed with the late line")
    eq(read(m.path(old, "d/new")), b"a late file\n", "and the late file")
    eq(read(m.cur("d/x")), b"of the new bucket\n", "the new bucket has its own")
    raises(errno.EROFS, os.open, m.path(old, "d/x"), os.O_WRONLY | os.O_APPEND)


def overwrite(path):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, b"X", 0)
    finally:
        os.close(fd)


def test_case04_old_descriptor_after_sealing(t):
    """Opened before the boundary; writes, syncs and closes after the older bucket is sealed."""
    m = t.mount("bucket=1h,grace=100ms")
    fds = {n: os.open(m.cur(n), APPEND) for n in ("a", "b", "never")}
    os.write(fds["a"], b"early\n")
    os.write(fds["never"], b"only\n")
    old = m.next_sealed()
    m.next()
    for n in ("a", "b"):
        os.write(fds[n], b"late\n")
        os.fsync(fds[n])
    for fd in fds.values():
        os.close(fd)
    eq(read(m.cur("a")), b"late\n", "the line is in current/")
    eq(read(m.cur("b")), b"late\n", "also of a descriptor that had written nothing")
    eq(read(m.path(old, "a")), b"early\n", "the sealed one")


def test_readers_stay_with_the_old_file(t):
    m = t.mount()
    w = os.open(m.cur("x"), APPEND)
    os.write(w, b"old\n")
    r = os.open(m.cur("x"), os.O_RDONLY)
    ino = os.fstat(r).st_ino
    old = m.next()
    os.write(w, b"new\n")
    eq(os.read(r, 100), b"old\n", "the reader has the old bucket's bytes")
    eq(os.read(r, 100), b"", "and ends there")
    m.wait_sealed(old)
    eq(os.pread(r, 100, 0), b"old\n", "also once it is sealed")
    eq(os.fstat(r).st_ino, ino, "the same inode number")
    eq(os.stat(m.path(old, "x")).st_ino, ino, "by name, too")
    ok(os.stat(m.cur("x")).st_ino != ino, "the new bucket's file is another")
    eq(os.fstat(r).st_size, 4, "its size")
    os.close(r)
    os.close(w)


def test_writer_seen_by_itself_after_the_boundary(t):
    """fstat, lseek(SEEK_END) and reads of a read-write descriptor follow its writes."""
    m = t.mount()
    fd = os.open(m.cur("x"), os.O_RDWR | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"12345\n")
    old = m.next()
    os.write(fd, b"678\n")
    os.fsync(fd)
    eq(read(m.cur("x")), b"678\n", "the new file")
    eq(read(m.path(old, "x")), b"12345\n", "the old file")
    os.close(fd)


def test_renamed_and_unlinked_while_held(t):
    m = t.mount()
    moved, gone = os.open(m.cur("m"), APPEND), os.open(m.cur("g"), APPEND)
    os.write(moved, b"m1\n")
    os.write(gone, b"g1\n")
    os.rename(m.cur("m"), m.cur("m.1"))
    os.unlink(m.cur("g"))
    old = m.next()
    os.write(moved, b"m2\n")
    os.write(gone, b"g2\n")
    m.wait_sealed(old)
    os.write(moved, b"m3\n")
    os.write(gone, b"g3\n")
    eq(os.listdir(m.path(old)), ["m.1"], "what the old bucket lists")
    eq(read(m.path(old, "m.1")), b"m1\n", "under its new name")
    eq(read(m.cur("m.1")), b"m2\nm3\n", "the writer follows the new name")
    eq(sorted(os.listdir(m.cur())), ["m.1"], "the unlinked one does not come back")
    os.close(moved)
    os.close(gone)


def test_removed_streams_stay_removed(t):
    m = t.mount()
    append(m.cur("a"), b"1\n")
    mkdirs(m.cur("d/e"))
    append(m.cur("d/e/b"), b"1\n")
    old = m.next()
    t.run(["rm", "-r", m.cur("a"), m.cur("d")])
    eq(os.listdir(m.cur()), [], "gone from current/")
    m.next()
    eq(os.listdir(m.cur()), [], "and from the next bucket")
    m.wait_sealed(old)
    eq(read(m.path(old, "d/e/b")), b"1\n", "the older bucket keeps its own")
    m.remount()
    eq(os.listdir(m.cur()), [], "after a remount")


def test_working_directory_goes_on(t):
    """A process that works by relative names in a directory of current/ goes on there."""
    m = t.mount()
    mkdirs(m.cur("svc"))
    dfd = os.open(m.cur("svc"), os.O_RDONLY | os.O_DIRECTORY)
    for i in range(3):
        fd = os.open("x.log", APPEND, dir_fd=dfd)
        os.write(fd, b"%d\n" % i)
        os.close(fd)
        m.next()
    os.close(dfd)
    eq([d for _, d in m.history("svc/x.log")], [b"0\n", b"1\n", b"2\n", b""], "a line a bucket")


def test_dev_stdout(t):
    """A program that opens /dev/stdout again (by inode) after the boundary is not turned away."""
    m = t.mount("bucket=1h,grace=100ms")
    p = t.spawn(["sh", "-c", f"exec >> {m.cur('out')}; echo one; read go; echo two > /dev/stdout; "
                 "echo three >> /dev/stdout; echo four"], stdin=subprocess.PIPE,
                stderr=open(t.path("err"), "wb"))
    wait_until(lambda: os.path.exists(m.cur("out")) and read(m.cur("out")), 5, "its first line")
    old = m.next_sealed()
    p.stdin.write(b"go\n")
    p.stdin.close()
    p.wait()
    eq(read(t.path("err")), b"", "no complaint")
    eq(read(m.path(old, "out")), b"one\n", "the old bucket")
    ok(read(m.cur("out")).endswith(b"three\nfour\n"), f"the new one: {read(m.cur('out'))}")


def test_windows_without_writes(t):
    m = t.mount()
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"1\n")
    old = m.next_sealed()
    m.next()
    m.next()
    os.write(fd, b"2\n")
    m.next()
    os.close(fd)
    have = [(b, d) for b, d in m.history("x") if d]
    eq([d for _, d in have], [b"1\n", b"2\n"], "two lines, two buckets")
    eq(have[0][0], old, "the first bucket")
    ok(have[1][0] > old, "the second is later")


@timeout(120)
def test_case01_five_million_lines(t):
    """One descriptor, 5 million numbered lines in pieces cut anywhere, five boundaries or more."""
    m = t.mount("bucket=1s,grace=300ms", clock=False)
    total, piece = 5_000_000, 65536 - 7
    fd = os.open(m.cur("n"), APPEND)
    sent, number, pending = 0, 0, b""
    began = time.monotonic()
    first = m.open_name()
    while number < total or pending:
        while len(pending) < piece and number < total:
            pending += b"\n".join(b"%07d" % i for i in range(number, number + 10000)) + b"\n"
            number += 10000
        write_all(fd, pending[:piece])
        sent += len(pending[:piece])
        pending = pending[piece:]
        # At a pace that takes the whole over six windows at least.
        time.sleep(max(0, began + 6.5 * sent / (total * 8) - time.monotonic()))
    os.close(fd)
    last = m.open_name()
    wait_until(lambda: m.open_name() != last, 5, "the last window passes")
    m.wait_all_sealed()
    pieces = m.history("n")
    ok(len([d for _, d in pieces if d]) >= 6, f"six buckets or more from {first}: "
       f"{[(b, len(d)) for b, d in pieces]}")
    ok(all(d.endswith(b"\n") for _, d in pieces if d), "each ends with a whole line")
    ok(b"".join(d for _, d in pieces) ==
       b"".join(b"%07d\n" % i for i in range(total)), "each number once, in order")
    print(f"{total} lines in {time.monotonic() - began:.1f} s over {len(pieces)} buckets")


@timeout(90)
def test_case03_full_speed_while_sealing(t):
    """A writer at full speed keeps its descriptor while the bucket before is being sealed."""
    m = t.mount("bucket=1s,grace=100ms", clock=False)
    fd = os.open(m.cur("x"), APPEND)
    acked, n = [], 0
    ends = time.monotonic() + 6
    while time.monotonic() < ends:
        os.write(fd, lines.lines("w", n, 20))
        n += 20
        acked.append(n)
    os.close(fd)
    last = m.open_name()
    wait_until(lambda: m.open_name() != last, 5, "the last window passes")
    m.wait_all_sealed()
    pieces = m.history("x")
    lines.check([d for _, d in pieces], {"w": n})
    for b, d in pieces:
        if d:
            # The kernel writes page by page: there a boundary may fall between two lines of one write.
            ok(int(d.split(b" ", 2)[1]) in set([0] + acked) or m.passes(),
               f"{b} begins where a write began")
    m.varve("verify")
    print(f"{n} lines, {sum(len(d) for _, d in pieces)} bytes, {len(pieces)} buckets")


@timeout(90)
def test_opens_racing_boundaries(t):
    """Open, append, close as fast as can be, by several, across boundaries: no error, no loss."""
    m = t.mount("bucket=1s,grace=200ms", clock=False)
    ends = time.monotonic() + 5
    counts, wrong = {}, []

    def writer(tag):
        n = 0
        try:
            while time.monotonic() < ends:
                append(m.cur("x"), lines.line(tag, n))
                n += 1
        except OSError as e:
            wrong.append(f"{tag}, line {n}: {e}")
        counts[tag] = n
    threads = [threading.Thread(target=writer, args=(f"w{i}",)) for i in range(4)]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    eq(wrong, [], "no open or write fails")
    lines.check([d for _, d in m.history("x")], counts)
    print(f"{sum(counts.values())} opens over {len(m.history('x'))} buckets")


@timeout(120)
def test_serialised_on_a_slow_disk(t):
    """1 s buckets while a burst of files makes each boundary and seal long: all in order."""
    m = t.mount("bucket=1s,grace=100ms,seal-threads=1,seal-level=19", clock=False)
    ends, n = time.monotonic() + 7, 0
    fds = [os.open(m.cur(f"f{i:03d}"), APPEND) for i in range(150)]
    big = lines.text(100000)
    while time.monotonic() < ends:
        for fd in fds:
            os.write(fd, lines.line("w", n))
        n += 1
        append(m.cur("bulk"), big)
        time.sleep(0.02)  # at full speed there would be more than a test has time to seal
    for fd in fds:
        os.close(fd)
    last = m.open_name()
    wait_until(lambda: m.open_name() != last, 10, "the last window passes")
    m.wait_all_sealed(60)
    for i in range(150):
        lines.check([d for _, d in m.history(f"f{i:03d}")], {"w": n})
    names = m.buckets()
    eq(names, sorted(set(names)), "each bucket once")
    same_bytes(b"".join(d for _, d in m.history("bulk")), big * n, "the bulk file")


main()
