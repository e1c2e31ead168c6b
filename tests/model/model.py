"""What varvefs promises, in memory: design.md's sections 1, 3, 5 and 9 as plain Python objects.

Every operation returns 0 or the errno that the mount must give, and changes the model as the mount
must have changed. Paths are tuples of bytes: the first is b"current", b".staging" or a bucket's
name. Nothing here knows of the store's files; where the design leaves a choice, the store's is taken
and the comment says so.
"""
from errno import (EBUSY, EEXIST, EINVAL, EISDIR, ELOOP, ENODATA, ENOENT, ENOTDIR, ENOTEMPTY, EPERM,
                   EROFS, ESTALE, EXDEV)
import os

CURRENT, STAGING = b"current", b".staging"
LINE_MAX = 64 * 1024
UMASK = 0o022


class File:
    """A file or symbolic link of a bucket, or of .staging/ (bucket is None)."""
    def __init__(self, bucket, mode, uid=0, gid=0, xattrs=None, link=None):
        self.bucket, self.mode, self.uid, self.gid, self.link = bucket, mode, uid, gid, link
        self.xattrs = {} if xattrs is None else xattrs
        self.data = bytearray(link or b"")
        self.part = True      # False: a stream to which nothing was written in its bucket
        self.dir = self.name = None
        self.linked = True
        self.succ = None      # where its writers go on, in a later bucket
        self.late = 0         # bytes that finished a line after the boundary
        self.carried = False  # its part went on over the boundary with what the kernel writes to
        self.settled = False  # carried, and the boundary after that has come: its line stays as it is
        self.over = None      # the older file whose part it has
        self.shares = False   # has, or had, one part with another bucket's file
        self.behind = bytearray()  # came by the dated path while a line was unfinished: shown behind it
        self.appended = False # a writer opened it with O_APPEND: goes on at once, like a stream
        self.stuck = False    # its path was taken by something else: no successor
        self.sealed = False
        self.lost = False     # removed while nobody had it open
        self.ino = self.mtime = None  # as first seen, as last seen

    def newest(self):
        f = self
        while f.succ:
            f = f.succ
        return f


class Stream:
    """The memory of a path of current/ that it was opened with O_APPEND once."""
    def __init__(self, f):
        self.take(f)

    def take(self, f):
        self.mode, self.uid, self.gid, self.xattrs = f.mode, f.uid, f.gid, dict(f.xattrs)


class Dir:
    """A directory: of the skeleton (it outlives the bucket), of one bucket, or of .staging/."""
    def __init__(self, area, mode, uid=0, gid=0, bucket=None, sdir=None):
        self.area, self.mode, self.uid, self.gid = area, mode, uid, gid
        self.bucket, self.sdir = bucket, sdir
        self.xattrs, self.children = {}, {}
        self.parent = self.name = self.ddir = self.ino = None
        self.linked = True
        self.seen = area != "bucket"  # of a bucket: whether it is there for those who look

    def copy_from(self, other):
        self.mode, self.uid, self.gid = other.mode, other.uid, other.gid
        self.xattrs = dict(other.xattrs)


class Bucket:
    def __init__(self, name):
        self.name, self.state, self.held, self.made = name, "open", False, False
        self.root = Dir("bucket", 0o755, bucket=self)
        self.ino = None
        self.when = 0  # dropped: the clock then

    @property
    def shut(self):
        return self.state in ("sealed", "dropped")

    def is_there(self):
        return self.state == "sealed" or (self.state == "closing" and self.made)


class Handle:
    def __init__(self, f, flags, dated):
        self.opened = self.file = f
        self.append = bool(flags & os.O_APPEND)
        self.readable = flags & os.O_ACCMODE != os.O_WRONLY
        self.writable = flags & os.O_ACCMODE != os.O_RDONLY
        self.dated = dated
        self.pos = 0                # the kernel's file position
        self.next = len(f.data)     # where its next write is expected
        self.from_start, self.wrote = not f.data, False
        self.whole = bool(flags & (os.O_EXCL | os.O_TRUNC))
        self.fd = -1
        self.kernel = False         # the kernel writes to the part through it

    def moves(self):
        return self.writable and not self.dated


