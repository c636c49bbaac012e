#!/usr/bin/env python3
"""A peer that trains by OpenDiLoCo's rules on hivemind 1.1.12's own averagers: H local steps, the mean
of the changes of the parameters, an outer Nesterov step. Written from the specification
(paper/spec/outer-steps.md, 4).

    python hivemind_diloco.py --run_id demo --model tiny.safetensors --targets targets.safetensors
        --batch_size 16 --inner_steps 8 --initial_peers MADDR

Prints JSON lines; hivemind's own log goes to stderr. As with the original, a failed round of the
changes ends it.
"""
import argparse
import os
import threading
import time

import hivemind_compat
from hivemind_trainer import make_optimizer, make_problem

WAIT_MAX = 600  # s for the slowest peer


def classes():
    """Their names are in the names of the calls."""
    import hivemind
    from hivemind.optim.progress_tracker import GlobalTrainingProgress, LocalTrainingProgress, ProgressTracker
    from hivemind.optim.state_averager import TrainingStateAverager
    from hivemind.utils import get_dht_time

    class DiLoCoGradAverager(hivemind.averaging.DecentralizedAverager):
        pass

    class DiLoCoStateAverager(TrainingStateAverager):
        pass

    class EachItsOwn(ProgressTracker):
        """The target is every peer's own; the slowest says when the epoch ends."""

        def _parse_swarm_progress_data(self, metadata):
            if not metadata:
                return super()._parse_swarm_progress_data(metadata)
            now, mine = get_dht_time(), self.local_progress
            entries = [LocalTrainingProgress.parse_obj(e.value) for e in metadata.values() if e.value is not None]
            epoch = max([mine.epoch] + [e.epoch for e in entries if not e.client_mode])
            left = [max(0.0, self.target_batch_size - e.samples_accumulated) / max(e.samples_per_second, 1e-9) for e in entries if e.epoch == epoch]
            eta = max(left, default=0.0)
            return GlobalTrainingProgress(epoch, mine.samples_accumulated, self.target_batch_size, num_peers=len(entries),
                                          num_clients=sum(e.client_mode for e in entries), eta_next_epoch=now + eta,
                                          next_fetch_time=now + min(2.0, max(0.5, eta)))

        @property
        def ready_to_update_epoch(self):
            return self.global_epoch > self.local_progress.epoch or self.local_progress.samples_accumulated >= self.target_batch_size

    return DiLoCoGradAverager, DiLoCoStateAverager, EachItsOwn


