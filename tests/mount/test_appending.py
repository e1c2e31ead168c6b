"""Appending and everything else that ordinary tools do in current/: design.md section 3."""
import fcntl
import os
import socket
import stat
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403
import lines  # noqa: E402

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def test_shell_redirection_and_tee(t):
    m = t.mount()
    x = m.cur("x.log")
    t.sh(f"for i in 1 2 3 4 5; do echo line $i >> {x}; done; echo six | tee -a {x}; "
         f"printf 'seven\\n' | dd oflag=append conv=notrunc of={x} 2>/dev/null")
    eq(read(x), b"".join(b"line %d\n" % i for i in range(1, 6)) + b"six\nseven\n", "all lines")
    writers = [t.spawn(["sh", "-c", f"i=0; while [ $i -lt 300 ]; do echo {w} $i; i=$((i+1)); done "
                        f"| tee -a {m.cur('tee.log')} > /dev/null"]) for w in "abc"]
    for w in writers:
        eq(w.wait(), 0, "tee -a")
    got = read(m.cur("tee.log")).decode().splitlines()
    for w in "abc":
        eq([l for l in got if l.startswith(w)], [f"{w} {i}" for i in range(300)], f"{w}'s lines")
    eq(len(got), 900, "nothing else")


def test_two_shells_with_plain_redirection(t):
    """Two shells write to one file with `>` at once: neither overwrites the other."""
    m = t.mount()
    x, gate = m.cur("x.log"), t.path("gate")
    shells = [t.spawn(["sh", "-c", f"exec > {x} || exit 3; while ! [ -e {gate} ]; do sleep 0.01; "
                       f"done; i=0; while [ $i -lt 500 ]; do echo {w} $i; i=$((i+1)); done"],
                      stderr=open(t.path(f"err-{w}"), "wb")) for w in "ab"]

    def both_have_it():
        for s, w in zip(shells, "ab"):
            ok(s.poll() is None, f"shell {w} ended: {read(t.path(f'err-{w}'))}")
        # Of two that create it in one moment, one may be told "(deleted)" by the kernel.
        return all(os.readlink(f"/proc/{s.pid}/fd/1").startswith(x) for s in shells)
    wait_until(both_have_it, 10, "both shells have opened it")
    put(gate, b"")
    for s in shells:
        eq(s.wait(20 * SLOW), 0, "a shell's end")
    got = read(x).decode().splitlines()
    for w in "ab":
        eq([l for l in got if l.startswith(w)], [f"{w} {i}" for i in range(500)], f"{w}'s lines")
    eq(len(got), 1000, "nothing else")


def test_offset_is_rebased_when_a_file_begins_anew(t):
    m = t.mount()
    x = m.cur("x.log")
    t.sh(f"exec 3> {x}; echo aaaaaaaaaaaaaaaa >&3; : > {x}; echo b >&3; echo c >&3")
    eq(read(x), b"b\nc\n", "no NUL prefix after a truncation by another")
    fd = os.open(m.cur("y"), os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"12345\n")
    os.ftruncate(fd, 0)
    os.write(fd, b"67\n")
    eq(read(m.cur("y")), b"67\n", "nor after one by itself")
    os.close(fd)


