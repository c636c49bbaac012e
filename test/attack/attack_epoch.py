"""False progress: epochs that nobody has trained, samples and speeds that nobody has, reported in
records of the DHT. Three trainers continue their common steps unaffected, at their
own epoch; none ends before its own --steps, and none writes a checkpoint of another epoch."""
from false_progress import *

# --- from the first moment to the end ------------------------------------------------------------

END = 20
trainers = swarm("--steps", str(END), "--save-every", "5")
attacker = Stranger(trainers, lambda me: [progress(me.id, HUGE, 10, 100.0)])
codes = []
for p in trainers:
    try:
        codes.append(p.popen.wait(60))
    except subprocess.TimeoutExpired:
        codes.append(None)
attacker.end()
check("each ends with its own --steps", codes == [0] * 3 and [newest(p) for p in trainers] == [END] * 3, (codes, [newest(p) for p in trainers]))
# The first one is alone until the others have started and have its state.
entered = max(next((e["epoch"] for e in p.lines() if e["event"] == "loaded"), END) for p in trainers[1:])
check("the others take over its state", entered < END - 8, entered)
check("most steps since then are common", all(len(common(p)) >= max(8, (END - entered) / 2) for p in trainers),
      (entered, [common(p) for p in trainers]))
check("checkpoints are of epochs that were trained", written(trainers) and written(trainers) <= set(range(END + 1)), written(trainers))

# --- while they train ----------------------------------------------------------------------------

trainers, quiet = averaging("--save-every", "20")
first = trainers[0]

goes_on("30 ahead", trainers, quiet, lambda: [Stranger(trainers, lambda me, e=lead(trainers, 30): [progress(me.id, e, 10)])])
goes_on("2 ahead", trainers, quiet, lambda: [Stranger(trainers, lambda me, e=lead(trainers, 2): [progress(me.id, e, 10)])])
goes_on("always one ahead", trainers, quiet, lambda: [Stranger(trainers, lambda me: [progress(me.id, lead(trainers, 1), 10)])])
goes_on("six that are 30 ahead", trainers, quiet,
        lambda: [Stranger(trainers, lambda me, e=lead(trainers, 30): [progress(me.id, e, 10)], f"127.0.1.{k}") for k in range(1, 7)])
goes_on("in the trainers' names", trainers, quiet,
        lambda: [Stranger(trainers, lambda me: [progress(first.peer, lead(trainers, 30), 10)]),
                 Stranger(trainers, lambda me: [progress(trainers[1].peer, lead(trainers, 30), 10)])])
goes_on("samples of 2^63 - 1", trainers, quiet, lambda: [Stranger(trainers, lambda me: [progress(me.id, lead(trainers, 0), 2 ** 63 - 1)])])


def steps_of(trainers, seconds=4):
    """Batches of all together, and seconds, for each step in this time."""
    def count():
        return sum(e["event"] == "batch" for p in trainers for e in p.lines()), newest(first)

    batches, epoch = count()
    time.sleep(seconds)
    now, last = count()
    return (now - batches) / max(1, last - epoch), seconds / max(1, last - epoch)


def takes_its_batches(what, act):
    """A step still takes most of its batches, and no round waits for the strangers."""
    for once_more in (True, False):
        attacker = act()
        for _ in until(10):
            if attacker.ready:
                break
        time.sleep(2)
        made = steps_of(trainers)
        attacker.end()
        if made[1] < without[1] + 0.5 or not once_more:
            break
        retried(what, made)  # the machine is busy
    check(f"{what}: a step takes most of its batches", made[0] >= 5.5, (made, without))
    check(f"{what}: rounds do not wait for them", made[1] < without[1] + 0.5, (made, without))
    print(f"     {made[0]:.1f} batches and {made[1]:.2f} s a step, without it {without[0]:.1f} and {without[1]:.2f} s")


# New names cost nothing. Without a bound, three batches made a step of twelve, and each step waited a second for the names.
without = steps_of(trainers)
takes_its_batches("samples under new names", lambda: Renamed(trainers, lambda me: [progress(me.id, lead(trainers, 0), 2 ** 63 - 1)]))
takes_its_batches("speed under new names", lambda: Renamed(trainers, lambda me: [progress(me.id, lead(trainers, 0), 0, 1e9)]))

class OneKey(Renamed):
    KEYS = 1


def rounds_that_wait(act):
    """Of sixteen steps, after the first few, those whose round has waited for somebody."""
    attacker = act()
    time.sleep(4)
    begin = len(epochs(first))
    for _ in until(40):
        if len(epochs(first)) >= begin + 16:
            break
    attacker.end()
    return sum(e["seconds"] > 0.7 for e in epochs(first)[begin:begin + 16]), len(epochs(first)) - begin


