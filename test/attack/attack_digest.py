"""False digests of parameters: strangers say that all trainers have diverged, by keys of their own,
as themselves and in the trainers' names. Nobody downloads a state, and nobody is named."""
from false_progress import *

KEYS = 5  # more than there are trainers
FALSE_SUMS = struct.pack("<32f", *[1e3] * 32)


def step(trainers, back=0):
    """A trainer's event of a common step, this many before the newest: its group and epoch."""
    return [e for e in epochs(trainers[0]) if e["round_status"] == 0 and e["round_peers"] >= 3][-1 - back]


def digest_key(e):
    return dht_id("r_digest." + e["round"])


def false_digests(trainers, names):
    """Under the key of the newest step, one by each of the stranger's keys."""
    keys = [RecordKey() for _ in range(KEYS)]

    def tell(me):
        e = step(trainers)
        return [key.record(digest_key(e), dict(peer_id=peer, epoch=e["epoch"], step=0.0, sums=FALSE_SUMS), time.time() + 60)
                for key, peer in zip(keys, names(me))]

    return lambda: [Stranger(trainers, tell)]


trainers, quiet = averaging()
c, stored = Peer(source="127.0.0.8").dial(trainers[0].address), set()
for _ in until(20):
    result = find(c, [digest_key(step(trainers, 1))])[0]
    stored = set(unpack(result["value"])) if result["type"] == 2 else stored
    if len(stored) == 3:
        break
check("each trainer has stored a digest of a common step", len(stored) == 3, stored)
goes_on("digests of their own", trainers, quiet, false_digests(trainers, lambda me: [me.id] * KEYS))
goes_on("digests in the trainers' names", trainers, quiet,
        false_digests(trainers, lambda me: [p.peer for p in trainers] + [trainers[0].peer] * 2))
check("all live to be ended", [p.stop() for p in trainers] == [0] * 3)
finish()