def test_only_appends_are_taken(t):
    m = t.mount()
    x = m.cur("x.log")
    append(x, b"0123456789")
    for flags, name in ((os.O_WRONLY, "O_WRONLY"), (os.O_RDWR, "O_RDWR")):
        fd = os.open(x, flags)
        raises(errno.EPERM, os.pwrite, fd, b"X", 3, what=f"pwrite inside the file, {name}")
        raises(errno.EPERM, os.pwrite, fd, b"X", 11, what=f"pwrite beyond the end, {name}")
        raises(errno.EPERM, os.write, fd, b"X", what=f"write at 0 of a longer file, {name}")
        os.close(fd)
    eq(read(x), b"0123456789", "intact")
    fd = os.open(x, os.O_RDWR)
    os.lseek(fd, 0, os.SEEK_END)
    eq(os.write(fd, b"ab"), 2, "a write at the end")
    eq(os.write(fd, b"cd"), 2, "the one that continues it")
    append(x, b"--")
    eq(os.write(fd, b"ef"), 2, "and one that continues, with another's between")
    os.close(fd)
    fd = os.open(x, os.O_WRONLY | os.O_APPEND)
    os.pwrite(fd, b"!", 0)
    os.close(fd)
    eq(read(x), b"0123456789abcd--ef!", "all that was acknowledged, in order")
    fd = os.open(x, os.O_WRONLY | os.O_APPEND)
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    if m.passes():
        # The part's own descriptor still appends.
        eq(os.pwrite(fd, b"X", 0), 1, "pwrite after O_APPEND was taken away")
        eq(read(x), b"0123456789abcd--ef!X", "it is an append")
        os.close(fd)
    else:
        raises(errno.EPERM, os.pwrite, fd, b"X", 0, what="pwrite after O_APPEND was taken away")
        os.close(fd)
        raises((errno.ENODEV, errno.EACCES, errno.EPERM), shared_map, x,
               what="a shared writable mapping")


