"""Real services on current/: nginx and rsyslog, reopening and not, logger, people's logrotate."""
import os
import socket
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

NGINX = """
daemon off; worker_processes 2; user {user}; pid {dir}/nginx.pid; error_log {log}/error.log info;
events {{ worker_connections 64; }}
http {{
    log_format n '$request_uri';
    access_log {log}/access.log n;
    keepalive_requests 1000000;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
    server {{ listen unix:{dir}/http.sock; location / {{ return 204; }} }}
}}
"""


def nginx(t, log, user):
    conf = t.path("nginx.conf")
    with open(conf, "w") as f:
        f.write(NGINX.format(dir=t.dir, log=log, user=user))
    p = t.spawn(["nginx", "-c", conf, "-p", t.dir, "-e", t.path("start.error")])
    wait_until(lambda: listens(t.path("http.sock")), 10, "nginx listens")
    return p


def listens(path):
    """The socket's name is there before anybody listens."""
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path) == 0


def get(t, first, count):
    """Numbered requests, one after another, on one connection."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(t.path("http.sock"))
    for i in range(first, first + count):
        s.sendall(b"GET /%06d HTTP/1.1\r\nHost: x\r\n\r\n" % i)
        ok(s.recv(4096).startswith(b"HTTP/1.1 204"), "nginx answers")
    s.close()


def logged(m, path, want, what):
    """All pieces of a log, sorted, must be these lines once each."""
    def all_lines():
        return sorted(b"".join(p for _, p in m.history(path)).split())
    wait_until(lambda: len(all_lines()) >= len(want), 10, f"{what}: {len(want)} lines")
    eq(all_lines(), sorted(want), what)


def test_nginx_not_reopening(t):
    m = t.mount()
    os.mkdir(m.cur("nginx"))
    p = nginx(t, m.cur("nginx"), "root")
    for n in range(4):
        get(t, n * 100, 100)
        if n < 3:
            m.next()
    p.send_signal(signal.SIGQUIT)
    eq(p.wait(20), 0, "nginx's end")
    logged(m, "nginx/access.log", [b"/%06d" % i for i in range(400)], "four windows' requests")
    sizes = [len(d) for _, d in m.history("nginx/access.log")]
    eq(sizes, [800, 800, 800, 800], "each window has its own hundred")


def test_nginx_reopening_as_another_user(t):
    """USR1 after the boundary: workers of another user open the log again, and own it."""
    m = t.mount()
    os.mkdir(m.cur("nginx"))
    p = nginx(t, m.cur("nginx"), "nobody nogroup")
    get(t, 0, 50)
    for n in range(1, 4):
        m.next()
        before = os.stat(m.cur("nginx/access.log")).st_ino
        p.send_signal(signal.SIGUSR1)
        get(t, n * 50, 50)
        eq(os.stat(m.cur("nginx/access.log")).st_ino, before, "reopening makes no other file")
    wait_until(lambda: os.stat(m.cur("nginx/access.log")).st_uid == NOBODY, 5, "nginx's chown")
    # mv, then USR1: the classic rotation by hand
    os.rename(m.cur("nginx/access.log"), m.cur("nginx/access.log.1"))
    get(t, 200, 50)
    p.send_signal(signal.SIGUSR1)
    wait_until(lambda: os.path.exists(m.cur("nginx/access.log")), 10, "nginx makes its log anew")
    for c in wait_until(lambda: children_of(p.pid), 5, "workers"):
        wait_until(lambda: any(os.path.realpath(f"/proc/{c}/fd/{f}") == m.cur("nginx/access.log")
                               for f in os.listdir(f"/proc/{c}/fd")), 10, "a worker has the new log")
    get(t, 250, 50)
    p.send_signal(signal.SIGQUIT)
    eq(p.wait(20), 0, "nginx's end")
    old = [d for _, d in m.history("nginx/access.log")] + [read(m.cur("nginx/access.log.1"))]
    eq(sorted(b"".join(old).split()), [b"/%06d" % i for i in range(300)], "every request once")
    eq([e for e in read(m.cur("nginx/error.log")).splitlines() if b"[emerg]" in e or b"[alert]" in e],
       [], "nothing that nginx finds alarming")


RSYSLOG = """
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{dir}/log.sock" RateLimit.Interval="0")
global(workDirectory="{dir}" maxMessageSize="16k")
template(name="plain" type="string" string="%programname% %msg%\\n")
action(type="omfile" file="{log}/all.log" template="plain" {more})
"""


def rsyslog(t, m, more=""):
    conf = t.path("rsyslog.conf")
    os.makedirs(m.cur("syslog"), exist_ok=True)
    with open(conf, "w") as f:
        f.write(RSYSLOG.format(dir=t.dir, log=m.cur("syslog"), more=more))
    p = t.spawn(["rsyslogd", "-n", "-f", conf, "-i", t.path("rsyslog.pid")],
                stderr=open(t.path("rsyslog.err"), "wb"))
    wait_until(lambda: os.path.exists(t.path("log.sock")), 10, "rsyslogd listens")
    return p


def log(t, first, count):
    t.run(["logger", "-u", t.path("log.sock"), "-t", "app"],
          input=b"".join(b"message %06d\n" % i for i in range(first, first + count)))


def rsyslog_total(m):
    return b"".join(d for _, d in m.history("syslog/all.log")).count(b"\n")


def test_rsyslog_and_logger(t):
    """Held open over boundaries, then with SIGHUP (which makes rsyslogd reopen)."""
    m = t.mount()
    p = rsyslog(t, m)
    total = 0
    for n in range(6):
        log(t, total, 100)
        total += 100
        wait_until(lambda: rsyslog_total(m) == total, 10,
                   lambda: f"{total} messages (there are {rsyslog_total(m)})")
        m.next()
        if n >= 3:
            p.send_signal(signal.SIGHUP)
    p.terminate()
    eq(p.wait(20), 0, "rsyslogd's end")
    got = b"".join(d for _, d in m.history("syslog/all.log")).splitlines()
    eq([l.split()[-1] for l in got], [b"%06d" % i for i in range(600)], "each message once, in order")
    eq([d.count(b"\n") for _, d in m.history("syslog/all.log") if d], [100] * 6, "a hundred a window")


def test_rsyslog_asynchronous_writer(t):
    m = t.mount()
    p = rsyslog(t, m, 'asyncWriting="on" ioBufferSize="8k" flushInterval="1"')
    log(t, 0, 500)
    wait_until(lambda: rsyslog_total(m) == 500, 10, "the first five hundred")
    m.next()
    log(t, 500, 500)
    # It reads no more of its socket once it is told to end: what is left by then is in its own last buffer.
    wait_until(lambda: rsyslog_total(m) >= 800, 10, "most of the second five hundred")
    p.terminate()
    eq(p.wait(20), 0, "rsyslogd's end")
    got = b"".join(d for _, d in m.history("syslog/all.log")).splitlines()
    eq([l.split()[-1] for l in got], [b"%06d" % i for i in range(1000)], "each message once")


def logrotate(t, m, how, runs):
    conf = t.path("logrotate.conf")
    with open(conf, "w") as f:
        f.write(f"{m.mnt}/current/*.log {{\n  rotate 3\n  size 1\n  missingok\n  nodateext\n  {how}\n}}\n")
    os.chmod(conf, 0o644)
    for _ in range(runs):
        t.run(["logrotate", "-s", t.path("logrotate.state"), conf])


def test_case20_logrotate_by_rename(t):
    """People's own logrotate on current/*: no explosion of files, sealed buckets untouched."""
    m = t.mount()
    append(m.cur("x.log"), b"window 0\n")
    sealed = m.next_sealed()
    before = tree(m.path(sealed))
    held = os.open(m.cur("x.log"), os.O_WRONLY | os.O_APPEND)
    for w in range(1, 4):
        os.write(held, b"held %d\n" % w)
        append(m.cur("x.log"), b"window %d\n" % w)
        logrotate(t, m, "create 0640 root root", 1)
        append(m.cur("x.log"), b"after %d\n" % w)
        same_tree(tree(m.path(sealed)), before, "the sealed bucket is as it was")
        m.next()
    os.close(held)
    m.wait_all_sealed()
    names = set()
    everything = b""
    for b in m.buckets():
        for n in os.listdir(m.path(b)):
            names.add(n)
            everything += read(m.path(b, n))
    ok(names <= {"x.log", "x.log.1", "x.log.2", "x.log.3"}, f"no explosion of files: {names}")
    for w in range(1, 4):
        for l in (b"window %d\n" % w, b"after %d\n" % w, b"held %d\n" % w):
            eq(everything.count(l), 1, f"{l!r} is there once")


def test_case20_logrotate_by_copytruncate(t):
    m = t.mount()
    for w in range(3):
        append(m.cur("x.log"), b"before %d\n" % w)
        logrotate(t, m, "copytruncate", 1)
        eq(os.stat(m.cur("x.log")).st_size, 0, "truncated")
        eq(read(m.cur("x.log.1")), b"before %d\n" % w, "the copy")
        append(m.cur("x.log"), b"after %d\n" % w)
        m.next_sealed()
    everything, names = b"", set()
    for b in m.buckets():
        names |= set(os.listdir(m.path(b)))
        everything += b"".join(read(m.path(b, n)) for n in os.listdir(m.path(b)))
    ok(names <= {"x.log", "x.log.1", "x.log.2", "x.log.3"}, f"no explosion of files: {names}")
    for w in range(3):
        eq((everything.count(b"before %d\n" % w), everything.count(b"after %d\n" % w)), (1, 1),
           f"window {w}'s lines once each")


main()
