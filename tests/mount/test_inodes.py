"""Inode numbers: one for life, from the first byte through sealing and remounts, never used again."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class Book:
    """Every (bucket, path) ever seen with its number."""

    def __init__(self, m):
        self.m = m
        self.number = {}  # (bucket, path): ino
        self.owner = {}   # ino: (bucket, path)

    def note(self, bucket, path, ino):
        known = self.number.setdefault((bucket, path), ino)
        eq(ino, known, f"the number of {path!r} in {bucket}")
        owner = self.owner.setdefault(ino, (bucket, path))
        eq((bucket, path), owner, f"who has the number {ino}")
        ok(0 < ino < 2**53, f"{ino} is below 2^53")

    def look(self, bucket, top):
        """Notes a whole bucket; readdir and stat must agree. Policy may take it meanwhile."""
        try:
            with os.scandir(top) as it:
                for e in it:
                    st = os.lstat(e.path)
                    eq(e.inode(), st.st_ino, f"readdir and stat of {e.path}")
                    self.note(bucket, e.name, st.st_ino)
        except OSError as e:
            ok(e.errno in (errno.ENOENT, errno.ESTALE) and bucket not in self.m.buckets(),
               f"{bucket}: {e}")


@timeout(300)
def test_case12_many_boundaries_with_seals_drops_and_remounts(t):
    """Hundreds of boundaries: no number is used twice, none changes by sealing or remounting."""
    m = t.mount("bucket=1h,grace=0s,undrop=0s,max-buckets=40")
    book = Book(m)
    fd = os.open(m.cur("held"), APPEND)
    ends, rounds, dev = time.monotonic() + 25, 0, os.stat(m.mnt).st_dev
    while rounds < 1000 and (time.monotonic() < ends or rounds < 30):
        os.write(fd, b"%d\n" % rounds)
        append(m.cur("stream"), b"s\n")
        put(m.cur(f"object-{rounds % 7}"), b"o")
        book.look(m.open_name(), m.cur())
        m.next()
        rounds += 1
        if rounds % 10 == 0:
            for b in m.buckets():
                book.look(b, m.path(b))
        if rounds % 50 == 0:
            os.close(fd)
            if rounds % 100:
                m.remount()
            else:
                m.kill()
                m.start()
            eq(os.stat(m.mnt).st_dev >= 0, True, "the device")
            for b in m.buckets():
                book.look(b, m.path(b))
            fd = os.open(m.cur("held"), APPEND)
        if rounds % 25 == 0 and len(m.buckets()) > 10:
            os.rmdir(m.path(m.buckets()[-5]))
    os.close(fd)
    m.wait_all_sealed()
    for b in m.buckets():
        book.look(b, m.path(b))
    print(f"{rounds} boundaries, {len(book.number)} files, device {dev}")
    ok(rounds >= 30, f"{rounds} boundaries")


def test_numbers_of_every_kind(t):
    """Files, directories, links, staged ones; renames keep the number; all differ."""
    m = t.mount()
    append(m.cur("f"), b"1")
    os.mkdir(m.cur("d"))
    append(m.cur("d/g"), b"1")
    os.symlink("f", m.cur("l"))
    put(m.path(".staging/s"), b"s")
    names = [m.mnt, m.cur(), m.path(".staging"), m.path(m.open_name()), m.cur("f"), m.cur("d"),
             m.cur("d/g"), m.cur("l"), m.path(".staging/s")]
    inos = {p: os.lstat(p).st_ino for p in names}
    eq(len(set(inos.values())), len(names), f"all differ: {inos}")
    os.rename(m.path(".staging/s"), m.cur("d/published"))
    eq(os.stat(m.cur("d/published")).st_ino, inos[m.path(".staging/s")], "publishing keeps it")
    os.rename(m.cur("f"), m.cur("d/f"))
    eq(os.stat(m.cur("d/f")).st_ino, inos[m.cur("f")], "a rename keeps it")
    before = {p: os.lstat(m.cur(p)).st_ino for p in ("d", "d/g", "d/f", "l", "d/published")}
    m.remount()
    eq({p: os.lstat(m.cur(p)).st_ino for p in before}, before, "a remount keeps them")
    old = m.next()
    closing = {p: os.lstat(m.path(old, p)).st_ino for p in before if p != "d"}
    eq(closing, {p: i for p, i in before.items() if p != "d"}, "closing: the files keep theirs")
    top = os.stat(m.path(old)).st_ino
    sub = os.stat(m.path(old, "d")).st_ino
    m.wait_sealed(old)
    eq({p: os.lstat(m.path(old, p)).st_ino for p in closing}, closing, "sealed: the same")
    eq((os.stat(m.path(old)).st_ino, os.stat(m.path(old, "d")).st_ino), (top, sub), "directories too")
    m.kill()
    m.start()
    eq({p: os.lstat(m.path(old, p)).st_ino for p in closing}, closing, "after a kill: the same")
    eq(os.stat(m.path(old)).st_ino, top, "the bucket's own")


def test_never_reused_after_a_kill(t):
    """Numbers given out before a SIGKILL are not given out again after it."""
    m = t.mount()
    seen = set()
    for _ in range(5):
        for i in range(40):
            p = m.cur(f"f{i}")
            append(p, b"")
            ino = os.stat(p).st_ino
            ok(ino not in seen, f"{ino} was used before")
            seen.add(ino)
            os.unlink(p)
        m.kill()
        m.start()


def test_the_streams_next_file_has_its_number_before_the_first_byte(t):
    """An empty stream that is stat'ed, then written: one number, also after a remount."""
    m = t.mount()
    append(m.cur("x"), b"1\n")
    m.next()
    ino = os.stat(m.cur("x")).st_ino
    append(m.cur("x"), b"2\n")
    eq(os.stat(m.cur("x")).st_ino, ino, "the first byte changes nothing")
    name = m.open_name()
    m.next()
    ino2 = os.stat(m.cur("x")).st_ino
    ok(ino2 != ino, "another bucket's file is another")
    m.remount()
    eq(os.stat(m.cur("x")).st_ino, ino2, "empty, over a remount")
    append(m.cur("x"), b"3\n")
    eq(os.stat(m.cur("x")).st_ino, ino2, "then written")
    eq(os.stat(m.path(name, "x")).st_ino, ino, "the older one's")


main(jobs=2)