def link(parent, name, node):
    parent.children[name] = node
    if isinstance(node, Dir):
        node.parent = parent
    else:
        node.dir = parent
    node.name, node.linked = name, True


def unlink(node):
    up = node.parent if isinstance(node, Dir) else node.dir
    del up.children[node.name]
    node.linked = False


def visible(node):
    return node.seen if isinstance(node, Dir) else node.part


def files_below(d):
    for c in d.children.values():
        if isinstance(c, Dir):
            yield from files_below(c)
        elif isinstance(c, File):
            yield c


class Model:
    def __init__(self, first, passes=False):
        self.passes = passes  # write-only appends go from the kernel to the part
        self.skel = Dir("current", 0o755)
        self.staging = Dir("staging", 0o755)
        self.buckets = {}     # by name: all that can be seen, and the current one
        self.dropped = {}     # by name: in the trash
        self.handles = []
        self.waiting = []     # files with something behind an unfinished line
        self.cur = self.buckets[first] = Bucket(first)
        self.skel.sdir = None

    # -- names -------------------------------------------------------------------------------

    def ddir_if(self, s):
        if s is self.skel:
            return self.cur.root
        d = s.ddir
        return d if d and d.bucket is self.cur and d.linked else None

    def ddir(self, s):
        """The current bucket's directory for one of the skeleton, made when absent (unseen)."""
        d = self.ddir_if(s)
        if not d:
            up = self.ddir(s.parent)
            d = s.ddir = Dir("bucket", s.mode, bucket=self.cur, sdir=s)
            d.copy_from(s)
            link(up, s.name, d)
        return d

    def child(self, d, name):
        if d.area != "current":
            c = d.children.get(name)
            return c if c is None or visible(c) else None
        dd = self.ddir_if(d)
        c = dd.children.get(name) if dd else None
        if isinstance(c, File):
            return c
        c = d.children.get(name)
        return self.stream_file(d, name, c) if isinstance(c, Stream) else c

    def stream_file(self, s, name, stream):
        f = File(self.cur, stream.mode, stream.uid, stream.gid, stream.xattrs)
        f.part = False
        link(self.ddir(s), name, f)
        return f

    def names(self, d):
        """{name: node} as a listing shows them."""
        if d.area != "current":
            return {n: c for n, c in d.children.items() if visible(c)}
        out = {n: self.child(d, n) for n in list(d.children)}
        dd = self.ddir_if(d)
        if dd:
            out.update((n, c) for n, c in dd.children.items() if isinstance(c, File))
        return out

    def top(self, name):
        if name == CURRENT:
            return self.skel
        if name == STAGING:
            return self.staging
        b = self.buckets.get(name)
        return b.root if b and b.is_there() else None

    def parent(self, path):
        """(errno, directory) of the path's last but one component."""
        d = self.top(path[0])
        if d is None:
            return ENOENT, None
        for name in path[1:-1]:
            d = self.child(d, name)
            if d is None or (isinstance(d, File) and d.link is not None):
                return ENOENT, None  # symbolic links of the test lead nowhere
            if not isinstance(d, Dir):
                return ENOTDIR, None
        return 0, d

    def find(self, path):
        """(errno, node) of a path, not following a last symbolic link."""
        if len(path) == 1:
            d = self.top(path[0])
            return (0, d) if d else (ENOENT, None)
        e, d = self.parent(path)
        if e:
            return e, None
        c = self.child(d, path[-1])
        return (0, c) if c else (ENOENT, None)

    # -- parts -------------------------------------------------------------------------------

    def show(self, d):
        """A directory of a bucket is there for those who look, with what leads to it."""
        while d:
            d.seen = True
            d.bucket.made = True
            d = d.parent

    def make_part(self, f):
        if f.part:
            return
        f.part = True
        f.xattrs = dict(f.xattrs)
        f.mtime = None
        if f.linked:
            self.show(f.dir)

    def marker(self, f):
        """The stream at f's path, or None."""
        s = f.dir.sdir if f.dir is not self.cur.root else self.skel
        if f.linked and f.bucket is self.cur and s:
            c = s.children.get(f.name)
            return c if isinstance(c, Stream) else None
        return None

    def mark(self, f):
        s = self.skel if f.dir is self.cur.root else f.dir.sdir
        if f.linked and f.bucket is self.cur and s and f.name not in s.children:
            s.children[f.name] = Stream(f)

    def gid_below(self, d):
        return d.gid if d.mode & 0o2000 else 0

    def new_file(self, d, name, mode, link_to=None):
        gid = self.gid_below(d)
        at = self.ddir(d) if d.area == "current" else d
        f = File(at.bucket, mode, 0, gid, link=link_to)
        link(at, name, f)
        if at.bucket:
            self.show(at)
        return f

    # -- files -------------------------------------------------------------------------------

    def open(self, path, flags, mode=0o644):
        """(errno, Handle)."""
        e, d = self.parent(path)
        if e:
            return e, None
        c = self.child(d, path[-1])
        write, create = flags & os.O_ACCMODE != os.O_RDONLY, flags & os.O_CREAT
        if c is None:
            if not create:
                return ENOENT, None
            if d.bucket and d.bucket.shut:
                return EROFS, None
            c = self.new_file(d, path[-1], mode & ~UMASK & 0o777)
        elif create and flags & os.O_EXCL:
            return EEXIST, None
        elif isinstance(c, Dir):
            return (EISDIR, None) if write or create else (0, None)
        return self.open_file(c, flags, d.area == "bucket")

    def open_file(self, f, flags, dated):
        write = flags & os.O_ACCMODE != os.O_RDONLY
        node = f
        if write and not dated:
            f = f.newest()
        if f.link is not None:
            return ELOOP, None
        if f.sealed and write:
            return EROFS if dated else ESTALE, None
        h = Handle(f, flags, dated)
        if write and h.append and not dated:
            f.appended = True
            if f.bucket:
                self.mark(f)
        if flags & os.O_TRUNC:
            e = self.truncate_file(f, 0)
            if e:
                return e, None
        h.next = len(f.data)
        h.from_start = not f.data
        h.kernel = (self.passes and h.append and not h.readable and not dated and f is node and f.linked
                    and f.bucket is self.cur and not f.over)
        self.handles.append(h)
        return 0, h

    def reopen(self, h, flags):
        """Through /proc/self/fd: the node itself, not its name."""
        e, new = self.open_file(h.opened, flags, h.dated)
        if new:
            new.opened = h.opened  # what fstat(2) tells of
        return e, new

    def close(self, h):
        self.handles.remove(h)
        self.end_lines()

    def truncate_file(self, f, size):
        if f.sealed:
            return EROFS
        if f.bucket is None:
            f.data = f.data[:size] + bytes(max(0, size - len(f.data)))
            f.mtime = None
            return 0
        if size not in (0, len(f.data)):
            return EPERM
        if size == len(f.data):
            return 0
        if f.bucket is not self.cur and f.linked:
            return EPERM
        f.data = bytearray()
        f.mtime = None
        return 0

    def truncate(self, path, size):
        e, c = self.find(path)
        if e:
            return e
        if isinstance(c, Dir):
            return EISDIR
        if c.link is not None:
            return ENOENT
        return self.truncate_file(c, size)

    def ftruncate(self, h, size):
        if not h.writable:
            return EINVAL
        if (h.wrote or h.whole) and size > len(h.file.data) and self.grow(h, size):
            return 0
        return self.truncate_file(h.file if h.dated else h.file.newest(), size)

    def fallocate(self, h, off, size):
        f = h.file
        if f.bucket is None:
            f.data += bytes(max(0, off + size - len(f.data)))
            f.mtime = None
            return 0
        return EPERM if off + size > len(f.data) else 0

    # -- writing -----------------------------------------------------------------------------

    def write(self, h, data, off=None):
        """(errno, bytes taken); off None: write(2), else pwrite(2)."""
        at = len(h.file.data) if h.append else h.pos if off is None else off
        if h.file.bucket is None:
            f = h.file
            f.data += bytes(max(0, at - len(f.data)))
            f.data[at:at + len(data)] = data
            f.mtime = None
            n, e = len(data), 0
        else:
            n, e = self.append(h, data, at)
        self.end_lines()
        if n:
            h.next = at + n
            h.wrote = True
            if off is None:
                h.pos = at + n
            e = 0
        return e, n

    def may_write(self, h, at):
        newest = h.file if h.dated else h.file.newest()
        return h.append or at in (h.next, len(h.file.data), len(newest.data))

    def append(self, h, data, at):
        if not self.may_write(h, at) and not self.grow(h, at):
            return 0, EPERM
        done = 0
        while done < len(data):
            f = h.file
            succ = None if h.dated else f.succ
            shut = f.sealed or (f.bucket.shut and f.linked)
            if shut and not succ:
                return done, EROFS if h.dated else ESTALE
            if f.lost:
                f.data, f.lost = bytearray(), False
            if succ and (shut or not f.part):
                h.file = succ
                continue
            n = len(data) - done
            if f.over and self.line_is_open(f.over):
                # One part: whoever writes behind the unfinished line goes on with it.
                n = self.line_rest(f.over, data[done:])
                f.over.late += n
                f.over.data += data[done:done + n]
                f.over.mtime = None
                done += n
                continue
            self.make_part(f)
            if h.dated and (f.behind or self.line_is_open(f)):
                f.behind += data[done:]
                f.mtime = None
                self.waiting.append(f)
                return len(data), 0
            if succ:
                n = self.line_rest(f, data[done:])
                f.late += n
                if not n:
                    h.file = succ
                    continue
            f.data += data[done:done + n]
            f.mtime = None
            done += n
        return done, 0

    def grow(self, h, size):
        """A copy with holes: who alone wrote an object, from its start, may skip ahead."""
        f = h.file
        s = f.dir.sdir if f.dir.parent else self.skel
        named = f.linked and f.bucket and s and f.name in s.children
        if (not f.bucket or f.sealed or f.appended or f.succ or named or not h.from_start
                or not f.part or (f.bucket.shut and f.linked)
                or h.next != len(f.data) or size <= len(f.data)):
            return False
        f.data += bytes(size - len(f.data))
        f.mtime = None
        h.next = size
        return True

    def line_is_open(self, f):
        """Whether writers that went on over the boundary may still finish f's last line. Where a carried part
        is cut is settled once and for all: what comes late behind it begins no line that they could end."""
        if f.carried and (not f.data or f.data.endswith(b"\n") or f.late >= LINE_MAX):
            f.settled = True
        return ((f.succ or f.carried) and not f.settled and f.part and not f.sealed and not f.bucket.shut
                and f.late < LINE_MAX and f.data and not f.data.endswith(b"\n")
                and (f.carried or any(f in (h.file, h.opened) for h in self.handles)))

    def end_lines(self):
        """Shows what came behind lines that are finished, or that nobody can finish any more."""
        for f in [f for f in self.waiting if not self.line_is_open(f)]:
            f.data += f.behind
            f.behind = bytearray()
            self.waiting.remove(f)

    @staticmethod
    def line_rest(f, data):
        """How much of data still belongs to the line that the boundary found unfinished."""
        if f.settled or not f.data or f.data.endswith(b"\n"):
            return 0
        data = data[:LINE_MAX - f.late]
        nl = data.find(b"\n")
        return len(data) if nl < 0 else nl + 1

    # -- names that come and go ----------------------------------------------------------------

    def may_change(self, d):
        return EROFS if d.bucket and d.bucket.shut else 0

    def mkdir(self, path, mode):
        e, d = self.parent(path)
        if e:
            return e
        if self.child(d, path[-1]):
            return EEXIST
        return self.may_change(d) or self.make_dir(d, path[-1], mode & ~UMASK & 0o1777)

    def make_dir(self, d, name, mode, uid=0, gid=0):
        new = Dir(d.area, mode | (d.mode & 0o2000), uid, self.gid_below(d) or gid, bucket=d.bucket)
        link(d, name, new)
        if d.area == "current":
            self.show(self.ddir(new))
        elif d.area == "bucket":
            self.show(new)
        return 0

    def symlink(self, path, target):
        e, d = self.parent(path)
        if e:
            return e
        if self.child(d, path[-1]):
            return EEXIST
        e = self.may_change(d)
        if not e:
            self.new_file(d, path[-1], 0o777, target)
        return e

    def unlink(self, path):
        e, d = self.parent(path)
        if e:
            return e
        c = self.child(d, path[-1])
        if c is None:
            return ENOENT
        if isinstance(c, Dir):
            return EISDIR
        if d.area == "current" and isinstance(d.children.get(path[-1]), Stream):
            del d.children[path[-1]]
        self.lose(c)
        return 0

    def lose(self, f):
        """A file's name goes. Whoever has it open keeps it; a writer that has not come to it yet from
        an older bucket's file finds a nameless, empty one."""
        unlink(f)
        f.lost = not any(f in (h.file, h.opened) for h in self.handles)

    def rmdir(self, path):
        e, d = self.parent(path)
        if e:
            return e
        c = self.child(d, path[-1])
        if c is None:
            return ENOENT
        if not isinstance(c, Dir):
            return ENOTDIR
        if self.names(c):
            return ENOTEMPTY
        self.remove_dir(c)
        return 0

    def remove_dir(self, c):
        dd = self.ddir_if(c) if c.area == "current" else None
        if dd:
            unlink(dd)
        unlink(c)

    def rename(self, src, dst, noreplace=False):
        """Which errno comes first where several hold is the kernel's (fs/namei.c)."""
        e, sd = self.parent(src)
        if e:
            return e
        e, dd = self.parent(dst)
        if e:
            return e
        c, v = self.child(sd, src[-1]), self.child(dd, dst[-1])
        if c is None:
            return ENOENT
        if v and noreplace:
            return EEXIST
        if self.is_above(c, dd):
            return EINVAL
        if v and self.is_above(v, sd):
            return ENOTEMPTY
        if c is v:
            return 0
        if v and isinstance(c, Dir) != isinstance(v, Dir):
            return ENOTDIR if isinstance(c, Dir) else EISDIR
        e = self.rename_dirs(sd, dd)
        if e:
            return e
        if isinstance(c, Dir):
            return self.move_dir(c, v, sd, dd, dst[-1])
        self.move_file(c, v, sd, dd, src[-1], dst[-1])
        return 0

    @staticmethod
    def is_above(c, d):
        while d and isinstance(c, Dir):
            if d is c:
                return True
            d = d.parent
        return False

    @staticmethod
    def rename_dirs(sd, dd):
        """May a rename join these two directories?"""
        if dd.bucket and dd.bucket.shut:
            return EROFS
        if sd.bucket and sd.bucket.shut:
            return EXDEV
        if sd.area == "staging" and dd.area == "current":
            return 0
        return 0 if (sd.area, sd.bucket) == (dd.area, dd.bucket) else EXDEV

    def move_file(self, c, v, sd, dd, old, new):
        self.make_part(c)
        if sd.area == "current" and isinstance(sd.children.get(old), Stream):
            del sd.children[old]
        # A symbolic link in its place ends a stream.
        if c.link is not None and isinstance(dd.children.get(new), Stream):
            del dd.children[new]
        if v:
            self.lose(v)
        unlink(c)
        to = self.ddir(dd) if dd.area == "current" else dd
        c.bucket = to.bucket
        if to.bucket:
            self.show(to)
        link(to, new, c)

    def move_dir(self, c, v, sd, dd, new):
        if v and self.names(v):
            return ENOTEMPTY
        if v:
            self.remove_dir(v)
        twin = self.ddir_if(c) if c.area == "current" else None
        unlink(c)
        link(dd, new, c)
        if twin:
            unlink(twin)
            link(self.ddir(dd), new, twin)
            if twin.seen:
                self.show(twin)
        elif dd.area == "bucket":
            self.show(c)
        elif sd.area == "staging" and dd.area == "current":
            self.publish(c)
        return 0

    def publish(self, x):
        """A directory of .staging/ has become one of current/, with all that is in it."""
        x.area = "current"
        inside, x.children = x.children, {}
        twin = self.ddir(x)
        self.show(twin)
        for name, c in inside.items():
            if isinstance(c, Dir):
                link(x, name, c)
                self.publish(c)
            else:
                c.bucket = self.cur
                link(twin, name, c)

    # -- attributes ----------------------------------------------------------------------------

    def change(self, path, follow=True):
        """(errno, [objects]) that a change of attributes by path reaches: with a file of the current
        bucket its stream, with a directory of current/ the bucket's own."""
        e, c = self.find(path)
        if e:
            return e, []
        if isinstance(c, File):
            if c.link is not None and follow:
                return ENOENT, []
            return (EROFS, []) if c.sealed else (0, [c, self.marker(c)])
        if c.bucket and c.bucket.shut:
            return EROFS, []
        return 0, [c, self.ddir_if(c) if c.area == "current" else None]

    def chmod(self, path, mode):
        e, objects = self.change(path)
        for o in filter(None, objects):
            o.mode = mode & (0o3777 if isinstance(o, Dir) else 0o1777)
        return e

    def chown(self, path, uid, gid):
        e, objects = self.change(path)
        for o in filter(None, objects):
            o.uid, o.gid = uid, gid
        return e

    def utimens(self, path, ns):
        e, objects = self.change(path)
        if not e and isinstance(objects[0], File):
            objects[0].mtime = ns
        return e

    def setxattr(self, path, name, value):
        e, objects = self.change(path)
        if not e and isinstance(objects[0], File) and not objects[1]:
            self.make_part(objects[0])
        for o in filter(None, objects):
            o.xattrs[name] = value
        return e

    def removexattr(self, path, name):
        e, objects = self.change(path)
        if not e and isinstance(objects[0], File) and not objects[1]:
            self.make_part(objects[0])
        if not e and name not in objects[0].xattrs:
            return ENODATA
        for o in filter(None, objects):
            o.xattrs.pop(name, None)
        return e

    # -- the life of buckets -------------------------------------------------------------------

    def freeze(self, d):
        """A bucket's directory is, from the boundary on, what current/'s was."""
        if d.sdir:
            d.copy_from(d.sdir)
        for c in d.children.values():
            if isinstance(c, Dir):
                self.freeze(c)

    def keep_streams(self, s):
        """Streams come back as they are now: mode, owner, xattrs."""
        for name, c in s.children.items():
            if isinstance(c, Dir):
                self.keep_streams(c)
                continue
            d = self.ddir_if(s)
            f = d.children.get(name) if d else None
            if isinstance(f, File) and f.link is None:
                c.take(f)

    def boundary(self, name):
        a = self.cur
        self.keep_streams(self.skel)
        self.freeze(a.root)
        held = [h.file.newest() for h in self.handles if h.moves()]
        follow = [f for f in held if f.bucket is a and f.linked and (f.appended or self.marker(f))]
        places = [(f, self.skel if f.dir is a.root else f.dir.sdir) for f in follow]
        # What the boundary before found unfinished has had its time.
        for b in self.buckets.values():
            for f in files_below(b.root):
                f.settled = f.settled or f.carried
                f.carried = False
        written = [h.file.newest() for h in self.handles if h.kernel]
        a.state = "closing"
        self.cur = self.buckets[name] = Bucket(name)
        for f, s in places:
            if not f.succ:
                f.succ = self.successor(s, f)
                if f in written and f.succ:
                    f.carried, f.succ.over = True, f
                    f.shares = f.succ.shares = True
        # Who did not write in a whole window has no line to finish in it.
        for h in self.handles:
            if h.file.succ:
                h.file.succ = h.file.newest()
        self.end_lines()

    def shut(self, b):
        """No more bytes come into b: what still holds one of its files goes on as a stream."""
        for h in list(self.handles):
            f = h.file.newest()
            if h.moves() and f.bucket is b and f.linked and not f.stuck:
                self.settle(f)

    def settle(self, f):
        s = self.revive(f.dir)
        if s and not self.child(s, f.name):
            s.children[f.name] = Stream(f)
        f.succ = self.successor(s, f) if s else None
        f.stuck = not f.succ

    def successor(self, s, f):
        """The file of the current bucket at f's name, new where there is none; None: not a file."""
        c = self.child(s, f.name)
        if isinstance(c, Dir) or (c and c.link is not None):
            return None
        if c is None:
            c = File(self.cur, f.mode, f.uid, f.gid)
            c.part = False
            link(self.ddir(s), f.name, c)
        c.appended |= f.appended
        return c

    def revive(self, d):
        """current/'s directory for one of a bucket, made anew where it was removed; or None."""
        if d.parent is None:
            return self.skel
        if d.sdir and d.sdir.linked:
            return d.sdir
        up = self.revive(d.parent)
        if up is None:
            return None
        c = self.child(up, d.name)
        if c is None:
            self.make_dir(up, d.name, d.mode & 0o1777, d.uid, d.gid)
            c = up.children[d.name]
        return c if isinstance(c, Dir) else None

    def prune(self, d):
        for name, c in list(d.children.items()):
            if not visible(c):
                c.linked = False
                del d.children[name]
            elif isinstance(c, Dir):
                self.prune(c)
            else:
                c.sealed = True
                if c.shares:
                    c.mtime = None  # as it is in the segment

    def seal(self, b):
        """Returns whether anything is left of it: an empty window leaves nothing."""
        self.shut(b)
        self.prune(b.root)
        b.state = "sealed"
        self.end_lines()
        if not b.root.children:
            b.state = "dropped"
            del self.buckets[b.name]
        return bool(b.root.children)

    def drop(self, b, when):
        """b: closing or sealed."""
        if b.held:
            return EBUSY
        if b.state == "closing":
            self.shut(b)
        b.was = b.state
        b.state, b.when = "dropped", when
        self.end_lines()
        del self.buckets[b.name]
        self.dropped[b.name] = b
        return 0

    def undrop(self, b):
        """Comes back as it was; one that was closing is sealed at once."""
        del self.dropped[b.name]
        self.buckets[b.name] = b
        b.state = b.was
        if b.was == "closing":
            self.seal(b)

    def restart(self, next_name=None):
        """The daemon ends and starts again; nothing is held. next_name: of the bucket that is open
        then, when a boundary passed meanwhile."""
        self.handles = []
        self.end_lines()
        if next_name:
            self.boundary(next_name)
        for b in [b for b in self.buckets.values() if b.state == "closing"]:
            self.seal(b)
        for f in [*files_below(self.cur.root), *files_below(self.staging)]:
            f.appended = False
            if not f.part:
                f.mtime = None
                # Held a writer's place, and nothing else; of a carried part the hard link keeps it.
                if not self.marker(f) and not f.over:
                    unlink(f)
