"""Identities that cost nothing, all from the trainers' own address: nodes of the DHT whose ids are
the nearest to the run's keys, which take every record and give none, or name hundreds of nodes that
do not exist; and newcomers that take all places for downloads of the state."""
from false_progress import *

NODES = 24
STATE = "_state_averager::TrainingStateAverager.rpc_download_state"
KEYS = [dht_id(k) for k in ("r_progress", "r_state_averager.all_averagers", "r_grad_averager.0b", "r_state_averager.0b")]


def near(key, distance):
    return (int.from_bytes(key, "big") ^ distance).to_bytes(20, "big")


def invented(request, node_id):
    """An answer without the record, with a hundred neighbours that do not exist for each key."""
    results = []
    for key in decode("FindRequest", request)["keys"]:
        ids = [near(key, 1000 + random.randrange(1 << 30)) for _ in range(100)]
        results.append(dict(type=0, nearest_node_ids=ids, nearest_peer_ids=[b"\x00\x24\x08\x01\x12\x20" + os.urandom(32) for _ in ids]))
    return encode("FindResponse", results=results, peer=dict(node_id=node_id))


def neighbours(invent):
    """The nodes, and the contacts by which peers get to know them."""
    nodes = []
    for k in range(NODES):
        p = Peer(source="127.0.0.1")
        p.listen()
        p.node_id = near(KEYS[k % len(KEYS)], 1 + k)
        serve_dht(p, p.node_id)
        if invent:
            p.unary["DHTProtocol.rpc_find"] = lambda q, c, node_id=p.node_id: invented(q, node_id)
        nodes.append(p)
    return nodes


def average_among(what, invent):
    boot = peer()
    nodes = neighbours(invent)
    for p in nodes:
        dht_ping(p.dial(boot.address), p.node_id)
    trainers = [trainer(*SWARM, "--data-seed", str(k), "--matchmaking-time", "2", join=boot) for k in (1, 2, 3)]
    for p in nodes:
        for t in trainers:
            dht_ping(p.dial(t.address), p.node_id)
    good = wait_common(trainers, 4, 60)
    check(f"{what}: three trainers make common steps", good, [[(e["epoch"], e["round_peers"]) for e in epochs(p)][-5:] for p in trainers])
    asked = sum(len(p.connections) for p in nodes)
    check(f"{what}: the nodes were asked", asked > 4 * NODES, asked)
    for p in nodes:
        for c in p.connections:
            c.close()
    for t in (*trainers, boot):
        t.stop()


average_among("the nearest nodes take records and give none", False)
average_among("the nearest nodes name a hundred that do not exist", True)

# --- places for downloads ------------------------------------------------------------------------

donor = trainer("--slow", "0.1")
donor.wait_for("epoch", 60)
over = threading.Event()
served = []


def slow_reader(k):
    """Two downloads at once, under a new name after each, read as slowly as the donor allows."""
    while not over.is_set():
        try:
            c = Peer(source="127.0.0.9").dial(donor.address)
            calls = [c.stream_call("r" + STATE, encode("DownloadRequest"), timeout=10) for _ in range(2)]
            while not over.is_set() and not all(x.stream.ended or x.stream.reset for x in calls):
                for x in calls:
                    if x.stream.arrived:
                        x.stream.read(min(10000, len(x.stream.arrived)))
                        served.append(k)
                time.sleep(0.4)
            c.close()
        except (Closed, CallError, OSError):
            pass
        time.sleep(0.1)


for k in range(40):
    threading.Thread(target=slow_reader, args=(k,), daemon=True).start()
time.sleep(3)
begin = time.monotonic()
late = trainer("--slow", "0.1", "--data-seed", "2", join=donor)
loaded = late.wait_for("loaded", 40)
took = time.monotonic() - begin
check("40 slow readers of one address: a newcomer gets the state", loaded and took < 25, (took, late.log()[-300:]))
check("they had places", len(set(served)) > 0, len(served))
over.set()
check("the trainers live", donor.alive() and late.alive())
finish()
