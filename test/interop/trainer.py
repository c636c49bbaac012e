"""Collaborative training in every mix of C peers and real hivemind trainers: which kind begins,
which loads its state from which, which is killed and replaced.

usage: trainer.py POTLUCK [SCENARIO ...]
"""
import os
import re
import sys
import tempfile
import time

import steps
from steps import step

HERE = os.path.dirname(os.path.abspath(__file__))
steps.needs("hivemind")
import hivemind_compat
from hivemind_averager import made_tensor
from hivemind_processes import PATIENCE, Peer, not_ours, start_original

TRAINER = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "interop", "trainer")
SHAPES = [(64, 32), (64,), (8, 64), (8,), (70000,)]  # the last travels in 8 bits
MATCHMAKING = 4.0
TARGET = 128
BATCH, STEP_SECONDS = 16, 0.3
EPOCHS_PATIENCE = 50  # for common steps: two minutes of a peer that is alone


class Peers:
    """A swarm of ours and of real trainers, one after the other; the first one is everybody's initial peer."""

    def __init__(self, name, folder):
        self.name, self.folder, self.peers, self.first = name, folder, [], None

    def start_hivemind(self, *more):
        """A real trainer, with what all of them share."""
        k = len(self.peers)
        command = ["--run_id", "mix", "--target_batch_size", str(TARGET), "--batch_size", str(BATCH), "--step_seconds", str(STEP_SECONDS),
                   "--matchmaking_time", str(MATCHMAKING), "--averaging_timeout", "60", "--allreduce_timeout", "30", "--seed", str(k + 1), "--linger", "3"]
        command += ["--initial_peers", self.first] if self.first else []
        return start_original("hivemind_trainer.py", command + list(more), self.folder, f"peer{k}")

    def await_ready(self, peer, kind):
        """Returns it when it is ready."""
        k, peer.kind = len(self.peers), kind
        self.peers.append(peer)
        if peer.wait("ready") is None:  # else everything below would wait for it until patience runs out
            raise RuntimeError(f"peer {k} ({kind}) does not get ready: {peer.output()[-300:]}")
        self.first = self.first or peer.address()
        return peer

    def end(self, bad):
        for k, peer in enumerate(self.peers):
            peer.end()
            if bad:
                sys.stderr.write(f"--- {self.name}: peer {k}\n{peer.output()}\n")


class Swarm(Peers):
    def __init__(self, name, folder):
        super().__init__(name, folder)
        for file, seed in (("model", 500), ("targets", 900)):
            tensors = {f"t{i}": made_tensor(s, seed + i, 2.0) for i, s in enumerate(SHAPES)}
            hivemind_compat.save_tensors(os.path.join(folder, file + ".safetensors"), tensors)

    def add(self, kind, *more, epochs=1000):
        k = len(self.peers)
        files = [os.path.join(self.folder, n + ".safetensors") for n in ("model", "targets")]
        if kind == "py":
            return self.await_ready(self.start_hivemind("--model", files[0], "--targets", files[1], "--epochs", str(epochs), *more), kind)
        command = [TRAINER, "--run", "mix", "--model", files[0], "--targets", files[1], "--target-batch", str(TARGET), "--batch", str(BATCH),
                   "--step-seconds", str(STEP_SECONDS), "--matchmaking-time", str(MATCHMAKING), "--epochs", str(epochs), "--seed", str(k + 1)]
        command += ["--join", self.first] if self.first else []
        return self.await_ready(Peer(command + list(more), self.folder, f"peer{k}"), kind)


def epochs_of(peer):
    return {e["epoch"]: e for e in list(peer.events) if e["event"] == "epoch"}


def newest(peer):
    return max(epochs_of(peer), default=0)


def wait_for(what, *peers):
    """Until it is so; seconds it took, or None when patience has run out, or one of these has
    ended: then nothing more comes."""
    begun = time.time()
    while time.time() < begun + PATIENCE:
        over = any(p.wait("closed", 0) for p in peers)
        if what():
            return time.time() - begun
        if over:
            break
        time.sleep(0.1)
    return None


def wait_epochs(peers, more):
    """Until each of the peers has finished this many more epochs."""
    goals = [newest(p) + more for p in peers]
    return wait_for(lambda: all(newest(p) >= g for p, g in zip(peers, goals)), *peers)


def whole(peer, epoch, count):
    """Whether one of ours averaged this epoch's gradients with everybody."""
    e = epochs_of(peer).get(epoch)
    return e is not None and e["round_status"] == 0 and e["round_peers"] >= count


def together(name, peers, more=3, note=""):
    """They go on, at the same epochs, with common steps. A real peer misses a round now and then
    (it gives up on a leader who is late by some seconds, two of them often every other one), so it
    is waited for three of the last six that nobody missed; in the cycle of two who wait for each
    other there is none."""
    took = wait_epochs(peers, more)
    step(f"{name}: they go on", took is not None, f"{more} epochs in {took and round(took, 1)} s{note}")
    step(f"{name}: at the same epoch", wait_for(lambda: max(map(newest, peers)) - min(map(newest, peers)) <= 1, *peers) is not None,
         [newest(p) for p in peers])
    for p in peers:
        if p.kind == "c":
            def most_are_common(p=p):
                return sum(whole(p, newest(p) - back, len(peers)) for back in range(6)) >= 3

            last = newest(p) + EPOCHS_PATIENCE
            wait_for(lambda: most_are_common() or newest(p) >= last, *peers)
            step(f"{name}: gradients are averaged", most_are_common(),
                 [(e["round_status"], e["round_peers"], e["why"]) for _, e in sorted(epochs_of(p).items())][-3:])
    return took


