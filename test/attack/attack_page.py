"""The page of a run (`potluck dash`): requests with other host names, as in DNS rebinding, and many
connections that are silent, send a byte now and then, watch, or never read. Honest browsers are
timed meanwhile."""
import http.client

from adversary import *

allow_descriptors(8000)
folder = os.path.join(WORK, "run")
os.mkdir(folder)
with open(os.path.join(folder, "checkpoint-000001.safetensors"), "wb") as f:
    f.write(b"x" * (8 << 20))


def page(*args):
    p = Process("dash", "--folder", folder, "--port", "0", "--every", "0.5", "--json", *args)
    e = p.wait_for("serving", 30)
    if not e:
        raise RuntimeError(p.log())
    p.port = int(e["url"].rsplit(":", 1)[1].strip("/"))
    return p


def dial(port, source="127.0.0.1", to="127.0.0.1", timeout=10):
    s = socket.socket()
    s.settimeout(timeout)
    s.bind((source, 0))
    s.connect((to, port))
    return s


def raw(port, request, to="127.0.0.1", source="127.0.0.1"):
    """The whole answer to some bytes."""
    s, answer = dial(port, source, to), b""
    try:
        s.sendall(request)
        while len(answer) < 100000:
            part = s.recv(65536)
            if not part:
                break
            answer += part
    except OSError:
        pass
    s.close()
    return answer


def status(answer):
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.") else 0


def ask(port, host, path="/", to="127.0.0.1", method="GET"):
    line = f"{method} {path} HTTP/1.1\r\n" + (f"Host: {host}\r\n" if host is not None else "")
    return raw(port, (line + "Connection: close\r\n\r\n").encode(), to)


def browse(port, source, tries=3):
    """Seconds until the page and a feed of it are there; infinity if they are not."""
    began = time.monotonic()
    for path in ("/", "/data.js") * tries:
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
            c.request("GET", path)
            if c.getresponse().read() == b"":
                return float("inf")
            c.close()
        except (OSError, http.client.HTTPException):
            return float("inf")
    return time.monotonic() - began


def honest_browsers(port, what, sources=("127.0.0.1", "127.0.0.2", "127.9.9.9")):
    for source in sources:
        took = browse(port, source)
        check(f"{what}: a browser at {source} has its page", took < 3, f"{took:.1f} s")


def close_all(sockets):
    for s in sockets:
        s.close()


# --- other hosts' names --------------------------------------------------------------------------

p = page()
port = p.port
for _ in until(10):
    if status(ask(port, "localhost", "/api/state.json")) == 200:
        break
# A byte now and then, from now on; looked at in the end.
trickle = [dial(port, "127.7.7.7") for _ in range(50)]
began, ended = time.monotonic(), threading.Event()


def drip():
    while not ended.wait(0.5):
        for s in trickle:
            try:
                s.send(b"G")
            except OSError:
                pass


threading.Thread(target=drip, daemon=True).start()
for host in ("localhost", f"localhost:{port}", "LOCALHOST", f"127.0.0.1:{port}", "127.0.0.1", f"[::1]:{port}", "localhost:9999"):
    check(f"Host {host} is answered", status(ask(port, host)) == 200)
for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.nip.io", f"127.0.0.1.evil.example:{port}",
             "localhost@evil.example", "evil.example@localhost", "localhost.", "10.0.0.1", "192.168.1.1", "0.0.0.0", "127.1", "[::2]",
             "[::1].evil.example", "localhost evil.example", "localhost,evil.example", "localhost:80.evil.example", "", " ", None):
    bad = [m + path for m in ("GET", "HEAD") for path in ("/", "/api/state.json", "/api/events", "/data.js", "/metrics")
           if status(ask(port, host, path, method=m)) not in (400, 403, 421)]
    check(f"Host {host!r} is refused", not bad, bad)
