"""A swarm of hosts, each a network namespace (links.py), for the scripts here."""
import contextlib
import os
import tempfile
import time

import soak
import verdicts
from links import Impossible, Network
from verdicts import closing, verdict

LIMIT = 600  # s for anything; a quiet machine takes ten, a very busy one took four minutes
TRIES = 12  # starts again of peers that could not enter, of all together
LINKS = os.path.join(os.path.dirname(os.path.abspath(soak.program)), "links")


class Stuck(Exception):
    """What was waited for has not come; what follows builds on it."""


def expect(peers, condition, what):
    """A verdict on what comes in time, whenever that is."""
    begun = time.time()
    while not condition():
        dead = [p.number for p in peers if p.process.poll() is not None]
        if dead or time.time() > begun + LIMIT:
            verdict(False, f"{what}: " + (f"peers {dead} have ended" if dead else f"not within {LIMIT} s"))
            raise Stuck
        time.sleep(0.25)
    verdict(True, f"{what}, after {time.time() - begun:.0f} s")


def all_in(peers, start):
    """Until all of them have entered. Who could not, for a busy entry has not answered in time,
    says so and ends: it is started again, as people do."""
    again, end = TRIES, time.time() + LIMIT
    while not all(p.of("ready") for p in peers):
        for i, p in enumerate(peers):
            if p.process.poll() is not None and not p.of("ready"):
                again -= 1
                print(f"     peer {p.number} could not enter, once more: {p.output()[-200:].strip()}", flush=True)
                verdicts.retried(f"peer {p.number} could not enter", p.output()[-150:])
                p.kill()
                peers[i] = start(p.number)
        if not again or time.time() > end:
            verdict(False, f"all have entered within {LIMIT} s, starting {TRIES} of them again at most")
            raise Stuck
        time.sleep(0.1)


def report(peers):
    for p in peers:
        reported = [(e["epoch"], e["round_status"], e["round_peers"], e["why"]) for e in p.of("epoch")[-3:]]
        print(f"--- peer {p.number}: epochs, rounds' status, peers, why: {reported}; {p.output()[-400:]}")


def common(peers, more):
    """This many further epochs, each with everybody in the round of gradients."""
    since = [len(p.events) for p in peers]
    return lambda: all(sum(e["event"] == "epoch" and e["round_status"] == 0 and e["round_peers"] == len(peers) for e in p.events[n:]) >= more
                       for p, n in zip(peers, since))


def agreed(peers):
    from_epoch = max(p.epoch() for p in peers)

    def ask():
        epoch, far = soak.apart(peers)
        return epoch is not None and epoch > from_epoch and far <= soak.TOLERANCE
    return ask


@contextlib.contextmanager
def everybody(network, folder, *entry_options, matchmaking=2):
    """A peer at each place but the entry's, and the entry's address. At the end none may have died
    by itself."""
    soak.make_files(folder)
    entry, join = soak.entry_peer(network.inside("entry"), network.ip("entry"), *entry_options)
    trainers = [place for place in network.places if place != "entry"]
    start = lambda k: soak.Peer(folder, k, join, network.inside(k), network.ip(k), len(trainers) * soak.BATCH, matchmaking=matchmaking)  # noqa: E731
    peers = [start(k) for k in trainers]
    try:
        all_in(peers, start)
        yield peers, join
        verdict(all(p.process.poll() is None for p in peers), "nobody has died")
    finally:
        if verdicts.failed:
            report(peers)
        for peer in peers:
            peer.kill()
        entry.kill()
        entry.wait()


def play(name, places, test):
    """test(network, folder), or a line where it can't be made; gives the exit status."""
    try:
        with Network(places, LINKS) as network, tempfile.TemporaryDirectory() as folder:
            print(f"links by {'netem' if network.kind == 'netem' else 'a program of ours'}")
            test(network, folder)
    except Stuck:
        pass
    except Impossible as why:
        print(f"skip {name}: {why}")
        return closing(skipped=1)
    return closing()
