"""What bad input gets: the table of design.md section 9, row by row."""
import os
import stat
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403


def open_write(p):
    os.close(os.open(p, os.O_WRONLY))


def open_append(p):
    os.close(os.open(p, os.O_WRONLY | os.O_APPEND))


def open_trunc(p):
    os.close(os.open(p, os.O_WRONLY | os.O_TRUNC))


def open_rdwr(p):
    os.close(os.open(p, os.O_RDWR))


def create(p):
    os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def sealed_bucket(t):
    m = t.mount("bucket=1h,grace=100ms")
    mkdirs(m.cur("d"))
    append(m.cur("d/x"), b"x\n")
    append(m.cur("y"), b"y\n")
    return m, m.next_sealed()


def test_a_sealed_bucket_is_read_only(t):
    """Write, create, rename, chmod, setxattr in a sealed bucket: EROFS."""
    m, b = sealed_bucket(t)
    append(m.cur("z"), b"z\n")
    before = tree(m.path(b))
    x = m.path(b, "d/x")
    for call, *args in [
            (open_write, x), (open_append, x), (open_trunc, x), (open_rdwr, x),
            (create, m.path(b, "new")), (create, m.path(b, "d/new")), (os.mkdir, m.path(b, "dir")),
            (os.symlink, "a", m.path(b, "link")), (os.truncate, x, 0), (os.truncate, x, 2),
            (os.chmod, x, 0o600), (os.chmod, m.path(b), 0o700), (os.chmod, m.path(b, "d"), 0o700),
            (os.chown, x, 1, 1), (os.utime, x, (1, 1)), (os.utime, m.path(b, "d"), (1, 1)),
            (os.setxattr, x, "user.mine", b"1"), (os.setxattr, m.path(b, "d"), "user.mine", b"1"),
            (os.removexattr, x, "user.mine"), (os.rename, x, m.path(b, "d/x2")),
            (os.rename, x, m.path(b, "y")), (os.rename, m.path(b, "d"), m.path(b, "e")),
            (os.mknod, m.path(b, "reg"), 0o600 | stat.S_IFREG)]:
        raises(errno.EROFS, call, *args, what=f"{call.__name__} {args}")
    t.run(["touch", x], rc=1)
    t.run(["setfacl", "-m", "u:1:r", x], rc=1)
    same_tree(tree(m.path(b)), before, "nothing changed")
    fd = os.open(x, os.O_RDONLY)
    raises((errno.EROFS, errno.EPERM), os.fchmod, fd, 0o600)
    raises((errno.EBADF, errno.EROFS), os.write, fd, b"x")
    os.fsync(fd)
    os.close(fd)


def test_a_write_that_is_no_append(t):
    """EPERM."""
    m = t.mount()
    append(m.cur("x"), b"12345")
    fd = os.open(m.cur("x"), os.O_WRONLY)
    raises(errno.EPERM, os.write, fd, b"X")
    raises(errno.EPERM, os.pwrite, fd, b"X", 2)
    raises(errno.EPERM, os.pwrite, fd, b"X", 6)
    raises(errno.EPERM, os.ftruncate, fd, 3)
    raises(errno.EPERM, os.ftruncate, fd, 30)
    os.close(fd)
    eq(read(m.cur("x")), b"12345", "intact")


def test_the_root_is_closed(t):
    """mkdir in the root, a file in the root, a future bucket, a hard link, a device: EPERM."""
    m, b = sealed_bucket(t)
    future, past = "2099-01-01T00Z", "2001-01-01T00Z"
    for call, *args in [
            (os.mkdir, m.path("dir")), (create, m.path("file")), (os.symlink, "a", m.path("link")),
            (os.mkdir, m.path(future)), (os.mkdir, m.path(past)), (create, m.path(future)),
            (os.link, m.cur("y"), m.cur("hard")), (os.link, m.path(b, "y"), m.cur("hard")),
            (os.mkfifo, m.path("fifo")), (os.mkfifo, m.cur("fifo")),
            (os.mknod, m.cur("dev"), 0o600 | stat.S_IFCHR, os.makedev(1, 3)),
            (os.mknod, m.path("dev"), 0o600 | stat.S_IFBLK, os.makedev(7, 0)),
            (os.rename, m.cur(), m.path("other")), (os.rename, m.path(".staging"), m.path("s")),
            (os.rename, m.path(b), m.path("renamed")), (os.rename, m.path(b), m.path(past))]:
        if call is os.link and args[0] == m.path(b, "y"):
            raises((errno.EPERM, errno.EROFS, errno.EXDEV), call, *args, what=f"link {args}")
        elif call is os.rename:
            raises((errno.EPERM, errno.EBUSY, errno.EROFS, errno.EXDEV), call, *args,
                   what=f"rename {args}")
        else:
            raises(errno.EPERM, call, *args, what=f"{call.__name__} {args}")
    raises(errno.ENOENT, append, m.path(future, "x"), b"1")
    raises(errno.ENOENT, os.mkdir, m.path(past, "x"))
    eq(m.buckets(), [b], "the root is as it was")


