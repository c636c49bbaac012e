"""Training together in every mix of C peers and real hivemind trainers: who begins, who loads from whom,
who is killed and replaced.

usage: trainer.py POTLUCK [SCENARIO ...]
Prints one JSON line a step; exit status 0 if every step worked.
"""
import json
import os
import re
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

try:
    import hivemind  # noqa: F401
    import torch  # noqa: F401
except ImportError:
    print("skip trainer: hivemind is not installed for this Python; `make interop` brings its own\n"
          "0 passed, 0 failed, 1 skipped")
    sys.exit(0)
import hivemind_compat
from hivemind_averager import made_tensor
from hivemind_processes import Peer

TRAINER = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "interop", "trainer")
SHAPES = [(64, 32), (64,), (8, 64), (8,), (70000,)]  # the last travels in 8 bits
MATCHMAKING = 4.0
TARGET = 128
failed = passed = 0


def step(name, good, note=""):
    global failed, passed
    failed += not good
    passed += bool(good)
    print(json.dumps({"event": "step", "name": name, "ok": bool(good), "note": str(note)}), flush=True)


class Swarm:
    def __init__(self, name, folder):
        self.name, self.folder, self.peers, self.first = name, folder, [], None
        for file, seed in (("model", 500), ("targets", 900)):
            tensors = {f"t{i}": made_tensor(s, seed + i, 2.0) for i, s in enumerate(SHAPES)}
            hivemind_compat.save_tensors(os.path.join(folder, file + ".safetensors"), tensors)

    def add(self, kind, *more, epochs=1000):
        """Starts a peer; returns it when it is ready."""
        k = len(self.peers)
        files = [os.path.join(self.folder, n + ".safetensors") for n in ("model", "targets")]
        if kind == "c":
            command = [TRAINER, "--run", "mix", "--model", files[0], "--targets", files[1], "--target-batch", str(TARGET), "--batch", "16",
                       "--step-seconds", "0.3", "--matchmaking-time", str(MATCHMAKING), "--epochs", str(epochs), "--seed", str(k + 1)]
            command += ["--join", self.first] if self.first else []
        else:
            command = [sys.executable, os.path.join(HERE, "hivemind_trainer.py"), "--run_id", "mix", "--model", files[0], "--targets", files[1],
                       "--target_batch_size", str(TARGET), "--batch_size", "16", "--step_seconds", "0.3", "--matchmaking_time", str(MATCHMAKING),
                       "--averaging_timeout", "60", "--allreduce_timeout", "30", "--epochs", str(epochs), "--seed", str(k + 1), "--linger", "3"]
            command += ["--initial_peers", self.first] if self.first else []
        peer = Peer(command + list(more), self.folder, f"peer{k}")
        peer.kind = kind
        if peer.wait("ready", 60) is None and kind == "py":  # its daemon sometimes gives up too early
            peer.end()
            peer = Peer(command + list(more), self.folder, f"peer{k}")
            peer.kind = kind
            peer.wait("ready", 60)
        self.peers.append(peer)
        if self.first is None:
            self.first = peer.address()
        return peer

    def end(self, bad):
        for k, peer in enumerate(self.peers):
            peer.end()
            if bad:
                tail = open(os.path.join(self.folder, f"peer{k}.err")).read()[-1500:]
                sys.stderr.write(f"--- {self.name}: peer {k}\n{tail}\n")


def epochs_of(peer):
    return {e["epoch"]: e for e in peer.events if e["event"] == "epoch"}


def wait_epochs(peers, more, limit):
    """Until each of the peers has finished so many more epochs; seconds it took, or None."""
    begun = time.time()
    goals = [max(epochs_of(p), default=0) + more for p in peers]
    while time.time() < begun + limit:
        if all(max(epochs_of(p), default=0) >= g for p, g in zip(peers, goals)):
            return time.time() - begun
        time.sleep(0.1)
    return None


def together(name, peers, more=6, limit=90):
    """They go on, at the same epochs, with common steps."""
    took = wait_epochs(peers, more, limit)
    step(f"{name}: they go on", took is not None, f"{more} epochs in {took and round(took, 1)} s")
    newest = [max(epochs_of(p), default=0) for p in peers]
    step(f"{name}: at the same epoch", max(newest) - min(newest) <= 1, newest)
    for p in peers:
        if p.kind == "c":
            last = [e for _, e in sorted(epochs_of(p).items())][-2:]
            step(f"{name}: gradients are averaged", last and all(e["round_status"] == 0 and e["round_peers"] >= len(peers) for e in last),
                 [(e["round_status"], e["round_peers"], e["why"]) for e in last])
    return took