# A key has one name: it is waited for once, not in one round of four.
for once_more in (True, False):
    waited = rounds_that_wait(lambda: OneKey(trainers, lambda me: [progress(me.id, lead(trainers, 0), 8, 80.0)]))
    if waited[0] <= 2 or not once_more:
        break
    retried("one key under new names", waited)
check("one key under new names: rounds do not wait for it", waited[0] <= 2 and waited[1] >= 16, waited)
print(f"     {waited[0]} of 16 rounds waited")

# A run of three is not in parts, whatever sums of parts anybody signs. Once they were believed, it stood still.
PART = b"\x12\x20potluck progress" + struct.pack(">BIII", 4, 0, 4 * 10 ** 9, 0) + b"\0\0\0"
takes_its_batches("sums of parts", lambda: Renamed(trainers, lambda me: [progress(PART, lead(trainers, 0), 2 ** 60, 1e9)]))


class FalseLeader(Stranger):
    """Reports progress, declares itself before everybody else, and disbands each group soon after it has accepted somebody."""

    def __init__(self, *args):
        super().__init__(*args)
        self.asked = 0
        self.peer.streaming["r_grad_averager::GradientAverager.rpc_join_group"] = self.on_join

    def on_join(self, call, connection):
        call.receive()
        self.asked += 1
        call.send(encode("MessageFromLeader", code=CODES["ACCEPTED"]))
        time.sleep(0.2)
        call.send(encode("MessageFromLeader", code=CODES["GROUP_DISBANDED"]))
        call.finish()


def lead_falsely(me):
    key = dht_id("r_grad_averager.0b")
    return [progress(me.id, lead(trainers, 0), 8, 80.0), (key, pack(me.id), b"\xc3", time.time() + 0.6)]


leaders = []
took = under(trainers, quiet, lambda: leaders.append(FalseLeader(trainers, lead_falsely)) or leaders)[1]
check("a leader that disbands its groups is asked a few times only", 0 < leaders[0].asked <= 12, leaders[0].asked)
print(f"     {leaders[0].asked} times; {took:.1f} s, without it {quiet:.1f} s")


def odd(me):
    """One of many records that no honest peer writes, another one each time."""
    e = lead(trainers, 0)
    nan, inf = float("nan"), float("inf")
    values = [progress(me.id, e, 5, s, t) for s in (nan, inf, -inf, 1e308, -1e308) for t in (time.time(), 1e308, -1e308, nan)]
    values += [progress(me.id, x, x) for x in (-1, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1)]
    values += [{**progress(me.id, e), k: v} for k in progress(b"", 0) for v in (None, "x" * 5000, b"", [], {}, -2 ** 63, 1e308)]
    values += [None, 5, [], {}, "x" * 20000, progress(b"x" * 5000, e), progress(b"", e)]
    return [random.Random(time.time()).choice(values)]


goes_on("fields that no honest peer has", trainers, quiet, lambda: [Stranger(trainers, odd, f"127.0.2.{k}") for k in range(1, 4)])

# What strangers have reported is in the DHT for another minute.
late = trainer(*SWARM, "--data-seed", "4", join=first)
loaded = late.wait_for("loaded", 30)
check("a newcomer takes over the trainers' epoch", loaded and loaded["epoch"] <= lead(trainers, 2),
      [e for e in late.lines() if e["event"] != "batch"])
check("and is among them", wait_common([*trainers, late], 3, 30), [(e["epoch"], e["round_peers"]) for e in epochs(late)])
late.stop()

# Known peers' own keys are known; a newcomer does not know them.
names = [Stranger(trainers, lambda me, p=p: [progress(p.peer, 0, 0, 0.0)], f"127.0.3.{k}") for k, p in enumerate(trainers, 1)]
names += [Stranger(trainers, lambda me, p=p: [progress(p.peer, HUGE, 0, 0.0)], f"127.0.4.{k}") for k, p in enumerate(trainers, 1)]
time.sleep(1)
late = trainer(*SWARM, "--data-seed", "5", join=first)
loaded = late.wait_for("loaded", 30)
check("in all trainers' names, at epoch 0 and far ahead: a newcomer takes over their state", loaded and 0 < loaded["epoch"] <= lead(trainers, 2),
      (lead(trainers, 0), [e for e in late.lines() if e["event"] != "batch"][-5:]))
check("and makes steps with them", wait_common([*trainers, late], 3, 40) and abs(newest(late) - newest(first)) <= 2,
      (newest(first), [(e["epoch"], e["round_peers"]) for e in epochs(late)][-8:]))
for s in names:
    s.end()
late.stop()
check("checkpoints are of epochs that were trained", written(trainers) and max(written(trainers)) <= lead(trainers, 0), written(trainers))
check("all live to be ended", [p.stop() for p in trainers] == [0] * 3)
finish()
