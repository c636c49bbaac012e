"""Several hosts on one machine: network namespaces with links between them that are slow, long, lossy, uneven, and cut
for a while.

usage: namespaces.py POTLUCK

    entry   0   1         2   3        two bridges; a peer a namespace
      |     |   |         |   |        every link: 100 Mbit/s, 50 ms there and back, 1 % loss
      +-----+---+--[cut]--+---+        peer 1's uplink: 2 Mbit/s

They train together; the link between the bridges is cut, either side goes on by itself; it heals, and they are one
swarm again. Where namespaces can't be made, or the kernel knows no netem, a line says so.
"""
import os
import subprocess
import sys
import tempfile
import time

import soak
from soak import Peer, apart, entry_peer, make_files, verdict

LIMIT = 240  # s for anything; a quiet machine takes a tenth of it
ME = f"potluck{os.getpid()}"
PLACES = {"entry": (1, "a"), 0: (2, "a"), 1: (3, "a"), 2: (4, "b"), 3: (5, "b")}


def run(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def name(place):
    return f"{ME}-{place}"


def inside(place):
    return ("ip", "netns", "exec", name(place))


def ip(place):
    return f"10.77.0.{PLACES[place][0]}"


def shape(place, device, rate, with_netem):
    how = ("netem", "rate", rate, "delay", "25ms", "loss", "1%") if with_netem else ("tbf", "rate", rate, "burst", "64kbit", "latency", "300ms")
    return run(*inside(place), "tc", "qdisc", "add", "dev", device, "root", *how)


def build():
    """The hub's two bridges, and a namespace a peer. False: not on this machine."""
    good = run("ip", "netns", "add", name("hub"))
    good = good and all(run(*inside("hub"), "ip", "link", "add", f"br-{side}", "type", "bridge") for side in "ab")
    good = good and run(*inside("hub"), "ip", "link", "add", "cut-a", "type", "veth", "peer", "name", "cut-b")
    for side in "ab":
        good = good and run(*inside("hub"), "ip", "link", "set", f"cut-{side}", "master", f"br-{side}")
        good = good and all(run(*inside("hub"), "ip", "link", "set", d, "up") for d in (f"br-{side}", f"cut-{side}"))
    for place, (number, side) in PLACES.items():
        good = good and run("ip", "netns", "add", name(place))
        good = good and run(*inside("hub"), "ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth", "netns", name(place))
        good = good and run(*inside("hub"), "ip", "link", "set", f"v{number}", "master", f"br-{side}", "up")
        good = good and run(*inside(place), "ip", "address", "add", ip(place) + "/24", "dev", "eth")
        good = good and all(run(*inside(place), "ip", "link", "set", d, "up") for d in ("eth", "lo"))
    return good


def remove():
    for place in ("hub", *PLACES):
        run("ip", "netns", "delete", name(place))


def slow_down():
    """Every link, both ways. True: with latency and loss; None: not even the rate."""
    with_netem = shape("hub", "v1", "100mbit", True)
    good = with_netem or shape("hub", "v1", "100mbit", False)
    for place, (number, _) in PLACES.items():
        good = good and (number == 1 or shape("hub", f"v{number}", "100mbit", with_netem))
        good = good and shape(place, "eth", "2mbit" if place == 1 else "100mbit", with_netem)
    return with_netem if good else None


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


def test(folder):
    make_files(folder)
    entry, join = entry_peer(inside("entry"), ip("entry"))
    peers = []
    try:
        for k in range(4):
            peers.append(Peer(folder, k, join, inside(k), ip(k), 4 * soak.BATCH))
        verdict(wait(common(peers, 3)), "four hosts have common rounds over their links")
        verdict(wait(agreed(peers)), "they agree on the parameters")
        run(*inside("hub"), "ip", "link", "set", "cut-a", "down")
        verdict(wait(further(peers[:2], 3)), "cut off: the side with the entry goes on")
        verdict(wait(further(peers[2:], 3)), "cut off: the other side goes on")
        run(*inside("hub"), "ip", "link", "set", "cut-a", "up")
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
        if not build():
            print("skip namespaces: this machine lets nobody make network namespaces with veth (it takes root, and `ip`)")
            skipped = 1
        else:
            slowed = slow_down()
            if not slowed:
                print("skip namespaces, latency and loss: this kernel knows no netem" + ("" if slowed is False else ", nor tbf"))
                skipped = 1
            with tempfile.TemporaryDirectory() as folder:
                test(folder)
    finally:
        remove()
    print(f"{soak.passed} passed, {soak.failed} failed, {skipped} skipped")
    return 1 if soak.failed else 0


sys.exit(main())
