"""One stranger that takes places and leaves them unused: join requests, streams of parts, pings that
are to be called back. Three trainers average as before, and others are called back."""
from false_progress import *

AVERAGER = "r_grad_averager::GradientAverager.rpc_"


class Squatter:
    """Opens this many calls of the protocol to each victim, says nothing, and begins anew when they
    have been ended."""

    def __init__(self, victims, protocol, count):
        self.peer, self.over, self.opened = Peer(source="127.0.0.7"), False, 0
        self.peer.listen()
        for v in victims:
            threading.Thread(target=self.repeat, args=(v, protocol, count), daemon=True).start()

    def repeat(self, victim, protocol, count):
        while not self.over:
            try:
                connections = [self.peer.dial(victim.address) for _ in range(3)]  # each has 1,024 streams at most
                for k in range(count):
                    connections[k % 3].open_with(protocol)
                    self.opened += 1
                for _ in until(9):
                    if self.over:
                        break
                for c in connections:
                    c.close()
            except (Closed, CallError, OSError):
                time.sleep(0.2)

    def end(self):
        self.over = True


trainers, quiet = averaging()
for what, call, count in (("join requests", "join_group", 1300), ("streams of parts", "aggregate_part", 2048)):
    squatters = []

    def squat():
        squatters.append(Squatter(trainers, AVERAGER + call, count))
        time.sleep(3)  # until the trainers have taken them in: a peer has a fifth of the loop's time
        return squatters

    goes_on(f"{count} silent {what}", trainers, quiet, squat)
    check("they were opened", squatters[0].opened >= 3 * count / 2, squatters[0].opened)

# --- pings that are to be called back ------------------------------------------------------------

first = trainers[0]
mute = Peer(source="127.0.0.8")
mute.listen()
serve_dht(mute, os.urandom(20))
called = threading.Event()
mute.unary["DHTProtocol.rpc_ping"] = lambda q, c: called.set() or time.sleep(60)
c = mute.dial(first.address)
waiting = [c.open_with("DHTProtocol.rpc_ping", unary_request("DHTProtocol.rpc_ping", encode("PingRequest", peer=dict(node_id=os.urandom(20)), validate=True)))
           for _ in range(300)]
check("a peer that does not answer is called back", called.wait(10))
honest = Peer(source="127.0.0.9")
honest.listen()
node_id = os.urandom(20)
serve_dht(honest, node_id)
answer = dht_ping(honest.dial(first.address), node_id, validate=True)
check("another one is called back meanwhile, and hears that it is available", answer["available"], answer)
check("the trainers live", all(p.alive() for p in trainers))
finish()
