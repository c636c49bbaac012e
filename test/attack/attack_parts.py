"""Parts of an all-reduce that no honest sender sends: tables, scales and values that are not numbers,
wrong lengths, codecs, groups and weights, parts in another order, twice, late, or half. A trainer
reduces, another one is its client; strangers join their groups, each with one form. The two average
with each other as before, and no part of their model takes harm."""
import math

from adversary import *

PREFIX = "r_grad_averager"
JOIN, PART = (f"{PREFIX}::GradientAverager.{rpc}" for rpc in ("rpc_join_group", "rpc_aggregate_part"))
STATE = "r_state_averager::TrainingStateAverager.rpc_download_state"
SWARM = ("--slow", "0.1", "--seed", "1")
NAN, INF = float("nan"), float("inf")
NONE, MEANSTD16, FLOAT16, QUANTILE8, UNIFORM8, BLOCKWISE8 = range(6)


# --- a part of n values in each codec ------------------------------------------------------------


def tensor(buffer, n, codec, **other):
    return {**dict(buffer=buffer, size=[n], dtype="float32", compression=codec), **other}


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def plain(x):
    return lambda n: tensor(floats(*([0.0] * (n - 1)), x), n, NONE)


def halves(bits):
    return lambda n: tensor(struct.pack(f"<{n}H", *([0] * (n - 1)), bits), n, FLOAT16)


def meanstd(mean, deviation):
    return lambda n: tensor(bytes(2 * n) + floats(mean, deviation), n, MEANSTD16)


def table(codec, *values, codes=256):
    """The values are the table's last ones, and its code 255 is that of every element."""
    return lambda n: tensor(struct.pack("<q", codes) + floats(*([0.0] * (256 - len(values))), *values) + b"\xff" * n, n, codec)