def shared_map(path):
    import mmap
    fd = os.open(path, os.O_RDWR)
    try:
        mmap.mmap(fd, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()
    finally:
        os.close(fd)


def test_case18_truncate_dd_and_redirection(t):
    """`truncate -s 1P` is refused with the file intact; dd bs=1M runs; `echo x >` starts anew."""
    m = t.mount()
    x = m.cur("x")
    append(x, b"a long line that stays\n")
    r = t.run(["truncate", "-s", "1P", x], rc=1)
    has(r.stderr, "not permitted", "truncate -s 1P")
    t.run(["truncate", "-s", "3", x], rc=1)
    eq(read(x), b"a long line that stays\n", "the file is intact")
    t.run(["truncate", "-s", "23", x])  # to the present size
    eq(os.stat(x).st_blocks < 100, True, "no blocks were made")
    t.sh(f"echo x > {x}")
    eq(read(x), b"x\n", "started anew")
    t.run(["truncate", "-s", "0", x])
    eq(os.stat(x).st_size, 0, "truncate -s 0")
    source = t.path("source")
    put(source, os.urandom(64 << 20))
    began = time.monotonic()
    t.sh(f"dd if={source} of={m.cur('big')} bs=1M 2>/dev/null")
    print(f"dd bs=1M: {64 / (time.monotonic() - began):.0f} MiB/s")
    t.run(["cmp", source, m.cur("big")])


def test_truncation_under_writers(t):
    """`: > x.log` while two descriptors append: they go on at the new end, no hole."""
    m = t.mount()
    x = m.cur("x")
    a, b = os.open(x, APPEND), os.open(x, os.O_WRONLY)
    os.write(a, b"a1\n")
    os.write(a, b"a2\n")
    os.lseek(b, 0, os.SEEK_END)
    os.write(b, b"b1\n")
    t.sh(f": > {x}")
    eq(os.stat(x).st_size, 0, "empty")
    os.write(a, b"a3\n")
    os.write(b, b"b2\n")
    eq(read(x), b"a3\nb2\n", "both go on")
    os.close(a)
    os.close(b)


def test_cp_install_mv_and_friends(t):
    m = t.mount()
    src = mkdirs(t.path("src"))
    put(os.path.join(src, "a"), lines.text(300000))
    put(os.path.join(src, "b"), b"")
    os.chmod(os.path.join(src, "a"), 0o640)
    os.chown(os.path.join(src, "a"), 1000, 1001)
    os.utime(os.path.join(src, "a"), ns=(10**18 + 123456789, 10**18 + 987654321))
    os.symlink("a", os.path.join(src, "link"))
    mkdirs(os.path.join(src, "sub/empty"))
    want = tree(src)
    t.run(["cp", "-a", src, m.cur("cp-a")])
    same_tree(tree(m.cur("cp-a")), want, "cp -a")
    t.run(["cp", "-r", src, m.cur("cp-r")])
    same_tree(tree(m.cur("cp-r"), times=False, owners=False),
              {k: {f: v for f, v in w.items() if f not in ("mtime", "owner")}
               for k, w in want.items()}, "cp -r")
    t.run(["install", "-m", "600", os.path.join(src, "a"), m.cur("installed")])
    eq(oct(os.stat(m.cur("installed")).st_mode & 0o777), "0o600", "install -m")
    t.sh(f"tar --format=posix -cf - -C {src} . | tar xpf - -C {mkdirs(m.cur('tar'))}")
    same_tree(tree(m.cur("tar")), want, "tar x")
    t.sh(f"tar --format=posix -cf - -C {src} . | bsdtar xpf - -C {mkdirs(m.cur('bsdtar'))}")
    same_tree(tree(m.cur("bsdtar")), want, "bsdtar x")
    t.run(["mv", src, m.cur("mv")])
    same_tree(tree(m.cur("mv")), want, "mv from elsewhere")
    t.sh(f"gzip -k {m.cur('mv/a')} && gzip -t {m.cur('mv/a.gz')} && zstd -q {m.cur('mv/a')} && "
         f"zstd -q -t {m.cur('mv/a.zst')}")
    t.run(["cp", m.cur("mv/b"), m.cur("mv/a")])
    eq(os.stat(m.cur("mv/a")).st_size, 0, "cp over a longer one")


def test_rsync_into_current(t):
    m = t.mount()
    src = mkdirs(t.path("src/sub"))
    put(t.path("src/a"), lines.text(500000))
    put(os.path.join(src, "b"), lines.text(1000, 2))
    os.symlink("sub/b", t.path("src/link"))
    t.run(["rsync", "-a", t.path("src") + "/", m.cur("plain")])
    same_tree(tree(m.cur("plain")), tree(t.path("src")), "rsync -a")
    r = t.run(["rsync", "-ai", t.path("src") + "/", m.cur("plain")])
    eq(r.stdout, b"", "a second rsync finds nothing to do")
    append(t.path("src/a"), b"more\n" * 1000)
    t.run(["rsync", "-a", "--append", t.path("src") + "/", m.cur("plain")])
    same_bytes(read(m.cur("plain/a")), read(t.path("src/a")), "rsync --append")
    t.run(["rsync", "-a", "--inplace", t.path("src") + "/", m.cur("inplace")])
    same_tree(tree(m.cur("inplace")), tree(t.path("src")), "rsync --inplace onto nothing")
    put(os.path.join(src, "b"), b"changed")
    t.run(["rsync", "-a", "--delete", t.path("src") + "/", m.cur("plain")])
    same_tree(tree(m.cur("plain")), tree(t.path("src")), "a changed file replaces the old one")


def test_rename_inside_current(t):
    m = t.mount()
    append(m.cur("a"), b"a\n")
    append(m.cur("b"), b"b\n")
    os.mkdir(m.cur("d"))
    held = os.open(m.cur("a"), APPEND)
    t.run(["mv", m.cur("a"), m.cur("d/a.1")])
    os.write(held, b"a2\n")
    eq(read(m.cur("d/a.1")), b"a\na2\n", "the writer follows the file to its new name")
    ok(not os.path.exists(m.cur("a")), "the old name is gone")
    t.run(["mv", "-n", m.cur("b"), m.cur("d/a.1")], rc=None)
    eq(read(m.cur("d/a.1")), b"a\na2\n", "mv -n keeps what is there")
    eq(read(m.cur("b")), b"b\n", "and its source")
    libc = ctypes.CDLL(None, use_errno=True)

    def renameat2(a, b, flags):
        if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags) < 0:
            raise OSError(ctypes.get_errno(), "renameat2")
    raises(errno.EEXIST, renameat2, m.cur("b"), m.cur("d/a.1"), 1)
    renameat2(m.cur("b"), m.cur("c"), 1)
    raises(errno.EINVAL, renameat2, m.cur("c"), m.cur("d/a.1"), 2, what="RENAME_EXCHANGE")
    os.rename(m.cur("c"), m.cur("d/a.1"))
    eq(read(m.cur("d/a.1")), b"b\n", "rename over")
    os.write(held, b"into nowhere\n")
    eq(os.fstat(held).st_nlink, 0, "the replaced one lives on, unlinked, for its holder")
    os.close(held)
    os.rename(m.cur("d"), m.cur("e"))
    eq(os.listdir(m.cur("e")), ["a.1"], "a directory renamed with what is in it")
    append(m.cur("e/new"), b"n\n")
    raises(errno.EINVAL, os.rename, m.cur("e"), m.cur("e/inside"))
    os.mkdir(m.cur("f"))
    raises((errno.ENOTEMPTY, errno.EEXIST), os.rename, m.cur("f"), m.cur("e"))
    os.rename(m.cur("e"), m.cur("f"))
    eq(sorted(os.listdir(m.cur("f"))), ["a.1", "new"], "rename over an empty directory")
    raises(errno.ENOENT, os.rename, m.cur("nothing"), m.cur("g"))
    os.mkdir(m.cur("h"))
    raises(errno.EISDIR, os.rename, m.cur("f/new"), m.cur("h"))
    raises(errno.ENOTDIR, os.rename, m.cur("h"), m.cur("f/new"))


