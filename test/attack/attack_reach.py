"""Lies about where peers are: AutoNAT requests for others' addresses, identify with thousands of
addresses and protocols, and circuits that lead back into the relay that carries them."""
from adversary import *

HOP, STOP, AUTONAT = "/libp2p/circuit/relay/0.2.0/hop", "/libp2p/circuit/relay/0.2.0/stop", "/libp2p/autonat/1.0.0"
ME, OTHER = "127.0.3.1", "127.0.9.1"
victim = peer("--relay")


class Sink:
    """A third party: counts who connects, and closes at once."""

    def __init__(self, host):
        self.count, server = 0, socket.socket()
        server.bind((host, 0))
        server.listen(256)
        self.at = multiaddr_ip4(host, server.getsockname()[1])
        threading.Thread(target=self.accept, args=(server,), daemon=True).start()

    def accept(self, server):
        while True:
            server.accept()[0].close()
            self.count += 1


# --- AutoNAT -------------------------------------------------------------------------------------


def ask_for_dial(c, addresses, peer=None):
    s = c.open(AUTONAT)
    s.write_delimited(encode("AutonatMessage", type=0, dial=dict(peer=dict(id=peer or c.owner.id, addrs=addresses))))
    return decode("AutonatMessage", s.read_delimited(30))["response"]["status"]


stranger = Peer(source=ME)
c = stranger.dial(victim.address)
others, own = Sink(OTHER), Sink(ME)
check("nobody is dialed at another one's address", ask_for_dial(c, [others.at] * 8) != 0 and others.count == 0, others.count)
check("nor by another one's name", ask_for_dial(c, [own.at], Peer().id) != 0 and own.count == 0, own.count)
for _ in range(30):
    try:
        ask_for_dial(c, [own.at] * 8)
    except (Closed, CallError, OSError):
        c = stranger.dial(victim.address)
check("30 requests of eight addresses each cause few dials", 0 < own.count <= 64, own.count)

# --- identify ------------------------------------------------------------------------------------

aim = Sink(OTHER)


def many(count):
    return [(2, aim.at)] * count + [(2, multiaddr_ip4("127.0.9.%d" % (2 + i % 200), 1000 + i)) for i in range(count)] \
        + [(3, f"/protocol/{i}") for i in range(count)]


def tell_many(count):
    def answer(s):
        s.write_delimited(pb((1, s.connection.owner.identity.public), *many(count)))
        s.finish()
    return answer


before, cpu, callers = victim.rss(), victim.cpu(), []
for k in range(60):
    false = Peer(source="127.0.3.%d" % (2 + k % 8))
    false.protocols["/ipfs/id/1.0.0"] = tell_many(10000 if k % 2 else 100)
    l = false.dial(victim.address)
    try:
        serve_dht(false, os.urandom(20))
        push = l.open("/ipfs/id/push/1.0.0")
        for _ in range(3):
            push.write_delimited(pb((1, false.identity.public), *many(100)))
        push.finish()
        dht_ping(l, os.urandom(20))
    except (Closed, CallError, OSError):
        pass
    callers.append(l)
time.sleep(1)
check("60 peers with thousands of addresses and protocols take little memory", victim.rss() - before < 40, victim.rss() - before)
check("and little time", victim.cpu() - cpu < 5, victim.cpu() - cpu)
for l in callers:
    l.close()
for _ in range(20):  # look-ups make the victim call those that it knows
    find(Peer(source=OTHER).dial(victim.address), [os.urandom(20)])
time.sleep(2)
check("the address of a third party that they give is dialed seldom", aim.count <= 64, aim.count)

# --- circuits that lead back ---------------------------------------------------------------------

loops = Peer(source=ME)
c = loops.dial(victim.address)
granted, carried, refused = [], [0], []


def connect(c, to):
    s = c.open(HOP)
    s.write_delimited(encode("HopMessage", type=1, peer=dict(id=to)))
    status = decode("HopMessage", s.read_delimited(20))["status"]
    (granted if status == 100 else refused).append(status)
    return s if status == 100 else None


def pump(a, b):
    try:
        while not a.ended:
            data = a.read(1) + a.read(len(a.arrived))
            carried[0] += len(data)
            b.write(data)
    except (Closed, OSError):
        pass


def on_stop(s):
    """What is carried to us goes back to us through the same relay."""
    s.read_delimited()
    s.write_delimited(encode("StopMessage", type=1, status=100))
    onward = connect(s.connection, loops.id)
    if onward:
        threading.Thread(target=pump, args=(onward, s), daemon=True).start()
        pump(s, onward)
    else:
        pump(s, s)


loops.protocols[STOP] = on_stop
s = c.open(HOP)
s.write_delimited(encode("HopMessage", type=0))
check("the stranger gets a place", decode("HopMessage", s.read_delimited())["status"] == 100)
cpu, begin = victim.cpu(), time.monotonic()
check("the relay does not carry to itself", connect(c, victim.peer) is None, refused)
first = connect(c, loops.id)
time.sleep(2)  # the bytes come once the chain has its whole length
check("circuits to itself are few", 0 < len(granted) <= 16, (len(granted), refused))
for _ in range(200):
    try:
        first.write(os.urandom(4096), timeout=2)
    except (AttributeError, Closed, OSError):
        break
time.sleep(3)
took = time.monotonic() - begin
check("they carry little", carried[0] <= 16 * 2 * (128 << 10), carried)
check("and cost little", victim.cpu() - cpu < 0.5 * took, (victim.cpu() - cpu, took))
check("newcomers are answered", latency(victim, OTHER) < 5)
s = Peer(source=OTHER).dial(victim.address).open(HOP)
s.write_delimited(encode("HopMessage", type=0))
check("and get places", decode("HopMessage", s.read_delimited())["status"] == 100)
check("the peer lives", victim.alive())
finish()
