"""Random operations on a mount and on the model of model.py, compared after each.

    test_model.py [--seed N] [--steps N] [--verbose]

The same seed and steps give the same operations. --steps 0 goes on until it is interrupted.
"""
import argparse
import collections
import ctypes
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import (Failure, SLOW, Test, _detach_all, _kill_children, _libc, bucket_name, eq,  # noqa
                       next_start, read, same_bytes, wait_until)
from compare import Compare, name_of, shown
from model import CURRENT, STAGING, Dir, File, Model, visible

FILE_NAMES = [b"x.log", b"y.log", b"z", b"*.example.com.log", b"nl\nname", b"\xff\xfe bad", b"n" * 255,
              b"sp ace", b".hidden", "\u00fc.log".encode()]
DIR_NAMES = [b"a", b"b b", b"host=web1", b"d" * 200]
PROBE = b"probe"  # a stream that only the test's own wait for a boundary looks at
BUCKET, HOUR = "1h", 3600
OPTIONS = f"bucket={BUCKET},grace=55m,undrop=6h"
HANDLES_MAX, FILES_MAX, SEALED_MAX = 14, 60, 6
WHOLE_EVERY = 250
STEP_SECONDS = 60 * SLOW  # a step that takes longer hangs
NOREPLACE = 1
APPEND = os.O_WRONLY | os.O_APPEND
OPENS = [(APPEND | os.O_CREAT, 12), (APPEND, 3), (os.O_WRONLY | os.O_CREAT, 3),
         (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 4), (os.O_WRONLY | os.O_CREAT | os.O_EXCL, 2),
         (os.O_RDONLY, 6), (os.O_RDWR | os.O_APPEND | os.O_CREAT, 2), (os.O_RDWR, 1),
         (APPEND | os.O_CREAT | os.O_TRUNC, 1)]
MODES = [0o644, 0o600, 0o640, 0o666, 0o444, 0o400, 0o777, 0o000, 0o4755, 0o2755, 0o1644]
DIR_MODES = [0o755, 0o700, 0o750, 0o555, 0o500, 0o711, 0o2775, 0o1777]