def test_staging_publishes(t):
    """.staging/ is an ordinary read-write area; a rename into current/ publishes, whole."""
    m = t.mount()
    st = m.path(".staging")
    ok(".staging" in os.listdir(m.mnt), ".staging/ is listed")
    x = os.path.join(st, "x")
    fd = os.open(x, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"0123456789")
    os.pwrite(fd, b"ab", 3)
    os.ftruncate(fd, 8)
    os.pwrite(fd, b"Z", 20)
    eq(os.pread(fd, 100, 0), b"012ab567" + b"\0" * 12 + b"Z", "any write in staging")
    os.posix_fallocate(fd, 0, 4096)
    os.ftruncate(fd, 21)
    os.rename(x, m.cur("x"))
    raises(errno.EPERM, os.pwrite, fd, b"no", 0, what="an open handle after publishing")
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, b"tail")
    os.close(fd)
    eq(read(m.cur("x")), b"012ab567" + b"\0" * 12 + b"Ztail", "published, then appended")
    mkdirs(os.path.join(st, "crawl/a/b"))
    put(os.path.join(st, "crawl/a/b/page"), b"html")
    put(os.path.join(st, "crawl/index"), b"idx")
    os.rename(os.path.join(st, "crawl"), m.cur("crawl"))
    eq(sorted(t.sh(f"cd {m.cur()} && find crawl").stdout.decode().split()),
       ["crawl", "crawl/a", "crawl/a/b", "crawl/a/b/page", "crawl/index"], "a whole directory")
    put(os.path.join(st, "y"), b"new content")
    os.rename(os.path.join(st, "y"), m.cur("x"))
    eq(read(m.cur("x")), b"new content", "over what was there")
    raises((errno.EPERM, errno.EXDEV), os.rename, m.cur("x"), os.path.join(st, "back"),
           what="out of current/")
    eq(read(m.cur("x")), b"new content", "it stays where it was")
    put(os.path.join(st, "keep"), b"over a restart")
    m.remount()
    eq(read(m.path(".staging/keep")), b"over a restart", "staging outlives the daemon")
    old = m.next_sealed()
    eq(read(m.path(".staging/keep")), b"over a restart", "and the boundary")
    eq(read(m.path(old, "crawl/a/b/page")), b"html", "what was published is sealed")


