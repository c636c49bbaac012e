"""Seven trainers, each behind another kind of router, and a bootstrap peer that relays: rounds of all, also after a router
has restarted, and after another one has got a new address.

usage: swarm.py POTLUCK [--store]        --store puts its times into swarm.json, which keeps three swarms for paper/swarm.md

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

KINDS = ["none", "firewall", "full", "restricted", "port", "cgnat", "symmetric"]
MATCHMAKING = 15  # s, the reference run's
STORED = 3  # swarms
RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "swarm.json")


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
    """What the doctor says behind the port-restricted router of the bootstrap peer and seven trainers. The one behind the symmetric
    router is never reached directly; another one may not be, as long as a single peer has sent the doctor its address."""
    place = KINDS.index("port")
    done = subprocess.run([*network.inside(place), soak.program, "doctor", "--quick", "--run", "soak", "--join", join, "--listen", f"/ip4/{network.ip(place)}/tcp/0"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120)
    line = re.search(r"ways +(.*)", done.stdout)
    verdict(line and re.match("[67] of 8 connections are direct, [12] go through a relay, 0 fail: ", line[1]), f"doctor: {line and line[1]}")


def test(network, folder):
    """The seconds that each thing took."""
    with everybody(network, folder, "--relay", matchmaking=MATCHMAKING) as (peers, join):
        seconds = {"first": timed(peers, common(peers, 1), "seven peers behind seven kinds of routers have a common round"),
                   "five_more": timed(peers, common(peers, 5), "and five more")}
        expect(peers, agreed(peers), "they agree on the parameters")
        rig("restart", NAME, str(KINDS.index("port")))
        seconds["restart"] = timed(peers, common(peers, 3), "a router has restarted, its mappings are gone: three common rounds")
        rig("move", NAME, str(KINDS.index("restricted")))
        seconds["move"] = timed(peers, common(peers, 3), "another router has a new address: three common rounds")
        expect(peers, agreed(peers), "they agree on the parameters")
        ways(network, join)
    return seconds


def store(seconds):
    try:
        with open(RESULTS) as f:
            stored = json.load(f)
    except FileNotFoundError:
        stored = []
    with open(RESULTS, "w") as f:
        json.dump([*stored, seconds][-STORED:], f, indent=1)
        f.write("\n")


def main():
    try:
        with Routers() as network, tempfile.TemporaryDirectory() as folder:
            seconds = test(network, folder)
        if "--store" in sys.argv:
            store(seconds)
    except Stuck:
        verdict(False, "the rest was not played")
    except Skip as why:
        print(f"skip seven routers: {why}")
        return closing(skipped=1)
    return closing()


sys.exit(main())