def same_parameters(name, a, b):
    """Checksums after the same epoch: each keeps its own rounding, up to some thousandths."""
    common = sorted(set(epochs_of(a)) & set(epochs_of(b)))[-3:]
    worst = 0.0
    for epoch in common:
        x, y = epochs_of(a)[epoch]["checksums"], epochs_of(b)[epoch]["checksums"]
        worst = max([worst] + [abs(x[n] - y[n]) for n in x if n != "t4"])
    step(f"{name}: the same parameters", common and worst < 0.02, f"epochs {common}: {worst:.2g} apart")


def py_first(swarm, name):
    py = swarm.add("py", "--no_delay")
    time.sleep(3)
    c = swarm.add("c")
    loaded = c.wait("loaded", 30)
    step(f"{name}: C takes the state over", loaded is not None, loaded and loaded["epoch"])
    together(name, [py, c])
    same_parameters(name, py, c)


def c_first(swarm, name):
    c = swarm.add("c")
    time.sleep(3)
    py = swarm.add("py", "--no_delay")
    loaded = py.wait("loaded", 60)
    step(f"{name}: Python takes the state over", loaded is not None and loaded["epoch"] > 0, loaded and loaded["epoch"])
    together(name, [py, c])
    same_parameters(name, py, c)


def delayed(swarm, name):
    """The run's setting: the optimizer's step beside the next batches; ours has the averaging there as well.
    And faster than they are alone."""
    py = swarm.add("py")
    time.sleep(2)
    c = swarm.add("c", "--delay", "round")
    took = together(name, [py, c], 8)
    step(f"{name}: epochs no longer than the original's", took is not None and took / 8 < 1.3 * MATCHMAKING + 1, took and round(took / 8, 2))


def with_schedule(swarm, name):
    py = swarm.add("py", "--no_delay", "--warmup", "10")
    c = swarm.add("c", "--warmup", "10")
    together(name, [py, c])
    same_parameters(name, py, c)


def three(swarm, name):
    peers = [swarm.add("c", "--delay", "step"), swarm.add("py"), swarm.add("py")]
    together(name, peers, 6, 120)


def client(swarm, name):
    peers = [swarm.add("py"), swarm.add("c", "--client-mode")]
    together(name, peers)


def killed(swarm, name):
    """A real trainer dies and another comes: the survivor is in step with it within a few epochs."""
    c, py = swarm.add("c"), swarm.add("py")
    together(name + ", before", [c, py], 4)
    py.kill()
    swarm.peers.remove(py)
    took = wait_epochs([c], 2, 60)
    step(f"{name}: the survivor goes on", took is not None, took and f"2 epochs in {took:.1f} s")
    again = swarm.add("py")
    again.wait("epoch", 60)
    together(name + ", after", [c, again], 4)


def cycle(swarm, name):
    """Two real trainers of whom one is killed and replaced may wait for each other for ever; one of ours
    that joins them brings them back."""
    first, second = swarm.add("py"), swarm.add("py")
    wait_epochs([first, second], 2, 90)
    second.kill()
    swarm.peers.remove(second)
    second = swarm.add("py")
    second.wait("epoch", 90)
    alone = wait_epochs([first], 3, 120)
    c = swarm.add("c")
    c.wait("epoch", 60)
    wait_epochs([c], 2, 60)
    took = together(name, [first, second, c], 5, 120)
    step(f"{name}: back to normal", took is not None and took / 5 < 1.6 * MATCHMAKING,
         f"{alone and round(alone / 3, 1)} s an epoch before, {took and round(took / 5, 1)} with us")


SCENARIOS = {
    "Python begins": py_first, "C begins": c_first, "delayed steps": delayed, "a schedule": with_schedule,
    "three": three, "C client": client, "killed and replaced": killed, "the cycle": cycle,
}


def main():
    only = sys.argv[2:]
    for name, scenario in SCENARIOS.items():
        if only and not any(re.search(o, name) for o in only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            before, swarm = failed, Swarm(name, folder)
            try:
                scenario(swarm, name)
            except Exception as e:  # noqa: BLE001
                step(name, False, repr(e))
            finally:
                swarm.end(failed > before)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
