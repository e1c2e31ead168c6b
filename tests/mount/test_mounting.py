"""Mounting: how a store is made, taken, refused and given back; options; users; ends."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403


def start(t, *args, rc=0, **kw):
    """varvefs as a person starts it: it returns once the mount answers, or with an error."""
    return t.run([VARVEFS, *args], rc=rc, **kw)


def daemons(t):
    """Pids of the varvefs processes that this test started."""
    found = []
    for p in children_of(os.getpid()):
        try:
            if os.readlink(f"/proc/{p}/exe") == os.path.realpath(VARVEFS):
                found.append(p)
        except OSError:  # it has ended
            pass
    return found


def wait_gone(t):
    def gone():
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        return not daemons(t)
    wait_until(gone, 15, "the daemon ends")


def test_returns_when_the_mount_answers(t):
    for store in ("absent/store", "empty"):
        s, m = t.path(store), mkdirs(t.path("mnt-" + store.replace("/", "-")))
        mkdirs(os.path.dirname(s))
        if store == "empty":
            os.mkdir(s)
        start(t, "-o", "bucket=1h", s, m)
        # No waiting here: it must answer now.
        eq(sorted(e for e in os.listdir(m) if e == "current"), ["current"], "current/ is there")
        append(os.path.join(m, "current/x.log"), b"one\n")
        eq(read(os.path.join(m, "current/x.log")), b"one\n", "an append is read back")
        eq(oct(os.stat(s).st_mode & 0o7777), "0o700", "the mode of the store")
        ok(os.path.exists(os.path.join(s, "varve.conf")), "varve.conf is written")
        eq(len(daemons(t)), 1, "one daemon")
        t.run(["umount", m])
        wait_gone(t)


def test_relative_paths(t):
    os.mkdir(t.path("mnt"))
    start(t, "store", "mnt", cwd=t.dir)
    append(t.path("mnt/current/x"), b"y\n")
    eq(os.path.exists(t.path("store/varve.conf")), True, "the store is where it was named")
    t.run(["umount", t.path("mnt")])
    wait_gone(t)


def test_a_folder_that_is_no_store_is_refused(t):
    s, mnt = mkdirs(t.path("photos")), mkdirs(t.path("mnt"))
    put(os.path.join(s, "cat.jpg"), b"meow")
    r = start(t, s, mnt, rc="fail")
    has(r.stderr, "photos", "the message names the folder")
    eq(os.listdir(s), ["cat.jpg"], "the folder is left alone")
    eq(daemons(t), [], "no daemon")


def test_ends_cleanly(t):
    m = t.mount(clock=False)
    for n, end in enumerate([lambda: m.stop(signal.SIGTERM), lambda: m.stop(signal.SIGINT), m.umount,
                             lambda: (t.run(["fusermount3", "-u", m.mnt]), m.wait_exit())]):
        if n:
            m.start()
        append(m.cur("x"), b"%d\n" % n)
        end()
    m.start()
    eq(read(m.cur("x")), b"0\n1\n2\n3\n", "all that was written before each end")


def test_sighup_does_not_end_it(t):
    m = t.mount()
    m.proc.send_signal(signal.SIGHUP)
    m.proc.send_signal(signal.SIGPIPE)
    append(m.cur("x"), b"1\n")
    time.sleep(0.1)
    append(m.cur("x"), b"2\n")
    eq(m.proc.poll(), None, "the daemon runs")


def test_sigterm_serves_what_is_open(t):
    """New opens vanish, what is open is served for up to 5 s, everything is on disk, exit 0."""
    m = t.mount()
    fd = os.open(m.cur("x"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, b"before\n")
    m.proc.terminate()
    wait_until(lambda: not m.is_mounted(), 5, "the mount point is free at once")
    ok(not os.path.exists(m.cur("x")), "new opens find nothing")
    os.write(fd, b"after\n")
    os.fsync(fd)
    os.close(fd)
    began = time.monotonic()
    m.wait_exit(4)
    ok(time.monotonic() - began < 3 * SLOW, "it ends soon after the last close")
    m.start()
    eq(read(m.cur("x")), b"before\nafter\n", "both lines")


@timeout(90)
def test_sigterm_does_not_wait_for_ever(t):
    m = t.mount()
    through = m.passes()
    fd = os.open(m.cur("x"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, b"kept\n")
    began = time.monotonic()
    m.proc.terminate()
    m.wait_exit(15)
    took = time.monotonic() - began
    ok(2 < took < 12 * SLOW, f"open files are served about 5 s: {took:.1f} s")
    more = b""
    if through:
        # The kernel has the part: what it acknowledges now is kept as well.
        more = b"after\n"
        eq(os.write(fd, more), len(more), "a write without the daemon")
    else:
        raises((errno.ENOTCONN, errno.ECONNABORTED, errno.EIO), os.write, fd, b"lost\n")
    try:
        os.close(fd)
    except OSError:
        pass
    m.start()
    eq(read(m.cur("x")), b"kept\n" + more, "what was acknowledged")


def test_a_store_in_use_is_refused(t):
    m = t.mount()
    other = mkdirs(t.path("other"))
    r = start(t, m.store, other, rc="fail")
    has(r.stderr, rf"\b{m.proc.pid}\b", "the message names the holder's pid")
    r = start(t, "-f", m.store, other, rc="fail")
    has(r.stderr, rf"\b{m.proc.pid}\b", "the same in the foreground")
    append(m.cur("x"), b"fine\n")
    m.kill()
    detach(m.mnt)
    m.start()  # the lock died with its holder
    eq(read(m.cur("x")), b"fine\n", "the line")


def test_store_and_mount_inside_each_other_are_refused(t):
    top = mkdirs(t.path("top/inner"))
    for store, mnt in ((top, os.path.dirname(top)), (os.path.dirname(top), top), (top, top)):
        r = start(t, store, mnt, rc="fail")
        has(r.stderr, "inside|within|same", "the message says why")
        eq(mounts_under(t.dir), [], "nothing is mounted")
        eq(os.listdir(top), [], "nothing is made in the store")
    link = t.path("link")
    os.symlink(os.path.dirname(top), link)
    start(t, os.path.join(link, "inner"), os.path.dirname(top), rc="fail")
    eq(os.listdir(top), [], "nothing is made through a symbolic link")


def test_a_mountpoint_that_is_none_is_refused(t):
    r = start(t, t.path("store"), t.path("absent"), rc="fail")
    has(r.stderr, "absent", "a missing mount point is named")
    put(t.path("file"), b"")
    r = start(t, t.path("store"), t.path("file"), rc="fail")
    has(r.stderr, "file", "a file as mount point is named")


# option, what the message must name besides the option
BAD_OPTIONS = [
    ("bucket=7s", "bucket"), ("bucket=0", "bucket"), ("bucket=fortnight", "bucket"),
    ("bucket=25h", "bucket"), ("bucket=-1s", "bucket"), ("bucket", "bucket"),
    ("grace=soon", "grace"), ("grace=-5s", "grace"), ("keep=30", "keep"), ("keep=30x", "keep"),
    ("keep=99999999999999y", "keep"), ("keep-min=1.5.5d", "keep-min"), ("keep=1d,keep-min=2d", "keep"),
    ("max-size=big", "max-size"), ("max-size=-1G", "max-size"), ("max-size=1Q", "max-size"),
    ("max-size=99999999999T", "max-size"), ("max-buckets=-1", "max-buckets"),
    ("max-buckets=many", "max-buckets"), ("min-free=101%", "min-free"), ("min-free=x", "min-free"),
    ("undrop=never?", "undrop"), ("clock-trust=x", "clock-trust"), ("seal-level=0", "seal-level"),
    ("seal-level=20", "seal-level"), ("seal-level=nine", "seal-level"),
    ("seal-threads=-2", "seal-threads"), ("cache=1K", "cache"), ("cache=lots", "cache"),
    ("rmdir=maybe", "rmdir"), ("uid=-5", "uid"), ("uid=no such user", "uid"), ("gid=x y", "gid"),
    ("mode=999", "mode"), ("mode=17777777", "mode"), ("passthrough=perhaps", "passthrough"),
    ("worm=perhaps", "worm"), ("bukcet=1h", "bukcet"), ("retention=30d", "retention"),
    ("no_such_option", "no_such_option"),
]


def test_bad_options_are_refused_by_name(t):
    s, mnt = t.path("store"), mkdirs(t.path("mnt"))
    wrong = []
    for option, name in BAD_OPTIONS:
        r = start(t, "-f", "-o", option, s, mnt, rc=None, seconds=10)
        text = r.stderr.decode(errors="replace")
        if r.returncode != 2:
            wrong.append(f"-o {option}: exit status {r.returncode}: {text[-200:]}")
        elif name not in text:
            wrong.append(f"-o {option}: the message does not name {name}: {text}")
        elif "=" in option and name in option.split("=")[0] and "keep=1d" not in option \
                and not re.search(r"for example|e\.g\.|such as|example|did you mean|options|one of",
                                  text):
            wrong.append(f"-o {option}: no example: {text}")
        if os.path.exists(s):
            wrong.append(f"-o {option}: a store was made")
            shutil.rmtree(s)
    ok(not wrong, "\n".join(wrong))


GOOD_OPTIONS = ["bucket=1s", "bucket=1mo", "grace=0", "grace=5m", "keep=30d", "keep=2w", "keep=1y",
                "keep-min=7d", "keep=30d,keep-min=7d", "max-size=200G", "max-size=64MiB",
                "max-buckets=100", "min-free=5%", "min-free=10G", "min-free=0", "undrop=0",
                "undrop=1h", "clock-trust=5m", "seal-level=1", "seal-level=19", "seal-threads=2",
                "cache=32M", "worm", "rmdir=posix", "rmdir=drop", "uid=0,gid=0,mode=711",
                "passthrough=no", "passthrough=yes", "allow_other", "noatime,nosuid,nodev",
                "fsname=logs", "max_read=65536", "rw"]


def test_good_options_are_taken(t):
    for option in GOOD_OPTIONS:
        m = t.mount(option)
        append(m.cur("x"), b"x\n")
        # In whichever bucket: with bucket=1s a boundary may have come.
        eq(b"".join(d for _, d in m.history("x")), b"x\n", f"-o {option}")
        m.stop()
        m.start(options="")  # what was written into varve.conf is read again
        eq(b"".join(d for _, d in m.history("x")), b"x\n", f"after -o {option}, by varve.conf")
        m.stop()


def test_misuse_exits_2(t):
    for args in ([], [t.path("only-store")], [t.path("a"), t.path("b"), t.path("c")],
                 ["--no-such-flag", t.path("a"), t.path("b")]):
        r = start(t, *args, rc=2)
        ok(r.stderr, f"varvefs {args} says something on stderr")
        ok(not r.stdout, f"varvefs {args} says nothing on stdout")
    r = start(t, "--help")
    for name in ("bucket", "keep-min", "max-size", "min-free", "rmdir", "worm", "clock-trust"):
        has(r.stdout, name, "--help tells the options")
    has(start(t, "--version").stdout, r"\d+\.\d+", "--version")


def test_conf_and_command_line(t):
    """The same keys in STORE/varve.conf, the command line winning."""
    m = t.mount("bucket=15m,keep=40d")
    eq(m.open_name(), bucket_name(m.now(), "15m"), "the length on the command line")
    conf = os.path.join(m.store, "varve.conf")
    has(read(conf), r"(?m)^bucket *= *15m", "what was set at creation is in varve.conf")
    has(read(conf), r"(?m)^keep *= *40d", "what was set at creation is in varve.conf")
    m.stop()
    m.start(options="")
    eq(m.open_name(), bucket_name(m.now(), "15m"), "without options, varve.conf's length")
    m.stop()
    text = read(conf).decode()
    put(conf, re.sub(r"(?m)^bucket *=.*", "# by hand\nbucket = 10s", text).encode())
    m.shift(3600)
    m.start(options="")
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "10s"), 5, "the edited length")
    m.stop()
    m.shift(3600)
    m.start(options="bucket=1m")
    wait_until(lambda: m.open_name() == bucket_name(m.now(), "1m"), 5, "the command line wins")
    m.stop()
    for bad, name in (("bucket = 7s", "bucket"), ("colour = blue", "colour"),
                      ("max-size = huge", "max-size"), ("just words", "just")):
        put(conf, (text + "\n" + bad + "\n").encode())
        r = start(t, "-f", m.store, m.mnt, rc=2, env=m.environment())
        has(r.stderr, name, f"varve.conf with '{bad}'")
        has(r.stderr, r"varve\.conf", f"varve.conf with '{bad}': the message names the file")


def test_dead_mount_is_replaced(t):
    m = t.mount()
    append(m.cur("x"), b"1\n")
    held = os.open(m.cur("x"), os.O_RDONLY)
    m.kill(helpers=True)
    raises(errno.ENOTCONN, os.listdir, m.mnt)
    m.start()
    eq(read(m.cur("x")), b"1\n", "the line, through the new mount")
    eq(len(mounts_under(m.mnt)), 1, "one mount, not two")
    os.close(held)
    m.kill(helpers=True)
    start(t, "-o", m.options, m.store, m.mnt, env=m.environment())  # the same in the background
    eq(read(m.cur("x")), b"1\n", "the line, through the third")
    t.run(["umount", m.mnt])
    wait_gone(t)


def test_auto_unmount(t):
    """-o auto_unmount: the mount point of a killed daemon is a plain folder again by itself."""
    m = t.mount("bucket=1h,auto_unmount")
    m.kill()
    wait_until(lambda: not m.is_mounted(), 10, "the mount is gone")
    eq(os.listdir(m.mnt), [], "an empty folder")
    for _ in range(10):
        m.start()
        m.kill()  # a new daemon at once, while the old one's mount is being cleared away
    m.start()
    append(m.cur("x"), b"1\n")
    time.sleep(1.5)
    eq(read(m.cur("x")), b"1\n", "the last one's mount stays")


def test_root_mounts_for_all(t):
    m = t.mount()
    (where, kind, source, options), = mounts_under(m.mnt)
    eq(kind, "fuse.varvefs", "the type in mountinfo")
    ok("allow_other" in options and "default_permissions" in options, f"options: {options}")
    has(source, re.escape(m.store), "the source names the store")
    append(m.cur("public"), b"p\n")
    append(m.cur("private"), b"p\n", mode=0o600)
    eq(t.run(["cat", m.cur("public")], user=NOBODY, group=NOBODY).stdout, b"p\n", "0644 for others")
    t.run(["cat", m.cur("private")], rc=1, user=NOBODY, group=NOBODY)
    t.sh(f"echo x >> {m.cur('public')}", rc="fail", user=NOBODY, group=NOBODY)
    t.sh(f"echo x >> {m.cur('mine')}", rc="fail", user=NOBODY, group=NOBODY)


def test_uid_gid_mode(t):
    m = t.mount("bucket=1h,uid=65534,gid=65534,mode=750")
    st = os.stat(m.cur())
    eq((st.st_uid, st.st_gid, oct(st.st_mode & 0o7777)), (NOBODY, NOBODY, "0o750"), "current/")
    st = os.stat(m.path(".staging"))
    eq((st.st_uid, st.st_gid, oct(st.st_mode & 0o7777)), (NOBODY, NOBODY, "0o750"), ".staging/")
    t.sh(f"echo x >> {m.cur('mine')}", user=NOBODY, group=NOBODY, extra_groups=[])
    st = os.stat(m.cur("mine"))
    eq((st.st_uid, st.st_gid), (NOBODY, NOBODY), "the file's owner is its maker")
    t.run(["ls", m.cur()], rc="fail", user=1000, group=1000, extra_groups=[])
    m.stop()
    m.start(options="bucket=1h,mode=1777")
    st = os.stat(m.cur())
    eq((st.st_uid, oct(st.st_mode & 0o7777)), (NOBODY, "0o1777"), "only what is named is changed")


def test_names_instead_of_numbers(t):
    m = t.mount("bucket=1h,uid=nobody,gid=nogroup")
    st = os.stat(m.cur())
    eq((st.st_uid, st.st_gid), (NOBODY, NOBODY), "current/ with names of user and group")


def test_ordinary_user(t):
    """Through fusermount3: for that user alone; append, boundary, seal, drop, unmount."""
    if os.stat("/dev/fuse").st_mode & 0o066 != 0o066:
        os.chmod("/dev/fuse", 0o666)  # as udev has it; bare containers don't
    home = mkdirs(t.path("home"))
    os.chown(home, NOBODY, NOBODY)
    m = t.mount("bucket=1h,grace=300ms", store=os.path.join(home, "store"), user=NOBODY)
    who = dict(user=NOBODY, group=NOBODY, extra_groups=[])
    raises(errno.EACCES, os.stat, m.cur())
    t.sh(f"mkdir {m.cur('d')} && echo one >> {m.cur('d/x.log')} && echo obj > {m.cur('o')}", **who)
    old = bucket_name(m.now(), "1h")
    m.shift(3600)
    m.wait_sealed(old)
    eq(t.run(["cat", m.path(old, "d/x.log")], **who).stdout, b"one\n", "the sealed line")
    t.run([VARVE, "status", m.store], **who)
    # readable once more as an empty stream that an unprivileged service can reopen
    t.sh(f"echo two >> {m.cur('d/x.log')}", **who)
    t.run(["rmdir", m.path(old)], **who)
    t.run(["fusermount3", "-u", m.mnt], **who)
    m.wait_exit()
    m.start()
    eq(t.run(["cat", m.cur("d/x.log")], **who).stdout, b"two\n", "after the remount")
    m.stop()


def test_mount_helper(t):
    """mount -t fuse.varvefs and mount -t varvefs, by the helpers that meson install puts in place
    (here in a mount namespace of the test's own, so that the machine's /sbin stays as it is)."""
    s, mnt = t.path("store"), mkdirs(t.path("mnt"))
    sbin, orig = mkdirs(t.path("sbin")), mkdirs(t.path("orig"))
    script = f"""
