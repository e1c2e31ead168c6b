"""Corners: what a held descriptor, a moved folder or a changed kind of file may do around a boundary."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def test_truncating_after_the_boundary_spares_the_older_bucket(t):
    """By the held descriptor, by name and by O_TRUNC: only the new bucket's file is emptied."""
    m = t.mount("bucket=1h,grace=30m")
    fds = {n: os.open(m.cur(n), os.O_RDWR | os.O_APPEND | os.O_CREAT) for n in "abcd"}
    for n, fd in fds.items():
        os.write(fd, b"old " + n.encode() + b"\n")
    old = m.next()
    for fd in fds.values():
        os.write(fd, b"to be emptied\n")
    os.ftruncate(fds["a"], 0)
    os.truncate(m.cur("b"), 0)
    os.close(os.open(m.cur("c"), os.O_WRONLY | os.O_TRUNC))
    t.sh(f": > {m.cur('d')}")
    for n, fd in fds.items():
        os.write(fd, b"new\n")
        eq(read(m.path(old, n)), b"old " + n.encode() + b"\n", f"{n} in the older bucket")
        eq(read(m.cur(n)), b"new\n", f"{n} in the new one")
        os.close(fd)


def test_truncating_before_anything_was_written_in_the_new_window(t):
    m = t.mount("bucket=1h,grace=30m")
    fds = {n: os.open(m.cur(n), os.O_RDWR | os.O_APPEND | os.O_CREAT) for n in "ab"}
    for fd in fds.values():
        os.write(fd, b"old\n")
    old = m.next()
    os.ftruncate(fds["a"], 0)
    t.sh(f": > {m.cur('b')}")
    for n, fd in fds.items():
        os.write(fd, b"new\n")
        eq(m.history(n), [(old, b"old\n"), (m.open_name(), b"new\n")], n)
        os.close(fd)


def test_metadata_by_a_held_descriptor_after_the_boundary(t):
    """fchmod, fchown, futimens, fsetxattr reach a file, say no error, and the older bucket seals."""
    m = t.mount("bucket=1h,grace=30m")
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"1\n")
    os.chmod(m.cur("x"), 0o600)
    old = m.next()
    os.write(fd, b"2\n")
    os.fchmod(fd, 0o640)
    os.fchown(fd, 5, 6)
    os.utime(fd, ns=(10**18, 10**18 + 1))
    os.setxattr(fd, "user.k", b"v")
    os.fsync(fd)
    os.close(fd)
    m.shift(1801)
    m.wait_sealed(old)
    eq(m.history("x"), [(old, b"1\n"), (m.open_name(), b"2\n")], "the lines")
    m.next()
    ok(os.path.exists(m.cur("x")), "the stream goes on")


def test_changes_in_the_new_window_leave_the_older_bucket_alone(t):
    m = t.mount("bucket=1h,grace=30m")
    append(m.cur("x"), b"1\n", 0o644)
    mkdirs(m.cur("d"))
    append(m.cur("d/y"), b"1\n")
    os.setxattr(m.cur("x"), "user.k", b"old")
    old = m.next()
    before = tree(m.path(old))
    append(m.cur("x"), b"2\n")
    os.chmod(m.cur("x"), 0o600)
    os.chown(m.cur("x"), 7, 7)
    os.setxattr(m.cur("x"), "user.k", b"new")
    os.chmod(m.cur("d"), 0o700)
    os.rename(m.cur("d"), m.cur("e"))
    os.unlink(m.cur("e/y"))
    os.rename(m.cur("x"), m.cur("e/x"))
    got = tree(m.path(old))
    got[b"d"]["mode"] = before[b"d"]["mode"]  # a folder is one thing over all buckets while open
    same_tree(got, before, "the closing bucket")
    eq(os.getxattr(m.path(old, "x"), "user.k"), b"old", "its xattr")
    m.shift(1801)
    m.wait_sealed(old)
    eq(sorted(os.listdir(m.path(old))), ["d", "x"], "sealed under the old names")
    eq(read(m.path(old, "d/y")), b"1\n", "with what was in them")
    eq(sorted(os.listdir(m.cur("e"))), ["x"], "current/ has the new ones")


