"""One torch model, two loops: a real hivemind.Optimizer peer, and a potluck.Optimizer peer, which
has torch but no hivemind. They load each other's state, step together, and agree at the end.

usage: optimizer.py POTLUCK [SCENARIO ...]
"""
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTHS = [(32, 64), (64, 8)]  # of the model: hivemind_trainer.py knows these names as an MLP with a fixed teacher
TARGET, BATCH = 128, 16


def peer(model, epochs, seed, delay, initial_peers):
    """A plain torch loop under potluck.Optimizer; prints what hivemind_trainer.py prints."""
    sys.path.insert(0, os.path.join(HERE, "..", "..", "notebooks"))
    import potluck
    import torch
    from hivemind_compat import load_tensors

    params = {name: torch.nn.Parameter(tensor) for name, tensor in load_tensors(model).items()}
    generator, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(7)
    teacher = torch.randn(WIDTHS[0][0], WIDTHS[-1][1], generator=fixed) * 0.3

    def say(event, **more):
        sums = {name: float(p.detach().double().sum()) for name, p in params.items()}
        print(json.dumps({"event": event, "time": time.time(), "checksums": sums, **more}), flush=True)

    def report(e):
        if e.kind in ("loaded", "epoch", "warning"):
            say(e.kind, epoch=e.epoch, loss=e.loss, peers=e.peers, round_status=e.round_status, round_peers=e.round_peers, why=e.text)

    with potluck.Optimizer(params, run="mix", initial_peers=initial_peers, target_batch=TARGET, optimizer="lamb", lr=0.0025, delay=delay,
                           listen=["/ip4/127.0.0.1/tcp/0"], matchmaking_time=4, averaging_timeout=60, allreduce_timeout=30,
                           report=report) as optimizer:
        say("ready", maddrs=[optimizer.address], hivemind="hivemind" in sys.modules)
        while optimizer.epoch < epochs:
            for p in params.values():
                p.grad = None
            x = torch.randn(BATCH, WIDTHS[0][0], generator=generator)
            hidden = torch.tanh(torch.nn.functional.linear(x, params["layer0.weight"], params["layer0.bias"]))
            loss = torch.mean((torch.nn.functional.linear(hidden, params["layer1.weight"], params["layer1.bias"]) - torch.tanh(x @ teacher)) ** 2)
            loss.backward()
            time.sleep(0.3)
            optimizer.step(samples=BATCH, loss=float(loss.detach()))


if len(sys.argv) > 1 and sys.argv[1] == "--peer":
    peer(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] if sys.argv[5] != "none" else None, sys.argv[6:])
    sys.exit(0)

import steps
from steps import step

steps.needs("hivemind")
import trainer
from trainer import newcomer, together

import hivemind_compat
from hivemind_processes import Peer


class Swarm(trainer.Peers):
    def __init__(self, name, folder):
        import torch

        super().__init__(name, folder)
        generator, tensors = torch.Generator().manual_seed(1), {}
        for n, (i, o) in enumerate(WIDTHS):
            tensors[f"layer{n}.weight"] = torch.randn(o, i, generator=generator) / i**0.5
            tensors[f"layer{n}.bias"] = torch.zeros(o)
        self.model = os.path.join(folder, "model.safetensors")
        hivemind_compat.save_tensors(self.model, tensors)

    def add(self, kind, *more, delay="none", epochs=1000):
        k = len(self.peers)
        if kind == "py":
            return self.await_ready(self.start_hivemind("--model", self.model, "--no_delay", *more), kind)
        os.environ["POTLUCK_LIBRARY"] = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "libpotluck.so")
        command = [sys.executable, os.path.abspath(__file__), "--peer", self.model, str(epochs), str(k + 1), delay]
        return self.await_ready(Peer(command + ([self.first] if self.first else []), self.folder, f"peer{k}"), kind)


def learns(name, p):
    """The mean loss of the newest three epochs is below that of the first three."""
    losses = [e["loss"] for _, e in sorted(trainer.epochs_of(p).items())]
    step(f"{name}: the loss falls", len(losses) >= 6 and sum(losses[-3:]) < sum(losses[:3]), [round(x, 4) for x in losses])


def hivemind_first(swarm, name):
    py, c = newcomer(name, swarm.add("py"), lambda: swarm.add("c"))
    step(f"{name}: without hivemind", c.wait("ready")["hivemind"] is False)
    together(name, [py, c], 6)
    learns(name, c)


def potluck_first(swarm, name):
    newcomer(name, swarm.add("c"), lambda: swarm.add("py"))


def delayed(swarm, name):
    together(name, [swarm.add("py"), swarm.add("c", delay="round")], 5)


SCENARIOS = {"hivemind begins": hivemind_first, "potluck begins": potluck_first, "delayed": delayed}

if __name__ == "__main__":
    sys.exit(trainer.play(SCENARIOS, Swarm))
