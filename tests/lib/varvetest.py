"""The ground that mounted tests stand on: a store, a mount, ordinary tools, deadlines, a runner.

A test file holds functions test_*(t) and ends with main(). Each function runs in a process of its
own, in a fresh directory, and whatever it mounted or started is gone when it ends, however it ends.
The environment names the built programs (VARVEFS, VARVE); they must be built with test_hooks.
"""
import ctypes
import datetime
import errno
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback

from buckets import bucket_name, bucket_start, next_start, seconds_of

VARVEFS = os.environ.get("VARVEFS", "varvefs")
VARVE = os.environ.get("VARVE", "varve")
LOADGEN = os.environ.get("VARVE_LOADGEN", os.path.join(os.path.dirname(VARVEFS),
                                                        "../tests/lib/loadgen"))
SOURCE = os.environ.get("VARVE_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))
NOBODY = 65534
BAD_LOG = re.compile(rb"(?i)error|warning|assert|Sanitizer|Segmentation|terminate")

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8


def _sanitized():
    try:
        with open(VARVEFS, "rb") as f:
            text = f.read()
            return b"__asan_init" in text or b"__tsan_init" in text
    except OSError:
        return False


SANITIZED = _sanitized()
# Deadlines are multiplied by this: a sanitized daemon, or a busy machine, is slower, not wrong.
SLOW = float(os.environ.get("VARVE_TEST_SLOW", "4" if SANITIZED else "1"))
# Seconds that a daemon may take to end: it brings its filesystem to the disk, with what others wrote there.
END = 45
# Whether the daemon may pass opens through to the kernel: "no" runs a test on the daemon-served path.
# Both ways must give the same bytes; a test that is about one of them only names it in its options.
PASSTHROUGH = os.environ.get("VARVE_TEST_PASSTHROUGH", "yes") != "no"
# What a test's own clock is off by at first: it stands ten minutes into an hour when the test
# starts, so that no boundary of an hour comes by itself.
ALIGN_NS = -int((time.time() - 600) % 3600 * 1e9)


class Failure(Exception):
    """What a test found wrong."""


# -- saying what must be so -----------------------------------------------------------------------

def ok(condition, what):
    if not condition:
        raise Failure(what)


def _short(x, limit=700):
    s = repr(x)
    return s if len(s) <= limit else f"{s[:limit // 2]} ... {s[-limit // 2:]} ({len(s)} characters)"


def eq(got, want, what):
    if got == want:
        return
    if isinstance(got, bytes) and isinstance(want, bytes):
        same_bytes(got, want, what)
    raise Failure(f"{what}\n  got  {_short(got)}\n  want {_short(want)}")


def same_bytes(got, want, what):
    """Equal bytes, or a failure that says where they part."""
    if got == want:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    lo = max(0, at - 60)
    raise Failure(f"{what}: {len(got)} bytes, wanted {len(want)}; they part at byte {at}\n"
                  f"  got  {got[lo:at + 80]!r}\n  want {want[lo:at + 80]!r}")


def has(text, pattern, what):
    """A regular expression (str) that a text (str or bytes) must hold."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    if not re.search(pattern, text):
        raise Failure(f"{what}: no /{pattern}/ in\n{text}")


def raises(number, call, *args, what="", **kw):
    """call(...) must fail with this errno (or one of a tuple of them)."""
    numbers = number if isinstance(number, tuple) else (number,)
    names = "/".join(errno.errorcode[n] for n in numbers)
    try:
        got = call(*args, **kw)
    except OSError as e:
        if e.errno in numbers:
            return
        raise Failure(f"{what or call}{args}: {errno.errorcode.get(e.errno, e)}, wanted {names}")
    if isinstance(got, int) and getattr(call, "__name__", "") == "open":
        os.close(got)
    raise Failure(f"{what or call}{_short(args)}: succeeded, wanted {names}")


def wait_until(condition, seconds, what, step=0.01):
    """Polls until condition() is true (and returns its value); the deadline is a failure."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds * SLOW:g} s: {what() if callable(what) else what}")
        time.sleep(step)


