#!/usr/bin/env python3
"""A real hivemind.Optimizer peer that trains DALLE-pytorch's transformer with the run's LAMB,
groups and compression.

    python hivemind_dalle.py --config model.json --pairs pairs.json --start checkpoint.safetensors
        --run_id demo
    python hivemind_dalle.py ... --initial_peers MADDR --save DIR     joins; first loads a peer's
                                                                      state
    python hivemind_dalle.py ... --step_from FILE --rows 0,57 --lr 0.01 --save DIR    one step,
                                                                                      alone
    python hivemind_dalle.py ... --evaluate FILE ...                  losses on the held-out pairs

pairs.json: {"train": {"tokens": [[...]], "codes": [[...]]}, "held_out": the same}, captions cut and
padded. Files of parameters are as `potluck train` writes them. Prints JSON lines.
"""
import argparse
import json
import os
import re
import sys
import threading
import time

import hivemind_compat
from hivemind_metrics import validators
from hivemind_trainer import make_optimizer

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import original

DECAY = 0.045  # of the weights


def training_name(name):
    """1.6.6 wraps layers more often than the run's branch, whose names checkpoints have."""
    return "model." + re.sub(r"\.net(\.fn)+\.(to_qkv|to_out|net)\.", r".net.fn.fn.fn.\2.", name)


class Model:
    """The transformer, its tensors by their official names in the model's order, and the run's two
    groups."""

    def __init__(self, config):
        c = config
        self.dalle = original.dalle(c["dim"], c["heads"], c["dim_head"], c["depth"], c["T"], c["F"], c["text_tokens"], c["image_tokens"])
        self.tensors = {training_name(n): p for n, p in self.dalle.named_parameters() if p.requires_grad and not n.startswith("vae.")}
        self.names = [n for n in self.tensors if "bias" not in n] + [n for n in self.tensors if "bias" in n]

    def groups(self, lr):
        """hivemind's first step, with zero gradients, is at the rate 0: it creates the moments and
        changes no parameter."""
        sort = lambda bias: [self.tensors[n] for n in self.names if ("bias" in n) == bias]
        return [dict(params=sort(bias), weight_decay=0.0 if bias else DECAY, lr=0.0, initial_lr=lr) for bias in (False, True)]

    def load(self, path):
        import torch

        given = hivemind_compat.load_tensors(path)
        with torch.no_grad():
            for name, p in self.tensors.items():
                p.copy_(given[name].reshape(p.shape))
        return given

    def loss(self, pairs, rows):
        import torch

        text, codes = (torch.tensor([pairs[k][r] for r in rows]) for k in ("tokens", "codes"))
        return self.dalle(text, codes, return_loss=True)

    def losses(self, pairs):
        """Of each pair."""
        import torch

        with torch.no_grad():
            return [float(self.loss(pairs, [row])) for row in range(len(pairs["tokens"]))]


def save(path, names, optimizer):
    """Parameters and moments, named as `potluck train` does."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tensors = dict(zip(names, parameters))
    for name, p in zip(names, parameters):
        state = optimizer.state[p]
        tensors.update({f"optimizer.{name}.{key}": state[key] for key in ("absmax1", "absmax2", "state1", "state2") if key in state})
    hivemind_compat.save_tensors(path, tensors)


def one_step(model, pairs, args):
    """From a checkpoint's parameters and moments, with the gradient of these pairs."""
    given = model.load(args.step_from)
    optimizer = make_optimizer("lamb", args.lr)(model.groups(args.lr))
    for group in optimizer.param_groups:
        group["lr"] = args.lr
    for name in model.names:
        p = model.tensors[name]
        optimizer.state[p] = {"step": 0, **{k: given[f"optimizer.{name}.{k}"].reshape(p.shape) for k in ("state1", "state2")}}
    loss = model.loss(pairs["train"], [int(r) for r in args.rows.split(",")])
    loss.backward()
    optimizer.step()
    save(os.path.join(args.save, "step.safetensors"), model.names, optimizer)
    hivemind_compat.say(event="stepped", loss=float(loss))


def linear(warmup, total):
    """As a share of the peak."""
    return lambda e: e / warmup if e < warmup else max(0, total - e) / (total - warmup)


def keep_each_round(folder, names):
    """A file round-GROUP of the parameters right after each averaging of them; half-GROUP when
    hivemind has gone on without what it lost of it. It averages in a process of its own, so this
    comes before that is begun."""
    from hivemind.optim.state_averager import TrainingStateAverager

    run = TrainingStateAverager._run_allreduce_inplace_

    async def run_and_keep(averager, tensors, group_info, *args, **options):
        await run(averager, tensors, group_info, *args, **options)
        runner = averager._running_groups[group_info.group_id].result()
        is_half = runner.tensor_part_container.failed_size > 0 or runner.banned_senders
        name = ("half-" if is_half else "round-") + group_info.group_id.hex() + ".safetensors"
        hivemind_compat.save_tensors(os.path.join(folder, name), dict(zip(names, tensors)))

    TrainingStateAverager._run_allreduce_inplace_ = run_and_keep