def test_metadata(t):
    """touch, chmod, chown, utimens, setuid bits, the user's own xattrs, ACLs."""
    m = t.mount()
    x = m.cur("x")
    t.run(["touch", x])
    eq(os.stat(x).st_size, 0, "touch makes an empty file")
    t.run(["touch", "-d", "2001-02-03T04:05:06.123456789Z", x])
    eq(os.stat(x).st_mtime_ns, 981173106123456789, "touch -d, in ns")
    t.run(["touch", x])
    ok(abs(os.stat(x).st_mtime - time.time()) < 60, "touch is now")
    t.run(["chmod", "4751", x])
    eq(oct(os.stat(x).st_mode & 0o7777), "0o751", "chmod, and no setuid bit is ever stored")
    t.run(["chown", "1000:1001", x])
    eq((os.stat(x).st_uid, os.stat(x).st_gid), (1000, 1001), "chown")
    t.run(["setfattr", "-n", "user.origin", "-v", "sensor 7", x])
    os.setxattr(x, "user.binary", bytes(range(256)))
    eq(os.getxattr(x, "user.binary"), bytes(range(256)), "a binary xattr")
    raises(errno.EEXIST, os.setxattr, x, "user.origin", b"y", os.XATTR_CREATE)
    raises(errno.ENODATA, os.setxattr, x, "user.none", b"y", os.XATTR_REPLACE)
    raises(errno.ENODATA, os.getxattr, x, "user.none")
    ok({"user.origin", "user.binary"} <= set(os.listxattr(x)), f"listed: {os.listxattr(x)}")
    ok(not [n for n in os.listxattr(x) if n in ("user.varve.ino",)], "the store's own are not shown")
    raises((errno.EPERM, errno.EOPNOTSUPP, errno.EACCES), os.setxattr, x, "user.varve.ino", b"1")
    os.removexattr(x, "user.binary")
    ok("user.binary" not in os.listxattr(x), "removed")
    t.run(["setfacl", "-m", "u:65534:rw,g:1005:r", x])
    has(t.run(["getfacl", "-n", x]).stdout, r"user:65534:rw-", "the ACL")
    t.sh(f"echo allowed >> {x}", user=NOBODY, group=NOBODY, extra_groups=[])
    t.sh(f"echo no >> {x}", rc="fail", user=1234, group=1234, extra_groups=[])
    d = m.cur("dir")
    os.mkdir(d, 0o770)
    t.run(["setfacl", "-d", "-m", "u:65534:rwx", d])
    append(os.path.join(d, "inherits"), b"")
    has(t.run(["getfacl", "-n", os.path.join(d, "inherits")]).stdout, "user:65534:rw", "a default ACL")
    eq(read(x), b"allowed\n", "only who may has written")


def test_locks(t):
    m = t.mount()
    x = m.cur("x")
    append(x, b"")
    fd = os.open(x, os.O_WRONLY | os.O_APPEND)
    fcntl.flock(fd, fcntl.LOCK_EX)
    t.run(["flock", "-n", x, "true"], rc=1)
    fcntl.flock(fd, fcntl.LOCK_UN)
    t.run(["flock", "-n", x, "true"])
    fcntl.lockf(fd, fcntl.LOCK_EX)
    r = t.run([sys.executable, "-c", "import fcntl, os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\n"
               "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", x], rc=1)
    has(r.stderr, "BlockingIOError", "a POSIX lock is held")
    os.close(fd)


def test_fallocate(t):
    m = t.mount()
    fd = os.open(m.cur("x"), APPEND)
    os.write(fd, b"12345")
    os.posix_fallocate(fd, 0, 5)
    raises(errno.EPERM, os.posix_fallocate, fd, 0, 1 << 20)
    eq(os.fstat(fd).st_size, 5, "posix_fallocate beyond the end does not grow it")
    libc = ctypes.CDLL(None, use_errno=True)

    def fallocate(mode, off, length):
        if libc.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(length)) < 0:
            raise OSError(ctypes.get_errno(), "fallocate")
    fallocate(1, 0, 1 << 20)  # FALLOC_FL_KEEP_SIZE
    eq(os.fstat(fd).st_size, 5, "KEEP_SIZE keeps it")
    raises((errno.EPERM, errno.EOPNOTSUPP), fallocate, 3, 0, 4, what="punching a hole")
    raises((errno.EPERM, errno.EOPNOTSUPP), fallocate, 16, 0, 4, what="zeroing a range")
    os.write(fd, b"6")
    eq(read(m.cur("x")), b"123456", "as it was, and goes on")
    os.close(fd)


