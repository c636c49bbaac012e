"""Several hosts on one machine: network namespaces with links between them that are slow, long, lossy, uneven, and cut
for a while (links.py).

usage: namespaces.py POTLUCK

    entry   0   1         2   3        a peer a namespace
      |     |   |         |   |        between any two: 100 Mbit/s, 50 ms there and back, 1 % of packets lost each way
      +-----+---+--[cut]--+---+        peer 1's uplink: 2 Mbit/s

They train together; the link between the sides is cut, either side goes on by itself; it heals, and they are one
swarm again. Where namespaces can't be made, a line says so.
"""
import os
import sys
import tempfile
import time

import soak
from links import Impossible, Network, Place
from soak import Peer, apart, entry_peer, make_files, verdict

LIMIT = 600  # s for anything; a quiet machine takes ten, a very busy one took four minutes
PLACES = {"entry": Place("a"), 0: Place("a"), 1: Place("a", up=2), 2: Place("b"), 3: Place("b")}
LINKS = os.path.join(os.path.dirname(os.path.abspath(soak.program)), "links")


def wait(condition):
    end = time.time() + LIMIT
    while time.time() < end:
        if condition():
            return True
        time.sleep(0.25)
    return False


def common(peers, more):
    """So many further epochs, each with everybody in the round of gradients."""
    since = [len(p.events) for p in peers]
    return lambda: all(sum(e["event"] == "epoch" and e["round_status"] == 0 and e["round_peers"] == len(peers) for e in p.events[n:]) >= more
                       for p, n in zip(peers, since))


def further(peers, more):
    goals = [p.epoch() + more for p in peers]
    return lambda: all(p.epoch() >= g for p, g in zip(peers, goals))


def agreed(peers):
    from_epoch = max(p.epoch() for p in peers)

    def ask():
        epoch, far = apart(peers)
        return epoch is not None and epoch > from_epoch and far <= soak.TOLERANCE
    return ask


def test(network, folder):
    make_files(folder)
    entry, join = entry_peer(network.inside("entry"), network.ip("entry"))
    peers = []
    try:
        for k in range(4):
            peers.append(Peer(folder, k, join, network.inside(k), network.ip(k), 4 * soak.BATCH))
        verdict(wait(common(peers, 3)), "four hosts have common rounds over their links")
        verdict(wait(agreed(peers)), "they agree on the parameters")
        network.cut()
        verdict(wait(further(peers[:2], 3)), "cut off: the side with the entry goes on")
        verdict(wait(further(peers[2:], 3)), "cut off: the other side goes on")
        network.heal()
        verdict(wait(common(peers, 2)), "healed: all four have common rounds again")
        verdict(wait(agreed(peers)), "healed: they agree on the parameters")
        backwards = [b for b in map(soak.backwards, peers) if b]
        verdict(not backwards, f"nobody's epoch has gone back {backwards or ''}")
        verdict(all(p.process.poll() is None for p in peers), "nobody has died")
    finally:
        for peer in peers:
            peer.kill()
        entry.kill()
        entry.wait()


def main():
    skipped = 0
    try:
        with Network(PLACES, LINKS) as network, tempfile.TemporaryDirectory() as folder:
            print(f"links by {'netem' if network.kind == 'netem' else 'a program of ours'}")
            test(network, folder)
    except Impossible as why:
        print(f"skip namespaces: {why}")
        skipped = 1
    print(f"{soak.passed} passed, {soak.failed} failed, {skipped} skipped")
    return 1 if soak.failed else 0


if __name__ == "__main__":
    sys.exit(main())
