"""Whether links.c's links are what they are said to be. Nothing here is judged by how fast this machine is: a packet may
be late, never early; a link may carry less, never more.

usage: links_test.py LINKS
"""
import ctypes
import os
import socket
import sys
import threading
import time

from links import DELAY_MS, LOSS_PERCENT, QUEUE_S, Impossible, Network, Place
from verdicts import closing, verdict

PLACES = {0: Place("a"), 1: Place("a", up=2), 2: Place("b"), 3: Place("a", closed=True)}
HEADERS = 28  # of IP and UDP


def socket_at(network, place, kind=socket.SOCK_DGRAM, bound=True):
    """A socket of that namespace: made by a thread that goes there and ends; the socket stays."""
    made = []

    def make():
        with open(f"/var/run/netns/{network.name(place)}") as f:
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        made.append(socket.socket(socket.AF_INET, kind))
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    s = made[0]
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE: nothing is lost where we are slow to read
    s.settimeout(1)
    if bound:
        s.bind((network.ip(place), 0))
    return s


def received(s, wait=1.0):
    """(when, bytes) of every datagram until none has come for a while."""
    s.settimeout(wait)
    found = []
    try:
        while True:
            data = s.recv(2048)
            found.append((time.monotonic(), len(data)))
    except TimeoutError:
        return found


def round_trips(network, a, b):
    here, there = socket_at(network, a), socket_at(network, b)
    times = []
    for k in range(20):
        begun = time.monotonic()
        here.sendto(bytes([k]), there.getsockname())
        try:
            while True:
                data, back = there.recvfrom(16)
                if data == bytes([k]):
                    break
            there.sendto(data, back)
            while here.recv(16) != data:
                pass
            times.append(time.monotonic() - begun)
        except TimeoutError:  # one of the two is lost
            pass
    return times


def latency(network):
    times = sorted(round_trips(network, 0, 2))
    verdict(len(times) >= 10 and times[0] >= DELAY_MS / 1e3,
            f"a round trip takes no less than {DELAY_MS:g} ms: {times[0] * 1e3:.1f} at least, {times[len(times) // 2] * 1e3:.1f} in the middle, of {len(times)}")


def rate(network, a, b, mbit, total):
    """More than the link and its queue hold, at once."""
    here, there = socket_at(network, a), socket_at(network, b)
    before = network.counts()[a]
    got = []
    reader = threading.Thread(target=lambda: got.extend(received(there)))
    reader.start()
    begun = time.monotonic()
    for _ in range(total // 1400):
        here.sendto(bytes(1400), there.getsockname())
    reader.join()
    after = network.counts()[a]
    seconds = (got[-1][0] if got else time.monotonic()) - begun - DELAY_MS / 2e3
    carried = sum(n + HEADERS for _, n in got)
    allowed = mbit * 1e6 / 8 * seconds
    verdict(carried <= allowed, f"{mbit:g} Mbit/s up carries no more: {carried / seconds * 8e-6:.2f} Mbit/s over {seconds:.2f} s")
    verdict(carried >= QUEUE_S * mbit * 1e6 / 8 / 4, f"and no less than a quarter of a full queue: {carried} bytes of {total}")
    verdict(after["up_full"] > before["up_full"], f"what the queue has no room for is dropped: {after['up_full'] - before['up_full']} packets")


def losses(network, packets=6000):
    here, there = socket_at(network, 0), socket_at(network, 2)
    before = network.counts()
    got = []
    reader = threading.Thread(target=lambda: got.extend(received(there, 2)))
    reader.start()
    for k in range(packets):
        here.sendto(bytes(20), there.getsockname())
        if k % 100 == 99:
            time.sleep(0.01)
    reader.join()
    after = network.counts()
    came = lost = 0
    for place, way in ((0, "up"), (2, "down")):
        n, k = (after[place][f"{way}_{what}"] - before[place][f"{way}_{what}"] for what in ("packets", "lost"))
        came, lost = came + n, lost + k
    p = LOSS_PERCENT / 200
    mean, deviation = came * p, (came * p * (1 - p)) ** 0.5
    verdict(came > packets and abs(lost - mean) <= 6 * deviation,
            f"{lost} of {came} packets are lost on their way through a link: {mean:.0f} and at most {6 * deviation:.0f} more or fewer of {2 * p * 100:g} % on a path")
    verdict(len(got) <= packets - lost, f"and what is lost does not come: {len(got)} of {packets}")


def partition(network):
    here, near, far = (socket_at(network, k) for k in (0, 1, 2))

    def reaches(other):
        for _ in range(20):
            here.sendto(b"x", other.getsockname())
        return len(received(other, 0.5))
    verdict(reaches(near) and reaches(far), "both sides hear each other")
    network.cut()
    received(far, 0.2)  # what was under way
    verdict(reaches(near) and not reaches(far), "cut: either side hears itself alone")
    network.heal()
    verdict(reaches(near) and reaches(far), "healed: both hear each other again")


def calls(network, a, b):
    listening, calling = socket_at(network, b, socket.SOCK_STREAM), socket_at(network, a, socket.SOCK_STREAM, bound=False)
    listening.listen()
    calling.settimeout(2 if network.places[b].closed else 20)  # a lost first packet comes again after 1, 3, 7 s
    try:
        calling.connect((network.outside(b), listening.getsockname()[1]))
        listening.settimeout(20)
        caller = listening.accept()[1][0]
        calling.send(b"x")
        return caller == network.outside(a)
    except TimeoutError:
        return False


def door(network):
    verdict(calls(network, 3, 0), "a host behind a router calls others, by the router's address")
    verdict(not calls(network, 0, 3) and network.counts()[3]["refused"], "nobody calls it")


def main():
    try:
        with Network(PLACES, os.path.abspath(sys.argv[1]), kind="links") as network:
            latency(network)
            rate(network, 0, 2, 100, 4_000_000)
            rate(network, 1, 2, 2, 100_000)
            losses(network)
            partition(network)
            door(network)
    except Impossible as why:
        print(f"skip links: {why}")
        return closing(skipped=1)
    return closing()


sys.exit(main())
