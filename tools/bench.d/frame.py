"""The frame of tools/bench: rows, goals, paired runs, and a machine left as it was found.

A file rows_*.py beside this one holds rows: functions marked @row that are given a Bench and return
a Measure, or a list of them. Whatever a row starts, mounts or writes by way of its Bench is gone
when the row ends, however it ends.
"""
import collections
import ctypes
import importlib
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _CLONE_NEWNS = 1, 0x20000
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 0x40000, 2


class Failure(Exception):
    """What kept a row, or all of them, from being measured."""


# -- goals and measures ---------------------------------------------------------------------------

class Goal:
    """text: as printed. value(ours, rival): the number that is judged, from one pair of runs.
    limit, up: how it is judged. ratio: it needs a rival; lower: of several rivals the one with the
    lower numbers is the better."""

    def __init__(self, text, value, limit, up, ratio=True, lower=True):
        self.text, self.value, self.limit, self.up = text, value, limit, up
        self.ratio, self.lower = ratio, lower

    def met(self, x):
        return x >= self.limit if self.up else x <= self.limit


def throughput(limit):
    """Ours is at least limit times the rival's; more is better."""
    return Goal(f">= {limit:g} x", lambda a, b: a / b, limit, True, lower=False)


def cost(limit):
    """Ours (time, size) is at most limit times the rival's."""
    return Goal(f"<= {limit:g} x", lambda a, b: a / b, limit, False)


def faster(limit):
    """Ours (time) is shorter by a factor of at least limit."""
    return Goal(f">= {limit:g} x faster", lambda a, b: b / a, limit, True)


def below(limit, unit):
    """Ours is at most limit, whatever rivals do."""
    return Goal(f"<= {limit:g} {unit}", lambda a, b: a, limit, False, ratio=False)


def informal(lower=True):
    """No goal: the number is shown, as a ratio if there is a rival."""
    return Goal("-", lambda a, b: a / b if b else a, None, True, ratio=True, lower=lower)


class Measure:
    """One line of the result. ours: a number a run; rivals: {name: a number a run}, paired with
    ours by position. worst: what is judged is the worst run, not the median. note: said with it."""

    def __init__(self, what, unit, ours, goal, rivals=None, worst=False, note=""):
        self.what, self.unit, self.ours, self.goal = what, unit, list(ours), goal
        self.rivals = {k: list(v) for k, v in (rivals or {}).items()}
        self.worst, self.note = worst, note
        if not self.ours or any(len(v) != len(self.ours) for v in self.rivals.values()):
            raise Failure(f"{what}: runs are missing")

    def best_rival(self):
        pick = min if self.goal.lower else max
        return pick(self.rivals, key=lambda k: statistics.median(self.rivals[k]), default=None)

    def judged(self):
        """The numbers that the goal is about, one a run."""
        rival = self.best_rival()
        other = self.rivals[rival] if rival else [None] * len(self.ours)
        return [self.goal.value(a, b) for a, b in zip(self.ours, other)]

    def figure(self):
        values = self.judged()
        if self.worst:
            return min(values) if self.goal.up else max(values)
        return statistics.median(values)

    def verdict(self):
        if self.goal.limit is None:
            return ""
        return "met" if self.goal.met(self.figure()) else "NOT MET"

    def as_json(self):
        return {"what": self.what, "unit": self.unit, "ours": self.ours, "rivals": self.rivals,
                "goal": self.goal.text, "judged": self.judged(), "figure": self.figure(),
                "verdict": self.verdict(), "note": self.note}


Row = collections.namedtuple("Row", "name work rival goal run")
_rows = []


def row(name, work, rival, goal):
    """Marks a function as a row. work, rival, goal: a line each, for --list."""
    def mark(f):
        _rows.append(Row(name, work, rival, goal, f))
        return f
    return mark


def load_rows():
    for file in sorted(os.listdir(HERE)):
        if re.fullmatch(r"rows_\w+\.py", file):
            importlib.import_module(file[:-3])
    names = [r.name for r in _rows]
    assert len(set(names)) == len(names), "two rows of one name"
    return _rows


# -- processes and mounts ---------------------------------------------------------------------------

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _child():
    os.setpgid(0, 0)  # a ctrl-C is ours to handle; children are then ended in order
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def mounts_under(path):
    """Mountpoints at or under path, the innermost first."""
    out = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            where = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split(" ")[4])
            if where == path or where.startswith(path + "/"):
                out.append(where)
    return out[::-1]


