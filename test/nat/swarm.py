"""Six trainers, each behind another kind of router, and a bootstrap peer that relays: rounds of all, also after a router
has restarted, and after another one has got a new address.

usage: swarm.py POTLUCK [--store]        --store plays three swarms and writes swarm.json, which paper/swarm.md quotes

Without the right to make namespaces, or without nft, a line says so.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from pairs import NAME, Skip, rig

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "soak"))
import soak  # noqa: E402
from hosts import Stuck, agreed, common, everybody, expect  # noqa: E402
from verdicts import closing, verdict  # noqa: E402

KINDS = ["none", "firewall", "full", "restricted", "port", "symmetric"]
MATCHMAKING = 15  # s, the reference run's
STORED = 3  # swarms


class Routers:
    """As a Network of links.py, for everybody()."""
    places = ["entry", *range(len(KINDS))]

    def __enter__(self):
        rig("swarm", NAME, *KINDS)
        return self

    def __exit__(self, *_):
        rig("down", NAME)

    def inside(self, place):
        return ["ip", "netns", "exec", f"{NAME}-{'relay' if place == 'entry' else place}"]

    def ip(self, place):
        return rig("ip", NAME, "relay" if place == "entry" else str(place))


def timed(*expectation):
    begun = time.time()
    expect(*expectation)
    return round(time.time() - begun)


def ways(network, join):
    """What the doctor says behind the port-restricted router of the bootstrap peer and six trainers. The one behind the symmetric
    router is never reached directly; another one may not be, as long as a single peer has sent the doctor its address."""
    place = KINDS.index("port")
    done = subprocess.run([*network.inside(place), soak.program, "doctor", "--quick", "--run", "soak", "--join", join, "--listen", f"/ip4/{network.ip(place)}/tcp/0"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120)
    line = re.search(r"ways +(.*)", done.stdout)
    verdict(line and re.match("[56] of 7 connections are direct, [12] go through a relay, 0 fail: ", line[1]), f"doctor: {line and line[1]}")


def test(network, folder):
    """The seconds that each thing took."""
    with everybody(network, folder, "--relay", matchmaking=MATCHMAKING) as (peers, join):
        seconds = {"first": timed(peers, common(peers, 1), "six peers behind six kinds of routers have a common round"),
                   "five_more": timed(peers, common(peers, 5), "and five more")}
        expect(peers, agreed(peers), "they agree on the parameters")
        rig("restart", NAME, str(KINDS.index("port")))
        seconds["restart"] = timed(peers, common(peers, 3), "a router has restarted, its mappings are gone: three common rounds")
        rig("move", NAME, str(KINDS.index("restricted")))
        seconds["move"] = timed(peers, common(peers, 3), "another router has a new address: three common rounds")
        expect(peers, agreed(peers), "they agree on the parameters")
        ways(network, join)
    return seconds


def main():
    stored = []
    try:
        for _ in range(STORED if "--store" in sys.argv else 1):
            with Routers() as network, tempfile.TemporaryDirectory() as folder:
                stored.append(test(network, folder))
        if "--store" in sys.argv:
            with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "swarm.json"), "w") as f:
                json.dump(stored, f, indent=1)
                f.write("\n")
    except Stuck:
        verdict(False, "the rest was not played")
    except Skip as why:
        print(f"skip six routers: {why}")
        return closing(skipped=1)
    return closing()


sys.exit(main())