def test_what_is_busy(t):
    """rmdir of current/, of a bucket on hold: EBUSY."""
    m, b = sealed_bucket(t)
    raises(errno.EBUSY, os.rmdir, m.cur())
    m.varve("hold", None, b)
    raises(errno.EBUSY, os.rmdir, m.path(b))
    r = t.run(["rm", "-r", m.path(b)], rc=1)
    ok(b in m.buckets(), "still there")
    ok(r.stderr, "rm says so")


def test_rename_across_buckets(t):
    """EXDEV, so that mv copies."""
    m, b = sealed_bucket(t)
    append(m.cur("z"), b"z\n")
    raises(errno.EXDEV, os.rename, m.path(b, "y"), m.cur("y2"))
    raises((errno.EXDEV, errno.EROFS), os.rename, m.cur("z"), m.path(b, "z"))
    m.options = "bucket=1h,grace=30m"
    m.remount()
    append(m.cur("w"), b"w\n")
    closing = m.next()
    raises(errno.EXDEV, os.rename, m.path(closing, "w"), m.cur("w2"))
    raises(errno.EXDEV, os.rename, m.path(b, "y"), m.path(closing, "y3"))
    t.run(["cp", m.path(b, "y"), m.cur("copy")])
    eq(read(m.cur("copy")), b"y\n", "a copy is what is left")
    eq(read(m.path(b, "y")), b"y\n", "the sealed one")


def test_staging_into_current_is_atomic(t):
    """Whole files or whole directories; handles still open on it may only append."""
    m = t.mount()
    st = m.path(".staging")
    mkdirs(os.path.join(st, "d"))
    fd = os.open(os.path.join(st, "d/x"), os.O_RDWR | os.O_CREAT)
    os.write(fd, b"0123")
    os.pwrite(fd, b"Z", 1)
    os.rename(os.path.join(st, "d"), m.cur("d"))
    raises(errno.EPERM, os.pwrite, fd, b"no", 0)
    raises(errno.EPERM, os.ftruncate, fd, 2)
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, b"45")
    os.close(fd)
    eq(read(m.cur("d/x")), b"0Z2345", "appended")
    eq(os.listdir(st), [], "staging is empty")
    # A reader of the name sees the old whole or the new whole, never a mixture.
    stop, wrong, seen = t.path("stop"), [], set()
    put(m.cur("page"), b"0" * 50000)
    import threading

    def reader():
        while not os.path.exists(stop):
            got = read(m.cur("page"))
            seen.add(len(got))
            if len(set(got)) != 1 or len(got) != 50000:
                wrong.append(got[:20])
    th = threading.Thread(target=reader)
    th.start()
    for i in range(1, 30):
        put(os.path.join(st, "page"), bytes([48 + i % 10]) * 50000)
        os.rename(os.path.join(st, "page"), m.cur("page"))
    put(stop, b"")
    th.join()
    eq(wrong, [], "no mixture")


def test_a_corrupt_segment(t):
    """Mount succeeds, the bucket lists, EIO for the rest, one clear log line, verify fails."""
    m, b = sealed_bucket(t)
    m.stop()
    put(m.segment(b), b"this is no segment at all")
    m.expect(b)
    m.start()
    ok(b in m.buckets(), "the bucket is listed")
    raises((errno.EIO, errno.ENOENT), os.stat, m.path(b, "y"))
    try:
        os.listdir(m.path(b))
    except OSError as e:
        eq(e.errno, errno.EIO, "its listing")
    lines = [l for l in m.log().splitlines() if b in l and "error" in l]
    ok(1 <= len(lines) <= 2, f"one clear log line: {lines}")
    m.varve("verify", rc=1)
    append(m.cur("x"), b"life goes on\n")


def test_strange_things_in_the_store(t):
    """Names in the store's folders that varvefs did not make are left alone and do no harm."""
    m, b = sealed_bucket(t)
    m.stop()
    for where in ("open", "sealed", "trash", "staging", ""):
        put(os.path.join(m.store, where, "notes.txt"), b"mine")
        mkdirs(os.path.join(m.store, where, "lost+found"))
    os.symlink("/etc", os.path.join(m.store, "sealed", "2001-01-01T00Z"))
    os.symlink("/etc", os.path.join(m.store, "open", "2001-01-01T01Z"))
    mkdirs(os.path.join(m.store, "sealed", "not-a-bucket", "default"))
    m.expect(".")
    m.start()
    eq(read(m.path(b, "y")), b"y\n", "the bucket reads")
    ok("passwd" not in str([os.listdir(m.path(e)) for e in m.buckets() if e != b]),
       "no symbolic link in the store is followed")
    m.stop()
    eq(read(os.path.join(m.store, "open", "notes.txt")), b"mine", "left alone")
    eq(read(os.path.join(m.store, "sealed", "notes.txt")), b"mine", "left alone")
    ok(os.path.exists("/etc/passwd"), "nothing was removed through a link")


main(jobs=3)