class Run(Compare):
    def __init__(self, t, seed, verbose):
        self.t, self.random, self.verbose = t, random.Random(seed), verbose
        self.said = collections.deque(maxlen=60)
        self.step = self.count = 0
        self.inos = {}        # every number ever seen: what it is
        self.m = t.mount(OPTIONS)
        self.m.expect(r"can't go on in bucket")
        self.mnt = os.fsencode(self.m.mnt)
        self.control = t.path("fusectl")
        os.mkdir(self.control)
        t.run(["mount", "-t", "fusectl", "none", self.control])
        self.model = Model(os.fsencode(self.m.open_name()), self.m.passes())
        self.mounted()
        self.put(PROBE, APPEND | os.O_CREAT)
        weighted = [(w, n[3:]) for n, w in OPERATIONS.items()]
        self.weights = [w for w, _ in weighted]
        self.operations = [getattr(self, "op_" + n) for _, n in weighted]

        self.beat = time.monotonic()
        threading.Thread(target=self.watch, daemon=True).start()

    # -- small things --------------------------------------------------------------------------

    def watch(self):
        """A thread of its own: a daemon that hangs is shown and killed, so that the step fails."""
        while time.monotonic() < self.beat + STEP_SECONDS:
            time.sleep(1)
        pid = str(self.m.proc.pid)
        print(f"step {self.step} hangs: {self.said[-1]}", flush=True)
        if shutil.which("gdb"):
            subprocess.run(["gdb", "-batch", "-p", pid, "-ex", "thread apply all bt"],
                           stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        self.m.proc.kill()

    def say(self, what):
        self.said.append(f"{self.step}: {what}")
        if self.verbose:
            print(self.said[-1], flush=True)

    def p(self, path):
        return b"/".join((self.mnt,) + path)

    def chance(self, x):
        return self.random.random() < x

    def call(self, f, *args, **kw):
        """(errno, result) of a system call."""
        try:
            return 0, f(*args, **kw)
        except OSError as e:
            return e.errno, None

    def same(self, got, want, what):
        if got != want and not (isinstance(want, tuple) and got in want):
            raise Failure(f"{what}: {name_of(got)}, the model says {name_of(want)}")

    def put(self, name, flags):
        e, h = self.model.open((CURRENT, name), flags)
        fd = os.open(self.p((CURRENT, name)), flags, 0o644)
        os.close(fd)
        self.model.close(h)

    def data(self):
        self.count += 1
        r = self.random.random()
        line = b"%d %s\n" % (self.count, b"abcdefghij"[self.count % 10:] * self.random.randrange(9))
        if r < 0.6:
            return line
        if r < 0.75:
            return b"".join(b"%d.%d\n" % (self.count, i) for i in range(self.random.randrange(2, 9)))
        if r < 0.9:
            return line[:-1]
        if r < 0.93:
            return b"\n"
        if r < 0.98:
            return line * self.random.randrange(1, 200)
        if r < 0.995:
            return line[:-1] * (self.random.randrange(60000, 75000) // len(line))
        return line * (200000 // len(line))

    # -- which path ------------------------------------------------------------------------------

    def area(self):
        r = self.random.random()
        closing = [b.name for b in self.model.buckets.values()
                   if b.state == "closing" and b.is_there()]
        sealed = [b.name for b in self.model.buckets.values() if b.state == "sealed"]
        if r < 0.10 and closing:
            return self.random.choice(closing)
        if r < 0.15 and sealed:
            return self.random.choice(sealed)
        return STAGING if r < 0.25 else CURRENT

    def some_dir(self, top=None, deep=0.55):
        path = (top or self.area(),)
        d = self.model.top(path[0])
        while len(path) < 4 and self.chance(deep):
            below = [(n, c) for n, c in self.model.names(d).items() if isinstance(c, Dir)]
            if not below:
                break
            name, d = self.random.choice(below)
            path += (name,)
        return path, d

    def some_path(self, top=None, there=0.8, names=FILE_NAMES, kind=None):
        """A path, of something that is there by this chance."""
        path, d = self.some_dir(top)
        if self.chance(there):
            have = [n for n, c in self.model.names(d).items()
                    if n != PROBE and (kind is None or isinstance(c, kind))]
            if have:
                return path + (self.random.choice(have),)
        if self.chance(0.08):
            names = DIR_NAMES if names is FILE_NAMES else FILE_NAMES
        return path + (self.random.choice(names),)

    def some_handle(self, fits):
        have = [h for h in self.model.handles if fits(h)]
        return self.random.choice(have) if have else None

    # -- operations on files -------------------------------------------------------------------

    def do_open(self, path, flags, mode=0o644):
        flags |= os.O_NOFOLLOW
        want, h = self.model.open(path, flags, mode)
        got, fd = self.call(os.open, self.p(path), flags, mode)
        if fd is not None and h:
            h.fd = fd
        elif fd is not None:
            os.close(fd)
        self.same(got, want, "open")
        return h

    def do_close(self, h):
        self.model.close(h)
        os.close(h.fd)

    def do_write(self, h, data, off=None):
        want, n = self.model.write(h, data, off)
        if off is None:
            got, k = self.call(os.write, h.fd, data)
        else:
            got, k = self.call(os.pwrite, h.fd, data, off)
        self.same(got, want, "write")
        eq(k or 0, n, "bytes that write took")

    def op_append(self):
        path, data = self.some_path(there=0.7), self.data()
        flags = APPEND | (os.O_CREAT if self.chance(0.9) else 0)
        mode = self.random.choice(MODES[:4])
        self.say(f"append {shown(path)} flags {flags:o} mode {mode:o} {len(data)} bytes")
        h = self.do_open(path, flags, mode)
        if h:
            self.do_write(h, data)
            self.do_close(h)
        self.check_path(path)

    def op_put(self):
        path, data = self.some_path(there=0.5), self.data()
        self.say(f"put {shown(path)} {len(data)} bytes")
        h = self.do_open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        if h:
            self.do_write(h, data)
            if self.chance(0.5):
                self.do_write(h, self.data())
            self.do_close(h)
        self.check_path(path)

    def op_open(self):
        if len(self.model.handles) >= HANDLES_MAX:
            return self.op_close()
        path = self.some_path(there=0.8)
        flags = self.random.choices([f for f, _ in OPENS], [w for _, w in OPENS])[0]
        self.say(f"open {shown(path)} flags {flags:o}")
        h = self.do_open(path, flags)
        if h:
            self.said[-1] += f" = {h.fd}"
        self.check_path(path)

    def op_close(self):
        h = self.some_handle(lambda h: True)
        if h:
            self.say(f"close {h.fd}")
            self.do_close(h)

    def op_write(self):
        h = self.some_handle(lambda h: h.writable)
        if not h:
            return self.op_open()
        data, off = self.data(), None
        if self.chance(0.12):
            off = self.random.choice([0, 1, len(h.file.data), h.next, self.random.randrange(200)])
        self.say(f"write {h.fd} {len(data)} bytes{'' if off is None else f' at {off}'}")
        before = h.file
        self.do_write(h, data, off)
        for f in (before, h.file):
            path = self.path_of(f)
            if path:
                self.check_file(path, f)
        self.check_handle(h)

    def op_read(self):
        h = self.some_handle(lambda h: True)
        if h:
            self.say(f"read {h.fd}")
            self.check_handle(h)

    def op_reopen(self):
        # Of a dropped bucket nothing can be opened anew, and whether what was not carried over the
        # boundary can be opened for writing (or is ESTALE) is left open.
        h = self.some_handle(lambda h: not h.opened.bucket or h.opened.bucket is self.model.cur
                             or (h.opened.bucket.state != "dropped" and h.opened.succ
                                 and h.opened.newest().linked))
        if not h or len(self.model.handles) >= HANDLES_MAX:
            return
        flags = self.random.choice([os.O_RDONLY, APPEND, os.O_WRONLY])
        self.say(f"reopen {h.fd} flags {flags:o}")
        want, new = self.model.reopen(h, flags)
        got, fd = self.call(os.open, f"/proc/self/fd/{h.fd}", flags)
        if new and fd is not None:
            new.fd = fd
            self.said[-1] += f" = {fd}"
        self.same(got, want, "open by /proc/self/fd")

    def op_truncate(self):
        path = self.some_path()
        e, c = self.model.find(path)
        size = len(c.data) if isinstance(c, File) and self.chance(0.3) else self.random.choice(
            [0, 0, 0, 1, 100, 100000])
        self.say(f"truncate {shown(path)} to {size}")
        want = self.model.truncate(path, size)
        self.same(self.call(os.truncate, self.p(path), size)[0], want, "truncate")
        self.check_path(path)

    def op_ftruncate(self):
        h = self.some_handle(lambda h: True)
        if not h:
            return
        f = h.file if h.dated else h.file.newest()
        size = self.random.choice([0, 0, len(f.data), 7])
        self.say(f"ftruncate {h.fd} to {size}")
        want = self.model.ftruncate(h, size)
        self.same(self.call(os.ftruncate, h.fd, size)[0], want, "ftruncate")
        path = self.path_of(f)
        if path:
            self.check_file(path, f)

    def op_fallocate(self):
        h = self.some_handle(lambda h: h.writable and not h.file.sealed and not h.file.succ)
        if not h or (h.file.bucket and h.file.bucket.shut):
            return
        size = self.random.choice([1, len(h.file.data) or 1, 5000])
        self.say(f"fallocate {h.fd} 0 {size}")
        want = self.model.fallocate(h, 0, size)
        got = self.call(os.posix_fallocate, h.fd, 0, size)[0]
        h.file.mtime = None
        self.same(got, want, "posix_fallocate")
        path = self.path_of(h.file)
        if path:
            self.check_file(path, h.file)

    def op_fsync(self):
        h = self.some_handle(lambda h: True)
        if h and self.chance(0.7):
            self.say(f"fsync {h.fd}")
            os.fsync(h.fd)
            return
        path, _ = self.some_dir()
        self.say(f"fsync of {shown(path)}")
        fd = os.open(self.p(path), os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)

    # -- operations on names -------------------------------------------------------------------

    def op_rename(self):
        src = self.some_path(there=0.95)
        top = src[0] if self.chance(0.85) else self.area()
        if src[0] == STAGING and self.chance(0.6):
            top = CURRENT
        dst = self.some_path(top, there=0.4)
        self.do_rename(src, dst, self.chance(0.2))

    def do_rename(self, src, dst, noreplace=False):
        self.say(f"rename {shown(src)} to {shown(dst)}{' (noreplace)' if noreplace else ''}")
        want = self.model.rename(src, dst, noreplace)
        r = _libc.renameat2(-100, self.p(src), -100, self.p(dst),
                            ctypes.c_uint(NOREPLACE if noreplace else 0))
        self.same(ctypes.get_errno() if r else 0, want, "rename")
        self.check_path(src)
        self.check_path(dst)

    def op_publish(self):
        """Things made in .staging/ go into current/."""
        name = self.random.choice(DIR_NAMES if self.chance(0.4) else FILE_NAMES)
        src = (STAGING, b"new")
        if self.model.find(src)[1] is None and name in DIR_NAMES:
            self.say(f"a tree for {name!r}")
            self.model.mkdir(src, 0o755)
            os.mkdir(self.p(src), 0o755)
            for inner in self.random.sample(FILE_NAMES, 3):
                self.small_file(src + (inner,))
            below = src + (self.random.choice(DIR_NAMES),)
            self.model.mkdir(below, 0o700)
            os.mkdir(self.p(below), 0o700)
            self.small_file(below + (b"z",))
        elif self.model.find(src)[1] is None:
            self.small_file(src)
        self.do_rename(src, self.some_dir(CURRENT)[0] + (name,))

    def small_file(self, path):
        self.say(f"file {shown(path)}")
        h = self.do_open(path, os.O_WRONLY | os.O_CREAT, 0o640)
        self.do_write(h, self.data())
        if len(self.model.handles) > HANDLES_MAX or self.chance(0.6):
            self.do_close(h)
        else:
            self.said[-1] += f" = {h.fd}"

    def op_unlink(self):
        path = self.some_path(there=0.97)
        if self.chance(0.9):
            path = self.some_path(there=0.97, kind=File)
        self.say(f"unlink {shown(path)}")
        want = self.model.unlink(path)
        self.same(self.call(os.unlink, self.p(path))[0], want, "unlink")
        self.check_path(path)

    def op_mkdir(self):
        path, mode = self.some_path(there=0.1, names=DIR_NAMES), self.random.choice(DIR_MODES)
        if len(path) > 4:
            path = path[:3] + path[-1:]
        self.say(f"mkdir {shown(path)} {mode:o}")
        want = self.model.mkdir(path, mode)
        self.same(self.call(os.mkdir, self.p(path), mode)[0], want, "mkdir")
        self.check_path(path)

    def op_rmdir(self):
        path = self.some_path(there=0.95, names=DIR_NAMES, kind=Dir if self.chance(0.9) else None)
        self.say(f"rmdir {shown(path)}")
        want = self.model.rmdir(path)
        self.same(self.call(os.rmdir, self.p(path))[0], want, "rmdir")
        self.check_path(path)

    def op_rmtree(self):
        """rm -r of one directory."""
        path = self.some_path(there=1, names=DIR_NAMES, kind=Dir)
        e, d = self.model.find(path)
        if isinstance(d, Dir):
            self.say(f"rm -r {shown(path)}")
            self.remove_below(path, d)
            self.same(self.call(os.rmdir, self.p(path))[0], self.model.rmdir(path), "rmdir")
            self.check_path(path)

    def remove_below(self, path, d):
        for name, c in self.model.names(d).items():
            at = path + (name,)
            if isinstance(c, Dir):
                self.remove_below(at, c)
                self.same(self.call(os.rmdir, self.p(at))[0], self.model.rmdir(at), f"rmdir {shown(at)}")
            else:
                self.same(self.call(os.unlink, self.p(at))[0], self.model.unlink(at), f"rm {shown(at)}")

    def op_symlink(self):
        path = self.some_path(there=0.1)
        target = b"nowhere/%d" % self.random.randrange(1000)
        self.say(f"symlink {shown(path)}")
        want = self.model.symlink(path, target)
        self.same(self.call(os.symlink, target, self.p(path))[0], want, "symlink")
        self.check_path(path)

    # -- operations on attributes --------------------------------------------------------------

    def op_chmod(self):
        path = self.some_path(there=0.98)
        is_dir = isinstance(self.model.find(path)[1], Dir)
        mode = self.random.choice(DIR_MODES if is_dir else MODES)
        self.say(f"chmod {shown(path)} {mode:o}")
        want = self.model.chmod(path, mode)
        self.same(self.call(os.chmod, self.p(path), mode)[0], want, "chmod")
        self.check_path(path)

    def op_chown(self):
        path = self.some_path(there=0.98)
        uid, gid = self.random.choice([0, 1000, 65534]), self.random.choice([0, 33, 1000])
        self.say(f"chown {shown(path)} {uid}:{gid}")
        want = self.model.chown(path, uid, gid)
        self.same(self.call(os.chown, self.p(path), uid, gid)[0], want, "chown")
        self.check_path(path)

    def op_utimens(self):
        path = self.some_path(there=0.98)
        ns = self.random.choice([0, -10**15, 1, 4 * 10**18]) + self.random.randrange(10**15)
        self.say(f"utimens {shown(path)} {ns}")
        want = self.model.utimens(path, ns)
        self.same(self.call(os.utime, self.p(path), ns=(ns, ns))[0], want, "utimensat")
        if not want and isinstance(self.model.find(path)[1], File):
            eq(os.stat(self.p(path)).st_mtime_ns, ns, f"mtime of {shown(path)}")
        self.check_path(path)

    def op_setxattr(self):
        path = self.some_path(there=0.98)
        name = self.random.choice(["user.a", "user.b"])
        c = self.model.find(path)[1]
        if isinstance(c, File) and c.link is not None:
            return
        if self.chance(0.3):
            self.say(f"removexattr {shown(path)} {name}")
            want = self.model.removexattr(path, name)
            got, _ = self.call(os.removexattr, self.p(path), name)
        else:
            value = b"%d" % self.random.randrange(10**9)
            self.say(f"setxattr {shown(path)} {name}")
            want = self.model.setxattr(path, name, value)
            got, _ = self.call(os.setxattr, self.p(path), name, value)
        self.same(got, want, "change of an xattr")
        self.check_path(path)

    def op_refused(self):
        """What is refused whatever the state."""
        p, root = self.p, (b"2031-01-01",)
        path = self.some_path(CURRENT, there=1, kind=File)
        refused = [
            ((errno.EPERM,), os.mkdir, p(root)),
            ((errno.EPERM,), os.open, p((b"file",)), os.O_WRONLY | os.O_CREAT),
            ((errno.EPERM,), os.mkfifo, p((CURRENT, b"fifo"))),
            ((errno.EBUSY,), os.rmdir, p((CURRENT,))),
            ((errno.EBUSY,), os.rmdir, p((STAGING,))),
            ((errno.ENOTDIR,), os.rmdir, p((self.model.cur.name,))),
            ((errno.EBUSY, errno.EPERM), os.unlink, p((self.model.cur.name,))),
            ((errno.EISDIR,), os.open, p((CURRENT,)), os.O_WRONLY),
            ((errno.EPERM,), os.rename, p((CURRENT,)), p(root)),
            ((errno.ENAMETOOLONG,), os.mkdir, p((CURRENT, b"n" * 256))),
        ]
        if self.model.find(path)[1]:
            refused += [((errno.EPERM,), os.link, p(path), p((CURRENT, b"hard"))),
                        ((errno.EPERM,), os.rename, p(path), p((b"file",)))]
        want, f, *args = self.random.choice(refused)
        self.say(f"refused: {f.__name__} {args}")
        self.same(self.call(f, *args)[0], want, f.__name__)

    # -- the life of buckets -------------------------------------------------------------------

    def mounted(self):
        minor = os.minor(os.stat(self.mnt).st_dev)
        self.waiting = os.path.join(self.control, str(minor), "waiting")

    def settle(self):
        """Until the daemon has nothing in hand: close(2) does not wait for its RELEASE."""
        wait_until(lambda: int(read(self.waiting)) == 0, 10, "no request is under way", 0.001)

    def there(self, state=None):
        return [b for b in self.model.buckets.values()
                if b.is_there() and (state is None or b.state == state)]

    def wait_sealed(self, b):
        """Until b is sealed, or, where nothing is in it, gone; its files are read meanwhile."""
        name, files = os.fsdecode(b.name), []

        def collect(path, d):
            for n, c in d.children.items():
                if visible(c) and isinstance(c, Dir):
                    collect(path + (n,), c)
                elif visible(c) and c.link is None:
                    files.append((path + (n,), c))
        collect((b.name,), b.root)
        empty = not any(visible(c) for c in b.root.children.values())

        def done():
            if empty:
                return name not in os.listdir(self.m.mnt)
            if files:
                path, f = self.random_free.choice(files)
                got, data = read(self.p(path)), bytes(f.data)
                # What came behind an unfinished line is shown once the bucket is shut: by now, or in a moment.
                if got != data + bytes(f.behind):
                    same_bytes(got, data, f"{shown(path)} while it is sealed")
            return self.m.is_sealed(name)
        wait_until(done, 20, lambda: f"{name} is sealed", 0.002)

    random_free = random.Random()  # how often it is asked depends on time: not the seed's

    def new_window(self):
        """The clock goes past the next boundary; what is told to the kernel has arrived."""
        probe = self.p((CURRENT, PROBE))
        before = os.stat(probe).st_ino
        self.m.next()
        wait_until(lambda: os.stat(probe).st_ino != before, 5, "the kernel knows of the boundary",
                   0.001)
        return os.fsencode(self.m.open_name())

    def left(self):
        return next_start(self.m.now(), BUCKET) - self.m.now()

    def op_boundary(self):
        self.say("boundary")
        self.settle()
        due = [b for b in self.model.buckets.values() if b.state == "closing"]
        for b in due:
            self.check_list_of(b)
        self.model.boundary(self.new_window())
        for b in due:
            self.seal_now(b)
        self.check_after()

    def check_list_of(self, b):
        if b.is_there():
            self.check_list((b.name,), b.root)

    def seal_now(self, b):
        """b is due: the mount first, then the model."""
        self.wait_sealed(b)
        if self.model.seal(b):
            self.check_bucket(b)

    def check_after(self):
        self.check_root()
        self.check_tree((CURRENT,), self.model.skel)
        for b in self.there("closing"):
            self.check_bucket(b)
        for h in self.model.handles:
            self.check_handle(h)

    def op_grace(self):
        """The clock goes past the end of the grace, not past a boundary."""
        due = [b for b in self.model.buckets.values() if b.state == "closing"]
        if not due or self.left() < HOUR - 180:
            return
        self.say("end of the grace")
        self.settle()
        self.m.shift(55 * 60 + 31)
        for b in due:
            self.seal_now(b)
        self.check_after()

    def op_seal(self):
        due = self.there("closing")
        if due:
            b = self.random.choice(due)
            self.say(f"seal {b.name}")
            self.settle()
            self.m.varve("seal", None, os.fsdecode(b.name))
            self.seal_now(b)
            self.check_after()

    def op_drop(self):
        have = self.there()
        if not have:
            return
        b = self.random.choice(have)
        self.do_drop(b)

    def do_drop(self, b):
        by_hand, name = self.chance(0.6), os.fsdecode(b.name)
        self.say(f"{'rmdir' if by_hand else 'varve drop'} {name} ({b.state})")
        self.settle()
        want = self.model.drop(b, self.m.now())
        if by_hand:
            self.same(self.call(os.rmdir, self.p((b.name,)))[0], want, "rmdir")
        else:
            self.m.varve("drop", None, name, rc=1 if want else 0)
        if not want:
            wait_until(lambda: self.call(os.lstat, self.p((b.name,)))[0] == errno.ENOENT, 5,
                       f"{name} is gone", 0.001)
        self.check_after()

    def op_undrop(self):
        now = self.m.now()
        for n in [n for n, b in self.model.dropped.items() if now - b.when > 4.5 * HOUR]:
            del self.model.dropped[n]  # beyond its time, or soon
        have = list(self.model.dropped.values())
        if not have:
            return
        b = self.random.choice(have)
        self.say(f"undrop {b.name} (was {b.was})")
        self.settle()
        self.m.varve("undrop", None, os.fsdecode(b.name))
        if b.was == "closing":
            self.wait_sealed(b)
        self.model.undrop(b)
        if b.is_there():
            self.check_bucket(b)
        self.check_root()

    def op_rm_bucket(self):
        """rm -r of a whole bucket, name by name."""
        have = self.there()
        if have:
            b = self.random.choice(have)
            self.say(f"rm -r {b.name} ({b.state})")
            self.remove_below((b.name,), b.root)
            self.do_drop(b)

    def op_rm_sealed(self):
        sealed = self.there("sealed")
        if sealed:
            b = self.random.choice(sealed)
            path = self.some_path(b.name, there=1, kind=File)
            self.say(f"rm {shown(path)}")
            want = self.model.unlink(path)
            self.same(self.call(os.unlink, self.p(path))[0], want, "unlink")
            self.check_path(path)

    def op_hold(self):
        have = self.there()
        if not have:
            return
        b = self.random.choice(have)
        b.held = not b.held
        self.say(f"{'hold' if b.held else 'unhold'} {b.name} ({b.state})")
        if b.held:
            os.setxattr(self.p((b.name,)), "user.varve.hold", b"1")
        else:
            os.removexattr(self.p((b.name,)), "user.varve.hold")

    def op_remount(self):
        killed, off = self.chance(0.4), self.chance(0.3)
        self.say(f"remount{', killed' if killed else ''}{', over a boundary' if off else ''}")
        if not killed or self.chance(0.5):
            self.close_all()
        if killed:
            self.m.kill()
            self.close_all()
        else:
            self.m.stop()
        if off:
            self.m.shift(self.left() + 0.01)
        self.m.start()
        self.mounted()
        name = os.fsencode(bucket_name(self.m.now(), BUCKET)) if off else None
        closing = [b for b in self.model.buckets.values() if b.state == "closing"]
        if off:
            closing.append(self.model.cur)
        for b in closing:
            self.wait_sealed(b)
        self.model.restart(name)
        self.check_all()

    def close_all(self):
        for h in self.model.handles:
            self.call(os.close, h.fd)
        self.model.handles = []
        if self.m.proc.poll() is None:
            self.settle()

    # -- steps -----------------------------------------------------------------------------------

    def one(self):
        self.step += 1
        self.beat = time.monotonic()
        files = len(self.model.names(self.model.skel)) if self.step % 20 else sum(
            1 for _ in self.walk(self.model.skel))
        if self.left() < 90:
            self.op_boundary()
        elif len(self.there("sealed")) > SEALED_MAX and self.chance(0.2):
            self.op_drop()
        elif files > FILES_MAX:
            self.op_rmtree() if self.chance(0.5) else self.op_unlink()
        else:
            self.random.choices(self.operations, self.weights)[0]()
        if self.step % WHOLE_EVERY == 0:
            self.check_all()

    def finish(self):
        """Everything once more, over a last remount, and held against the digests."""
        self.beat = time.monotonic()
        self.close_all()
        self.check_all()
        self.m.remount()
        self.mounted()
        for b in [b for b in self.model.buckets.values() if b.state == "closing"]:
            self.wait_sealed(b)
        self.model.restart()
        self.check_all()
        self.m.varve("verify", None)


# How often, of all.
OPERATIONS = {
    "op_append": 16, "op_put": 6, "op_open": 9, "op_close": 4, "op_write": 26, "op_read": 3,
    "op_reopen": 1, "op_truncate": 3, "op_ftruncate": 2, "op_fallocate": 1, "op_fsync": 1.5,
    "op_rename": 7, "op_publish": 2.5, "op_unlink": 6, "op_mkdir": 5, "op_rmdir": 3, "op_rmtree": 0.7,
    "op_symlink": 1, "op_chmod": 3, "op_chown": 2, "op_utimens": 2, "op_setxattr": 3, "op_refused": 1.5,
    "op_boundary": 1.6, "op_grace": 0.5, "op_seal": 0.5, "op_drop": 0.4, "op_undrop": 0.6,
    "op_rm_bucket": 0.1, "op_rm_sealed": 1, "op_hold": 0.4, "op_remount": 0.4,
}


def run(t, args):
    began = time.monotonic()
    r = None
    try:
        r = Run(t, args.seed, args.verbose)
        while not args.steps or r.step < args.steps:
            r.one()
        r.finish()
        print(f"{r.step} steps agree (seed {args.seed}, {time.monotonic() - began:.1f} s)")
        return 0
    except KeyboardInterrupt:
        print(f"interrupted after {r.step if r else 0} steps that agree (seed {args.seed})")
        return 0
    except BaseException as e:
        where = traceback.extract_tb(e.__traceback__)
        print("the last operations:")
        for line in r.said if r else ():
            print("  " + line)
        print("".join(traceback.format_list(where[-6:])), end="")
        print(f"{type(e).__name__}: {e}")
        print(f"seed {args.seed}, step {r.step if r else 0}; again:\n"
              f"  VARVEFS={os.environ.get('VARVEFS', 'varvefs')} VARVE={os.environ.get('VARVE', 'varve')}"
              f" {sys.argv[0]} --seed {args.seed} --steps {r.step if r else 0}")
        for m in t.mounts:
            print(f"--- log of {m.mnt} ---\n{m.log()[-3000:]}")
        return 1


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    a.add_argument("--steps", type=int, default=10000, help="0: no limit")
    a.add_argument("--verbose", action="store_true", help="print each operation")
    args = a.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.umask(0o022)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    base = os.path.realpath(tempfile.mkdtemp(prefix="varvemodel-"))
    os.chmod(base, 0o755)
    t = Test("model", base)
    status = 1
    try:
        status = run(t, args)
        for line in t.finish():
            print(f"the daemon said: {line}")
            status = 1
    finally:
        _kill_children()
        _detach_all(base)
        shutil.rmtree(base, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
