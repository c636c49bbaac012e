"""Declarations of peers that search for a group have no signature. An attacker overwrites every
declaration with "false", and the whole dictionary with a plain value. As a DHT node it answers that
no peer searches for a group, or names hundreds of peers that do not exist. Three honest peers still
average in every round."""
from adversary import *

PEERS, ROUNDS = 3, 10
M = 6  # s; a group begins earlier if all have come: a busy machine delays nobody beyond it

signal.alarm(300)  # s
GROUP = dht_id("p.0b")


def safetensors(path, values):
    """One tensor of float32."""
    head = json.dumps({"x": {"dtype": "F32", "shape": [len(values)], "data_offsets": [0, 4 * len(values)]}}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + struct.pack(f"<{len(values)}f", *values))


def averager(i, bootstrap):
    path = os.path.join(WORK, f"in{i}.safetensors")
    safetensors(path, [float(i)] * 1000)
    return start("average", "--prefix", "p", "--tensors", path, "--join", bootstrap.address, "--listen", "/ip4/127.0.0.1/tcp/0",
                 "--no-check", "--rounds", str(ROUNDS), "--expect", str(PEERS), "--matchmaking-time", str(M), "--timeout", "40",
                 "--chunk-timeout", "5")


class Attacker:
    """A stranger that is also a node of the DHT, whose answers are what the attack says."""

    def __init__(self, bootstrap, source, claims):
        self.peer, self.node, self.claims = Peer(source=source), os.urandom(20), claims
        self.records = serve_dht(self.peer, self.node)
        self.peer.listen()
        self.bootstrap, self.victims, self.connections, self.over = bootstrap, [], {}, False
        self.accepted = 0
        # peer routing: requests for the addresses of one of our peers are answered with a port
        # where nothing answers
        self.silent = socket.socket()
        self.silent.bind(("127.0.0.1", 0))
        self.silent.listen(512)
        self.peer.protocols["/ipfs/kad/1.0.0"] = self.on_kad
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def on_kad(self, s):
        while True:
            r = decode("KadMessage", s.read_delimited(60))
            here = multiaddr_ip4(*self.silent.getsockname())
            s.write_delimited(encode("KadMessage", type=r["type"], key=r["key"], closer=[dict(id=r["key"], addrs=[here], connection=1)]))

    def connection(self, p):
        c = self.connections.get(p.address)
        if not c or not c.alive():
            c = self.connections[p.address] = self.peer.dial(p.address)
            dht_ping(c, self.node)
        return c

    def run(self):
        while not self.over:
            now = time.time()
            claimed = self.claims(now, self.victims)
            self.records[GROUP] = (2, pack(Dictionary(claimed)), now + 300)
            for p in [self.bootstrap] + self.victims if claimed else []:
                try:
                    c = self.connection(p)
                    answers = store(c, [(GROUP, pack(k), v, e) for k, (v, e) in list(claimed.items())[:200]]
                                    + [(GROUP, WHOLE, pack(Dictionary(claimed)), now + 300), (GROUP, PLAIN, b"\xc2", now + 3000)], timeout=5)
                    self.accepted += sum(answers[:-1])  # a value is kept where nobody has declared yet
                except (Closed, CallError, OSError, KeyError, IndexError, ValueError):
                    pass
            time.sleep(0.1)


def nobody(now, victims):
    return {p.peer: (pack(False), now + 300 + random.random()) for p in victims}


MADE_UP = [b"\x12\x20" + os.urandom(32) for _ in range(800)]


def hundreds(now, victims):
    """They want to begin just before everybody who declares now."""
    return {k: (pack(True), now + M - 0.5 + i * 1e-4) for i, k in enumerate(MADE_UP)}


def attacked(what, claims):
    bootstrap = peer()
    attacker = Attacker(bootstrap, "127.0.0.2", claims)
    averagers = [averager(i, bootstrap) for i in range(PEERS)]
    attacker.victims = averagers
    begun = time.monotonic()
    for p in averagers:
        try:
            p.popen.wait(max(1, 120 - (time.monotonic() - begun)))
        except subprocess.TimeoutExpired:
            pass
    attacker.over = True
    rounds = [[e for e in p.lines() if e.get("event") == "round"] for p in averagers]
    whole = [sum(1 for e in r if not e["error"] and len(e["group"]) == PEERS) for r in rounds]
    check(f"{what}: every round of every peer averages all", whole == [ROUNDS] * PEERS,
          [[(e["error"], len(e["group"])) for e in r] for r in rounds])
    check(f"{what}: nothing of it was kept", attacker.accepted == 0, attacker.accepted)
    check(f"{what}: nobody ended with an error", all(p.popen.poll() == 0 for p in averagers), [p.log()[-300:] for p in averagers])
    check(f"{what}: the attack took place", len(attacker.connections) == PEERS + 1)
    for p in averagers:
        p.stop()
    bootstrap.stop()


attacked("records say that nobody searches for a group", nobody)
attacked("records name hundreds of peers that do not exist", hundreds)
finish()
