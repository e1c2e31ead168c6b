"""Files of log lines from a seed; the same calls give the same bytes."""
import os

KINDS = ("access", "app", "json")


def log_file(b, path, kind, size, seed=1, second=None):
    """Writes size bytes of a kind of log to path; second: where its time begins (Unix epoch)."""
    with open(path, "wb") as f:
        b.run([b.tool("logs"), kind, str(seed), str(size), *([str(second)] if second else [])],
              stdout=f)
    return path


def log_tree(b, folder, size, files, seed=1, second=None):
    """About size bytes as files of one size, of the three kinds in turn: folder/app0.log, ...
    Returns their paths."""
    os.makedirs(folder, exist_ok=True)
    return [log_file(b, os.path.join(folder, f"{KINDS[i % 3]}{i}.log"), KINDS[i % 3], size // files,
                     seed * 100_000 + i, second) for i in range(files)]


def small_files(b, folder, count, size, folders=100, seed=1):
    """count files of size bytes of log lines, over folders/host=NNN/: what many short-lived programs
    leave. Returns the folder."""
    text = b.path(f"text{next(b.numbers)}")
    log_file(b, text, "app", count * size, seed)
    for i in range(folders):
        os.makedirs(os.path.join(folder, f"host={i:03}"), exist_ok=True)
    with open(text, "rb") as source:
        for i in range(count):
            with open(os.path.join(folder, f"host={i % folders:03}", f"app{i:06}.log"), "wb") as f:
                f.write(source.read(size))
    os.unlink(text)
    return folder