class Trainer:
    def __init__(self, args, dht, parameters):
        import torch

        Grad, State, Tracker = classes()
        self.args, self.dht, self.parameters = args, dht, list(parameters.values())
        common = dict(dht=dht, min_matchmaking_time=args.matchmaking_time, allreduce_timeout=args.allreduce_timeout or args.averaging_timeout,
                      next_chunk_timeout=args.matchmaking_time, request_timeout=3.0, start=True,
                      compression=hivemind_compat.compression(args.compression, 2**16 + 1))
        self.grads = Grad(averaged_tensors=[torch.zeros_like(p.detach()) for p in self.parameters], prefix=f"{args.run_id}_grad_averager", **common)
        self.state = State(optimizer=lambda params: torch.optim.SGD(params, lr=args.outer_lr, momentum=args.outer_momentum, nesterov=True),
                           params=self.parameters, offload_optimizer=True, custom_gradients=True, delta_rule_averaging=True,
                           prefix=f"{args.run_id}_state_averager", **common)
        self.tracker = Tracker(dht, args.run_id, args.batch_size * args.inner_steps, start=True)
        self.inner = make_optimizer(args.optimizer, args.lr)(self.parameters)
        self.scheduled, self.is_first_poll = None, True

    @property
    def phi(self):
        return [p for group in self.state.optimizer.param_groups for p in group["params"]]

    @property
    def epoch(self):
        return self.state.local_epoch

    def load(self):
        """As hivemind.Optimizer.load_state_from_peers, with its last step: a state one epoch old counts as the newest."""
        self.state.step(wait_for_delayed_updates=True)
        with self.tracker.pause_updates():
            self.state.load_state_from_peers(timeout=self.args.averaging_timeout)
            if self.tracker.global_epoch - 1 <= self.epoch < self.tracker.global_epoch:
                self.state.local_epoch = self.tracker.global_epoch
            self.tracker.report_local_progress(self.epoch, samples_accumulated=0)
            self.state.state_sharing_priority = self.epoch

    def catches_up(self):
        """Epochs apart right after an outer step are made good at once, later only two of them."""
        is_behind = self.epoch < self.tracker.global_epoch - 1
        if self.is_first_poll and self.tracker.fetched_global_progress_this_epoch.is_set():
            self.is_first_poll = False
            is_behind = self.epoch != self.tracker.global_epoch
        if is_behind:
            self.load()
        return is_behind

    def left(self):
        from hivemind.utils import get_dht_time

        return max(0.0, self.tracker.global_progress.eta_next_epoch - get_dht_time())

    def schedule(self):
        if self.scheduled is None or self.scheduled.triggered or self.scheduled.done():
            self.scheduled = self.grads.step(timeout=self.args.averaging_timeout, wait=False, require_trigger=True)

    def inner_step(self, loss_of):
        """A batch, its report, then the step: the first speed that others read is that of a whole batch. None: the
        batch was dropped for a state of the others."""
        begun = time.time()
        loss = loss_of(self.args.batch_size)
        self.inner.zero_grad()
        loss.backward()
        time.sleep(max(0.0, begun + self.args.step_seconds - time.time()))
        if self.catches_up():
            return None
        self.tracker.report_local_progress(self.epoch, self.tracker.local_progress.samples_accumulated + self.args.batch_size)
        if self.left() <= self.args.matchmaking_time:
            self.schedule()
        self.inner.step()
        return float(loss)

    def outer_step(self):
        """Returns how many peers there were in the round."""
        import torch
        from hivemind.utils import get_dht_time

        begun, peers = time.time(), 1
        swarm = self.tracker.global_progress.num_peers > 1
        while swarm and self.scheduled is None and self.left() > self.args.matchmaking_time and time.time() < begun + WAIT_MAX:
            time.sleep(max(0.1, self.tracker.global_progress.next_fetch_time - get_dht_time()))
        with self.tracker.pause_updates(), torch.no_grad():
            changes = [phi - p for phi, p in zip(self.phi, self.parameters)]
            swarm = self.tracker.global_progress.num_peers > 1
            if swarm:
                self.schedule()
                with self.grads.get_tensors() as tensors:
                    for t, change in zip(tensors, changes):
                        t.copy_(change)
                self.scheduled.weight = 1.0
                self.scheduled.allow_allreduce()
                peers = len(self.scheduled.result(self.args.averaging_timeout))
                with self.grads.get_tensors() as tensors:
                    changes = [t.clone() for t in tensors]
                self.scheduled = None
            for phi, change in zip(self.phi, changes):
                phi.grad.copy_(change)
            average = swarm and not self.state.averaging_in_progress
            self.state.step(increment_epoch=True, optimizer_step=True, averaging_round=average, delay_averaging=True,
                            averaging_opts=dict(timeout=self.args.averaging_timeout) if average else None)
            self.tracker.update_epoch(self.epoch)
            self.is_first_poll, self.state.state_sharing_priority = True, self.epoch
        return peers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hivemind_compat.add_dht_arguments(parser)
    parser.add_argument("--run_id", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--targets", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--outer_lr", type=float, default=0.7)
    parser.add_argument("--outer_momentum", type=float, default=0.9)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--inner_steps", type=int, default=8)
    parser.add_argument("--step_seconds", type=float, default=0.3)
    parser.add_argument("--matchmaking_time", type=float, default=15.0)
    parser.add_argument("--averaging_timeout", type=float, default=60.0)
    parser.add_argument("--allreduce_timeout", type=float, help="default: the averaging timeout, as in hivemind.Optimizer")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--epochs", type=int, default=10**9)
    parser.add_argument("--linger", type=float, default=0.0)
    args = parser.parse_args()
    hivemind_compat.apply()

    parameters, loss_of = make_problem(hivemind_compat.load_tensors(args.model), args.seed, args.noise, hivemind_compat.load_tensors(args.targets))
    dht = hivemind_compat.make_dht(args)
    trainer = Trainer(args, dht, parameters)
    hivemind_compat.say(event="ready", time=time.time(), maddrs=hivemind_compat.maddrs(dht))

    def say(event, **more):
        sums = {name: float(phi.detach().double().sum()) for name, phi in zip(parameters, trainer.phi)}
        hivemind_compat.say(event=event, time=time.time(), epoch=trainer.epoch, checksums=sums, **more)

    trainer.load()
    say("loaded")
    while trainer.epoch < args.epochs:
        loss = trainer.inner_step(loss_of)
        if loss is None:
            say("loaded")
        elif trainer.tracker.ready_to_update_epoch:
            peers = trainer.outer_step()
            say("epoch", round_status=0, round_peers=peers, loss=loss)
    time.sleep(args.linger)
    watchdog = threading.Timer(30, lambda: os._exit(3))  # hivemind's shutdown can hang
    watchdog.daemon = True
    watchdog.start()
    trainer.tracker.shutdown()
    dht.shutdown()


if __name__ == "__main__":
    hivemind_compat.run(main)
