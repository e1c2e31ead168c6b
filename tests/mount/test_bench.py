"""tools/bench itself: it lists its rows, measures one on a small scale, and leaves nothing behind."""
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

BENCH = os.path.join(SOURCE, "tools/bench")
BUILD = os.path.dirname(os.path.dirname(os.path.realpath(VARVEFS)))


def bench(t, *args, rc=0):
    return t.run([sys.executable, BENCH, "--quick", "--dir", t.dir, "--build", BUILD, *args], rc=rc,
                 seconds=60)


def leftovers(t):
    return [n for n in os.listdir(t.dir) if n.startswith("varve-bench")] + mounts_under(t.dir)


def test_list_tells_each_row_and_its_goal(t):
    out = t.run([sys.executable, BENCH, "--list"]).stdout.decode()
    names = re.findall(r"^(\S+) +\S", out, re.M)
    ok(len(names) >= 6, f"rows: {names}")
    eq(len(re.findall(r"against: .+; goal: \S", out)), len(names), "each row's rival and goal")
    eq(t.run([sys.executable, BENCH, "--list", "--only", names[0]]).stdout.decode().splitlines(),
       out.splitlines()[:2], "--only chooses")


def test_a_row_is_measured_and_nothing_stays(t):
    r = bench(t, "--only", "append-128B-1", "--json", t.path("out.json"))
    has(r.stdout, r"append-128B-1: throughput\n +ours +[0-9.,]+ MB/s\n +ext4 +[0-9.,]+ MB/s\n"
        r" +goal >= 0.95 x: (NOT )?MET|met", "the row")
    with open(t.path("out.json"), encoding="utf-8") as f:
        got = json.load(f)
    eq((got["runs"], got["failed"], {row["name"] for row in got["rows"]}), (1, [], {"append-128B-1"}),
       "the JSON file")
    ok(got["rows"][0]["ours"][0] > 0 and got["rows"][0]["rivals"]["ext4"][0] > 0, got)
    eq(leftovers(t), [], "what is left")


def test_nothing_stays_when_it_is_ended(t):
    p = t.spawn([sys.executable, BENCH, "--dir", t.dir, "--quick", "--runs", "5", "--build", BUILD],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    line = p.stdout.readline()
    has(line, "bench: kernel", "it starts")
    wait_until(lambda: any(b"varvefs" in read(f"/proc/{c}/cmdline") for c in children_of(p.pid)), 20,
               "it mounts")
    daemons = children_of(p.pid)
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=30)
    eq(p.returncode, 1, f"its end: {out}")
    eq(leftovers(t), [], "what is left")
    eq([d for d in daemons if os.path.exists(f"/proc/{d}")], [], "processes")


def test_misuse_is_told(t):
    has(bench(t, "--only", "nosuchrow", rc=2).stderr, "nosuchrow.*--list", "an unknown row")
    has(t.run([sys.executable, BENCH, "--dir", t.path("absent")], rc=2).stderr, "absent is no folder",
        "a folder that is not there")
    has(t.run([sys.executable, BENCH, "--dir", "/dev/shm"], rc=2).stderr, "ext4",
        "a folder on another filesystem")


main()
