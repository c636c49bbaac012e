"""Three trainers that average, strangers that tell them of progress, and whether the trainers go on as if nothing was said: what
attack_epoch.py and attack_epoch_state.py share."""
import glob

from adversary import *

HUGE = 4 * 10 ** 18
SWARM = ("--slow", "0.1", "--target-batch", "48", "--seed", "1")
STEPS = 6
GRACE = 8  # s: rounds that wait for whoever says that it trains, until it has stayed away from some, and a busy machine


def swarm(*more):
    first = trainer(*SWARM, "--data-seed", "1", *more)
    return [first] + [trainer(*SWARM, "--data-seed", str(k), *more, join=first) for k in (2, 3)]


def epochs(p):
    return [e for e in p.lines() if e["event"] == "epoch"]


def newest(p):
    return max((e["epoch"] for e in epochs(p)), default=0)


def common(p):
    """The epochs that it began with a mean of all three, or more."""
    return [e["epoch"] for e in epochs(p) if e["round_status"] == 0 and e["round_peers"] >= 3]


def wait_common(trainers, n, timeout):
    before = [len(common(p)) for p in trainers]
    for _ in until(timeout):
        if all(len(common(p)) >= k + n for p, k in zip(trainers, before)):
            return True
    return False


class Stranger:
    """Says the same to everybody, again and again: `tell(its peer)` is a list of records, or of raw ones for store()."""

    def __init__(self, victims, tell, source="127.0.0.7", run="r"):
        self.peer, self.key, self.over, self.tell, self.run = Peer(source=source), RecordKey(), False, tell, dht_id(run + "_progress")
        self.address = self.peer.listen()
        serve_dht(self.peer, os.urandom(20))
        self.connections = [self.peer.dial(v.address) for v in victims]
        threading.Thread(target=self.repeat, daemon=True).start()

    def repeat(self):
        while not self.over:
            records = [r if isinstance(r, tuple) else self.key.record(self.run, r, time.time() + 60) for r in self.tell(self.peer)]
            for c in self.connections:
                try:
                    store(c, records)
                except (Closed, CallError, OSError):
                    pass
            time.sleep(0.3)

    def end(self):
        self.over = True
        self.peer.unary.clear()
        self.peer.streaming.clear()
        for c in self.peer.connections:
            c.close()


def goes_on(what, trainers, quiet, act):
    """They take so many common steps more, one after the other, and none of them does anything else; where steps are slow, one may
    miss a round and take over an epoch that another has stepped to."""
    seen = [len(p.lines()) for p in trainers]
    slow = quiet > 5
    begin = time.monotonic()
    strangers = act()
    good = wait_common(trainers, STEPS, 2 * quiet + GRACE)
    took = time.monotonic() - begin
    for s in strangers:
        s.end()
    check(f"{what}: {STEPS} common steps more", good, [(e["epoch"], e["round_status"], e["round_peers"]) for e in epochs(trainers[0])][-12:])
    lines = [p.lines() for p in trainers]
    stepped = {e["epoch"] for said in lines for e in said if e["event"] == "epoch"}
    for p, n, said in zip(trainers, seen, lines):
        later = said[n:]
        went = [e["epoch"] for e in later if e["event"] in (("epoch", "loaded") if slow else ("epoch",))]
        if went != list(range(went[0], went[0] + len(went))) or not set(went) <= stepped or not p.alive():
            check(f"{what}: one epoch after the other", False, (p.alive(), went))
        other = [(e["event"], e.get("text")) for e in later if e["event"] in (("trouble", "end") if slow else
                                                                            ("loaded", "behind", "trouble", "end"))]
        if other:
            check(f"{what}: and nothing else", False, other)
    print(f"     {took:.1f} s, without it {quiet:.1f} s")


def lead(trainers, by):
    """By so much ahead of the one that is foremost, or at that epoch."""
    return max(newest(p) for p in trainers) + by if by < 1000 else by


def averaging(*more):
    """A swarm, and how long it takes for so many common steps while nobody says anything false."""
    trainers = swarm(*more)
    check("three trainers average", wait_common(trainers, 3, 40))
    begin = time.monotonic()
    wait_common(trainers, STEPS, 40)
    return trainers, time.monotonic() - begin


def written(trainers):
    """The epochs of their checkpoints."""
    return {int(f.split("checkpoint-")[-1].split(".")[0]) for p in trainers for f in glob.glob(p.directory + "/checkpoint-*")}