def timeout(seconds):
    """Gives a test function another time limit than 90 s."""
    def mark(f):
        f.seconds = seconds
        return f
    return mark


# -- files ----------------------------------------------------------------------------------------

def read(path):
    with open(path, "rb", buffering=0) as f:
        out = []
        while True:
            piece = f.read(1 << 20)
            if not piece:
                return b"".join(out)
            out.append(piece)


def write_all(fd, data):
    """write(2) until all is taken; a short write is gone on from."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def append(path, data, mode=0o644):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def put(path, data, mode=0o644):
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, mode)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def mkdirs(path):
    os.makedirs(path, exist_ok=True)
    return path


def tree(top, times=True, owners=True):
    """What a directory tree is, as {relative path: facts}: for comparing two of them exactly."""
    out = {}
    top = os.fsencode(top)

    def visit(at, rel):
        for e in sorted(os.listdir(at or b".")):
            p, r = os.path.join(at, e), os.path.join(rel, e) if rel else e
            st = os.lstat(p)
            kind = st.st_mode & 0o170000
            fact = {"mode": oct(st.st_mode)}
            if owners:
                fact["owner"] = (st.st_uid, st.st_gid)
            if kind == 0o040000:
                visit(p, r)
            elif kind == 0o120000:
                fact["link"] = os.readlink(p)
            else:
                fact["bytes"] = read(p)
                if times:
                    fact["mtime"] = st.st_mtime_ns
            out[r] = fact
    visit(top, b"")
    return out


def same_tree(got, want, what):
    if got == want:
        return
    for p in sorted(set(got) | set(want)):
        g, w = got.get(p), want.get(p)
        if g == w:
            continue
        if g is None or w is None:
            raise Failure(f"{what}: {p[-200:]!r} is {'missing' if g is None else 'too much'}")
        for k in w:
            if g.get(k) != w[k]:
                raise Failure(f"{what}: {k} of {p[-200:]!r}: {_short(g.get(k))}, "
                              f"wanted {_short(w[k])}")


# -- processes ------------------------------------------------------------------------------------

def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def children_of(pid):
    """Pids of the direct children of a process."""
    out = []
    for d in os.listdir("/proc"):
        if d.isdigit():
            try:
                with open(f"/proc/{d}/stat", "rb") as f:
                    if int(f.read().rsplit(b")", 1)[1].split()[1]) == pid:
                        out.append(int(d))
            except (OSError, IndexError):
                pass
    return out


def _kill_children(keep=()):
    """Ends every direct child but those in keep; orphans of the ended come up and go the same way."""
    for _ in range(200):
        pids = [p for p in children_of(os.getpid()) if p not in keep]
        if not pids:
            return
        for p in pids:
            try:
                os.kill(p, signal.SIGKILL)
                os.kill(p, signal.SIGCONT)
            except ProcessLookupError:
                pass
        for p in pids:
            try:
                os.waitpid(p, os.WNOHANG)
            except ChildProcessError:
                pass
        time.sleep(0.005)


def mounts_under(path):
    """Mount points at or under path, the innermost first: [(mountpoint, type, source, options)]."""
    out = []
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            left, right = line.rstrip(b"\n").split(b" - ", 1)
            where = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), left.split(b" ")[4])
            where = os.fsdecode(where)
            if where == path or where.startswith(path + "/"):
                kind, source, options = right.split(b" ", 2)
                out.append((where, kind.decode(), os.fsdecode(source),
                            (left.split(b" ")[5] + b"," + options).decode()))
    return out[::-1]


def detach(mountpoint):
    return _libc.umount2(os.fsencode(mountpoint), _MNT_DETACH | _UMOUNT_NOFOLLOW)


def _detach_all(under):
    for _ in range(50):
        found = mounts_under(under)
        if not found:
            return
        for m in found:
            detach(m[0])


def crash_points():
    """The names of the points at which the daemon can be told to exit, from the source."""
    found = set()
    for top, _, files in os.walk(os.path.join(SOURCE, "src")):
        for f in files:
            if f.endswith(".c") and f != "sys.c":
                found |= set(re.findall(rb'varve_crash_point\("([^"]+)"\)',
                                        read(os.path.join(top, f))))
    return sorted(p.decode() for p in found)


# -- a test and its mounts --------------------------------------------------------------------------

class Test:
    """What a test function is given: its directory, programs to run, stores to mount."""

    def __init__(self, name, directory):
        self.name = name
        self.dir = directory
        self.mounts = []
        self._loops = 0

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def spawn(self, args, **kw):
        """Starts a program that dies with the test at the latest."""
        kw.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(args, preexec_fn=_die_with_parent, **kw)

    def run(self, args, rc=0, seconds=60, **kw):
        """Runs a program to its end and returns it with .stdout and .stderr (bytes). rc: the exit
        status it must have (None: any; "fail": any but 0)."""
        kw.setdefault("stdin", subprocess.DEVNULL if "input" not in kw else None)
        if "input" in kw:
            kw.pop("stdin")
        r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           preexec_fn=_die_with_parent, timeout=seconds * SLOW, **kw)
        good = r.returncode != 0 if rc == "fail" else rc is None or r.returncode == rc
        if not good:
            raise Failure(f"{_short(args, 400)} exited {r.returncode}, wanted {rc}\n"
                          f"{r.stdout.decode(errors='replace')[-2000:]}"
                          f"{r.stderr.decode(errors='replace')[-2000:]}")
        return r

    def sh(self, script, rc=0, **kw):
        return self.run(["sh", "-c", script], rc=rc, **kw)

    def mount(self, options="bucket=1h,grace=300ms", **kw):
        """A fresh store, mounted. The clock is the test's own unless clock=False."""
        m = Mount(self, options, **kw)
        return m

    def volume(self, megabytes, reserve=0):
        """A small ext4 of its own, for stores that must run out of space; returns its mountpoint.
        reserve: the percentage of its blocks that is kept for root."""
        self._loops += 1
        image, where = self.path(f"volume{self._loops}.img"), self.path(f"volume{self._loops}")
        with open(image, "wb") as f:
            f.truncate(megabytes << 20)
        self.run(["mkfs.ext4", "-q", "-m", str(reserve), "-b", "4096", "-E", "lazy_itable_init=0", image])
        os.mkdir(where)
        self.run(["mount", "-o", "loop", image, where])
        return where

    def finish(self):
        """Ends every daemon; says what their logs hold that no test expected."""
        wrong = []
        for m in self.mounts:
            m.end()
        for m in self.mounts:
            wrong += m.bad_log_lines()
        return wrong


