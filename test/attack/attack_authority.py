"""The authority of a moderated swarm (`potluck authority`): many wrong secrets and many idle
connections. A client with the right secret still gets its token, whatever address it asks from."""
import concurrent.futures
import http.client
import ssl

from adversary import *

allow_descriptors(4000)
allow, key = os.path.join(WORK, "list"), os.path.join(WORK, "key")
secrets = {u: subprocess.run([POTLUCK, "authority", "--invite", u, "--allow", allow], capture_output=True, text=True).stdout.strip()
           for u in ("ann", "bob")}
victim = Process("authority", "--key", key, "--allow", allow, "--port", "0", "--address", "0.0.0.0", "--json")
port = victim.wait_for("listening", 30)["port"]
context = ssl.create_default_context(cafile=key + ".crt")
context.check_hostname = False
body = json.dumps({"experiment_join_input": {"peer_public_key": RecordKey().text.decode()}})


def ask(bearer, source="127.0.0.1", count=1, sent=body):
    """The answers' statuses to the same request, on one connection; 0: none came."""
    c, statuses = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context, source_address=(source, 0)), []
    for _ in range(count):
        try:
            c.request("PUT", "/api/experiments/join", sent, {"Authorization": bearer} if bearer is not None else {})
            answer = c.getresponse()
            statuses.append(answer.status)
            answer.read()
        except (OSError, http.client.HTTPException):
            statuses.append(0)
            c.close()
    c.close()
    return statuses


def right(source="127.0.0.1", user="ann"):
    began = time.monotonic()
    return ask("Bearer " + secrets[user], source) == [200] and time.monotonic() - began < 5


check("the right secret is answered", right())
wrong = ask("Bearer " + "0" * 64, "127.0.0.1", 200)
check("wrong ones are refused", set(wrong) <= {401, 429} and wrong[0] == 401, wrong)
check("too many of them get status 429", wrong[-1] == 429 and wrong.count(401) <= 60, wrong)
check("the right secret enters from another network", right("127.0.9.1"))
check("from the same network", right("127.0.0.2"))
check("from the same address", right())
check("again and again", ask("Bearer " + secrets["bob"], count=100) == [200] * 100)
check("on a connection that has failed", ask("Bearer x", count=3)[-1] == 429 and right())
check("another network's wrong secret is its own first", ask("Bearer x", "127.0.9.1") == [401])
check("the network counts, not the address", ask("Bearer x", "127.0.0.77") == [429])
for what, bearer in (("none", None), ("empty", ""), ("another scheme", "Basic " + secrets["ann"]), ("a prefix", "Bearer " + secrets["ann"][:-1]),
                     ("more than the secret", "Bearer " + secrets["ann"] + "0"), ("its hash", "Bearer " + open(allow).read().split()[1]),
                     ("two secrets", f"Bearer {secrets['ann']} {secrets['bob']}"), ("very long", "Bearer " + "a" * 5000)):
    got = ask(bearer, "127.0.8.1")[0]
    check(f"a wrong secret: {what}", got in (0, 400, 401, 413, 431), got)
for n in range(1, 41):  # a botnet
    ask("Bearer x", f"127.1.{n}.1", 5)
check("forty networks that guess keep nobody out", right() and right("127.1.1.1") and right("127.0.9.1", "bob"))

# --- connections ---------------------------------------------------------------------------------


def hold(n, source, data):
    """This many connections that say no more than this."""
    sockets = []
    for _ in range(n):
        s = socket.socket()
        s.settimeout(5)
        s.bind((source, 0))
        try:
            s.connect(("127.0.0.1", port))
            s.sendall(data)
        except OSError:
            pass
        sockets.append(s)
    return sockets


hello = bytes.fromhex("16030100f8010000f40303")
for what, source, data in (("silent", "127.0.0.1", b""), ("silent, elsewhere", "127.0.7.1", b""), ("half a handshake", "127.0.0.1", hello),
                           ("no handshake", "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")):
    held = hold(600, source, data)
    check(f"600 connections ({what}): the right secret enters", right() and right("127.0.9.1"))
    for s in held:
        s.close()


def half(source):
    """TLS, then half a request."""
    try:
        s = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 5, (source, 0)))
        s.sendall(b"PUT /api/experiments/join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        return s
    except OSError:
        return socket.socket()


held = [half("127.0.0.1") for _ in range(300)]
check("300 half requests: the right secret enters", right() and right("127.0.9.1"))
for s in held:
    s.close()
# --- handshakes ----------------------------------------------------------------------------------


def shake(source):
    """1: the server made a TLS handshake; it costs it a signature."""
    try:
        context.wrap_socket(socket.create_connection(("127.0.0.1", port), 5, (source, 0))).close()
        return 1
    except OSError:
        return 0


with concurrent.futures.ThreadPoolExecutor(16) as storm:
    made = sum(storm.map(shake, ["127.0.66.1"] * 1500))
check("1,500 handshakes of one network: most of the last ones are refused", 500 <= made < 1200, made)
check("all of its addresses", sum(shake("127.0.66.2") for _ in range(30)) < 15)
check("other networks are served", right() and right("127.0.9.1"))
time.sleep(1)
check("the network again after a second", shake("127.0.66.2"))

check("the authority lives", victim.alive(), victim.log())
check("and has not grown without end", victim.peak() < 300, victim.peak())
finish()
