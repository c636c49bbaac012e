"""PowerSGD in every mix of our peers and hivemind's with PowerSGDGradientAverager: which kind begins, which joins late and
learns the rank, what a peer of another rank hears, what happens when a round fails.

usage: powersgd.py POTLUCK [SCENARIO ...]
"""
import os
import signal
import sys

import steps
from steps import step

steps.needs("hivemind")
import trainer
from trainer import epochs_of, newcomer, newest, same_parameters, together, wait_epochs, wait_for, whole

RANK = 2


class Swarm(trainer.Swarm):
    """Of the model's tensors (64,32) is compressed at rank 2, and (8,64) is; the others travel as they are."""

    def add(self, kind, *more, rank=RANK, own=False, epochs=1000):
        if kind == "py":
            return super().add(kind, "--no_delay", "--powersgd", str(rank), *more, epochs=epochs)
        return super().add(kind, "--powersgd-own" if own else "--powersgd", str(rank), *more, epochs=epochs)


def py_first(swarm, name):
    newcomer(name, swarm.add("py"), lambda: swarm.add("c", rank=0))


def c_first(swarm, name):
    newcomer(name, swarm.add("c"), lambda: swarm.add("py"))


def three(swarm, name):
    peers = [swarm.add("c"), swarm.add("c", rank=0), swarm.add("py")]
    together(name, peers)
    same_parameters(name, peers[0], peers[2])


def two_originals(swarm, name):
    together(name, [swarm.add("py"), swarm.add("py"), swarm.add("c", rank=0)])


def other_rank(swarm, name):
    """Found out before the first round, in one line."""
    py = swarm.add("py")
    wait_epochs([py], 1)
    c = swarm.add("c", rank=RANK + 1)
    c.wait("closed")
    output = c.output()
    swarm.peers.remove(c)
    step(f"{name}: it is refused in one line", output.count("\n") == 1 and f"rank {RANK}" in output and c.process.wait() != 0, output[-300:])
    step(f"{name}: the run goes on", wait_epochs([py], 1) is not None)


def own_among_ours(swarm, name):
    peers = [swarm.add("c", own=True), swarm.add("c", own=True, rank=0)]
    together(name, peers)
    same_parameters(name, *peers)


def own_with_python(swarm, name):
    """The rules of feedback do not mix: a peer of one is in no group with a peer of the other."""
    py, c = swarm.add("py"), swarm.add("c", own=True)
    wait_epochs([py, c], 3)
    step(f"{name}: no common round", all(e["round_peers"] == 1 or e["round_status"] for e in epochs_of(c).values()),
         [(e["round_status"], e["round_peers"], e["why"]) for e in epochs_of(c).values()])


def stopped_and_killed(swarm, name):
    """A real peer stands still, so a round fails; then it dies and another one comes."""
    c, py = swarm.add("c"), swarm.add("py")
    wait_for(lambda: any(whole(c, e, 2) for e in epochs_of(c)), c, py)
    before = newest(c)
    os.killpg(py.process.pid, signal.SIGSTOP)
    failed = wait_for(lambda: any(e > before and not whole(c, e, 2) for e in epochs_of(c)), c)
    os.killpg(py.process.pid, signal.SIGCONT)
    step(f"{name}: a round fails, and ours goes on", failed is not None)
    together(name + ", before", [c, py], 2)
    py.end()
    swarm.peers.remove(py)
    step(f"{name}: the survivor goes on", wait_epochs([c], 2) is not None)
    again = swarm.add("py")
    again.wait("epoch")
    together(name + ", after", [c, again], 2)
    same_parameters(name, c, again)


SCENARIOS = {
    "Python begins": py_first, "C begins": c_first, "three": three, "two originals": two_originals, "another rank": other_rank,
    "textbook error feedback": own_among_ours, "two rules": own_with_python, "stopped and killed": stopped_and_killed,
}

if __name__ == "__main__":
    sys.exit(trainer.play(SCENARIOS, Swarm))