class Mount:
    """A store and its daemon (in the foreground, as a child)."""

    _count = 0

    def __init__(self, test, options, store=None, mnt=None, clock=True, offset_ns=ALIGN_NS, synced=True,
                 env=None, args=(), user=None, start=True, ready=True):
        Mount._count += 1
        n = Mount._count
        self.t = test
        self.options = options
        self.store = store or test.path(f"store{n}")
        self.mnt = mnt or test.path(f"mnt{n}")
        self.env = dict(env or {})
        self.args = list(args)
        self.user = user
        self.proc = None
        self.logs = []
        self.expected = []
        self.offset_ns = 0
        self.clock_path = None
        os.makedirs(self.mnt, exist_ok=True)
        if user is not None:
            os.chown(self.mnt, user, user)
        if clock:
            self.clock_path = test.path(f"clock{n}")
            self.set_clock(offset_ns, synced)
        test.mounts.append(self)
        if start:
            self.start(ready=ready)

    # -- the daemon ----------------------------------------------------------------------------

    def environment(self, extra=None):
        env = dict(os.environ, **self.env)
        if self.clock_path:
            env["VARVE_TEST_CLOCK"] = self.clock_path
        env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
        env.update(extra or {})
        return env

    def start(self, ready=True, env=None, options=None):
        """Starts the daemon with -f and waits until the mount answers."""
        log = self.t.path(f"{os.path.basename(self.mnt)}.log{len(self.logs)}")
        self.logs.append(log)
        options = self.options if options is None else options
        if not PASSTHROUGH and "passthrough" not in options:
            options = ",".join(o for o in (options, "passthrough=no") if o)
        args = [VARVEFS, "-f", *self.args, *(["-o", options] if options else []),
                self.store, self.mnt]
        who = {} if self.user is None else dict(user=self.user, group=self.user, extra_groups=[])
        with open(log, "wb") as f:
            self.proc = self.t.spawn(args, stdout=f, stderr=f, env=self.environment(env), **who)
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self):
        def answers():
            if self.proc.poll() is not None:
                raise Failure(f"varvefs exited {self.proc.returncode} instead of mounting\n"
                              + self.log())
            if not self.is_mounted():
                return False
            try:
                # Only its own user reaches a mount made without allow_other.
                return self.user is not None or os.statvfs(self.path("current")) is not None
            except OSError as e:
                if e.errno in (errno.ENOTCONN, errno.ENOENT, errno.ECONNABORTED):
                    return False
                raise
        wait_until(answers, 20, "the mount answers")

    def mode(self):
        """How writes are served, as .varve/status.json says: "passthrough", or why not."""
        return json.loads(read(self.path(".varve/status.json")))["mode"]

    def passes(self):
        """Whether write-only appends go straight from the kernel to the part."""
        return self.mode() == "passthrough"

    def is_mounted(self):
        return any(m[0] == self.mnt for m in mounts_under(self.mnt))

    def wait_exit(self, seconds=END, rc=0):
        try:
            got = self.proc.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            raise Failure(f"the daemon does not end within {seconds * SLOW:g} s")
        if rc is not None:
            eq(got, rc, "the daemon's exit status\n" + self.log()[-1500:])
        return got

    def stop(self, sig=signal.SIGTERM, rc=0):
        """A clean end: by default SIGTERM."""
        self.proc.send_signal(sig)
        self.wait_exit(rc=rc)
        ok(not self.is_mounted(), "nothing is mounted after a clean end")

    def umount(self):
        self.t.run(["umount", self.mnt])
        self.wait_exit()

    def kill(self, helpers=False):
        """SIGKILL. helpers: the process that unmounts for a killed daemon dies first, so that the
        dead mount stays."""
        for p in children_of(self.proc.pid) if helpers else []:
            os.kill(p, signal.SIGKILL)
        self.proc.kill()
        self.proc.wait()

    def remount(self, **kw):
        self.stop()
        return self.start(**kw)

    def end(self):
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGCONT)
            self.proc.terminate()
            try:
                self.proc.wait(END * SLOW)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
                self.expected = []
                with open(self.logs[-1], "ab") as f:
                    f.write(b"\nerror: the daemon had to be killed at the end of the test\n")
        for m in mounts_under(self.mnt):
            detach(m[0])

    # -- its log -------------------------------------------------------------------------------

    def log(self):
        return b"".join(read(p) for p in self.logs if os.path.exists(p)).decode(errors="replace")

    def expect(self, *patterns):
        """Log lines that would fail the test otherwise, by regular expression."""
        self.expected += patterns

    def bad_log_lines(self):
        return [l for l in self.log().splitlines() if BAD_LOG.search(l.encode())
                and not any(re.search(p, l) for p in self.expected)]

    # -- its clock -----------------------------------------------------------------------------

    def set_clock(self, offset_ns, synced=True):
        self.offset_ns = offset_ns
        fd = os.open(self.clock_path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, struct.pack("<qB", offset_ns, 1 if synced else 0), 0)
        os.close(fd)

    def now(self):
        """What the daemon's wall clock says, in seconds."""
        return time.time() + self.offset_ns / 1e9

    def shift(self, seconds, synced=True):
        self.set_clock(self.offset_ns + round(seconds * 1e9), synced)

    def length(self):
        return dict(o.split("=", 1) for o in self.options.split(",") if "=" in o)["bucket"]

    def next(self, windows=1, length=None):
        """Moves the clock just past the next boundary (or the windows-th) and waits until the
        bucket of that window is the open one. Returns the name of the one that was."""
        length = length or self.length()
        old = self.open_name()
        at = self.now()
        for _ in range(windows):
            at = next_start(at, length)
        self.shift(at - self.now() + 0.002)
        want = bucket_name(at, length)
        wait_until(lambda: self.open_name() == want, 5,
                   lambda: f"{want} is open after the boundary (it is {self.open_name()})", 0.002)
        return old

    def next_sealed(self, windows=1, length=None):
        """next(), then waits until the bucket that was open is sealed. Returns its name."""
        old = self.next(windows, length)
        self.wait_sealed(old)
        return old

    # -- what is in it -------------------------------------------------------------------------

    def path(self, *names):
        return os.path.join(self.mnt, *names)

    def cur(self, *names):
        return os.path.join(self.mnt, "current", *names)

    def root(self):
        """({name: is it a link}) of the root's entries that are buckets, from one listing."""
        with os.scandir(self.mnt) as it:
            return {e.name: e.is_symlink() for e in it
                    if e.name != "current" and not e.name.startswith(".")}

    def open_name(self):
        """The open bucket's own name, as the root shows it: a link to current."""
        def links():
            return [n for n, link in self.root().items() if link]
        return wait_until(lambda: len(found := links()) == 1 and found, 2,
                          lambda: f"one link to current in the root: {self.root()}", 0.002)[0]

    def buckets(self):
        """The closing and sealed buckets' names, oldest first."""
        return sorted(n for n, link in self.root().items() if not link)

    def segment(self, bucket, cls="default", tablet="0"):
        return os.path.join(self.store, "sealed", bucket, cls, tablet + ".tar.zst")

    def is_sealed(self, bucket):
        return (os.path.exists(self.segment(bucket))
                and not os.path.exists(os.path.join(self.store, "open", bucket)))

    def past_jitter(self):
        """Moves the clock past the chance delay (at most 30 s) between a grace's end and the seal."""
        if self.clock_path:
            length = self.length()
            self.shift(seconds_of(length) / 40 + 0.1 if length.endswith("s") else 30.1)

    def wait_sealed(self, *names, seconds=20):
        if not all(self.is_sealed(n) for n in names):
            self.past_jitter()
        for n in names:
            wait_until(lambda n=n: self.is_sealed(n), seconds,
                       lambda n=n: f"{n} is sealed; open/: "
                       f"{os.listdir(os.path.join(self.store, 'open'))} "
                       f"sealed/: {os.listdir(os.path.join(self.store, 'sealed'))}")

    def wait_all_sealed(self, seconds=20):
        if not all(self.is_sealed(b) for b in self.buckets()):
            self.past_jitter()
        wait_until(lambda: all(self.is_sealed(b) for b in self.buckets()), seconds,
                   "every bucket but the open one is sealed")
        return self.buckets()

    def history(self, path):
        """[(bucket, bytes)] of a path over all buckets that have it, the open one last."""
        while True:
            name = self.open_name()
            out = [(b, read(self.path(b, path))) for b in self.buckets()
                   if os.path.lexists(self.path(b, path))]
            if os.path.lexists(self.cur(path)):
                out.append((name, read(self.cur(path))))
            if self.open_name() == name:
                return out

    def restore(self, bucket, tool="tar"):
        """Restores a sealed bucket without varvefs; returns the directory."""
        to = mkdirs(self.t.path("restored", f"{bucket}-{time.monotonic_ns()}"))
        self.t.sh(f'zstd -q -dc "{self.segment(bucket)}" | {tool} -xpf - -C "{to}"', seconds=300)
        return to

    # -- the admin tool ------------------------------------------------------------------------

    def varve(self, *args, rc=0, at=None, **kw):
        """varve COMMAND [WORD] STORE ...: the store's place in args is marked by None."""
        args = list(args)
        if None in args:
            args[args.index(None)] = at or self.store
        else:
            args.insert(1, at or self.store)
        kw.setdefault("env", self.environment())
        return self.t.run([VARVE, *args], rc=rc, **kw)

    def status(self, **kw):
        return json.loads(self.varve("status", None, "--json", **kw).stdout)

    def audit(self):
        """The audit lines, as dictionaries."""
        p = os.path.join(self.store, "audit.jsonl")
        if not os.path.exists(p):
            return []
        return [json.loads(l) for l in read(p).splitlines()]

    def audit_of(self, event, bucket):
        return [a for a in self.audit() if a.get("event") == event and a.get("bucket") == bucket]


