"""One attacker uses up shared budgets: connections, half-sent messages, streams, reservations,
dial-backs. It has four addresses and any number of identities. Honest peers, known and new, from
other addresses and from the same, are still served."""
from adversary import *

HOP = "/libp2p/circuit/relay/0.2.0/hop"
ADDRESSES = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]
OTHER = "127.0.0.6"
allow_descriptors(4096)
victim = peer("--relay")
known = Peer(source="127.0.0.7").dial(victim.address)
known.ping()


def newcomers(what, limit=5):
    for source in (OTHER, ADDRESSES[0]):
        took = latency(victim, source)
        check(f"{what}: a newcomer from {'another' if source == OTHER else 'the same'} address is answered", took < limit, f"{took:.2f} s")
    try:
        known.ping()
        check(f"{what}: earlier connections still are", True)
    except (Closed, OSError) as e:
        check(f"{what}: earlier connections still are", False, e)


def everywhere(n, f):
    """f(source) n times from each address, all of them at once; what it has returned."""
    results = []

    def some(source):
        for _ in range(n):
            try:
                results.append(f(source))
            except (Closed, OSError):
                pass

    threads = [threading.Thread(target=some, args=(a,)) for a in ADDRESSES]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


# --- connections ---------------------------------------------------------------------------------

silent = everywhere(250, lambda source: Peer(source=source).connect_tcp(victim.address))
newcomers(f"{len(silent)} connections that say nothing")
for s in silent:
    s.close()
silent = everywhere(256, lambda source: Peer(source=source).handshake(victim.address)[0])
newcomers(f"{len(silent)} connections that say nothing after the handshake")
for w in silent:
    w.sock.close()

# --- half-sent messages --------------------------------------------------------------------------

HALF = 4190000
half = unary_request("DHTProtocol.rpc_store", bytes(HALF))[:-1]


def send_half(source, messages):
    """On one connection this many messages but for their last byte."""
    c = Peer(source=source).dial(victim.address)
    for _ in range(messages):
        try:
            c.open_with("DHTProtocol.rpc_store", half)
        except (Closed, OSError):
            pass
    return c


# 255.7 MiB fit, and hardly more; of 335 MB some has to go at once.
for messages in (16, 20):
    before = victim.rss()
    bad = everywhere(1, lambda source: send_half(source, messages))
    what = f"{4 * messages * HALF // 1000000} MB half-sent"
    cost = victim.rss() - before
    check(f"{what}: 256 MiB are held at most", cost < 300, f"{cost:.0f} MiB")
    for source in (OTHER, ADDRESSES[1]):
        honest = Peer(source=source).dial(victim.address)
        begin = time.monotonic()
        records = [(dht_id(f"{source} {messages} {i}"), PLAIN, pack(bytes(900000)), time.time() + 60) for i in range(4)]
        try:
            good = store(honest, records) == [True] * 4
        except (Closed, CallError, OSError) as e:
            good = repr(e)
        took = time.monotonic() - begin
        check(f"{what}: a message of 3.6 MB from {source} is taken", good is True and took < 3, (good, took))
    newcomers(what)
    for c in bad:
        c.close()

# --- reservations --------------------------------------------------------------------------------


def reserve(c):
    s = c.open(HOP)
    s.write_delimited(encode("HopMessage", type=0))
    status = decode("HopMessage", s.read_delimited())["status"]
    s.finish()
    c.forget(s)
    return status


def reserve_from(source):
    c = Peer(source=source).dial(victim.address)
    c.granted = reserve(c) == 100
    return c


holders = everywhere(40, reserve_from)
granted = sum(c.granted for c in holders)
check("one owner of four addresses gets no more reservations than there are", granted <= 128, granted)
status = reserve(Peer(source=OTHER).dial(victim.address))
check("a newcomer gets a reservation none the less", status == 100, status)
for c in holders:
    c.close()
for _ in until(5):
    status = reserve(Peer(source=ADDRESSES[0]).dial(victim.address))
    if status == 100:
        break
check("a reservation ends with its maker's connection", status == 100, status)
hog = Peer(source=ADDRESSES[0]).dial(victim.address)
for _ in range(300):
    hog.open_with(HOP)
status = reserve(Peer(source=OTHER).dial(victim.address))
check("300 circuits that are never asked for: others get theirs", status == 100, status)

# --- dial-backs ----------------------------------------------------------------------------------


def dial_back(c, source):
    """AutoNAT's status: 101 is a refusal."""
    s = c.open("/libp2p/autonat/1.0.0")
    s.write_delimited(encode("AutonatMessage", type=0, dial=dict(peer=dict(id=c.owner.id, addrs=[multiaddr_ip4(source, 9)]))))
    answer = decode("AutonatMessage", s.read_delimited(20))["response"]
    c.forget(s)
    return answer["status"]


greedy = Peer(source=ADDRESSES[0]).dial(victim.address)
statuses = [dial_back(greedy, ADDRESSES[0]) for _ in range(40)]
check("one peer is dialled back three times a minute", statuses.count(100) == 3, statuses)
waiting = [greedy.open("/libp2p/autonat/1.0.0") for _ in range(30)]
for source in (OTHER, ADDRESSES[0]):
    status = dial_back(Peer(source=source).dial(victim.address), source)
    check(f"others are dialled back, also from {source}", status != 101, status)

# --- what the peer says of it --------------------------------------------------------------------

for _ in until(12, 0.2):
    reports = [e for e in victim.lines() if e.get("event") == "resources" and e["limited"] > 0]
    if reports:
        break
check("it reports what each peer uses, and that limits were reached", len(reports) > 0 and reports[-1]["system"]["connections"] > 0, reports[-1:])
check("it charges no more than the limits", all(e["system"]["connections"] <= 1024 and e["system"]["held_bytes"] <= 1 << 28 for e in reports))
check("the peer lives", victim.alive())
finish()
