"""Numbered lines that show what became of them, and the check that none was harmed."""
import random
import zlib

from varvetest import Failure


def line(tag, i, pad=40):
    """Line i of a writer: tag, number, checksum, and a pad of a length of its own; ends in \\n."""
    fill = "abcdefghijklmnopqrstuvwxyz"[i % 26] * ((i * 7919) % (pad + 1))
    body = f"{tag} {i:09d} {fill}"
    return f"{body} {zlib.crc32(body.encode()):08x}\n".encode()


def lines(tag, first, count, pad=40):
    return b"".join(line(tag, i, pad) for i in range(first, first + count))


def parse(raw):
    """(tag, number) of one line without its \\n; a harmed line is a Failure."""
    body, _, crc = raw.rpartition(b" ")
    try:
        tag, number = body.split(b" ", 2)[:2]
        if int(crc, 16) == zlib.crc32(body):
            return tag.decode(), int(number)
    except ValueError:
        pass
    raise Failure(f"a harmed line: {raw[:200]!r}")


def check(pieces, counts):
    """pieces: the file's bytes, bucket by bucket, oldest first. counts: {tag: lines written}.
    Each writer's lines must be there once, whole, in order, and nothing else; no piece may end
    inside a line."""
    seen = dict.fromkeys(counts, 0)
    for n, piece in enumerate(pieces):
        if piece and not piece.endswith(b"\n"):
            raise Failure(f"piece {n} ends inside a line: {piece[-100:]!r}")
        for raw in piece.split(b"\n")[:-1]:
            tag, i = parse(raw)
            if tag not in seen:
                raise Failure(f"a line of nobody's: {raw[:200]!r}")
            if i != seen[tag]:
                what = "doubled or out of order" if i < seen[tag] else f"{i - seen[tag]} lost before"
                raise Failure(f"piece {n}: line {i} of {tag} where {seen[tag]} was due ({what})")
            seen[tag] += 1
    if seen != counts:
        raise Failure(f"lines found {seen}, written {counts}")


def text(size, seed=1):
    """size bytes of text that looks like a web server's log, from a seed."""
    r = random.Random(seed)
    out, have = [], 0
    while have < size:
        l = (f"10.{r.randrange(8)}.{r.randrange(256)}.{r.randrange(256)} - - "
             f"[01/Dec/2026:{r.randrange(24):02d}:{r.randrange(60):02d}:{r.randrange(60):02d} +0000] "
             f"\"GET /{r.choice(['a', 'img', 'api/v1', 'shop'])}/{r.randrange(10**6)} HTTP/1.1\" "
             f"{r.choice([200, 200, 200, 304, 404, 500])} {r.randrange(10**5)} \"-\" "
             f"\"Mozilla/5.0 ({r.choice(['X11', 'Mac', 'Win'])})\"\n").encode()
        out.append(l)
        have += len(l)
    return b"".join(out)[:size]