# -- the runner -------------------------------------------------------------------------------------

def _run_one(name, function, directory, report):
    """In the child: runs one test; what it has to say goes to the report. Returns the exit status."""
    os.dup2(report, 1)
    os.dup2(report, 2)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    t = Test(name, directory)
    status = 0
    try:
        function(t)
    except Failure as e:
        where = [f for f in traceback.extract_tb(e.__traceback__) if "varvetest" not in f.filename]
        print(f"{name}:{where[-1].lineno if where else '?'}: {e}")
        status = 1
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        status = 1
    try:
        for line in t.finish():
            print(f"{name}: the daemon said: {line}")
            status = 1
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        status = 1
    if status:
        for m in t.mounts:
            print(f"--- log of {m.mnt} ---\n{m.log()[-6000:]}")
    sys.stdout.flush()
    return status


def _start(name, function, base):
    directory = os.path.join(base, name)
    os.mkdir(directory)
    os.chmod(directory, 0o755)
    report = os.open(os.path.join(base, name + ".out"), os.O_RDWR | os.O_CREAT, 0o600)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _die_with_parent()
        os._exit(_run_one(name, function, directory, report))
    return {"name": name, "pid": pid, "report": report, "dir": directory, "began": time.monotonic(),
            "limit": getattr(function, "seconds", 90) * SLOW, "late": False}


