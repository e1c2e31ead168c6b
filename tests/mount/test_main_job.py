"""The main job: a web server's log over ten 2-second buckets, by a server that never reopens it.

nginx holds access.log open from its start to its end and gets no signal. What it wrote is read back
whole from the sealed buckets: no line lost, doubled, split or out of order.
"""
import os
import re
import socket
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from varvetest import *  # noqa: E402,F403

NGINX = """
daemon off;
worker_processes 1;
user root;
pid {dir}/nginx.pid;
error_log {dir}/nginx.error;
events {{ worker_connections 64; }}
http {{
    log_format served '$remote_addr - - [$time_iso8601] "$request" $status $body_bytes_sent '
                      '"$http_referer" "$http_user_agent"';
    access_log {log} served;
    keepalive_requests 100000000;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    server {{ listen unix:{dir}/http.sock; location / {{ return 200 "ok\\n"; }} }}
}}
"""


def start_nginx(t, log):
    conf = t.path("nginx.conf")
    with open(conf, "w") as f:
        f.write(NGINX.format(dir=t.dir, log=log))
    p = t.spawn(["nginx", "-c", conf, "-p", t.dir, "-e", t.path("nginx.error")])
    wait_until(lambda: os.path.exists(t.path("http.sock")) or p.poll() is not None, 10,
               "nginx listens")
    eq(p.poll(), None, "nginx runs: " + (read(t.path("nginx.error")).decode()
                                         if os.path.exists(t.path("nginx.error")) else ""))
    return p


def requests(s, first, count):
    """Sends numbered requests down one connection and waits for all answers."""
    s.sendall(b"".join(b"GET /page/%d HTTP/1.1\r\nHost: varve\r\nUser-Agent: Mozilla/5.0 (X11; "
                       b"Linux x86_64) test\r\n\r\n" % i for i in range(first, first + count)))
    left, tail = count, b""
    while left:
        got = s.recv(1 << 16)
        ok(got, "nginx answers")
        tail += got
        left -= tail.count(b"\r\n\r\nok\n")
        tail = tail[tail.rfind(b"\r\n\r\nok\n") + 7:] if b"\r\n\r\nok\n" in tail else tail


@timeout(120)
def test_nginx_log_over_ten_buckets(t):
    m = t.mount("bucket=2s,grace=500ms", clock=False)
    os.mkdir(m.cur("nginx"))
    nginx = start_nginx(t, m.cur("nginx/access.log"))
    s = socket.socket(socket.AF_UNIX)
    s.connect(t.path("http.sock"))
    first = m.open_name()
    sent, ends = 0, time.monotonic() + 22
    while time.monotonic() < ends:
        requests(s, sent, 20)
        sent += 20
        time.sleep(0.004)
    s.close()
    nginx.send_signal(signal.SIGQUIT)  # a graceful end: what was served is logged
    eq(nginx.wait(20), 0, "nginx's end")
    last = m.open_name()
    wait_until(lambda: m.open_name() != last, 5, "the last window passes")
    sealed = m.wait_all_sealed()
    have = [b for b in sealed if os.path.exists(m.path(b, "nginx/access.log"))]
    ok(len(have) >= 10, f"ten buckets or more hold lines: {have}")
    ok(first in have, f"the first bucket {first} is among {have}")
    pieces = [read(m.path(b, "nginx/access.log")) for b in have]
    numbers = []
    for b, piece in zip(have, pieces):
        ok(piece.endswith(b"\n"), f"{b} ends with a whole line")
        ok(b"\0" not in piece, f"{b} holds no NULs")
        for l in piece.split(b"\n")[:-1]:
            found = re.fullmatch(rb'unix: - - \[[^]]*\] "GET /page/(\d+) HTTP/1.1" 200 3 "-" '
                                 rb'"Mozilla/5.0 \(X11; Linux x86_64\) test"', l)
            ok(found, f"{b}: a whole line: {l[:200]!r}")
            numbers.append(int(found[1]))
    ok(numbers == list(range(sent)), "every request's line once and in order; first difference: "
       + repr(next(((i, n) for i, n in enumerate(numbers) if i != n), (len(numbers), sent))))
    for b, piece in zip(have, pieces):
        same_bytes(read(os.path.join(m.restore(b), "nginx/access.log")), piece,
                   f"{b} restored by zstd and tar")
    m.varve("verify")
    print(f"{sent} lines over {len(have)} buckets, {sum(map(len, pieces))} bytes")


@timeout(90)
def test_shell_program_that_never_reopens(t):
    """The same with a shell that holds its log on a descriptor, a write a line, over 5 buckets."""
    m = t.mount("bucket=2s,grace=500ms", clock=False)
    t.sh(f"exec 3>>{m.cur('app.log')}; i=0; end=$(($(date +%s) + 10)); "
         "while [ $(date +%s) -lt $end ]; do n=0; while [ $n -lt 50 ]; do "
         f"echo \"line $i of the application's log\" >&3; i=$((i + 1)); n=$((n + 1)); done; done; "
         f"echo $i > {t.path('count')}")
    count = int(read(t.path("count")))
    last = m.open_name()
    wait_until(lambda: m.open_name() != last, 5, "the last window passes")
    sealed = m.wait_all_sealed()
    pieces = [read(m.path(b, "app.log")) for b in sealed]
    ok(len(pieces) >= 5, f"five buckets: {sealed}")
    same_bytes(b"".join(pieces), b"".join(b"line %d of the application's log\n" % i
                                          for i in range(count)), "all lines")
    ok(all(p.endswith(b"\n") for p in pieces), "no line is split")


main()
