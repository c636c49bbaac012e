"""DALLE-pytorch's transformer in real hivemind trainers and in our `potluck train`: on the demo's
pairs, from the same parameters, with the run's optimizer and compression. One step of each alone
gives the same parameters; each loads the other's state, bit for bit; together they learn as much as
ours do alone, and agree after a parameter round.

usage: dalle.py POTLUCK
"""
import glob
import json
import math
import os
import signal
import subprocess
import sys
import tempfile

import steps
from steps import step

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "bench"))
import original

original.stand_in()
steps.needs("dalle_pytorch", "hivemind")
import hivemind_compat
from hivemind_dalle import linear
from hivemind_processes import PATIENCE, Peer, not_ours, start_original
from trainer import epochs_of, newest, wait_for, whole

POTLUCK = os.path.abspath(sys.argv[1])
DEMO = os.path.join(HERE, "..", "..", "data", "demo")
HELD_OUT = os.path.join(DEMO, "holdout.txt")
# The demo's model, narrower, and so deep that a layer is shared; its window is DALLE-pytorch
# 1.6.6's. The embedding has more than 2^16 values, so it travels in 8 bits, and everything else in
# halves, as in the run.
CONFIG = {
    "name": "shared", "T": 16, "F": 8, "dim": 64, "depth": 6, "heads": 2, "dim_head": 32, "text_tokens": 2100,
    "image_tokens": 256, "attn_types": ["axial_row", "axial_col", "axial_row", "axial_row", "axial_row", "conv5@1.6.6"],
    "shared_ids": ["0", "1", "2", "3", "0", "4"],
}
PAD = 1
EPOCHS, TARGET, BATCH, PEAK, WARMUP = 8, 96, 8, 0.03, 2
# Seconds. Three peers need four batches each, long enough for the averaging of the parameters to
# run in the background: a sanitized peer's takes more of its batches, and was over with 80 of 96
# samples there.
MATCHMAKING, BATCH_TIME = 2.5 * steps.SLOW, (0.7 if steps.SLOW == 1 else 1.4) * steps.SLOW
HELD_OUT_PAIRS = 64  # whose loss is compared
ALONE_PAIRS = 64  # of the step that both take alone
TABLE = "model.to_logits.1.weight"  # the embedding
FIRST = "checkpoint-000001"  # of a training whose first step had the rate 0: the initial parameters


def captions_as_tokens(captions):
    words = [POTLUCK, "tokenize", "--model", os.path.join(DEMO, "t5_2k.model"), "--max", str(CONFIG["T"])]
    lines = subprocess.run(words, input="\n".join(captions) + "\n", capture_output=True, text=True, check=True,
                           timeout=PATIENCE).stdout.splitlines()
    rows = [[int(i) for i in line.split()] for line in lines]
    return [row + [PAD] * (CONFIG["T"] - len(row)) for row in rows]