def test_a_folder_moved_with_writers_in_it(t):
    m = t.mount("bucket=1h,grace=100ms")
    mkdirs(m.cur("d/sub"))
    fd = os.open(m.cur("d/sub/x"), APPEND)
    os.write(fd, b"1\n")
    os.rename(m.cur("d"), m.cur("moved"))
    os.write(fd, b"2\n")
    old = m.next_sealed()
    os.write(fd, b"3\n")
    os.rename(m.cur("moved"), m.cur("again"))
    os.write(fd, b"4\n")
    second = m.next_sealed()
    os.write(fd, b"5\n")
    os.close(fd)
    eq(read(m.path(old, "moved/sub/x")), b"1\n2\n", "the first bucket")
    eq(read(m.path(second, "again/sub/x")), b"3\n4\n", "the second")
    eq(read(m.cur("again/sub/x")), b"5\n", "the third")
    for b in (old, second):
        ok(not os.path.exists(m.path(b, "d")), f"the first name is not in {b}")


def test_folder_removed_under_a_writer(t):
    """The writer is not told; what it wrote before stays; nothing breaks."""
    m = t.mount("bucket=1h,grace=100ms")
    mkdirs(m.cur("d"))
    fd = os.open(m.cur("d/x"), APPEND)
    os.write(fd, b"1\n")
    old = m.next_sealed()
    t.run(["rm", "-r", m.cur("d")])
    os.write(fd, b"into nowhere or anew\n")
    os.fsync(fd)
    m.next()
    os.write(fd, b"again\n")
    os.close(fd)
    eq(read(m.path(old, "d/x")), b"1\n", "the older bucket")
    m.remount()
    m.varve("verify")


def test_another_kind_of_file_under_the_same_name(t):
    """File, folder, link, file again, in four buckets; with a writer of the first still there."""
    m = t.mount("bucket=1h,grace=100ms")
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"a file\n")
    a = m.next_sealed()
    os.unlink(m.cur("x"))
    mkdirs(m.cur("x/inside"))
    append(m.cur("x/inside/y"), b"in a folder\n")
    os.write(fd, b"the writer goes on\n")
    b = m.next_sealed()
    t.run(["rm", "-r", m.cur("x")])
    os.symlink("target", m.cur("x"))
    os.write(fd, b"and on\n")
    c = m.next_sealed()
    if os.path.lexists(m.cur("x")):
        os.unlink(m.cur("x"))
    append(m.cur("x"), b"a file again\n")
    os.write(fd, b"to the end\n")
    os.close(fd)
    d = m.next_sealed()
    m.remount()
    eq(read(m.path(a, "x")), b"a file\n", "the first bucket")
    eq(read(m.path(b, "x/inside/y")), b"in a folder\n", "the second")
    eq(os.readlink(m.path(c, "x")), "target", "the third")
    ok(read(m.path(d, "x")).startswith(b"a file again\n"), "the fourth")
    m.varve("verify")