def filesystem_of(path):
    """The type of the filesystem that path is on."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            if line.split(" ")[2] == number:
                return line.split(" - ", 1)[1].split(" ")[0]
    return "unknown"


def wait_until(condition, seconds, what, step=0.002):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(step)


class Mounted:
    """A filesystem served by a process of ours: varvefs, or a rival. Use with "with"."""

    def __init__(self, bench, args, mnt, env=None):
        self.bench, self.args, self.mnt, self.env = bench, args, mnt, env
        self.proc = None
        self.log = bench.path(f"log{next(bench.numbers)}")
        os.makedirs(mnt, exist_ok=True)

    def start(self):
        with open(self.log, "ab") as f:
            self.proc = self.bench.spawn(self.args, stdout=f, stderr=f,
                                         env=dict(os.environ, **(self.env or {})))
        wait_until(self._answers, 60, f"{self.args[0]} mounts")
        return self

    def _answers(self):
        if self.proc.poll() is not None:
            raise Failure(f"{' '.join(self.args)} exited {self.proc.returncode}: {self.said()}")
        if self.mnt not in mounts_under(self.mnt):
            return False
        return os.statvfs(self.mnt) is not None

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()[-1500:]

    def stop(self):
        """Unmounts and waits for the process."""
        if self.proc and self.proc.poll() is None:
            self.bench.run(["umount", self.mnt])
            self.proc.wait(60)
        self.proc = None

    def remount(self, cold=False):
        """Ends the process and starts it anew; cold: with empty caches of the kernel."""
        self.stop()
        if cold:
            self.bench.drop_caches()
        return self.start()

    @property
    def pid(self):
        return self.proc.pid

    def status(self, field):
        """A number of /proc/PID/status: VmRSS or VmHWM in KiB, Threads, ..."""
        return proc_status(self.pid, field)

    def path(self, *names):
        return os.path.join(self.mnt, *names)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, tb):
        if kind is None:
            self.stop()
        elif self.proc and self.proc.poll() is None:
            _libc.umount2(os.fsencode(self.mnt), _MNT_DETACH)
            _end(self.proc)
            self.proc = None


class Varvefs(Mounted):
    """A store, mounted. clock: its time is moved by pass_boundary(), on top of the real time."""

    def __init__(self, bench, options, store, clock=False, args=()):
        n = next(bench.numbers)
        self.store = store or bench.path(f"store{n}")
        self.clock, env = None, {}
        if clock:
            self.clock, self.offset = bench.path(f"clock{n}"), 0
            self._set_clock()
            env["VARVE_TEST_CLOCK"] = self.clock
        mnt = bench.path(f"mnt{n}")
        super().__init__(bench, [bench.varvefs, "-f", *args, "-o", options, self.store, mnt], mnt,
                         env)

    def _set_clock(self):
        fd = os.open(self.clock, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, int(self.offset * 1e9).to_bytes(8, "little", signed=True) + b"\1", 0)
        os.close(fd)

    def cur(self, *names):
        return os.path.join(self.mnt, "current", *names)

    def open_name(self):
        """The open bucket's own name; None when a boundary falls between listing and looking."""
        return next((n for n in os.listdir(self.mnt) if os.path.islink(self.path(n))), None)

    def buckets(self):
        """Names of the buckets that are not open."""
        return sorted(n for n in os.listdir(self.mnt)
                      if re.match(r"\d{4}-", n) and not os.path.islink(self.path(n)))

    def state(self, bucket):
        return os.getxattr(self.path(bucket), "user.varve.state").decode()

    def pass_boundary(self, seconds=86400):
        """Moves the clock on by one window, of that many seconds. Returns the name of the bucket
        that was open. Wants clock=True, and -o bucket= of that length."""
        old = self.open_name()
        self.offset += seconds
        self._set_clock()
        wait_until(lambda: self.open_name() not in (old, None), 30, "the boundary")
        return old

    def wait_sealed(self, bucket, seconds=600, step=0.002):
        wait_until(lambda: os.path.isdir(self.path(bucket)) and self.state(bucket) == "sealed",
                   seconds, lambda: f"{bucket} is sealed; {self.said()}", step)

    def segment(self, bucket):
        return os.path.join(self.store, "sealed", bucket, "default", "0.tar.zst")