def write_pairs(folder):
    """The demo's pairs for the Python side: all in their order, and those that training is
    given."""
    rows = []
    for shard in sorted(glob.glob(os.path.join(DEMO, "*.parquet"))):
        shown = subprocess.run([POTLUCK, "show", "--json", shard], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
        rows += map(json.loads, shown.splitlines())
    tokens = captions_as_tokens([row["caption"] for row in rows])
    codes = [[c for c in memoryview(bytes.fromhex(row["code"])).cast("h")] for row in rows]
    with open(HELD_OUT) as f:
        without = {line.strip() for line in f if line.strip() and line[0] != "#"}
    is_out = [row["caption"] in without for row in rows]
    take = lambda wanted: {"tokens": [t for t, w in zip(tokens, wanted) if w], "codes": [c for c, w in zip(codes, wanted) if w]}
    chosen = set([r for r, out in enumerate(is_out) if out][:HELD_OUT_PAIRS])
    is_asked = [r in chosen for r in range(len(rows))]
    for name, wanted in (("all", [True] * len(rows)), ("pairs", [not out for out in is_out])):
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump({"train": take(wanted), "held_out": take(is_asked)}, f)
    return len(rows)


def train_command(folder, name, *more, steps=EPOCHS):
    return [POTLUCK, "train", "--config", os.path.join(folder, "model.json"), "--data", DEMO, "--optimizer", "lamb32", "--lr", str(PEAK),
            "--warmup", str((WARMUP + 0.5) / steps), "--steps", str(steps), "--threads", "1", "--quiet", "--keep", "0",
            "--out", os.path.join(folder, name), *more]


def python_options(folder, pairs="pairs"):
    return ["--config", os.path.join(folder, "model.json"), "--pairs", os.path.join(folder, pairs + ".json")]


def python_alone(folder, *more, pairs="pairs"):
    """What a Python process that needs nobody says."""
    command = [sys.executable, os.path.join(HERE, "hivemind_dalle.py"), *python_options(folder, pairs), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    sys.stderr.write(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Swarm:
    def __init__(self, folder, run):
        self.folder, self.run, self.peers = folder, run, []

    def path(self, peer, name):
        return os.path.join(self.folder, peer.name, name + ".safetensors")

    def state(self, peer, name):
        """Of a file that is there, or is about to be."""
        wait_for(lambda: os.path.exists(self.path(peer, name)) or peer.wait("closed", 0))
        return hivemind_compat.load_tensors(self.path(peer, name))

    def add(self, kind, *more, steps=EPOCHS):
        """Starts a peer; returns it when it is ready."""
        k = len(self.peers)
        name = f"{self.run}-{k}"
        join = self.peers[0].address() if self.peers else None
        if kind == "c":
            command = train_command(
                self.folder, name, "--run", self.run, "--target-batch", str(TARGET), "--batch", str(BATCH), "--matchmaking-time", str(MATCHMAKING),
                "--averaging-timeout", "60", "--allreduce-timeout", "30", "--listen", "/ip4/127.0.0.1/tcp/0", "--json", "--slow", str(BATCH_TIME),
                "--exclude", HELD_OUT, "--evaluate-every", "0", "--data-seed", str(k + 1), *more, steps=steps)
            peer = Peer(command + (["--join", join] if join else []), self.folder, name)
        else:
            os.mkdir(os.path.join(self.folder, name))
            command = [
                *python_options(self.folder), "--run_id", self.run, "--target_batch_size", str(TARGET), "--batch_size", str(BATCH),
                "--matchmaking_time", str(MATCHMAKING), "--lr", str(PEAK), "--warmup", str(WARMUP), "--total", str(steps), "--epochs", str(steps),
                "--step_seconds", str(BATCH_TIME), "--data_seed", str(k + 1), "--save", os.path.join(self.folder, name), *more]
            peer = start_original("hivemind_dalle.py", command + (["--initial_peers", join] if join else []), self.folder, name)
        peer.kind, peer.name = kind, name
        self.peers.append(peer)
        if peer.wait("ready") is None:
            raise RuntimeError(f"{name} does not get ready: {peer.output()[-300:]}")
        return peer

    def stand_by(self, *more):
        """A peer without data: `potluck peer`."""
        command = [POTLUCK, "peer", "--run", self.run, "--config", os.path.join(self.folder, "model.json"), "--optimizer", "lamb32", "--json",
                   "--listen", "/ip4/127.0.0.1/tcp/0", "--join", self.peers[0].address(), *more]
        name = f"{self.run}-{len(self.peers)}"
        peer = Peer(command, self.folder, name)
        peer.kind, peer.name = "peer", name
        self.peers.append(peer)
        return peer

    def end(self, bad):
        for peer in self.peers:
            peer.end()
            if bad:
                sys.stderr.write(f"--- {peer.name}\n{peer.output()}\n")


def apart(a, b, names):
    """The greatest distance of a tensor from the other's, in its own root mean squares; and whose
    it is."""
    distance = lambda n: float((a[n].reshape(b[n].shape) - b[n]).norm() / b[n].norm().clamp(min=1e-30))
    return max((distance(n), n) for n in names)


def is_same(a, b):
    """Bit for bit, moments too; what one has besides is not the other's business."""
    import torch

    common = set(a) & set(b)
    return len(common) > 100 and all(torch.equal(a[n].flatten().float(), b[n].flatten().float()) for n in common)


def alone(folder, pairs):
    """One step from the same parameters and moments, with the gradient of the same pairs. A mean
    over 64 * 80 positions in float32 has an error of some 1e-6, which LAMB's quotient hands on."""
    subprocess.run(train_command(folder, "alone", "--limit", str(ALONE_PAIRS), "--target-batch", str(ALONE_PAIRS), "--batch", str(ALONE_PAIRS),
                                 "--save-every", "1", steps=5), check=True, timeout=PATIENCE)
    state = lambda n: os.path.join(folder, "alone", f"checkpoint-{n:06}.safetensors")
    with open(os.path.join(folder, "alone", "log.jsonl")) as f:
        log = [json.loads(line) for line in f]
    rows = [r for r in range(pairs) if (r + 1) * ALONE_PAIRS // pairs != r * ALONE_PAIRS // pairs]
    result = python_alone(folder, "--step_from", state(3), "--rows", ",".join(map(str, rows)), "--lr", str(log[3]["lr"]), "--save", folder, pairs="all")
    loss = result[0]["loss"] if result else math.nan
    step("alone: the same loss", abs(loss - log[3]["loss"]) < 1e-5, f"{loss:.6f} and {log[3]['loss']:.6f}")
    before, ours = (hivemind_compat.load_tensors(state(n)) for n in (3, 4))
    theirs = hivemind_compat.load_tensors(os.path.join(folder, "step.safetensors"))
    moved = lambda after: {n: after[n].reshape(before[n].shape) - before[n] for n in before if n in theirs}
    worst, name = apart(moved(theirs), moved(ours), moved(ours))
    step("alone: the same step", worst < 1e-4 and len(moved(ours)) == len(before), f"{worst:.1e} of the step apart, {name}")


def c_begins(swarm):
    c = swarm.add("c", "--save-every", "1", "--slow", "0.2", steps=1000)
    c.wait("epoch", number=WARMUP + 1)
    py = swarm.add("py", steps=1000)
    loaded = py.wait("loaded")
    good = loaded and loaded["epoch"] > 0 and is_same(swarm.state(py, "loaded"), swarm.state(c, f"checkpoint-{loaded['epoch']:06}"))
    step("C begins: Python takes its state over", good, loaded and f"of epoch {loaded['epoch']}")
    good = wait_for(lambda: sum(whole(c, e, 2) for e in epochs_of(c)) >= 2 and len(epochs_of(py)) >= 2, c, py)
    step("C begins: gradients are averaged", good is not None, f"epochs {sorted(epochs_of(py))} of Python's, {newest(c)} of ours")
    helper = swarm.stand_by("--auxiliary", "--target-batch", str(TARGET), "--matchmaking-time", str(MATCHMAKING), "--averaging-timeout", "60",
                            "--allreduce-timeout", "30")
    helped = lambda: [e for e in helper.events if e["event"] == "helped" and e["status"] == 0 and e["peers"] == 3]
    good = wait_for(lambda: helped() and any(whole(c, e, 3) for e in epochs_of(c)), c, py, helper)
    step("C begins: a peer without data adds up a part of Python's gradients and ours", good is not None,
         f"{[(e['status'], e['peers'], e['why']) for e in helper.events if e['event'] == 'helped'][-3:]}")
    first = len(epochs_of(py)) + 1
    step("C begins: and Python goes on with them", py.wait("epoch", number=first + 1) is not None, f"epochs {sorted(epochs_of(py))[-3:]}")


def codes(swarm):
    """The run's own optimizer, whose moments of large tensors are 8-bit codes: either side takes
    over what the other has, codes, tables and all."""
    lamb8 = ["--optimizer", "lamb8"]
    c = swarm.add("c", *lamb8, "--save-every", "1", "--slow", "0.2", steps=1000)
    c.wait("epoch", number=WARMUP + 1)
    py = swarm.add("py", *lamb8, "--more", "2", "--step_seconds", "0.2", steps=1000)
    loaded = py.wait("loaded")
    ours = loaded and swarm.state(c, f"checkpoint-{loaded['epoch']:06}")
    note = loaded and f"of epoch {loaded['epoch']}"
    step("8-bit moments: Python takes ours over", loaded and f"optimizer.{TABLE}.absmax1" in ours and is_same(swarm.state(py, "loaded"), ours), note)
    step("8-bit moments: with the tables that it would make itself", loaded and loaded["own_tables"])
    end = py.wait("end")
    os.kill(c.process.pid, signal.SIGINT)
    c.wait("closed")
    if end is None:
        step("8-bit moments: C takes Python's over", False, f"Python did not end: {py.output()[-300:]}")
        return
    swarm.peers.append(swarm.peers.pop(0))  # a newcomer enters by the first
    late = swarm.add("c", *lamb8, "--save-every", "0", steps=end["epoch"])  # has nothing to do: saves what it has loaded
    late.wait("closed")
    taken = late.wait("loaded", 0)
    good = taken and is_same(swarm.state(late, f"checkpoint-{end['epoch']:06}"), swarm.state(py, "end"))
    step("8-bit moments: C takes Python's over", good, taken and f"of epoch {taken['epoch']}")


def stop_when_averaged(peer, count):
    """Stops one of ours right after a round of the parameters with everybody, not at once and with
    many samples left to its next step: what it then saves is what that round left. Returns what it
    reported of the round."""
    def is_now(e):
        return (e["event"] == "corrected" and not e["round_status"] and e["round_peers"] >= count
                and e["epoch"] > WARMUP + 1 and e["global_samples"] <= TARGET // 2)

    now = lambda: peer.events and is_now(peer.events[-1])
    with peer.changed:  # at once: a step later its parameters are others
        peer.changed.wait_for(lambda: now() or newest(peer) >= EPOCHS or peer.wait("closed", 0), PATIENCE)
    os.kill(peer.process.pid, signal.SIGINT)
    peer.wait("closed")
    rounds = [e for e in peer.events if e["event"] == "corrected"]
    return rounds[-1] if rounds and is_now(rounds[-1]) and rounds[-1]["epoch"] == newest(peer) else None


def lost_in_8_bits(x):
    """What hivemind's encoding leaves of a tensor, as a share of it: also of values beyond three
    deviations, which training brings about."""
    import torch
    from hivemind.compression import Uniform8BitQuantization

    codes, book = map(torch.as_tensor, Uniform8BitQuantization().quantize(x.clone()))
    return float((book[codes.long()].reshape(x.shape) - x).norm() / x.norm())


def agree(swarm, py, c):
    """After an averaging each keeps the error of its own encoding (hivemind adds the difference to
    the mean). Of halves that is 2^-12 of a value on average, less than 2^-11 of the tensor; of 8
    bits, what it is of this very tensor, and of the answer, which loses a tenth at most (a
    double-exponential one, 8 %). An answer is as large as what it makes up for: the error that the
    averaging before left, and the steps since; who has missed the others' gradients has gone
    another way than two others, so that the mean is 4/3 of a step away at most. Two such errors,
    independent: times the root of 2; less where one of the two reduces, which encodes nothing for
    itself. Both sides' parameters are those right after the same round, which all of its peers call
    by the same group: hivemind's next steps, and rounds that it lost a part of and went on without
    a word, are not compared."""
    last = stop_when_averaged(c, 3)
    if last is None:
        step("together: all average their parameters", False, f"{[e for e in c.events if e['event'] == 'corrected'][-3:]}")
        return
    of = lambda whole, e: os.path.join(swarm.folder, py.name, f"{whole}-{e['round']}.safetensors")  # noqa: E731
    file = lambda whole: of(whole, last)  # noqa: E731
    wait_for(lambda: os.path.exists(file("round")) or os.path.exists(file("half")) or py.wait("closed", 0))
    if not os.path.exists(file("round")):
        why = "hivemind lost a part of it" if os.path.exists(file("half")) else "hivemind did not come to its end"
        step("together: a round of the parameters that is whole on both sides", False, f"{why}: {py.output()[-500:]}")
        return
    ours, theirs = swarm.state(c, f"checkpoint-{last['epoch']:06}"), hivemind_compat.load_tensors(file("round"))
    halves, name = apart(ours, theirs, [n for n in theirs if n != TABLE])
    coded = apart(ours, theirs, [TABLE])[0]
    earlier = [e["epoch"] for e in c.events if e["event"] == "corrected" and e["epoch"] < last["epoch"] and not e["round_status"]
               and e["round_peers"] >= 3 and os.path.exists(of("round", e))]
    since, error = max(earlier, default=0), lost_in_8_bits(theirs[TABLE])
    moved = error + 4 / 3 * PEAK * sum(map(linear(WARMUP, EPOCHS), range(since, last["epoch"])))
    limits = [math.sqrt(2) * x for x in (2**-11, math.hypot(error, 0.1 * moved))]
    step("together: the same parameters", halves < limits[0] and coded < limits[1],
         f"epoch {last['epoch']}, averaged at {since}: {halves:.1e} apart in halves, {limits[0]:.1e} allowed ({name}); {coded:.1e} and {limits[1]:.1e} in 8 bits")


def together(swarm, control):
    """Two of ours and a Python peer, from the parameters of the control, which is three of ours."""
    py = swarm.add("py", "--start", os.path.join(swarm.folder, "alone", FIRST + ".safetensors"))
    first, second = swarm.add("c", "--save-every", "0"), swarm.add("c", "--save-every", "0")
    agree(swarm, py, second)
    end, _ = py.wait("end"), [peer.wait("closed") for peer in (first, *control.peers)]
    step("together: the training ends", end is not None and newest(first) == EPOCHS, f"at {end and end['epoch']} and {newest(first)}")
    c = swarm.add("c", "--save-every", "0")  # comes when all is done: loads, has nothing to do, saves
    loaded = c.wait("loaded")
    c.wait("closed")
    good = loaded and is_same(swarm.state(c, f"checkpoint-{EPOCHS:06}"), swarm.state(py, "end"))
    step("together: C takes Python's state over", good, loaded and f"of epoch {loaded['epoch']}")
    saver = swarm.stand_by("--save", os.path.join(swarm.folder, "kept"), "--save-every", "1")
    kept = saver.wait("checkpoint")
    good = kept and kept["epoch"] == EPOCHS and is_same(hivemind_compat.load_tensors(kept["path"]), swarm.state(py, "end"))
    step("together: a peer without data saves Python's state", good, kept or saver.output()[-300:])
    last = f"checkpoint-{EPOCHS:06}"
    as_far(swarm, end, [os.path.join(swarm.folder, "alone", FIRST + ".safetensors"), swarm.path(first, last),
                        control.path(control.peers[0], last)])


def mean(x):
    return sum(x) / len(x)


def as_far(swarm, end, paths):
    """On pairs that nobody trained on. Trainings of ours that differ in the order of their pairs
    alone end within 2 % of what they learn; a tenth is given for rounds that a real peer misses.
    That means something only if they learn: a control with a learning rate of zero would end with
    each pair's loss as it began. So the pairs' losses must have fallen by five of their mean's
    standard errors, by chance less than once in three million."""
    before, ours, reference = [e["held_out"] for e in python_alone(swarm.folder, "--evaluate", *paths)]
    fallen = [b - r for b, r in zip(before, reference)]
    learned, python, c, control = mean(fallen), mean(end["held_out"]), mean(ours), mean(reference)
    error = math.sqrt(sum((x - learned) ** 2 for x in fallen) / (len(fallen) - 1) / len(fallen))
    step("together: the control learns", learned > 5 * error > 0, f"{learned:.3f} nats a pair, standard error {error:.3f}")
    step("together: losses fall as among C alone", max(abs(python - control), abs(c - control)) < 0.1 * learned,
         f"{mean(before):.3f} before; Python {python:.3f}, C {c:.3f}; among C alone {control:.3f}")


def play(name, scenario, folder):
    for number, last in enumerate(steps.attempts()):
        before, swarm = steps.failed, Swarm(folder, f"{name.replace(' ', '-')}-{number}")
        with steps.scenario(name, lambda: not_ours(swarm.peers), last):
            scenario(swarm)
        swarm.end(steps.failed > before or steps.again)


class Control:
    """Three of ours, which train during the other scenarios; three others where they, or what
    follows, did not come to their end."""

    def __init__(self, folder):
        self.folder, self.swarms, self.taken = folder, [], 0
        with steps.scenario("the control", lambda: None, False):
            self.add()

    def add(self):
        self.swarms.append(Swarm(self.folder, f"control-{len(self.swarms)}"))
        for _ in range(3):
            self.swarms[-1].add("c", "--save-every", "0")

    def take(self):
        if self.taken or len(self.swarms[-1].peers) < 3:
            self.add()
        self.taken += 1
        return self.swarms[-1]

    def end(self, bad):
        for swarm in self.swarms:
            swarm.end(bad)


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "model.json"), "w") as f:
            json.dump(CONFIG, f)
        alone(folder, write_pairs(folder))
        control = Control(folder)
        play("C begins", c_begins, folder)
        play("8-bit moments", codes, folder)
        play("together", lambda swarm: together(swarm, control.take()), folder)
        control.end(steps.failed)
    return steps.closing()


if __name__ == "__main__":
    sys.exit(main())
