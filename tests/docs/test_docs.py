"""What people read says what the code does: man pages, README, architecture; and the layers hold."""
import os
import re
import subprocess
import sys

TOP = os.environ["VARVE_SOURCE"]
VARVEFS, VARVE = os.environ["VARVEFS"], os.environ["VARVE"]
# folder of src/: the folders it may include from
LAYERS = {
    "base": {"base"},
    "format": {"base", "format"},
    "store": {"base", "format", "store"},
    "control": {"base", "store", "control", "format"},
    "cli": {"base", "store", "control", "cli", "format"},
    "fuse": {"base", "store", "control", "fuse"},
}
# The store's insides are the store's own: others see these of its headers.
STORE_FACADE = {"store.h", "policy.h", "retention.h", "view.h"}
STORE_FOR_CLI = STORE_FACADE | {"verify.h", "segment.h", "cache.h", "tombs.h", "audit.h", "slots.h",
                                "trash.h", "timekeeper.h", "mark.h", "ranges.h"}


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def plain(roff):
    return roff.replace("\\-", "-").replace("\\fB", "").replace("\\fI", "").replace("\\fR", "")


def sources():
    for folder, _, files in os.walk(os.path.join(TOP, "src")):
        for name in files:
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(folder, name), TOP)


def test_man_pages_have_no_warnings():
    for page in ("varvefs.8", "varve.8"):
        p = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l",
                            os.path.join(TOP, "docs/man", page)], capture_output=True,
                           env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80",
                                "MANROFFSEQ": ""}, check=True)
        assert not p.stderr, f"{page}: {p.stderr.decode()}"
        assert len(p.stdout) > 2000, f"{page} is empty"


def test_options_are_documented():
    text = subprocess.run([VARVEFS, "--help"], capture_output=True, check=True).stdout.decode()
    part = text.split("options of the store:")[1].split("options of the mount:")[0]
    names = re.findall(r"^  ([a-z-]+)", part, re.M)
    assert len(names) >= 18, names
    man, readme = plain(read("docs/man/varvefs.8")), read("README.md")
    for name in names:
        assert re.search(rf"\b{re.escape(name)}\b", man), f"varvefs(8) lacks option {name}"
        if name != "passthrough":
            assert re.search(rf"\b{re.escape(name)}\b", readme), f"README lacks option {name}"


def test_commands_are_documented():
    text = subprocess.run([VARVE, "--help"], capture_output=True, check=True).stdout.decode()
    names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)   *\S", text, re.M)
    man = plain(read("docs/man/varve.8"))
    assert len(names) >= 12, names
    for name in names:
        assert re.search(rf'^\.B[RI]+ .*\b{name}\b', man, re.M), f"varve(8) lacks command {name}"
        out = subprocess.run([VARVE, *name.split(), "--help"], capture_output=True, check=True)
        assert b"Example" in out.stdout, f"varve {name} --help has no example"


def test_crash_points_are_listed():
    doc = read("docs/architecture.md")
    points = set()
    for path in sources():
        points |= set(re.findall(r'varve_crash_point\("([^"]+)"\)', read(path)))
    assert len(points) >= 10, points
    for point in points:
        assert f"`{point}`" in doc, f"docs/architecture.md lacks crash point {point}"


def test_includes_keep_to_the_layers():
    for path in sources():
        parts = path.split(os.sep)
        if len(parts) < 3:
            continue  # the two programs
        layer = parts[1]
        for inc in re.findall(r'^#include "([^"]+)"', read(path), re.M):
            folder, _, name = inc.partition("/")
            assert folder in LAYERS[layer], f"{path} includes {inc}"
            if folder == "store" and layer in ("fuse", "control"):
                assert name in STORE_FACADE, f"{path} includes the store's {name}"
            if folder == "store" and layer == "cli":
                assert name in STORE_FOR_CLI, f"{path} includes the store's {name}"


def test_libraries_are_used_in_one_layer():
    only = {"fuse_lowlevel.h": "src/fuse/", "zstd.h": "src/format/", "xxhash.h": "src/format/"}
    for path in sources():
        for inc in re.findall(r"^#\s*include <([^>]+)>", read(path), re.M):
            if inc in only:
                assert path.startswith(only[inc]), f"{path} includes <{inc}>"


def test_no_file_is_too_long():
    for path in sources():
        lines = read(path).count("\n")
        assert lines <= 800, f"{path} has {lines} lines"


def test_headers_compile_alone():
    for path in sources():
        if path.endswith(".h") and "/fuse/" not in path:
            subprocess.run(["cc", "-std=gnu17", "-fsyntax-only", "-D_GNU_SOURCE",
                            "-D_FILE_OFFSET_BITS=64", "-I" + os.path.join(TOP, "src"),
                            "-include", os.path.join(TOP, path), "-x", "c", os.devnull],
                           check=True)


def main():
    failed = 0
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        try:
            test()
            print("ok", test.__name__)
        except (AssertionError, subprocess.CalledProcessError) as e:
            failed += 1
            print("FAILED", test.__name__, e)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
