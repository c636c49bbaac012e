"""Requests whose responses are never read. A response is many times as large as its request, so a
peer that answered them all would fill its memory. So it reads no request while responses wait, and
serves other peers meanwhile."""
from adversary import *

KAD = "/ipfs/kad/1.0.0"
victim = peer("--relay")

# Twenty peers with the longest addresses that identify allows make each lookup's response about 70
# kB.
crowd = []
for i in range(20):
    p = Peer(source="127.0.0.9")
    p.protocols[KAD] = lambda s: s.read_all(60)
    p.announced = [b"\x36" + delimited(b"%016x" % (16 * i + j) + b"a" * 184) + b"\x06" + struct.pack(">H", 4001) for j in range(16)]
    crowd.append(p.dial(victim.address))
find_node = delimited(encode("KadMessage", type=4, key=os.urandom(34), level=1))
honest = Peer(source="127.0.0.8").dial(victim.address)
for _ in until(10):
    s = honest.open(KAD)
    s.write(find_node)
    size = len(s.read_delimited())
    s.abort()
    if size > 40000:
        break
check("an answer is far larger than its request", size > 40000, size)
record = (dht_id("large"), PLAIN, pack(bytes(1000000)), time.time() + 600)
check("a record of 1 MB is stored", store(honest, [record]) == [True])


def ask_alone():
    """Seconds for a lookup by somebody who reads."""
    begin = time.monotonic()
    s = honest.open(KAD)
    s.write(find_node)
    s.read_delimited()
    s.finish()
    honest.forget(s)
    find(honest, [dht_id("nothing")])
    return time.monotonic() - begin


def attack(what, connections, request, seconds=1.2, memory=24):
    """request(connection) sends more requests of one kind; nothing is ever read."""
    before, begin, slowest = victim.rss(), time.monotonic(), 0.0
    bad = [Peer(source="127.0.0.3").dial(victim.address) for _ in range(connections)]
    over = threading.Event()

    def ask(c):
        c.stop_reading()
        c.wire.sock.settimeout(0.5)
        while not over.is_set():
            try:
                request(c)
            except socket.timeout:
                pass
            except Closed:
                return

    threads = [threading.Thread(target=ask, args=(c,), daemon=True) for c in bad]
    for t in threads:
        t.start()
    most = 0.0
    while time.monotonic() - begin < seconds:
        slowest = max(slowest, ask_alone())
        most = max(most, victim.rss() - before)
        time.sleep(0.02)
    over.set()
    for c in bad:
        c.close()
    for t in threads:
        t.join(2)
    check(f"{what}: it costs at most {memory} MiB", most < memory, f"{most:.1f} MiB")
    check(f"{what}: others are answered meanwhile", slowest < 2, f"{slowest:.2f} s")


def on_one_stream(protocol, data):
    """The same stream forever, whatever its window."""
    def request(c):
        if not hasattr(c, "flood"):
            c.flood = c.open_with(protocol)
        c.flood.write(data * max(1, 40000 // len(data)), obey=False)
    return request


def on_new_streams(protocol, data):
    return lambda c: c.open_with(protocol, data)


find_large = unary_request("DHTProtocol.rpc_find", encode("FindRequest", keys=[dht_id("large")], peer={}))
attack("lookups on one stream", 1, on_one_stream(KAD, find_node))
attack("lookups on many streams", 1, on_new_streams(KAD, find_node))
attack("lookups on four connections", 4, on_new_streams(KAD, find_node * 100), memory=48)
attack("finds of a large record", 1, on_new_streams("DHTProtocol.rpc_find", find_large))
attack("identify", 1, on_new_streams("/ipfs/id/1.0.0", b""))
attack("pings", 1, on_one_stream("/ipfs/ping/1.0.0", os.urandom(32)))
attack("reservations", 1, on_new_streams("/libp2p/circuit/relay/0.2.0/hop", delimited(encode("HopMessage", type=0))))
attack("unknown protocols", 1, on_one_stream("/none", token("/none")))

# Two hundred identities with an answer of 1 MB each, from four addresses: what all together may
# have waiting is bounded, too.
allow_descriptors(4096)
before, most, slowest, crowd_of_bad, over = victim.rss(), 0.0, 0.0, [], threading.Event()


def ask_from(source):
    for _ in range(50):
        try:
            c = Peer(source=source).dial(victim.address)
            crowd_of_bad.append(c)
            c.stop_reading()
            c.wire.sock.settimeout(0.3)
            for _ in range(20):
                c.open_with("DHTProtocol.rpc_find", find_large)
        except (Closed, OSError):
            pass


threads = [threading.Thread(target=ask_from, args=(f"127.0.0.{i}",), daemon=True) for i in range(2, 6)]
for t in threads:
    t.start()
while any(t.is_alive() for t in threads):
    slowest = max(slowest, ask_alone())
    most = max(most, victim.rss() - before)
    time.sleep(0.02)
check(f"{len(crowd_of_bad)} identities: they cost at most 400 MiB", most < 400, f"{most:.1f} MiB")
check(f"{len(crowd_of_bad)} identities: others are answered meanwhile", slowest < 2, f"{slowest:.2f} s")
for c in crowd_of_bad:
    c.close()
check("the peer lives", victim.alive())
check("newcomers are answered", latency(victim) < 5)

# A peer that sends many requests and reads the responses gets all of them.
s = Peer(source="127.0.0.4").dial(victim.address).open(KAD)
writer = threading.Thread(target=lambda: s.write(find_node * 300, timeout=60), daemon=True)
writer.start()
sizes = [len(s.read_delimited(20)) for _ in range(300)]
check("300 lookups in one piece are answered", min(sizes) > 40000, sizes[:3])
finish()
