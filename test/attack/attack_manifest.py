"""Manifests that are not their peer's: under another owner's key, with another text or a later end, of
another peer, of 100 kB; and pages that name another peer, or a peer at another one's address. Who joins by
a peer's address gets the manifest of that peer."""
import http.server

from adversary import *


def key_of(trainer):
    return dht_id(base58(trainer.peer) + "_manifest")


def manifests(connection, key):
    """{owner's tag: (value with its signature, expiration)}"""
    found = find(connection, [key])[0]
    return unpack(found["value"]) if found["type"] == 2 else {}


def shown(*where):
    """What join would train by."""
    out = subprocess.run([POTLUCK, "join", *where, "--show", "--json"], capture_output=True, timeout=60, text=True, cwd=ROOT)
    events = [json.loads(line) for line in out.stdout.split("\n") if line.startswith("{")]
    return next((e for e in events if e["event"] == "manifest"), out.stdout + out.stderr)


def is_of(e, steps, trainer):
    return isinstance(e, dict) and e["manifest"]["steps"] == steps and base58(trainer.peer) in json.dumps(e)


boot = peer()
first = trainer("--steps", "111111", "--slow", "0.3", "--seed", "1", join=boot)
other = trainer("--steps", "222222", "--slow", "0.3", "--seed", "2", run="s", join=boot)
stranger = Peer(source="127.0.0.7")
c = stranger.dial(first.address)
for _ in until(20):
    own, another = manifests(c, key_of(first)), manifests(Peer().dial(other.address), key_of(other))
    if own and another:
        break
check("each has its manifest", len(own) == 1 and len(another) == 1, (own, another))
tag, (value, expiration) = next(iter(own.items()))
later = expiration + 1  # so that the newest record is a false one
_, (other_value, _) = next(iter(another.items()))
check("and join shows the one of the peer that was named", is_of(shown(first.address), 111111, first), shown(first.address))

key = key_of(first)
plain = unpack(value[:value.rindex(b"[signature:")])
foreign = unpack(other_value[:other_value.rindex(b"[signature:")])
swapped = {**plain, "manifest": plain["manifest"].replace(b"111111", b"333333")}
false = {
    "its own record with a later expiration": ((key, pack(tag), value, later), False),
    "its own record with another text": ((key, pack(tag), value.replace(b"111111", b"333333"), expiration + 1), False),
    "one of a year": (RecordKey().record(key, plain, time.time() + 3e7), False),
    "one of 100 kB": (RecordKey().record(key, {**plain, "manifest": plain["manifest"] + b" " * 100000}, later), False),
    # A node does not know that the key is a peer's, so it stores signed records under it; the reader checks them.
    "one of 14 kB": (RecordKey().record(key, {**plain, "manifest": plain["manifest"] + b" " * 12000}, later), True),
    "one without its signature": (RecordKey().record(key, {**plain, "signature": None}, later), True),
    "its text under another owner": (RecordKey().record(key, plain, later), True),
    "another text under another owner": (RecordKey().record(key, swapped, later + 1), True),
    "another peer's": (RecordKey().record(key, foreign, later), True),
}
for what, (record, stored) in false.items():
    got = store(c, [record])
    check(f"{what}: {'stored' if stored else 'refused'}", got == [stored], got)
check("join still shows the peer's own", is_of(shown(first.address), 111111, first), shown(first.address))

# A peer begins anew with other settings; a stranger goes on storing its older manifest, which has not ended yet.
identity = os.path.join(WORK, "identity")
again = trainer("--steps", "444444", "--slow", "0.3", "--identity", identity, run="t", join=boot)
key = key_of(again)
for _ in until(20):
    older = manifests(Peer().dial(boot.address), key)
    if older:
        break
again.stop()
again = trainer("--steps", "555555", "--slow", "0.3", "--identity", identity, run="t", join=boot)
tag, (value, expiration) = next(iter(older.items()))
for _ in until(20):
    if len(manifests(Peer().dial(boot.address), key)) == 2:
        break
record = (key, pack(tag), value, expiration)
store(Peer(source="127.0.0.7").dial(again.address), [record])
both = manifests(Peer().dial(again.address), key)
check("both manifests of one peer are there", len(both) == 2, both)
check("of two manifests of one peer the later one counts", is_of(shown(again.address), 555555, again), shown(again.address))
check("an older one lives no longer for that", store(c, [(key, pack(tag), value, expiration + 60)]) == [False])


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"addresses": [a for a in Page.addresses]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/"
Page.addresses = [other.address]
check("a page leads to the run of the peer that it names", is_of(shown(url), 222222, other), shown(url))
host = first.address[:first.address.index("/p2p/")]
Page.addresses = [host + "/p2p/" + base58(other.peer)]
check("but not to another peer at its address", not is_of(shown(url), 111111, first), shown(url))
check("the trainers live", first.alive() and other.alive())
finish()
