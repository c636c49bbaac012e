"""Frames and handshakes that cost the loop's time before any handler runs: streams that are opened
and reset, or negotiated in vain, on one connection that is written without a pause; also on a
connection that our own peer has dialed; and handshakes that stop after the first answer. Others are
served meanwhile."""
import statistics

from adversary import *

SECONDS = 3
PAIRS = 2000  # in one piece


def opened_and_reset(first):
    return b"".join(struct.pack(">BBHII", 0, WINDOW, SYN, first + 2 * k, 0) + struct.pack(">BBHII", 0, WINDOW, RST, first + 2 * k, 0)
                    for k in range(PAIRS))


def negotiated_in_vain(first):
    body = token(MULTISTREAM) + token("/no-such-protocol")
    return b"".join(struct.pack(">BBHII", 0, DATA, SYN, first + 2 * k, len(body)) + body +
                    struct.pack(">BBHII", 0, WINDOW, RST, first + 2 * k, 0) for k in range(PAIRS))


class Flood:
    """Writes frames without a pause, and throws away what comes."""

    def __init__(self, connection, frames):
        self.connection, self.over, self.sent = connection, False, 0
        self.first = connection.next_number
        self.frames = frames
        connection._take = lambda *_: None
        threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        try:
            while not self.over:
                self.connection.raw(self.frames(self.first))
                self.first += 2 * PAIRS
                self.sent += PAIRS
        except (Closed, OSError):
            pass


class Handshakes:
    """Each one costs the other side three exchanges of keys and a signature, us none."""

    def __init__(self, victim, source):
        self.over, self.sent = False, 0
        host, port, _ = parse_address(victim.address)
        self.where, self.source = (host, port), source
        self.first = token(MULTISTREAM) + token("/noise") + struct.pack(">H", 32) + os.urandom(32)
        for _ in range(8):
            threading.Thread(target=self.repeat, daemon=True).start()

    def repeat(self):
        while not self.over:
            try:
                with socket.socket() as s:
                    s.settimeout(3)
                    s.bind((self.source, 0))
                    s.connect(self.where)
                    s.sendall(self.first)
                    if len(s.recv(4096)) > 20:
                        self.sent += 1
            except OSError:
                pass


def under(what, victim, flood):
    """The median of what a newcomer waits for a handshake and a DHT ping."""
    for _ in range(2):  # one at a moment when the machine is busy with others does not count
        f = flood()
        time.sleep(0.5)
        begin, waits = time.monotonic(), []
        while time.monotonic() < begin + SECONDS:
            waits.append(latency(victim, source="127.0.0.9"))
            time.sleep(0.1)
        f.over = True
        if statistics.median(waits) < 0.4:
            break
    check(f"{what}: a newcomer is served within 0.4 s", statistics.median(waits) < 0.4, [round(w, 2) for w in waits])
    check(f"{what}: the attack took place", f.sent > 100, f.sent)
    print(f"     {f.sent} in {time.monotonic() - begin:.1f} s; a newcomer waits {statistics.median(waits):.3f} s")


victim = peer()
for what, frames in (("streams opened and reset", opened_and_reset), ("streams negotiated in vain", negotiated_in_vain)):
    under(what, victim, lambda: Flood(Peer(source="127.0.0.2").dial(victim.address), frames))

# A node of the DHT that another one has found by itself: the connection is that one's own.
node = Peer(source="127.0.0.3")
node.listen("127.0.0.3")
serve_dht(node, os.urandom(20))
dht_ping(node.dial(victim.address), os.urandom(20))
finder = peer(join=victim)
dialed = node.connected(finder.peer)
under("on a connection that the victim has dialed", finder, lambda: Flood(dialed, opened_and_reset))
under("handshakes", victim, lambda: Handshakes(victim, "127.0.0.4"))
check("the victim lives", victim.alive() and victim.peak() < 200, victim.peak())
finish()