set -e
mount --make-rprivate /
mount --bind /usr/sbin {orig}
for f in {orig}/*; do ln -s $f {sbin}/; done
ln -sf {VARVEFS} {sbin}/varvefs
ln -sf {VARVEFS} {sbin}/mount.varvefs
ln -sf {VARVEFS} {sbin}/mount.fuse.varvefs
mount --bind {sbin} /usr/sbin
for kind in fuse.varvefs varvefs; do
    mount -t $kind -o bucket=1h,nofail,noatime {s} {mnt}
    echo $kind >> {mnt}/current/x
    findmnt -n -o FSTYPE,SOURCE {mnt}
    umount {mnt}
    i=0
    while ! {VARVEFS} {s} {mnt} 2> {t.dir}/err; do
        i=$((i + 1)); [ $i -lt 200 ] || {{ cat {t.dir}/err >&2; exit 1; }}; sleep 0.05
    done
    cat {mnt}/current/x
    umount {mnt}
done
mount -t fuse.varvefs -o bucket=7s {s} {mnt} && exit 1
exit 0
"""
    r = t.run(["unshare", "-m", "sh", "-c", script])
    eq(r.stdout.decode().split(), ["fuse.varvefs", s, "fuse.varvefs", "fuse.varvefs", s,
                                   "fuse.varvefs", "varvefs"], "what the mounts said")
    has(r.stderr, "bucket", "the bad option's message comes through mount(8)")
    wait_gone(t)


def test_lengths_and_names(t):
    """Each length from 1 s to a month: the open bucket has the name of the design's list."""
    for length in ("1s", "10s", "1m", "15m", "1h", "6h", "1d", "1w", "1mo", "45s", "2h", "12h",
                   "90s"):
        m = t.mount(f"bucket={length}")
        wait_until(lambda: m.open_name() == bucket_name(m.now(), length), 4,
                   lambda: f"the name for {length}: {m.open_name()}")
        eq(os.readlink(m.path(m.open_name())), "current", "the link in the root")
        m.stop()


def test_far_times(t):
    """Names and boundaries around leap days, week and month ends, 2038 and 2100."""
    for at, length in [(1709164790, "1d"), (1609459190, "1w"), (1772323190, "1mo"),
                       (2147483640, "10s"), (2147483640, "1mo"), (4107542390, "1d"),
                       (1798761590, "1w")]:
        m = t.mount(f"bucket={length},grace=200ms", offset_ns=round((at - time.time()) * 1e9))
        eq(m.open_name(), bucket_name(m.now(), length), f"open at {at}, length {length}")
        append(m.cur("x"), b"1\n")
        old = m.next_sealed()
        append(m.cur("x"), b"2\n")
        eq(m.history("x"), [(old, b"1\n"), (bucket_name(m.now(), length), b"2\n")],
           f"the boundary after {at}, length {length}")
        m.stop()


def test_length_changes_at_the_next_boundary(t):
    m = t.mount("bucket=1h,grace=200ms")
    hour = m.open_name()
    append(m.cur("x"), b"hour\n")
    m.stop()
    m.options = "bucket=1m,grace=200ms"
    m.start()
    eq(m.open_name(), hour, "the running bucket keeps its length")
    append(m.cur("x"), b"still the hour\n")
    m.shift(next_start(m.now(), "1h") - m.now() + 0.01)
    minute = bucket_name(m.now(), "1m")
    wait_until(lambda: m.open_name() == minute, 5, "minutes from the boundary on")
    append(m.cur("x"), b"minute\n")
    m.wait_sealed(hour)
    eq(m.history("x"), [(hour, b"hour\nstill the hour\n"), (minute, b"minute\n")], "both lengths")


def test_two_stores_at_once(t):
    a, b = t.mount(), t.mount("bucket=1d")
    append(a.cur("x"), b"a\n")
    append(b.cur("x"), b"b\n")
    eq((read(a.cur("x")), read(b.cur("x"))), (b"a\n", b"b\n"), "each has its own")


main(jobs=3)
