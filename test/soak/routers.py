"""Peers behind NAT: routers that allow outbound connections only and replace the peer's address
(links.py). Network namespaces, links of 100 Mbit/s, 50 ms round trip, 1 % of packets lost each way.

usage: routers.py POTLUCK

    entry   0    [router]  [router]      the entry relays connections to peers behind NAT
      |     |       |         |
      |     |       1         2
      +-----+-------+---------+

The two behind NAT find each other through the entry and train with all others; `potluck doctor`
reports the NAT and what to do. Without the right to make namespaces a line says so.
"""
import subprocess
import sys

import soak
from hosts import agreed, common, everybody, expect, play
from links import Place
from verdicts import verdict

PLACES = {"entry": Place("a"), 0: Place("a"), 1: Place("a", closed=True), 2: Place("b", closed=True)}


def doctor(network, place, join):
    """What it says, a line a subject, with the advice behind it."""
    done = subprocess.run([*network.inside(place), soak.program, "doctor", "--run", "soak", "--join", join, "--quick",
                           "--listen", f"/ip4/{network.ip(place)}/tcp/0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    found, subject = {}, ""
    for line in done.stdout.splitlines():
        words = line.split()
        if words and words[0] in ("ok", "WARN", "BAD"):
            subject = words[1]
        found[subject] = found.get(subject, "") + line + "\n"
    return found


def test(network, folder):
    with everybody(network, folder, "--relay") as (peers, join):
        expect(peers, common(peers, 3), "a peer that can be called and two behind routers have common rounds")
        expect(peers, agreed(peers), "they agree on the parameters")
        found = doctor(network, 1, join)
        print("".join(found.values()), end="")
        verdict(found.get("reachability", "").startswith("BAD") and "your side" in found["reachability"], "doctor behind a router: not publicly reachable, and what to do")
        verdict(network.outside(1) in found.get("NAT", "") and "router" in found["NAT"], "doctor behind a router: names it, by the address that others see")
        verdict(found.get("relay", "").startswith("ok"), "doctor behind a router: the entry carries connections")
        found = doctor(network, 0, join)
        verdict(found.get("reachability", "").startswith("ok") and "none" in found.get("NAT", ""), "doctor without a router: none, and we can be called")
        refused = network.counts()
        print(f"refused at the routers: {refused[1]['refused']} and {refused[2]['refused']} packets")


sys.exit(play("routers", PLACES, test))
