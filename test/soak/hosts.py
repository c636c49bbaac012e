"""A swarm whose peers are hosts of their own, in network namespaces (links.py): for the scripts here."""
import contextlib
import os
import tempfile
import time

import soak
from links import Impossible, Network
from verdicts import closing, verdict

LIMIT = 600  # s for anything; a quiet machine takes ten, a very busy one took four minutes
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


def agreed(peers):
    from_epoch = max(p.epoch() for p in peers)

    def ask():
        epoch, far = soak.apart(peers)
        return epoch is not None and epoch > from_epoch and far <= soak.TOLERANCE
    return ask


@contextlib.contextmanager
def everybody(network, folder, *entry_options):
    """A peer at each place but the entry's, and the entry's address. At the end none may have died by itself."""
    soak.make_files(folder)
    entry, join = soak.entry_peer(network.inside("entry"), network.ip("entry"), *entry_options)
    trainers = [place for place in network.places if place != "entry"]
    peers = []
    try:
        for k in trainers:
            peers.append(soak.Peer(folder, k, join, network.inside(k), network.ip(k), len(trainers) * soak.BATCH))
        yield peers, join
        verdict(all(p.process.poll() is None for p in peers), "nobody has died")
    finally:
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
    except Impossible as why:
        print(f"skip {name}: {why}")
        return closing(skipped=1)
    return closing()
