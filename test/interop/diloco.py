"""DiLoCo in every mix of our peers and peers by OpenDiLoCo's rules on hivemind's averagers: which kind
begins, which takes whose state over, what our peers do when a round fails.

usage: diloco.py POTLUCK [SCENARIO ...]
"""
import os
import signal
import sys

import steps
from steps import step

steps.needs("hivemind")
import trainer
from trainer import epochs_of, newest, wait_epochs, wait_for

from hivemind_processes import Peer, start_original

H, BATCH, MATCHMAKING, SECONDS = 8, 16, 3.0, 0.6  # a round of phi ends within the inner steps, as in real runs
TIMEOUT = 20.0  # s for a round; as with 15 s and 60 s by default, it is some times the matchmaking time
NEAR = 1e-5  # of a tensor's sum, relative: float32 without compression


class Swarm(trainer.Swarm):
    def add(self, kind, *more, epochs=1000):
        k = len(self.peers)
        model, targets = (f"{self.folder}/{n}.safetensors" for n in ("model", "targets"))
        join = self.first
        if kind == "py":
            command = ["--run_id", "mix", "--model", model, "--targets", targets, "--batch_size", str(BATCH), "--inner_steps", str(H),
                       "--step_seconds", str(SECONDS), "--matchmaking_time", str(MATCHMAKING), "--averaging_timeout", str(TIMEOUT),
                       "--seed", str(k + 1), "--epochs", str(epochs)]
            command += ["--initial_peers", join] if join else []
            return self.await_ready(start_original("hivemind_diloco.py", command + list(more), self.folder, f"peer{k}"), kind)
        command = [trainer.TRAINER, "--run", "mix", "--model", model, "--targets", targets, "--target-batch", str(BATCH), "--batch", str(BATCH),
                   "--inner-steps", str(H), "--step-seconds", str(SECONDS), "--matchmaking-time", str(MATCHMAKING), "--compression", "none",
                   "--epochs", str(epochs), "--seed", str(k + 1)]
        command += ["--join", join] if join else []
        return self.await_ready(Peer(command + list(more), self.folder, f"peer{k}"), kind)


def whole(peer, epoch, count):
    e = epochs_of(peer).get(epoch)
    return e is not None and e["round_status"] == 0 and e["round_peers"] == count


def go_on(name, peers, more):
    took = wait_epochs(peers, more)
    step(f"{name}: they go on", took is not None, f"{more} outer steps in {took and round(took, 1)} s")


def has_lost(peers):
    """One of several real peers was given up by another one. hivemind keeps the old values of what is lost and calls the round
    a success, so their outer steps differ, and nothing makes their momenta equal again."""
    real = [p for p in peers if p.kind == "py"]
    return len(real) > 1 and any(words in p.output() for p in real for words in ("of input tensors", "% results"))


def together(name, peers, more=3):
    """Outer steps with everybody from now on, after which all have the same phi."""
    since = max(map(newest, peers))
    go_on(name, peers, more)

    def common():
        every = set.intersection(*(set(epochs_of(p)) for p in peers))
        return [e for e in sorted(every) if e > since and all(whole(p, e, len(peers)) for p in peers)]

    def apart(e):
        sums = [epochs_of(p)[e]["checksums"] for p in peers]
        return max(abs(s[n] - sums[0][n]) / max(1, abs(sums[0][n])) for s in sums for n in s)

    good = wait_for(lambda: len(common()) >= 2 and all(apart(e) < NEAR for e in common()[-2:]) or has_lost(peers), *peers)
    note = "; a real peer has lost a part of a mean" if has_lost(peers) else ""
    step(f"{name}: the same parameters{note}", good is not None, {e: float(f"{apart(e):.1g}") for e in common()[-5:]})


def newcomer(name, swarm, kinds):
    first = swarm.add(kinds[0])
    wait_epochs([first], 2)
    second = swarm.add(kinds[1])
    loaded = wait_for(lambda: [e for e in list(second.events) if e["event"] == "loaded" and e["epoch"] > 0], second)
    step(f"{name}: the newcomer takes the state over", loaded is not None)
    together(name, [first, second], 3)


def py_first(swarm, name):
    newcomer(name, swarm, ("py", "c"))


def c_first(swarm, name):
    newcomer(name, swarm, ("c", "py"))


def three(swarm, name):
    peers = [swarm.add("py"), swarm.add("c"), swarm.add("c")]
    together(name, peers)


def two_originals(swarm, name):
    peers = [swarm.add("c"), swarm.add("py"), swarm.add("py")]
    together(name, peers)


def stopped_and_killed(swarm, name):
    """A real peer stands still for a while: our round fails, ours goes on alone, and the real one takes its state over. Then
    it dies: ours goes on by itself, from where it is, and another one joins it."""
    c, py = swarm.add("c"), swarm.add("py")
    wait_for(lambda: any(whole(c, e, 2) for e in epochs_of(c)), c, py)
    os.killpg(py.process.pid, signal.SIGSTOP)
    failed = wait_for(lambda: [e for e in list(c.events) if "no outer step" in (e.get("text") or "")], c)
    alone = wait_epochs([c], 1)
    os.killpg(py.process.pid, signal.SIGCONT)
    step(f"{name}: a round fails, and ours goes on", failed is not None and alone is not None)
    together(name + ", before", [c, py], 2)
    py.end()
    swarm.peers.remove(py)
    before = newest(c)
    took = wait_epochs([c], 2)
    step(f"{name}: the survivor goes on", took is not None, took and f"2 outer steps in {took:.1f} s, from {before}")
    again = swarm.add("py")
    together(name + ", after", [c, again], 2)


SCENARIOS = {
    "Python begins": py_first, "C begins": c_first, "three": three, "two originals": two_originals,
    "stopped and killed": stopped_and_killed,
}

if __name__ == "__main__":
    sys.exit(trainer.play(SCENARIOS, Swarm))
