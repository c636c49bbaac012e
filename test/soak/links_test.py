"""Tests the links of links.c. Nothing depends on the speed of this machine: a packet may be late,
never early; a link may carry less, never more.

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
PATIENCE = 60  # s for whatever must come: this machine may stand still for some
asking = threading.Lock()


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


def counts(network):
    with asking:
        return network.counts()


def until(what):
    """Its first true value, or the last one when patience has run out."""
    end = time.monotonic() + PATIENCE
    value = what()
    while not value and time.monotonic() < end:
        time.sleep(0.02)
        value = what()
    return value


def received(network, s, sent):
    """(when, bytes) of every datagram until all are sent, nothing comes, and nothing is on its
    way."""
    s.settimeout(0.5)
    found, seen = [], []
    while len(seen) < 3 or any(c != seen[-1] for c in seen[-3:]):
        try:
            while True:
                data = s.recv(2048)
                found.append((time.monotonic(), len(data)))
        except TimeoutError:
            seen += [counts(network)] if sent.is_set() else []
    return found


def round_trips(network, a, b):
    """Ten or more: one is given up after a second, for one of its two packets is lost."""
    here, there = socket_at(network, a), socket_at(network, b)
    times, k, end = [], 0, time.monotonic() + PATIENCE
    while k < 20 or (len(times) < 10 and time.monotonic() < end):
        k += 1
        begun, data = time.monotonic(), b"%d" % k
        here.sendto(data, there.getsockname())
        try:
            while there.recv(16) != data:
                pass
            there.sendto(data, here.getsockname())
            while here.recv(16) != data:
                pass
            times.append(time.monotonic() - begun)
        except TimeoutError:
            pass
    return times


def latency(network):
    times = sorted(round_trips(network, 0, 2))
    verdict(len(times) >= 10 and times[0] >= DELAY_MS / 1e3,
            f"a round trip takes no less than {DELAY_MS:g} ms: {times[0] * 1e3:.1f} at least, {times[len(times) // 2] * 1e3:.1f} in the middle, of {len(times)}")


def rate(network, a, b, mbit, total):
    """More than the link and its queue hold, at once."""
    here, there = socket_at(network, a), socket_at(network, b)
    before = counts(network)[a]
    got, sent = [], threading.Event()
    reader = threading.Thread(target=lambda: got.extend(received(network, there, sent)))
    reader.start()
    begun = time.monotonic()
    for _ in range(total // 1400):
        here.sendto(bytes(1400), there.getsockname())
    sent.set()
    reader.join()
    after = counts(network)[a]
    seconds = (got[-1][0] if got else time.monotonic()) - begun - DELAY_MS / 2e3
    carried = sum(n + HEADERS for _, n in got)
    allowed = mbit * 1e6 / 8 * seconds
    verdict(carried <= allowed, f"{mbit:g} Mbit/s up carries no more: {carried / seconds * 8e-6:.2f} Mbit/s over {seconds:.2f} s")
    verdict(carried >= QUEUE_S * mbit * 1e6 / 8 / 4, f"and no less than a quarter of a full queue: {carried} bytes of {total}")
    verdict(after["up_full"] > before["up_full"], f"packets beyond the queue's capacity are dropped: {after['up_full'] - before['up_full']} packets")


def losses(network, packets=6000):
    here, there = socket_at(network, 0), socket_at(network, 2)
    before = counts(network)
    got, sent = [], threading.Event()
    reader = threading.Thread(target=lambda: got.extend(received(network, there, sent)))
    reader.start()
    for k in range(packets):
        here.sendto(bytes(20), there.getsockname())
        if k % 500 == 499:  # the kernel keeps four times as many for a program that gets no processor
            until(lambda: counts(network)[0]["up_packets"] - before[0]["up_packets"] > k)
    sent.set()
    reader.join()
    after = counts(network)
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

    def hears(other, word):
        """What is in its buffer by now."""
        other.settimeout(0.05)
        try:
            while other.recv(16) != word:
                pass
            return True
        except TimeoutError:
            return False

    def reaches(other, word):
        here.sendto(word, other.getsockname())
        return hears(other, word)
    verdict(until(lambda: reaches(near, b"1")) and until(lambda: reaches(far, b"1")), "both sides hear each other")
    network.cut()
    before = counts(network)[2]["cut"]
    for _ in range(20):
        here.sendto(b"2", far.getsockname())
    dropped = until(lambda: max(0, counts(network)[2]["cut"] - before - 9))  # ten, of which some may be lost
    verdict(until(lambda: reaches(near, b"2")) and dropped and not hears(far, b"2"), "cut: either side hears itself alone")
    network.heal()
    verdict(until(lambda: reaches(near, b"3")) and until(lambda: reaches(far, b"3")), "healed: both hear each other again")


def calls(network, a, b):
    listening, calling = socket_at(network, b, socket.SOCK_STREAM), socket_at(network, a, socket.SOCK_STREAM, bound=False)
    listening.listen()
    calling.settimeout(2 if network.places[b].closed else PATIENCE)  # a lost first packet comes again after 1, 3, 7 s
    try:
        calling.connect((network.outside(b), listening.getsockname()[1]))
        listening.settimeout(PATIENCE)
        caller = listening.accept()[1][0]
        calling.send(b"x")
        return caller == network.outside(a)
    except TimeoutError:
        return False


def behind_nat(network):
    verdict(calls(network, 3, 0), "a host behind NAT connects to others, from the router's address")
    verdict(not calls(network, 0, 3) and until(lambda: counts(network)[3]["refused"]), "no host connects to it")


def main():
    try:
        with Network(PLACES, os.path.abspath(sys.argv[1]), kind="links") as network:
            latency(network)
            rate(network, 0, 2, 100, 4_000_000)
            rate(network, 1, 2, 2, 100_000)
            losses(network)
            partition(network)
            behind_nat(network)
    except Impossible as why:
        print(f"skip links: {why}")
        return closing(skipped=1)
    return closing()


sys.exit(main())