def test_object_held_over_two_boundaries(t):
    m = t.mount("bucket=1h,grace=100ms")
    fd = os.open(m.cur("o"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    want = b""
    pieces = []
    for i in range(4):
        os.write(fd, b"part %d\n" % i)
        want += b"part %d\n" % i
        pieces.append(m.next_sealed())
    os.close(fd)
    eq(b"".join(d for _, d in m.history("o")), want, "each part once, in order")
    ok(all(b"\0" not in d for _, d in m.history("o")), "no hole in front")


def test_appended_at_the_end_without_o_append_after_the_boundary(t):
    """systemd's `file:` and docker's second open: no O_APPEND, sequential, held for days."""
    m = t.mount("bucket=1h,grace=100ms")
    append(m.cur("x"), b"there before\n")
    fd = os.open(m.cur("x"), os.O_WRONLY)
    os.lseek(fd, 0, os.SEEK_END)
    for i in range(3):
        os.write(fd, b"line %d\n" % i)
        m.next_sealed()
    os.write(fd, b"line 3\n")
    os.close(fd)
    eq(b"".join(d for _, d in m.history("x")),
       b"there before\n" + b"".join(b"line %d\n" % i for i in range(4)), "all of it, in order")


def test_publishing_over_an_empty_directory_leaves_nothing_of_it(t):
    m = t.mount("bucket=1h,grace=5m")
    os.mkdir(m.cur("d"))
    os.setxattr(m.cur("d"), "user.old", b"1")
    os.mkdir(m.path(".staging", "new"))
    os.setxattr(m.path(".staging", "new"), "user.new", b"2")
    os.rename(m.path(".staging", "new"), m.cur("d"))
    for what in ("published", "after a remount"):
        eq(os.listxattr(m.cur("d")), ["user.new"], f"attributes, {what}")
        m.remount()


def test_paths_up_to_the_limit_and_beyond(t):
    """Folders are made inside each other until it is refused; what was made seals and reads."""
    m = t.mount("bucket=1h,grace=100ms")
    fds = [os.open(m.cur(), os.O_RDONLY | os.O_DIRECTORY)]
    made, name = 0, "p" * 200
    for _ in range(40):
        try:
            os.mkdir(name, dir_fd=fds[-1])
            fds.append(os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fds[-1]))
            made += len(name) + 1
        except OSError as e:
            eq(e.errno, errno.ENAMETOOLONG, f"after {made} bytes of path")
            break
    else:
        raise Failure("40 folders of 200 bytes inside each other were taken")
    ok(made > 3500, f"{made} bytes of path were taken")
    for fd in fds[-4:]:
        f = os.open("file", APPEND, dir_fd=fd)
        os.write(f, b"deep\n")
        os.close(f)
    for fd in fds:
        os.close(fd)
    old = m.next_sealed()
    count = t.sh(f"cd {m.path(old)} && find . -name file | wc -l").stdout
    eq(int(count), 4, "the files in the sealed bucket")
    m.varve("verify")
    t.run(["rm", "-rf", m.path(old)])
    ok(old not in m.buckets(), "and it can be removed")


def test_names_that_look_like_ours(t):
    """Users may call their files as varvefs calls its own things."""
    m = t.mount("bucket=1h,grace=100ms")
    names = ["current", "default", "0", "0.tar.zst", ".staging", ".varve", "trash", "varve.conf", "lock",
             m.open_name(), "2001-01-01T00Z", ".x.tmp", ".range", "gone,a,b", "audit.jsonl"]
    for n in names:
        mkdirs(m.cur("d", n))
        append(m.cur("d", n, n), n.encode())
        append(m.cur("f-" + n), n.encode())
        if n != "d":
            append(m.cur(n), n.encode())
    want = tree(m.cur())
    old = m.next_sealed()
    same_tree(tree(m.path(old)), want, "sealed")
    m.remount()
    same_tree(tree(m.path(old)), want, "after a remount")
    same_tree(tree(m.restore(old)), want, "restored")


def test_reading_at_the_moment_of_the_boundary(t):
    """Readers of current/ see the old file whole or the new one; never an error, never a mixture."""
    m = t.mount("bucket=1s,grace=100ms", clock=False)
    fd = os.open(m.cur("x"), APPEND)
    n, ends, seen = 0, time.monotonic() + 4.5, 0
    while time.monotonic() < ends:
        os.write(fd, lines.line("w", n))
        n += 1
        data = read(m.cur("x"))
        if data:
            first = lines.parse(data.split(b"\n", 1)[0])[1]
            same_bytes(data, lines.lines("w", first, data.count(b"\n")), "what a reader sees")
            seen += 1
    os.close(fd)
    lines.check([d for _, d in m.history("x")], {"w": n})
    ok(seen > 50, f"{seen} reads")


main(jobs=3)
