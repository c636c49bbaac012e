"""Several hosts on one machine: network namespaces with links between them that are slow, long,
lossy, uneven, and cut for a while (links.py).

usage: namespaces.py POTLUCK

    entry   0   1         2   3        a peer a namespace
      |     |   |         |   |        any two: 100 Mbit/s, 50 ms round trip, 1 % loss each way
      +-----+---+--[cut]--+---+        peer 1's uplink: 2 Mbit/s

They train together. When the link between the sides is cut, each side goes on alone; when it is
restored, they are one swarm again. Without the right to make namespaces a line says so.
"""
import sys

import soak
from hosts import agreed, common, everybody, expect, play
from links import Place
from verdicts import verdict

PLACES = {"entry": Place("a"), 0: Place("a"), 1: Place("a", up=2), 2: Place("b"), 3: Place("b")}


def further(peers, more):
    goals = [p.epoch() + more for p in peers]
    return lambda: all(p.epoch() >= g for p, g in zip(peers, goals))


def test(network, folder):
    with everybody(network, folder) as (peers, _):
        expect(peers, common(peers, 3), "four hosts have common rounds over their links")
        expect(peers, agreed(peers), "they agree on the parameters")
        network.cut()
        expect(peers, further(peers[:2], 3), "cut off: the side with the entry goes on")
        expect(peers, further(peers[2:], 3), "cut off: the other side goes on")
        network.heal()
        expect(peers, common(peers, 2), "healed: all four have common rounds again")
        expect(peers, agreed(peers), "healed: they agree on the parameters")
        backwards = [b for b in map(soak.backwards, peers) if b]
        verdict(not backwards, f"nobody's epoch has gone back {backwards or ''}")


sys.exit(play("namespaces", PLACES, test))