def blockwise(scale, last, blocks=None, codes=256):
    def part(n):
        k = -(-n // 4096)
        return tensor(struct.pack("<qq", k if blocks is None else blocks, codes) + floats(*[scale] * k, *[0.0] * 255, last) + b"\xff" * n, n, BLOCKWISE8)
    return part


zeros = halves(0)

# What an honest reducer leaves out of its mean, and of which it ends the stream.
FALSE = {f"{kind} {what}": part for kind, parts in {
    "float32": {"NaN": plain(NAN), "infinity": plain(INF), "-1e30": plain(-1e30)},
    "float16": {"NaN": halves(0x7e00), "infinity": halves(0x7c00), "-infinity": halves(0xfc00), "a NaN with sign and payload": halves(0xfc01)},
    "meanstd16": {"mean NaN": meanstd(NAN, 1), "deviation NaN": meanstd(0, NAN), "deviation infinite": meanstd(0, INF), "mean -1e30": meanstd(-1e30, 1)},
    "quantile8": {"table NaN": table(QUANTILE8, NAN), "table infinite": table(QUANTILE8, -INF), "table 1e30": table(QUANTILE8, 1e30),
                  "number of codes": table(QUANTILE8, 1, codes=2 ** 62)},
    "uniform8": {"table NaN": table(UNIFORM8, NAN), "unused entry infinite": table(UNIFORM8, INF, 0), "number of codes": table(UNIFORM8, 1, codes=-1)},
    "blockwise8": {"scale NaN": blockwise(NAN, 1), "scale infinite": blockwise(INF, 1), "scale -1e30": blockwise(-1e30, 1), "table NaN": blockwise(1, NAN),
                   "a million blocks": blockwise(1, 1, blocks=10 ** 6), "-1 blocks": blockwise(1, 1, blocks=-1), "2^63 codes": blockwise(1, 1, codes=-2 ** 63)},
    "shape": {"one value more": lambda n: zeros(n + 1), "none": lambda n: tensor(b"", 0, NONE), "2^32 values": lambda n: tensor(bytes(2 * n), 1 << 32, FLOAT16),
              "two axes": lambda n: tensor(bytes(2 * n), n, FLOAT16, size=[1, n]), "half of the bytes": lambda n: tensor(bytes(n), n, FLOAT16),
              "codec 99": lambda n: tensor(bytes(2 * n), n, 99), "bfloat16": lambda n: tensor(bytes(2 * n), n, NONE, dtype="bfloat16"),
              "a megabyte": lambda n: tensor(bytes(1 << 20), 1 << 18, NONE), "no buffer": lambda n: tensor(None, n, FLOAT16)},
}.items() for what, part in parts.items()}

# Strange, but numbers: they count.
STRANGE = {
    "float32 denormal": plain(1e-45), "-0": halves(0x8000), "deviation 0": meanstd(0, 0), "deviation negative": meanstd(0, -1e-3),
    "a table of denormals": table(UNIFORM8, *[1e-45] * 256), "a falling table": table(QUANTILE8, *[-1e-9 * k for k in range(256)]),
    "scale 0": blockwise(0, 1), "scale denormal": blockwise(1e-45, 1), "scale negative": blockwise(-1e-9, 1), "another codec for each part": None,
}
CODECS = [plain(0), meanstd(0, 0), zeros, table(QUANTILE8, 0), table(UNIFORM8, 0), blockwise(0, 0)]


# --- the strangers -------------------------------------------------------------------------------


class Sender:
    """Under a new name it joins one group of the victim, reduces nothing, and sends what send(call,
    group) says. answers: how many parts came back; ended: with what."""
    made = 0

    def __init__(self, victim, send):
        Sender.made += 1
        self.victim, self.send, self.groups, self.answers, self.ended, self.over = victim, send, 0, 0, None, False
        self.peer = Peer(source=f"127.0.2.{Sender.made % 250 + 1}")
        self.peer.listen()
        serve_dht(self.peer, os.urandom(20))
        self.connection = self.peer.dial(victim.address)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over and not self.groups:
            try:
                self.join()
            except (Closed, CallError, OSError):
                self.connection = self.peer.dial(self.victim.address)
            time.sleep(0.01)

    def join(self):
        call = self.connection.stream_call(JOIN, encode("JoinRequest", schema_hash=schema, expiration=time.time() + 30,
                                                        gather=pack([0.0, 0, pack(None)]), group_key=PREFIX + ".0b"))
        if decode("MessageFromLeader", call.receive(5))["code"] != CODES["ACCEPTED"]:
            return
        begun = decode("MessageFromLeader", call.receive(30))
        if begun["code"] != CODES["BEGIN_ALLREDUCE"]:
            return
        self.groups += 1
        parts = self.connection.stream_call(PART, end=False)
        try:
            self.send(parts, begun["group_id"])
        except (Closed, CallError, OSError):
            pass  # the victim has ended the stream before all was sent
        try:
            while (m := parts.receive(10)) is not None:
                code = decode("AveragingData", m)["code"]
                self.answers += code == CODES["AVERAGED_PART"]
                self.ended = None if code == CODES["AVERAGED_PART"] else code
        except (Closed, CallError, OSError) as e:
            self.ended = str(e) or "closed"


def message(part, group=None, weight=1.0):
    return encode("AveragingData", code=None if group is None else CODES["PART_FOR_AVERAGING"], group_id=group, tensor_part=part, weight=weight)


def sends(part, at=0, weight=1.0, group=None):
    """All parts, of which number `at`, or each one if None, is part(its values), and the others are zeros."""
    def send(call, own):
        for k, n in enumerate(sizes):
            call.send(message((part if at in (k, None) else zeros)(n), (own if group is None else group) if k == 0 else None, weight))
        call.end()
    return send


def each_codec(call, group):
    for k, n in enumerate(sizes):
        call.send(message(CODECS[k % len(CODECS)](n), group if k == 0 else None))
    call.end()


def in_order(order, pause=0, ends=True):
    def send(call, group):
        for i, k in enumerate(order):
            call.send(message(zeros(sizes[k]), group if i == 0 else None))
            time.sleep(pause if i == 1 else 0)
        if ends:
            call.end()
    return send


def half(call, group):
    """Half of the second part's message; then silence."""
    call.send(message(zeros(sizes[0]), group))
    m = message(zeros(sizes[1]))
    call.stream.write(b"\0" + struct.pack(">Q", len(m)) + m[:len(m) // 2])


def nothing(call, group):
    """A first message without a part, then the parts."""
    call.send(encode("AveragingData", code=CODES["PART_FOR_AVERAGING"], group_id=group))
    for n in sizes:
        call.send(message(zeros(n)))
    call.end()


# --- the trainers --------------------------------------------------------------------------------


def epochs(p):
    return [e for e in p.lines() if e["event"] == "epoch"]


def together(n, timeout):
    """Each of the two averages n times more with the other: the steps of the first."""
    before = [len(epochs(p)) for p in trainers]
    for _ in until(timeout):
        new = [epochs(p)[k:] for p, k in zip(trainers, before)]
        if all(sum(e["round_status"] == 0 and e["round_peers"] >= 2 for e in es) >= n for es in new):
            break
    return new[0]


def state():
    call = Peer(source="127.0.0.8").dial(trainers[0].address).stream_call(STATE, encode("DownloadRequest"), timeout=30)
    tensors = []
    while (m := call.receive(30)) is not None:
        t = decode("DownloadData", m)["tensor_part"]
        if t["dtype"]:
            tensors.append([t["size"], b""])
        tensors[-1][1] += t["buffer"]
    return tensors


def play(what, sends, answered=None):
    """Each of them in one group. `answered`: whether all of its parts have to come back, or less than
    all; None: either. Those that come too late for the first group are held back: after strangers have
    spoiled parts, others that report no progress wait. They attack a new swarm."""
    over, took, steps = {}, 0, []
    for tries in range(4):
        began, before = time.monotonic(), len(epochs(trainers[0]))
        senders = {name: Sender(trainers[0], send) for name, send in sends.items() if name not in over}
        for _ in until(5):
            if all(s.groups for s in senders.values()):
                break
        for s in senders.values():
            s.over = True
        for s in senders.values():
            s.thread.join(15)
            s.connection.close()
        took += time.monotonic() - began
        steps += epochs(trainers[0])[before:]
        over.update({name: s for name, s in senders.items() if s.groups})
        if len(over) == len(sends):
            break
        swarm()
    good = sum(e["round_status"] == 0 and e["round_peers"] >= 2 for e in steps)
    failed = [(e["round_status"], e["round_peers"], e["why"]) for e in steps if e["round_status"] and e["round_peers"] > 1]
    for name in sends:
        s = over.get(name)
        right = s and (answered is None or (s.answers == len(sizes)) == answered)
        check(f"{what}, {name}: {'answered' if answered else 'ended' if answered is False else 'borne'}", right, (s.answers, s.ended) if s else "in no group")
    check(f"{what}: no round fails, and the trainers' steps are averaged", not failed and good >= 0.8 * len(steps) - 1, (failed, good, len(steps)))
    print(f"     {took:.1f} s; {good} of {len(steps)} steps averaged")


def client(join):
    """A trainer that accepts no connections, so the other one reduces all parts, whole tensors in order."""
    return Process("train", "--run", "r", "--client-mode", "--join", join.address, "--config", "test/program/tiny.json", "--limit", "64", "--batch", "8",
                   "--target-batch", "16", "--save-every", "0", "--threads", "1", "--matchmaking-time", "1", "--steps", "1000000", "--data-seed", "2",
                   "--out", os.path.join(WORK, "client"), "--no-check", "--quiet", "--json", *SWARM)


def swarm():
    """A trainer and its client, which average."""
    for p in trainers:
        p.stop()
    first = trainer(*SWARM, "--data-seed", "1")
    first.wait_for("epoch", 60)
    trainers[:] = [first, client(first)]
    check("a trainer and its client average", together(3, 60))


def unharmed():
    """They go on, and their model is one."""
    steps = together(3, 30)
    check("they average as before", sum(e["round_status"] == 0 and e["round_peers"] == 2 for e in steps) >= 3, [(e["round_status"], e["round_peers"]) for e in steps])
    check("and both live, in little memory", all(p.alive() and p.peak() < 256 for p in trainers), [p.peak() for p in trainers])
    losses = [e["loss"] for p in trainers for e in epochs(p)]
    check("their losses are as at the beginning or lower", all(0 < x < losses[0] + 1 for x in losses), (losses[0], max(losses)))
    values = [x for size, buffer in state()[:count] for x in struct.unpack(f"<{len(buffer) // 4}f", buffer)]
    check("their parameters are numbers of usual size", all(abs(x) < 10 for x in values), [x for x in values if not abs(x) < 10][:5])


trainers = []
swarm()
schema = ask_for_schema(trainers[0], PREFIX, JOIN)
# A state begins with the parameters; the moments behind them come in pairs of one shape.
shapes = [t[0] for t in state()]
count = next(k for k in range(1, len(shapes)) if shapes[k] == shapes[0] and shapes[k + 1] == shapes[0])
sizes = [math.prod(s) for s in shapes[:count]]
last = len(sizes) - 1

play("honest", {"zeros": sends(zeros)}, answered=True)
play("strange", {name: sends(part) if part else each_codec for name, part in STRANGE.items()}, answered=True)
play("false", {
    **{name: sends(part) for name, part in FALSE.items()},
    **{f"{name}, in the last part": sends(part, at=last) for name, part in list(FALSE.items())[::3]},
    **{f"weight {w:g}": sends(zeros, weight=w) for w in (NAN, INF, -INF, -1.0, 1e300, 1e9, 1000.0)},
    "another group": sends(zeros, group=os.urandom(20)), "a group's name of 4 kB": sends(zeros, group=bytes(4000)), "no group": sends(zeros, group=b""),
    "backwards": in_order(range(last, -1, -1)), "one twice": in_order([0, 0, *range(1, last + 1)]), "one left out": in_order(range(1, last + 1)),
    "no part in the first message": nothing, "the end after two": in_order([0, 1])}, answered=False)
unharmed()

swarm()
play("late", {"all twice": in_order([*range(last + 1)] * 2), "silence after two": in_order([0, 1], ends=False), "half a part": half,
              "five seconds after two": in_order(range(last + 1), pause=5)})
unharmed()
finish()