refusal = ask(port, "evil.example").split(b"\r\n\r\n", 1)[1]
check("in one sentence", refusal.count(b"\n") == 1 and b"--allowed-host" in refusal, refusal)
two = raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
check("two Host headers are refused", status(two) in (400, 403, 421), two[:50])
two = raw(port, b"GET / HTTP/1.1\r\nHost: evil.example\r\nhost: localhost\r\nConnection: close\r\n\r\n")
check("in either order", status(two) in (400, 403, 421), two[:50])
whole = raw(port, b"GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
check("a whole URL changes nothing", status(whole) in (400, 403, 421), whole[:50])
kept = raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /data.js HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
check("nor does a request before on the same connection", kept.count(b"HTTP/1.1 200") == 1 and b"HTTP/1.1 421" in kept, kept[:50])
named = page("--allowed-host", "run.example", "--host", "10.1.2.3")  # --host: the former name
check("further names are answered", [status(ask(named.port, h)) for h in ("run.example", "RUN.example:80", "10.1.2.3")] == [200] * 3)
check("and no others", [status(ask(named.port, h)) for h in ("run.example.evil", "x.run.example", "10.1.2.4")] == [421] * 3)
named.stop()
wide = page("--address", "0.0.0.0")
check("on all addresses: the one it is reached at", status(ask(wide.port, "127.0.0.5", to="127.0.0.5")) == 200)
check("and no name", status(ask(wide.port, "evil.example", to="127.0.0.5")) == 421)
wide.stop()
t = trainer("--dash")
own = t.wait_for("serving", 20)["url"]
own_port = int(own.split("http://")[1].split("/")[0].rsplit(":", 1)[1])
check("a peer's own page, too", status(ask(own_port, "localhost")) == 200 and status(ask(own_port, "evil.example")) == 421, own)
t.stop()

# --- connections that hold a slot ----------------------------------------------------------------

before = p.rss()
watcher = dial(port, "127.8.8.8")
watcher.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
check("a watcher is there", b" 200 " in watcher.recv(4096))

for what, data in (("2,300 silent connections", b""), ("2,300 half requests", b"GET / HTTP/1.1\r\nHost: localhost\r\n"),
                   ("2,300 bodies that do not come", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")):
    held = []
    for _ in range(2300):
        held.append(dial(port))
        if data:
            try:
                held[-1].sendall(data)
            except OSError:  # ended meanwhile, as it should be
                pass
    honest_browsers(port, what)
    close_all(held)

held = []
for _ in range(2300):  # answers that nobody reads
    held.append(dial(port, "127.0.5.1"))
    try:
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        held[-1].sendall(b"GET /checkpoints/checkpoint-000001.safetensors HTTP/1.1\r\nHost: localhost\r\n\r\n")
    except OSError:
        pass
busy = [s for s in held[-10:] if b" 200 " in s.recv(100)]
check("2,300 answers unread: they are on their way", len(busy) == 10, len(busy))
honest_browsers(port, "2,300 answers unread", ("127.0.0.1", "127.9.9.9"))
close_all(held)


def watch(source):
    s = dial(port, source)
    try:
        s.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return s, s.recv(4096)
    except OSError:
        return s, b""


hogs = [watch("127.0.5.1") for _ in range(1600)]
check("one address cannot watch without end", any(b" 503 " in a for _, a in hogs))
for source in ("127.0.0.1", "127.9.9.9", "127.0.5.2"):
    s, answer = watch(source)
    check(f"1,600 watchers of one address: another at {source} watches", b" 200 " in answer, answer[:30])
    s.close()
honest_browsers(port, "1,600 watchers of one address")
close_all(s for s, _ in hogs)

time.sleep(max(0, 12 - (time.monotonic() - began)))
browse(port, "127.0.0.1")
ended.set()
gone = 0
for s in trickle:
    s.settimeout(2)
    try:
        gone += s.recv(1) == b""
    except ConnectionError:
        gone += 1
    except OSError:
        pass
check("a byte now and then does not hold a slot", gone == len(trickle), gone)
watcher.settimeout(1)
try:
    still = watcher.recv(65536) != b""
except socket.timeout:  # nothing new
    still = True
except OSError:
    still = False
check("the honest watcher has kept its place", still)
check("the page lives", p.alive(), p.log())
check("and has not grown without end", p.rss() - before < 120, f"{before:.0f} to {p.rss():.0f} MiB")
finish()