def same_parameters(name, a, b):
    """They come to agree: checksums after epochs that followed two whole rounds. Each keeps its own
    rounding, up to some thousandths, and what a newcomer brought has to be averaged away first."""
    ours = a if a.kind == "c" else b
    seen = {}

    def apart(epoch):
        x, y = epochs_of(a)[epoch]["checksums"], epochs_of(b)[epoch]["checksums"]
        return max(abs(x[n] - y[n]) for n in x if n != "t4")

    def agree():
        common = [e for e in sorted(set(epochs_of(a)) & set(epochs_of(b))) if whole(ours, e, 2) and whole(ours, e - 1, 2)]
        seen.update({e: round(apart(e), 4) for e in common})
        return len(common) >= 2 and all(seen[e] < 0.02 for e in common[-2:])

    good = wait_for(agree, a, b)
    step(f"{name}: the same parameters", good is not None, f"apart by epoch: {dict(list(seen.items())[-6:])}")


def newcomer(name, first, add):
    """One trains; another, which add() starts, takes its state over. Returns both once they agree."""
    first.wait("epoch")
    second = add()
    loaded = second.wait("loaded")
    step(f"{name}: the newcomer takes the state over", loaded is not None and loaded["epoch"] > 0, loaded and loaded["epoch"])
    together(name, [first, second])
    same_parameters(name, first, second)
    return first, second


def py_first(swarm, name):
    newcomer(name, swarm.add("py", "--no_delay"), lambda: swarm.add("c"))


def c_first(swarm, name):
    newcomer(name, swarm.add("c"), lambda: swarm.add("py", "--no_delay"))


def delayed(swarm, name):
    """The run's setting: the optimizer step overlaps with the next batches; in ours the averaging
    does, too."""
    together(name, [swarm.add("py"), swarm.add("c", "--delay", "round")], 5)


def with_schedule(swarm, name):
    py = swarm.add("py", "--no_delay", "--warmup", "10")
    c = swarm.add("c", "--warmup", "10")
    together(name, [py, c])
    same_parameters(name, py, c)


def three(swarm, name):
    peers = [swarm.add("c", "--delay", "step"), swarm.add("py"), swarm.add("py")]
    together(name, peers)


def client(swarm, name):
    peers = [swarm.add("py"), swarm.add("c", "--client-mode")]
    together(name, peers)


def killed(swarm, name):
    """A real trainer dies and another comes: the survivor is in step with it within a few
    epochs."""
    c, py = swarm.add("c"), swarm.add("py")
    together(name + ", before", [c, py], 2)
    py.end()
    swarm.peers.remove(py)
    took = wait_epochs([c], 2)
    step(f"{name}: the survivor goes on", took is not None, took and f"2 epochs in {took:.1f} s")
    again = swarm.add("py")
    again.wait("epoch")
    together(name + ", after", [c, again], 2)


def warnings(peer):
    return [e["text"] for e in list(peer.events) if e["event"] == "trouble" and "--target-batch" in (e["text"] or "")]


def other_target(swarm, name):
    """Real peers' records do not contain their target batch. A peer with another one prints once at
    how many samples they seem to step."""
    swarm.add("py")
    swarm.add("py")
    equal = swarm.add("c")
    more = swarm.add("c", "--target-batch", str(32 * TARGET))
    took = wait_for(lambda: warnings(more), *swarm.peers)
    about = re.search("stepped ([0-9]+) times without us, at about ([0-9]+) to [0-9]+ samples", "".join(warnings(more)))
    # Batches go on while a group is looked for: a busy machine's steps are long, and have more samples than the target.
    most = about and took and max(2 * TARGET, len(swarm.peers) * BATCH / STEP_SECONDS * took / int(about[1]))
    step(f"{name}: it is warned", most and TARGET / 4 <= int(about[2]) <= most, (took, most, warnings(more)))
    wait_epochs([equal], 3)
    step(f"{name}: once, and a peer with the same target batch is not", len(warnings(more)) == 1 and not warnings(equal), (warnings(more), warnings(equal)))


def cycle(swarm, name):
    """If one of two real trainers is killed and replaced, they may wait for each other forever. A
    C peer that joins lets them step again."""
    first, second = swarm.add("py"), swarm.add("py")
    wait_epochs([first, second], 2)
    second.end()
    swarm.peers.remove(second)
    second = swarm.add("py")
    second.wait("epoch")
    alone = wait_epochs([first], 2)
    c = swarm.add("c")
    c.wait("epoch")
    together(name, [first, second, c], 4, f"; {alone and round(alone / 2, 1)} s an epoch before")


SCENARIOS = {
    "Python begins": py_first, "C begins": c_first, "delayed steps": delayed, "a schedule": with_schedule,
    "three": three, "C client": client, "killed and replaced": killed, "the cycle": cycle, "another target": other_target,
}


def play(scenarios, swarm_of):
    """Those whose names match the command line."""
    for name, scenario in steps.part_of(scenarios.items()):
        if sys.argv[2:] and not any(re.search(only, name) for only in sys.argv[2:]):
            continue
        for last in steps.attempts():
            with tempfile.TemporaryDirectory() as folder:
                before, swarm = steps.failed, swarm_of(name, folder)
                with steps.scenario(name, lambda: not_ours(swarm.peers), last):
                    scenario(swarm, name)
                swarm.end(steps.failed > before)
    return steps.closing()


if __name__ == "__main__":
    sys.exit(play(SCENARIOS, Swarm))
