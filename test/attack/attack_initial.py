"""Initial peers that lie: they name ten thousand neighbours, themselves alone, or the asking peer; they
give false values, never answer, or answer what cannot be read. Next to an honest initial peer a newcomer
joins, stores and finds. Alone they cost it seconds and little memory."""
from adversary import *

RUN, NODES = "r", 10000
made = 0


def hostile(handlers):
    """A node of the DHT with some handlers replaced: {protocol: handler(request, connection, node id)}."""
    global made
    made += 1
    p = Peer(source=f"127.0.3.{made}")
    p.address = p.listen(f"127.0.3.{made}")
    p.node_id = os.urandom(20)
    p.asked = 0
    serve_dht(p, p.node_id)

    def counted(handler):
        def answer(request, connection):
            p.asked += 1
            return handler(request, connection, p)
        return answer

    for name, handler in handlers.items():
        p.unary["DHTProtocol.rpc_" + name] = counted(handler)
    return p


def stranger_id():
    return b"\x00\x24\x08\x01\x12\x20" + os.urandom(32)


def found(request, nearest, me, result=None):
    """An answer for each key: without a record, or with this one."""
    result = result or dict(type=0)
    return encode("FindResponse", peer=dict(node_id=me.node_id), results=[
        dict(result, nearest_node_ids=[n for n, _ in nearest], nearest_peer_ids=[p for _, p in nearest])
        for _ in decode("FindRequest", request)["keys"]])


many = [(os.urandom(20), stranger_id()) for _ in range(NODES)]
value = pack("false")
HOSTILE = {
    "ten thousand neighbours": dict(find=lambda q, c, me: found(q, many, me)),
    "itself alone, a hundred times": dict(find=lambda q, c, me: found(q, [(os.urandom(20), me.id)] * 100, me)),
    "the asking peer as its neighbour": dict(find=lambda q, c, me: found(q, [(os.urandom(20), c.peer)] * 20, me)),
    "another length of IDs": dict(find=lambda q, c, me: found(q, [(b"\x01" * 19, stranger_id()), (os.urandom(20), b"\x01")], me)),
    "more results than keys": dict(find=lambda q, c, me: encode("FindResponse", peer=dict(node_id=me.node_id), results=[dict(type=0)] * 500)),
    "a false value of a year": dict(find=lambda q, c, me: found(q, [], me, dict(type=1, value=value, expiration_time=time.time() + 3e7))),
    "a value without end": dict(find=lambda q, c, me: found(q, [], me, dict(type=1, value=value, expiration_time=float("inf")))),
    "3.9 MB of a value": dict(find=lambda q, c, me: found(q, [], me, dict(type=1, value=os.urandom(3900000), expiration_time=time.time() + 60))),
    "no answer to find": dict(find=lambda q, c, me: time.sleep(600)),
    "no answer to store": dict(store=lambda q, c, me: time.sleep(600)),
    "no answer to ping": dict(ping=lambda q, c, me: time.sleep(600)),
    "noise": {name: lambda q, c, me: os.urandom(5000) for name in ("ping", "find", "store")},
    "stores that it does not have": dict(store=lambda q, c, me: encode("StoreResponse", peer=dict(node_id=me.node_id), store_ok=[1] * 4096)),
    "not available": dict(ping=lambda q, c, me: encode("PingResponse", peer=dict(node_id=me.node_id), dht_time=time.time(), available=0)),
}


def dht(*args, joins):
    """Seconds, exit status and output of a command, which joins anew."""
    began = time.monotonic()
    out = subprocess.run([POTLUCK, "dht", *args, "--json", *(x for j in joins for x in ("--join", j))], capture_output=True, timeout=90,
                         text=True, cwd=ROOT)
    return time.monotonic() - began, out.returncode, out.stdout + out.stderr


honest = peer("--run", RUN)
friend = peer("--run", RUN, join=honest)
check("an honest value is stored", dht("put", "plain", "true", "--expires", "600", joins=[honest.address])[1] == 0)
_, quiet, _ = dht("get", "plain", joins=[honest.address])
few = threading.Semaphore(4)  # processes of ours at a time
lines = []


def attack(what, handlers):
    p = hostile(handlers)
    with few:
        took, status, out = dht("get", "plain", "--latest", joins=[p.address, honest.address])
        lines.append((f"{what}: the honest value is found next to it", status == 0 and '"value":true' in out and took < 20, (took, status, out)))
        took, status, out = dht("put", f"own {p.node_id.hex()}", "1", joins=[p.address, honest.address])
        lines.append((f"{what}: a value is stored next to it", status == 0 and took < 30, (took, status, out)))
        took, status, out = dht("get", f"own {p.node_id.hex()}", joins=[honest.address])
        lines.append((f"{what}: where honest peers find it", status == 0 and took < 20, (took, status, out)))
        lone = start("peer", "--listen", "/ip4/127.0.0.1/tcp/0", "--no-check", "--join", p.address)
        for _ in until(8):
            if any(e.get("event") in ("joined", "alone") for e in lone.lines()):
                break
        time.sleep(2)
        cost = lone.peak(), lone.cpu(), latency(lone)
        lines.append((f"{what}: alone, it costs a newcomer little", lone.alive() and cost[0] < 96 and cost[1] < 3 and cost[2] < 2, cost))
        lines.append((f"{what}: it was asked", p.asked or not handlers, p.asked))
        lone.stop()


threads = [threading.Thread(target=attack, args=kind, daemon=True) for kind in HOSTILE.items()]
for t in threads:
    t.start()
for t in threads:
    t.join(240)
check("all were played", len(lines) == 5 * len(HOSTILE), len(lines))
for line in sorted(lines):
    check(*line)
check("honest peers live, in little memory", all(p.alive() and p.peak() < 96 for p in (honest, friend)), [p.peak() for p in (honest, friend)])
finish()