class Trainer:
    def __init__(self, model, args):
        import hivemind
        from torch.optim.lr_scheduler import LambdaLR

        self.args, self.model = args, model
        if args.save:
            keep_each_round(args.save, model.names)
        checks, self.owner, self.metrics = validators(args.run_id)
        self.dht = hivemind_compat.make_dht(args, record_validators=checks)
        compression = hivemind_compat.compression("adaptive", 2**16 + 1)
        self.optimizer = hivemind.Optimizer(
            dht=self.dht, run_id=args.run_id, params=model.groups(args.lr), optimizer=make_optimizer(args.optimizer, args.lr),
            scheduler=lambda opt: LambdaLR(opt, linear(args.warmup, args.total)), offload_optimizer=True,
            delay_grad_averaging=False, delay_optimizer_step=False, batch_size_per_step=args.batch_size,
            target_batch_size=args.target_batch_size, grad_compression=compression, state_averaging_compression=compression,
            matchmaking_time=args.matchmaking_time, averaging_timeout=60, allreduce_timeout=30, reuse_grad_buffers=True,
            average_state_every=1, verbose=True,
        )
        self.state = self.optimizer.state_averager

    def keep(self, name):
        save(os.path.join(self.args.save, name + ".safetensors"), self.model.names, self.state.optimizer)

    def say(self, event, **more):
        p = self.optimizer.tracker.global_progress
        hivemind_compat.say(event=event, epoch=self.optimizer.local_epoch, global_epoch=p.epoch, peers=p.num_peers,
                            global_samples=p.samples_accumulated, **more)

    def batches(self, pairs):
        """Each pair once, in an order of our own, then again."""
        import torch

        generator = torch.Generator().manual_seed(self.args.data_seed)
        rows = []
        while True:
            while len(rows) < self.args.batch_size:
                rows += torch.randperm(len(pairs["tokens"]), generator=generator).tolist()
            yield rows[: self.args.batch_size]
            del rows[: self.args.batch_size]

    def train(self, pairs):
        args, optimizer, epoch, losses = self.args, self.optimizer, self.optimizer.local_epoch, []
        for rows in self.batches(pairs["train"]):
            if optimizer.local_epoch >= args.epochs:
                break
            began = time.time()
            loss = self.model.loss(pairs["train"], rows)
            loss.backward()
            losses.append(float(loss))
            time.sleep(max(0.0, began + args.step_seconds - time.time()))
            optimizer.step()
            if optimizer.local_epoch != epoch:
                epoch = optimizer.local_epoch
                self.say("epoch", loss=sum(losses) / len(losses), samples=len(losses) * args.batch_size)
                losses = []
        # the last averaging may have nobody to average with
        self.state.step(wait_for_delayed_updates=True, averaging_opts={"averaging_timeout": 2 * args.matchmaking_time})

    def run(self, pairs):
        hivemind_compat.say(event="ready", maddrs=hivemind_compat.maddrs(self.dht), state_schema_hash=self.state.schema_hash.hex())
        if self.args.initial_peers:
            self.optimizer.load_state_from_peers()
            self.keep("loaded")
            more = {"own_tables": self.state.optimizer.has_own_tables()} if self.args.optimizer == "lamb8" else {}
            self.say("loaded", **more)
        if self.args.more:
            self.args.epochs = self.optimizer.local_epoch + self.args.more
        self.train(pairs)
        self.keep("end")
        self.say("end", held_out=self.model.losses(pairs["held_out"]))
        time.sleep(self.args.linger)
        watchdog = threading.Timer(30, lambda: os._exit(3))  # hivemind's shutdown can hang
        watchdog.daemon = True
        watchdog.start()
        self.optimizer.shutdown()
        self.dht.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hivemind_compat.add_dht_arguments(parser)
    parser.add_argument("--config", required=True, help="the sizes, as potluck's configurations name them")
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--start", help="safetensors file: the parameters at the beginning")
    parser.add_argument("--run_id")
    parser.add_argument("--lr", type=float, default=0.01, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=1, help="epochs of the linear schedule's way up")
    parser.add_argument("--total", type=int, default=1000, help="epochs of the linear schedule")
    parser.add_argument("--epochs", type=int, default=10**9, help="stop when this epoch is reached")
    parser.add_argument("--more", type=int, default=0, help="stop after this many epochs")
    parser.add_argument("--optimizer", default="lamb", choices=["lamb", "lamb8"])
    parser.add_argument("--target_batch_size", type=int, default=64)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--step_seconds", type=float, default=0.3, help="one local step takes at least this long")
    parser.add_argument("--matchmaking_time", type=float, default=3.0)
    parser.add_argument("--linger", type=float, default=1200.0, help="stay this long at the end, sharing the state")
    parser.add_argument("--data_seed", type=int, default=1)
    parser.add_argument("--save", help="folder: the parameters after each averaging; the whole state when it was taken over and at the end")
    parser.add_argument("--step_from", help="a checkpoint: take one step from it, alone")
    parser.add_argument("--rows", help="the pairs of that step")
    parser.add_argument("--evaluate", nargs="*", help="print the losses of these checkpoints")
    args = parser.parse_args()
    hivemind_compat.apply()
    original.stand_in()
    with open(args.config) as f:
        model = Model(json.load(f))
    with open(args.pairs) as f:
        pairs = json.load(f)
    if args.start:
        model.load(args.start)
    if args.step_from:
        one_step(model, pairs, args)
    for path in args.evaluate or []:
        model.load(path)
        hivemind_compat.say(event="evaluated", path=path, held_out=model.losses(pairs["held_out"]))
    if args.run_id:
        Trainer(model, args).run(pairs)


if __name__ == "__main__":
    hivemind_compat.run(main)