def _end(job, status, running):
    """Clears up after a test and prints its line. Returns whether it passed."""
    _kill_children(keep=[j["pid"] for j in running])
    _detach_all(job["dir"])
    shutil.rmtree(job["dir"], ignore_errors=True)
    said = read(f"/proc/self/fd/{job['report']}").decode(errors="replace")
    os.close(job["report"])
    good = status == 0 and not job["late"]
    took = time.monotonic() - job["began"]
    print(f"{'ok  ' if good else 'FAIL'} {job['name']} ({took:.1f} s)"
          + (f": not done within {job['limit']:g} s" if job["late"] else
             f": ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""))
    if said:
        print("".join(f"    {l}\n" for l in said.splitlines()), end="")
    sys.stdout.flush()
    return good


def _last_descendants(pid):
    out = []
    for c in children_of(pid):
        out += _last_descendants(c) + [c]
    return out


def main(jobs=2):
    """Runs the file's test_* functions (or those named on the command line), `jobs` at a time."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.umask(0o022)
    jobs = int(os.environ.get("VARVE_TEST_JOBS", jobs))
    here = vars(sys.modules["__main__"])
    tests = [(n, f) for n, f in here.items() if n.startswith("test_") and callable(f)]
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")]
    if wanted:
        tests = [(n, f) for n, f in tests if any(w in n for w in wanted)]
    if not tests:
        sys.exit("no test of that name")
    base = os.path.realpath(tempfile.mkdtemp(prefix="varvetest-"))
    os.chmod(base, 0o755)
    running, failed, waiting = [], 0, list(tests)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(*waiting.pop(0), base))
            time.sleep(0.02)
            for job in list(running):
                pid, status = os.waitpid(job["pid"], os.WNOHANG)
                if pid == 0 and time.monotonic() - job["began"] > job["limit"]:
                    job["late"] = True
                    # The daemons first: a caller that waits for a stuck one can't be killed.
                    for p in _last_descendants(job["pid"]) + [job["pid"]]:
                        try:
                            os.kill(p, signal.SIGKILL)
                        except ProcessLookupError:
                            pass
                    pid, status = os.waitpid(job["pid"], 0)
                if pid:
                    running.remove(job)
                    if not _end(job, status, running):
                        failed += 1
    finally:
        _kill_children()
        _detach_all(base)
        shutil.rmtree(base, ignore_errors=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
