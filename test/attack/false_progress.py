"""Three trainers that average, attackers that report false progress, and whether the trainers
continue unaffected: shared by attack_epoch.py and attack_epoch_state.py."""
import glob

from adversary import *

HUGE = 4 * 10 ** 18
SWARM = ("--slow", "0.05", "--target-batch", "96", "--seed", "1")  # a step of twelve batches
STEPS = 6
GRACE = 8  # s: rounds wait for a peer that reports training until it has missed some of them; and for a busy machine


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
    """Says the same to everybody, again and again: `tell(its peer)` is a list of records, or of raw
    ones for store()."""

    def __init__(self, victims, tell, source="127.0.0.7", run="r"):
        self.peer, self.key, self.over, self.tell, self.run = Peer(source=source), RecordKey(), False, tell, dht_id(run + "_progress")
        self.ready = False
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


class Renamed(Stranger):
    """Under eight keys, and under new names all the time, each at the trainers' epoch or one of the next two."""
    KEYS = 8

    def repeat(self):
        keys = [RecordKey() for _ in range(self.KEYS)]
        self.ready = True
        while not self.over:
            records = [(k, {**r, "epoch": r["epoch"] + i % 3}) for i, k in enumerate(keys) for r in self.tell(Peer())]
            for c in self.connections:
                try:
                    store(c, [k.record(self.run, r, time.time() + 60) for k, r in records])
                except (Closed, CallError, OSError):
                    pass
            time.sleep(0.1)


def under(trainers, quiet, act):
    """The strangers act until all trainers have made this many more common steps. What went wrong,
    and the seconds."""
    seen = [len(p.lines()) for p in trainers]
    begin = time.monotonic()
    strangers = act()
    good = wait_common(trainers, STEPS, 2 * quiet + GRACE)
    took = time.monotonic() - begin
    for s in strangers:
        s.end()
    wrong = [] if good else [("too few common steps", [(e["epoch"], e["round_status"], e["round_peers"]) for e in epochs(trainers[0])][-12:])]
    for p, n in zip(trainers, seen):
        later = p.lines()[n:]
        went = [e["epoch"] for e in later if e["event"] == "epoch"]
        if not p.alive() or not went or went != list(range(went[0], went[0] + len(went))):
            wrong.append(("not one epoch after the other", p.alive(), went))
        wrong += [(e["event"], e.get("text")) for e in later if e["event"] in ("loaded", "behind", "trouble", "end")]
    return wrong, took


def goes_on(what, trainers, quiet, act):
    """They take this many more common steps, one after the other, and none of them does anything
    else. On a busy machine a trainer of such short steps misses a round by itself now and then, so
    what fails is played once more, and counted: an attack that works does so each time."""
    wrong, took = under(trainers, quiet, act)
    if wrong:
        retried(what, wrong)
        wrong, took = under(trainers, quiet, act)
    check(f"{what}: {STEPS} common steps more, and nothing else", not wrong, wrong)
    print(f"     {took:.1f} s, without it {quiet:.1f} s")


def lead(trainers, by):
    """By so much ahead of the one that is foremost, or at that epoch."""
    return max(newest(p) for p in trainers) + by if by < 1000 else by


def averaging(*more):
    """A swarm, and how long it takes for this many common steps while nobody says anything false."""
    trainers = swarm(*more)
    check("three trainers average", wait_common(trainers, 3, 40))
    begin = time.monotonic()
    wait_common(trainers, STEPS, 40)
    return trainers, time.monotonic() - begin


def written(trainers):
    """The epochs of their checkpoints."""
    return {int(f.split("checkpoint-")[-1].split(".")[0]) for p in trainers for f in glob.glob(p.directory + "/checkpoint-*")}