def test_fsync_reaches_the_part(t):
    m = t.mount()
    mkdirs(m.cur("a/b"))
    fd = os.open(m.cur("a/b/x"), APPEND)
    os.write(fd, b"durable\n")
    os.fsync(fd)
    os.fdatasync(fd)
    part = os.path.join(m.store, "open", m.open_name(), "default/0/a/b/x")
    eq(read(part), b"durable\n", "the part is a plain file, readable without varvefs")
    dfd = os.open(m.cur("a/b"), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(dfd)
    os.close(dfd)
    t.run(["sync", "-f", m.cur("a/b/x")])
    os.close(fd)


def test_unlink_and_directories(t):
    m = t.mount()
    fd = os.open(m.cur("x"), os.O_RDWR | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"1\n")
    os.unlink(m.cur("x"))
    raises(errno.ENOENT, os.stat, m.cur("x"))
    os.write(fd, b"2\n")
    eq(os.pread(fd, 10, 0), b"1\n2\n", "an unlinked file lives on for its holder")
    eq(os.fstat(fd).st_nlink, 0, "with no link")
    append(m.cur("x"), b"new\n")
    eq(read(m.cur("x")), b"new\n", "a new file of that name begins empty")
    os.close(fd)
    raises(errno.EEXIST, os.mkdir, m.cur("x"))
    os.mkdir(m.cur("d"))
    append(m.cur("d/y"), b"")
    raises(errno.ENOTEMPTY, os.rmdir, m.cur("d"))
    raises(errno.ENOTDIR, os.rmdir, m.cur("x"))
    raises((errno.EISDIR, errno.EPERM), os.unlink, m.cur("d"))
    raises(errno.ENOTDIR, os.stat, m.cur("x/y"))
    t.run(["rm", "-r", m.cur("d")])
    raises(errno.ENOENT, os.stat, m.cur("d"))
    eq(sorted(os.listdir(m.cur())), ["x"], "what is left")
    raises(errno.ENAMETOOLONG, append, m.cur("n" * 256), b"")
    append(m.cur("n" * 255), b"long\n")
    eq(read(m.cur("n" * 255)), b"long\n", "a name of 255 bytes")
    raises(errno.EEXIST, os.open, m.cur("x"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def test_symlinks_are_kept_and_not_followed(t):
    m = t.mount()
    put(t.path("secret"), b"outside")
    os.symlink(t.path("secret"), m.cur("out"))
    os.symlink("x.log", m.cur("in"))
    os.symlink("nowhere", m.cur("dangling"))
    append(m.cur("x.log"), b"1\n")
    eq(os.readlink(m.cur("out")), t.path("secret"), "an absolute link is kept")
    eq(read(m.cur("in")), b"1\n", "the kernel follows a link inside")
    append(m.cur("in"), b"2\n")
    eq(read(m.cur("x.log")), b"1\n2\n", "appending by the link")
    eq(os.lstat(m.cur("in")).st_size, 5, "a link's size is its target's length")
    eq(stat.S_ISLNK(os.lstat(m.cur("dangling")).st_mode), True, "a dangling link")
    os.unlink(m.cur("dangling"))
    raises(errno.ENOENT, os.lstat, m.cur("dangling"))
    old = m.next_sealed()
    eq(os.readlink(m.path(old, "out")), t.path("secret"), "sealed as such")
    eq(read(m.path(old, "in")), b"1\n2\n", "the sealed link reaches its sealed neighbour")


def test_links_and_special_files_are_refused(t):
    m = t.mount()
    append(m.cur("x"), b"")
    raises(errno.EPERM, os.link, m.cur("x"), m.cur("y"))
    raises(errno.EPERM, os.mkfifo, m.cur("fifo"))
    raises(errno.EPERM, os.mknod, m.cur("null"), 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    raises(errno.EPERM, os.mknod, m.cur("disk"), 0o600 | stat.S_IFBLK, os.makedev(7, 0))
    s = socket.socket(socket.AF_UNIX)
    raises(errno.EPERM, s.bind, m.cur("sock"))
    eq(os.listdir(m.cur()), ["x"], "nothing was left behind")
    os.mknod(m.cur("plain"), 0o600 | stat.S_IFREG)
    eq(os.stat(m.cur("plain")).st_size, 0, "mknod of a regular file")


def test_writes_of_all_kinds(t):
    """writev, splice, sendfile, copy_file_range, RWF_APPEND, 1-byte and 3 MiB writes."""
    m = t.mount()
    data = lines.text(3 << 20)
    put(m.cur("src"), data)
    x, src = m.cur("x"), m.path(m.next_sealed(), "src")  # a sealed file may be spliced from
    want = b""
    fd, sfd = os.open(x, APPEND), os.open(src, os.O_RDONLY)
    eq(os.writev(fd, [b"a", b"", b"bc\n"] * 300), 1200, "writev")
    want += b"abc\n" * 300
    write_all(fd, data)
    want += data
    for i in range(50):
        os.write(fd, b"%d" % (i % 10))
    want += b"01234567890123456789012345678901234567890123456789"
    os.close(fd)
    fd = os.open(x, os.O_WRONLY)
    os.lseek(fd, 0, os.SEEK_END)
    off = 0
    while off < 100000:
        off += os.sendfile(fd, sfd, off, 100000 - off)
    want += data[:100000]
    off = 0
    while off < 100000:
        off += os.copy_file_range(sfd, fd, 100000 - off, off)
    want += data[:100000]
    os.close(fd)
    fd = os.open(x, os.O_WRONLY)
    os.pwritev(fd, [b"rwf\n"], 0, os.RWF_APPEND)
    want += b"rwf\n"
    os.close(fd)
    same_bytes(read(x), want, "all of it")
    fd = os.open(x, os.O_WRONLY | os.O_APPEND | os.O_SYNC | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    os.write(fd, b"flags\n")
    os.close(fd)
    ok(read(x).endswith(b"rwf\nflags\n"), "further open flags")


@timeout(90)
def test_many_writers_in_parallel(t):
    """8 processes, each its own descriptor on one file and on its own: whole writes, in order."""
    m = t.mount()
    script = ("import os, sys\nsys.path.insert(0, sys.argv[1])\nimport lines\n"
              "fds = [os.open(p, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for p in sys.argv[3:]]\n"
              "for i in range(600):\n    for fd in fds:\n        os.write(fd, lines.line(sys.argv[2], i))\n")
    lib = os.path.dirname(sys.modules["lines"].__file__)
    procs = [t.spawn([sys.executable, "-c", script, lib, f"w{n}", m.cur("shared"), m.cur(f"own{n}")],
                     env=dict(os.environ, PYTHONPATH=lib)) for n in range(8)]
    for p in procs:
        eq(p.wait(80 * SLOW), 0, "a writer's end")
    lines.check([read(m.cur("shared"))], {f"w{n}": 600 for n in range(8)})
    for n in range(8):
        lines.check([read(m.cur(f"own{n}"))], {f"w{n}": 600})


def test_worm(t):
    """-o worm forbids truncation, unlink, rename-over and staging overwrite in current/."""
    m = t.mount("bucket=1h,grace=300ms,worm")
    x = m.cur("x")
    append(x, b"1\n")
    put(m.path(".staging/s"), b"s")
    raises(errno.EPERM, os.unlink, x)
    raises(errno.EPERM, os.truncate, x, 0)
    raises(errno.EPERM, os.open, x, os.O_WRONLY | os.O_TRUNC)
    raises(errno.EPERM, os.rename, m.path(".staging/s"), x)
    append(m.cur("y"), b"y\n")
    raises(errno.EPERM, os.rename, m.cur("y"), x)
    append(x, b"2\n")
    eq(read(x), b"1\n2\n", "appending goes on, nothing is lost")
    os.rename(m.path(".staging/s"), m.cur("s"))
    eq(read(m.cur("s")), b"s", "publishing a new name is allowed")


main(jobs=3)