def proc_status(pid, field):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(rf"^{field}:\s+(\d+)", f.read(), re.M)[1])


def _kill_group(proc, number):
    """A signal to a child and to its children, who are in its process group."""
    try:
        os.killpg(proc.pid, number)
    except ProcessLookupError:
        pass


def _end(proc):
    """Ends a child: first asked, then not."""
    if proc.poll() is None:
        _kill_group(proc, signal.SIGTERM)
        try:
            proc.wait(15)
        except subprocess.TimeoutExpired:
            pass
        _kill_group(proc, signal.SIGKILL)
        proc.wait()


# -- what a row is given ----------------------------------------------------------------------------

class Bench:
    """work: the folder of all; runs, quick: as asked for."""

    def __init__(self, work, runs, quick, build):
        self.work, self.runs, self.quick = work, runs, quick
        self.varvefs, self.varve = os.path.join(build, "src/varvefs"), os.path.join(build, "src/varve")
        self.dir = None
        self.numbers = iter(range(1, 1 << 30))
        self._children = []
        self._tools = {}
        self._updated = False

    # files

    def path(self, *names):
        """A path in the folder of this row; it is removed with all in it when the row ends."""
        return os.path.join(self.dir, *names)

    def folder(self, *names):
        path = self.path(*names)
        os.makedirs(path, exist_ok=True)
        return path

    def size(self, full, quick):
        return quick if self.quick else full

    def remove(self, path):
        if os.path.isdir(path) and not os.path.islink(path):
            subprocess.run(["rm", "-rf", "--one-file-system", path], check=True)
        elif os.path.lexists(path):
            os.unlink(path)

    # programs

    def spawn(self, args, **kw):
        """Starts a program that ends with the row at the latest."""
        kw.setdefault("stdin", subprocess.DEVNULL)
        # No signal comes between the start and the note of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            p = subprocess.Popen(args, preexec_fn=_child, **kw)
            self._children.append(p)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return p

    def end(self, proc):
        _end(proc)

    def run(self, args, **kw):
        """Runs a program to its end; one that fails fails the row. Returns its standard output."""
        p = self.spawn(args, stdout=kw.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, **kw)
        out, err = p.communicate()
        if p.returncode:
            raise Failure(f"{' '.join(map(str, args))} exited {p.returncode}: "
                          f"{err.decode(errors='replace')[-1500:]}")
        return (out or b"").decode(errors="replace")

    def timed(self, args, **kw):
        """Seconds that a program takes; its output goes to /dev/null unless stdout= is given."""
        kw.setdefault("stdout", subprocess.DEVNULL)
        start = time.monotonic()
        self.run(args, **kw)
        return time.monotonic() - start

    def tool(self, name):
        """The path of a C program of this folder, compiled on first use."""
        if name not in self._tools:
            out = os.path.join(self.work, "tools", name)
            os.makedirs(os.path.dirname(out), exist_ok=True)
            self.run(["cc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o",
                      out, os.path.join(HERE, name + ".c"), "-lm"])
            self._tools[name] = out
        return self._tools[name]

    def need(self, program, package=None):
        """The path of a rival's program, installed from the distribution's package if missing."""
        places = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"
        if not shutil.which(program, path=places):
            if not shutil.which("apt-get"):
                raise Failure(f"{program} is missing (Debian's package {package or program})")
            env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C")
            wait = ["-q", "-o", "DPkg::Lock::Timeout=300"]
            if not self._updated:
                print(f"bench: installing {package or program}", file=sys.stderr)
                self.run(["apt-get", *wait, "update"], env=env)
                self._updated = True
            self.run(["apt-get", *wait, "-y", "--no-install-recommends", "install",
                      package or program], env=env)
        found = shutil.which(program, path=places)
        if not found:
            raise Failure(f"package {package or program} has no {program}")
        return found

    def libfuse_example(self, name):
        """The path of one of the examples in the libfuse that the build uses; None: its sources are
        not there."""
        tops = [n for n in sorted(os.listdir(os.path.join(SOURCE, "subprojects")))
                if re.fullmatch(r"fuse-\d.*", n)]
        if not tops:
            return None
        self.need("g++")
        build = os.path.join(self.work, "fuse")
        if not os.path.isdir(build):
            self.run(["meson", "setup", "--buildtype=release", "-Dtests=false", "-Dutils=false",
                      "-Ddefault_library=static", build,
                      os.path.join(SOURCE, "subprojects", tops[-1])])
        self.run(["ninja", "-C", build, f"example/{name}"])
        return os.path.join(build, "example", name)

    # the kernel

    def sync(self):
        os.sync()

    def drop_caches(self):
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
            f.write("3\n")

    # mounts

    def mount(self, options="bucket=1d", store=None, clock=False, args=()):
        """A store on the work folder's filesystem, to be used with "with"."""
        return Varvefs(self, options, store, clock, args)

    def served(self, args, mnt):
        """A rival's mount, to be used with "with": args run in the foreground and mount mnt."""
        return Mounted(self, args, mnt)

    # measuring

    def pairs(self, ours, rivals, runs=None, warm=True):
        """Runs ours() and each of rivals = {name: function} in turn, runs times over. Each returns
        a number, or a tuple of numbers. warm: one round before is not counted. Returns (numbers of
        ours, {name: numbers}); for tuples, a list of such pairs, one a place of the tuple."""
        runs = runs or self.runs
        mine, others = [], {name: [] for name in rivals}
        for i in range(-1 if warm and not self.quick else 0, runs):
            got = {None: ours()}
            for name, f in rivals.items():
                got[name] = f()
            if i >= 0:
                mine.append(got.pop(None))
                for name, value in got.items():
                    others[name].append(value)
        if not isinstance(mine[0], tuple):
            return mine, others
        return [([m[k] for m in mine], {name: [v[k] for v in vs] for name, vs in others.items()})
                for k in range(len(mine[0]))]

    def load(self, *args):
        """Runs the load generator (load.c) and returns what it measured."""
        return json.loads(self.run([self.tool("load"), *map(str, args)]))

    # ending

    def clean(self):
        """Ends the row's programs, unmounts and removes what it made, undisturbed."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for _ in range(50):
            found = mounts_under(self.dir)
            if not found:
                break
            for m in found:
                _libc.umount2(os.fsencode(m), _MNT_DETACH)
        for p in reversed(self._children):
            _end(p)
        self._children.clear()
        self.remove(self.dir)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- running ----------------------------------------------------------------------------------------

def print_list(rows):
    for r in rows:
        print(f"{r.name:24} {r.work}\n{'':24}   against: {r.rival or '-'}; goal: {r.goal}")


def number(x):
    if x == 0:
        return "0"
    size = abs(x)
    return f"{x:,.0f}" if size >= 1000 else f"{x:.0f}" if size >= 100 else \
        f"{x:.1f}" if size >= 10 else f"{x:.2f}" if size >= 1 else f"{x:.3f}"


def spread(values):
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"


def print_measure(name, m):
    print(f"{name}: {m.what}")
    print(f"    ours          {spread(m.ours)} {m.unit}")
    for rival, values in m.rivals.items():
        print(f"    {rival:13} {spread(values)} {m.unit}")
    figure = ""
    if m.rivals and m.goal.ratio:
        figure = f"{spread(m.judged())} x of {m.best_rival()}"
    if m.worst:
        figure = f"worst {number(m.figure())}"
    if m.goal.limit is not None:
        print(f"    goal {m.goal.text}: {m.verdict()}{'; ' + figure if figure else ''}")
    elif figure:
        print(f"    ratio {figure}")
    if m.note:
        print(f"    {m.note}")
    sys.stdout.flush()


def print_table(results):
    lines = [("row", "what", "ours", "rival", "ratio", "goal", "")]
    for name, m in results:
        best = m.best_rival()
        lines.append((name, m.what, f"{number(statistics.median(m.ours))} {m.unit}",
                      f"{best} {number(statistics.median(m.rivals[best]))}" if best else "-",
                      f"{number(m.figure())}" if best and m.goal.ratio else
                      f"worst {number(m.figure())}" if m.worst else "-",
                      m.goal.text, m.verdict()))
    widths = [max(len(l[i]) for l in lines) for i in range(7)]
    print()
    for l in lines:
        print("  ".join(c.ljust(w) for c, w in zip(l, widths)).rstrip())


def _build(work):
    build = os.path.join(work, "build")
    print("bench: building varvefs", file=sys.stderr)
    for args in (["meson", "setup", "--buildtype=release", "-Dtests=false", "-Dtest_hooks=true",
                  build, SOURCE], ["ninja", "-C", build]):
        p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if p.returncode:
            raise Failure(f"{' '.join(args)} failed (has tools/setup been run?):\n"
                          + p.stdout.decode(errors="replace")[-3000:])
    return build


def _own_mount_namespace():
    """What is mounted from here on is seen by us and our children alone, and gone with us."""
    if _libc.unshare(_CLONE_NEWNS) < 0 or \
            _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) < 0:
        raise Failure(f"no mount namespace of its own: {os.strerror(ctypes.get_errno())}")


def _check(o):
    if os.geteuid() != 0:
        raise Failure("run it as root: it mounts, and drops the kernel's caches")
    if not os.path.isdir(o.dir):
        raise Failure(f"--dir {o.dir} is no folder")
    kind = filesystem_of(o.dir)
    if kind != "ext4" and not o.quick:
        raise Failure(f"--dir {o.dir} is on {kind}: the goals are against ext4; give a folder on "
                      "ext4, such as a mounted image")
    if o.build and not os.access(os.path.join(o.build, "src/varvefs"), os.X_OK):
        raise Failure(f"--build {o.build} holds no src/varvefs")


def _stop(number_, _frame):
    raise KeyboardInterrupt(signal.Signals(number_).name)


def _machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = re.search(r"^model name\s*: (.*)$", f.read(), re.M)
    with open("/proc/meminfo", encoding="utf-8") as f:
        memory = int(f.read().split()[1]) >> 10
    return {"kernel": platform.release(), "cores": os.cpu_count(), "memory MiB": memory,
            "cpu": model[1] if model else platform.machine()}


def _run_row(bench, r, results):
    bench.dir = os.path.join(bench.work, "row")
    os.makedirs(bench.dir, exist_ok=True)
    try:
        got = r.run(bench)
        for m in got if isinstance(got, list) else [got]:
            results.append((r.name, m))
            print_measure(r.name, m)
        return True
    except (Failure, OSError, subprocess.SubprocessError, ValueError, KeyError) as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        print(f"{r.name}: FAILED: {e} ({os.path.basename(where.filename)}:{where.lineno})")
        return False
    finally:
        bench.clean()


def run(rows, o):
    """Measures the rows; the exit status: 0 all were measured (whether or not goals are met), 1 not
    all could be, 2 none was tried."""
    results, failed = [], []
    for s in _SIGNALS:
        signal.signal(s, _stop)
    work = None
    try:
        _check(o)
        _own_mount_namespace()
        work = os.path.realpath(tempfile.mkdtemp(prefix="varve-bench.", dir=o.dir))
        os.chmod(work, 0o755)
        bench = Bench(work, 1 if o.quick else o.runs, o.quick,
                      os.path.abspath(o.build) if o.build else _build(work))
        machine = _machine()
        print("bench: " + ", ".join(f"{k} {v}" for k, v in machine.items()) +
              f"; {bench.runs} run{'s'[:bench.runs > 1]} on {filesystem_of(work)}" +
              (" (quick: the numbers mean nothing)" if o.quick else ""))
        for r in rows:
            if not _run_row(bench, r, results):
                failed.append(r.name)
        if results:
            print_table(results)
        if failed:
            print(f"\nnot measured: {', '.join(failed)}")
        if o.json:
            with open(o.json, "w", encoding="utf-8") as f:
                json.dump({"machine": machine, "runs": bench.runs, "quick": o.quick,
                           "failed": failed,
                           "rows": [{"name": n, **m.as_json()} for n, m in results]}, f, indent=1)
                f.write("\n")
        return 1 if failed else 0
    except KeyboardInterrupt as e:
        print(f"bench: ended by {e}", file=sys.stderr)
        return 1
    except Failure as e:
        print(f"bench: {e}", file=sys.stderr)
        return 2
    finally:
        for s in _SIGNALS:
            signal.signal(s, signal.SIG_IGN)
        if work:
            subprocess.run(["rm", "-rf", "--one-file-system", work], check=False)
