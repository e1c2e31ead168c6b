"""Comparing the mount with the model: the part of the run that looks."""
import errno
import os

from varvetest import Failure, eq, ok, read, same_bytes
from model import CURRENT, STAGING, Dir, File


def shown(path):
    """A path in a message: long names cut."""
    cut = [n if len(n) < 40 else n[:3] + b"*%d" % len(n) for n in path]
    return "'" + b"/".join(cut).decode(errors="backslashreplace").replace("\n", "\\n") + "'"


def name_of(number):
    return errno.errorcode.get(number, "ok") if not isinstance(number, tuple) else number


class Compare:
    """Wants of its user: model, p(path), and the fields that Run sets up."""

    def path_of(self, f):
        """Where a file is to be seen, or None."""
        if not f.linked or f.sealed or not f.part:
            return None
        path, d = (f.name,), f.dir
        while d.parent:
            path = (d.name,) + path
            d = d.parent
        if f.bucket is None:
            return (STAGING,) + path
        if f.bucket is self.model.cur:
            return (CURRENT,) + path
        return (f.bucket.name,) + path if f.bucket.state == "closing" else None

    def walk(self, d):
        for c in self.model.names(d).values():
            yield c
            if isinstance(c, Dir):
                yield from self.walk(c)

    def number(self, node, ino, what):
        """st_ino: the same for life, and nobody else's ever."""
        if node.ino is None:
            owner = self.inos.setdefault(ino, what)
            ok(owner is what, f"{what}: st_ino {ino} was {owner}'s before")
            node.ino = ino
        eq(ino, node.ino, f"st_ino of {what}")

    def facts(self, st, node, what):
        self.number(node, st.st_ino, what)
        if not (isinstance(node, File) and node.link is not None):
            eq(oct(st.st_mode & 0o7777), oct(node.mode), f"mode of {what}")
        eq((st.st_uid, st.st_gid), (node.uid, node.gid), f"owner of {what}")

    def check_file(self, path, f, xattrs=False):
        full, what = self.p(path), f"{shown(path)}"
        st = os.lstat(full)
        self.facts(st, f, what)
        eq(st.st_nlink, 1, f"st_nlink of {what}")
        if st.st_size != len(f.data) and f.link is None:
            same_bytes(read(full), bytes(f.data), what)
        eq(st.st_size, len(f.data), f"size of {what}")
        if f.link is not None:
            eq(os.readlink(full), f.link, f"target of {what}")
            return
        eq(st.st_mode & 0o170000, 0o100000, f"type of {what}")
        same_bytes(read(full), bytes(f.data), what)
        # Of files that share a part the newer one's time is the part's: it moves with what ends the older one's
        # line. What is sealed has its time for good.
        if f.mtime is None or (f.shares and not f.sealed):
            f.mtime = st.st_mtime_ns
        eq(st.st_mtime_ns, f.mtime, f"mtime of {what}")
        if xattrs or f.xattrs:
            self.check_xattrs(full, f, what)

    def check_xattrs(self, full, node, what):
        eq(sorted(os.listxattr(full, follow_symlinks=False)), sorted(node.xattrs),
           f"names of xattrs of {what}")
        for name, value in node.xattrs.items():
            eq(os.getxattr(full, name), value, f"xattr {name} of {what}")

    def check_list(self, path, d):
        """What a directory lists: names, types and numbers."""
        what = f"{shown(path)}"
        want = self.model.names(d)
        with os.scandir(self.p(path)) as it:
            got = {e.name: e for e in it}
        if got.keys() != want.keys():
            raise Failure(f"listing of {what}: too much {sorted(got.keys() - want.keys())}, "
                          f"missing {sorted(want.keys() - got.keys())}")
        for name, c in want.items():
            e, of = got[name], f"{name!r} as {what} lists it"
            eq(e.is_dir(follow_symlinks=False), isinstance(c, Dir), f"is a directory: {of}")
            eq(e.is_symlink(), isinstance(c, File) and c.link is not None, f"is a link: {of}")
            self.number(c, e.inode(), of)
        return want

    def check_tree(self, path, d, xattrs=False):
        if len(path) > 1:
            what = f"{shown(path)}"
            self.facts(os.lstat(self.p(path)), d, what)
            self.check_xattrs(self.p(path), d, what)
        for name, c in self.check_list(path, d).items():
            if isinstance(c, Dir):
                self.check_tree(path + (name,), c, xattrs)
            else:
                self.check_file(path + (name,), c, xattrs)

    def check_root(self):
        model = self.model
        want = {CURRENT, STAGING, model.cur.name}
        want |= {n for n, b in model.buckets.items() if b.is_there()}
        eq(sorted(os.listdir(self.mnt)), sorted(want), "the root")
        eq(os.readlink(self.p((model.cur.name,))), CURRENT, "the open bucket's name is a link")
        for n, b in model.buckets.items():
            if not b.is_there():
                continue
            self.number(b, os.lstat(self.p((n,))).st_ino, f"bucket {n!r}")
            eq(os.getxattr(self.p((n,)), "user.varve.state"), b.state.encode(), f"state of {n!r}")

    def check_bucket(self, b):
        self.check_tree((b.name,), b.root, xattrs=self.chance(0.2))

    def check_handle(self, h):
        what = f"descriptor {h.fd}"
        st = os.fstat(h.fd)
        f = h.opened
        self.number(f, st.st_ino, what)
        eq(st.st_size, len(f.data), f"size of {what}")
        if not f.sealed and not (f.bucket and f.bucket.shut):
            eq(st.st_nlink, int(f.linked), f"st_nlink of {what}")
        if h.readable:
            same_bytes(self.whole(h.fd), bytes(h.file.data), f"what {what} reads")

    @staticmethod
    def whole(fd):
        out, at = [], 0
        while True:
            piece = os.pread(fd, 1 << 18, at)
            if not piece:
                return b"".join(out)
            out.append(piece)
            at += len(piece)

    def check_all(self):
        self.check_root()
        self.check_tree((CURRENT,), self.model.skel, xattrs=True)
        self.check_tree((STAGING,), self.model.staging, xattrs=True)
        for b in list(self.model.buckets.values()):
            if b.is_there():
                self.check_bucket(b)
        for h in self.model.handles:
            self.check_handle(h)

    def check_path(self, path):
        """What a step touched: the thing itself, if it is there, and the directory it is in."""
        e, d = self.model.parent(path)
        if e:
            self.same(self.call(os.lstat, self.p(path))[0], e, f"lstat of {shown(path)}")
            return
        c = self.check_list(path[:-1], d).get(path[-1])
        if isinstance(c, File):
            self.check_file(path, c)
        elif c:
            self.facts(os.lstat(self.p(path)), c, f"{shown(path)}")
            self.check_list(path, c)
