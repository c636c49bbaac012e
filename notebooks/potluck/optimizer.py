"""The collaborative optimizer (net/hivemind/optimizer.h): a training loop in numpy or torch joins a
swarm.

    with potluck.Optimizer({"weight": w, "bias": b}, run="digits", target_batch=4096,
                           lr=0.01) as optimizer:
        print(optimizer.address)                     # others pass it as initial_peers=[...]
        while optimizer.epoch < 100:
            loss, grads = forward_and_backward(w, b) # means over 32 samples
            optimizer.step(grads, 32, loss)

All peers, hivemind.Optimizer's among them, accumulate gradients until together they are expected to
have target_batch samples: each adds up the others' last reports, some seconds old, and assumes that
they have gone on at their speed. (So a step of very fast batches may count far fewer samples: see
global_samples of its Event.) Then the gradients are averaged and every peer takes the same step.
torch is not needed: its tensors are used in place.

A peer that knows of no other trains alone. To begin together, pass min_peers. When a peer leaves,
the others go on.
"""

from __future__ import annotations

import collections
import ctypes
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import signatures as c
from .core import PotluckError, call, lib, whole

Path = str | os.PathLike[str] | None
KINDS = "ready loaded batch epoch corrected behind warning end".split()
EUSE = -7  # ref/base.h
DELAYS = {None: 0, "step": 1, "round": 2}
OPTIMIZERS = {"lamb": (lib.pl_lamb_options, 0), "lamb8": (lib.pl_lamb_options, None),
              "adam": (lambda: lib.pl_adam_options(0.01, 32), None), "adam8": (lambda: lib.pl_adam_options(0.01, 8), None)}
HYPERPARAMETERS = {"beta1", "beta2", "eps", "max_grad_norm"}

Event = collections.namedtuple(
    "Event", "kind epoch peers loss samples due seconds round_status round_peers text global_samples")
Event.__doc__ = """What `report` is called with.

    kind          "ready": the run has been joined. "loaded": another peer's state has replaced the
                  params. "batch": a local batch counts. "epoch": a common step is in the params.
                  "corrected": a round that averaged the params has ended. "behind": others are ahead,
                  their state is downloaded. "warning": training goes on. "end": close leaves the run
    epoch         common steps in the params
    peers         that have reported samples of the run, and this one
    loss          batch: its mean loss; epoch: the mean over this peer's samples of the step
    samples       of this peer. batch: accumulated so far; epoch: in the step
    due           batch: True if a common step follows
    seconds       loaded: of the download; epoch: of the step
    round_status  epoch, corrected: 0 if values were averaged; else this peer's own stand. A corrected
                  of -8, "cancelled", is usual: the next gradients were ready first
    round_peers   epoch, corrected: peers in the group; 1: alone
    text          of a warning; the reason of a round that failed; else None
    global_samples  epoch: of all peers, as far as reported when this peer decided to step
"""
Status = collections.namedtuple("Status", "epoch global_epoch samples global_samples peers eta_s samples_per_second")
Status.__doc__ = """What is known of the run.

    epoch               common steps in the params
    global_epoch        of the swarm, as far as other peers' states confirm it
    samples             accumulated by this peer for the next step
    global_samples      by all peers, as their last reports have it
    peers               that have reported samples of the run; and this one, always
    eta_s               seconds until the next step; infinite: not known
    samples_per_second  of this peer
"""

def memory(x, what, writable):
    """A numpy array over x's own memory: float32, contiguous, on the host."""
    if hasattr(x, "detach"):  # a torch tensor or Parameter
        x = x.detach()
        if x.device.type != "cpu":
            raise TypeError(f"{what}: is on {x.device}, expected the host's memory")
        x = x.numpy()
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{what}: a {type(x).__name__}, expected a numpy array or a torch tensor")
    if not writable:
        return np.ascontiguousarray(x, np.float32)
    if x.dtype != np.float32 or not x.flags.c_contiguous or not x.flags.writeable:
        raise TypeError(f"{what}: expected contiguous float32 that may be written, it is {x.dtype}")
    return x


def named(params):
    """(name, tensor) pairs of a dict, of torch's named_parameters(), or of a plain list."""
    if hasattr(params, "items"):
        return list(params.items())
    params = list(params)
    if all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in params):
        return params
    return [(f"tensor {i}", p) for i, p in enumerate(params)]


def optional(string):
    """C's form of a string, of a path, or of None."""
    return None if string is None else os.fsencode(string)


def texts(strings):
    """A C array of strings; its owner is the array itself."""
    if isinstance(strings, str):
        strings = [strings]
    encoded = [s.encode() for s in strings]
    return (ctypes.c_char_p * max(1, len(encoded)))(*encoded), len(encoded)


class Optimizer:
    """A peer of a run. Joins it and downloads the state of another peer if there is one.

    params         dict, list or named_parameters() of numpy arrays or torch tensors, contiguous
                   float32 on the host. Peers match them by order, so all peers need the same in the
                   same order. Their values change in place, in the constructor and in step
    run            the run's name, hivemind's run_id
    initial_peers  multiaddrs of peers in the run (another peer's `address`); none: the first peer
    target_batch   samples of all peers for one step, the same for all peers (4096)
    min_peers      the first step waits until this many peers train, this one included (1: no wait),
    min_peers_timeout  for this many seconds at most; then it begins with a warning (300)
    optimizer      "lamb" (with 8-bit moments: "lamb8"), "adam" ("adam8"), or a function of
                   (gradients, epoch) that changes the params itself. LAMB steps in proportion to a
                   tensor's norm: weights that begin at zero hardly move, take Adam for those
    lr             learning rate, or a function of the epoch (0.0025)
    weight_decay   lamb: 0.045, adam: 0.01
    beta1, beta2, eps  lamb: 0.9, 0.96, 1e-6; adam: 0.9, 0.999, 1e-8
    max_grad_norm  clips the global norm of gradients; lamb: 4, adam: 0, no clipping
    no_decay       names of the params without weight decay
    algorithm      "gradients"; or "diloco", "local_sgd": every peer makes inner_steps steps alone, of
                   target_batch samples of its own each, then the peers' changes are averaged. lr
                   and optimizer are then functions of the inner step. "powersgd", "powersgd_own": each
                   matrix travels as two thin factors. "sparseloco", "noloco", "partial",
                   "delayed_nesterov", "demo", "dgc", "onebit_adam": peers take each other's messages
                   as they are. "streaming", "delayed", "eager", "delayed_gradients": so they do, while
                   local steps go on. paper/algorithms.md describes all of them
    algorithm_settings  of the last ones: "topk=64,chunk=32" (None: the algorithm's defaults)
    inner_steps, outer_lr, outer_momentum  of algorithms with local steps (50, 0.7, 0.9)
    powersgd_rank  of powersgd (0: the run's, or 4 for its first peer)
    delay          what overlaps with the next batches: None, "step" (the optimizer's step) or "round"
                   (the averaging of gradients, too)
    report         a function of an Event; may be None
    compression    on the wire, the same for all peers: "run" (8 bits for large tensors, else 16),
                   "none", "float16", "meanstd16", "uniform8", "quantile8", "blockwise8"
    matchmaking_time   seconds that a leader waits for its group at most (15)
    averaging_timeout  seconds for a round, matchmaking included (180)
    allreduce_timeout  seconds of it for the all-reduce (60)
    average_state_every  epochs between two rounds that average the params (1)
    group_size     a group of this many begins at once (0: all that come in time)
    group_bits     zeros and ones: several groups a round ("": one group of all; None: one up to
                   about 64 peers, then groups of 12 to 48)
    bandwidth      Mbit/s: peers with more reduce a larger share (0: as measured; negative:
                   reduces nothing)
    clip           radius of CenteredClip against Byzantine peers (0: the mean; negative: estimated).
                   Not every algorithm takes it. Where peers take each other's messages as they are,
                   all need the same
    verify         1: BTARD, which verifies rounds of the gradients (0)
    epoch          common steps that are in the params given, after a restart (0)
    epochs         where training ends; later progress of others is ignored (0: it does not end)
    fresh          1: downloads no state, though a peer may have one (0)
    device         a text for the dashboard (None)
    own_name       what the dashboard calls this peer, before its key (None)
    listen         multiaddrs to listen on (any free port); announce: advertised in their place
    identity       file of the peer's private key, made if missing (None: a new key)
    client_mode    True: accepts no connections, only dials
    port_mapping   False: the router is not asked to forward our port (NAT-PMP, UPnP)
    authority, token_file, authority_ca
                   of a moderated run: the URL that gives access tokens, a file with the user's
                   secret, and the authority's certificate if it is not a public one

    address        (attribute) the multiaddr that others join by; None: a client has none
    """

    def __init__(self, params: Any, run: str, initial_peers: str | Sequence[str] = (), target_batch: int = 4096,
                 optimizer: str | Callable[[list[NDArray[np.float32]], int], object] = "lamb",
                 lr: float | Callable[[int], float] = 0.0025, *, no_decay: Collection[str] = (), delay: str | None = None,
                 report: Callable[[Event], object] | None = None, weight_decay: float | None = None, listen: str | Sequence[str] = (),
                 announce: str | Sequence[str] = (), identity: Path | None = None, client_mode: bool = False, port_mapping: bool = True,
                 authority: str | None = None, token_file: Path | None = None, authority_ca: Path | None = None, compression: str = "run", **options: Any):
        self._handle = ctypes.c_void_p()
        self._raised = None
        self._params = [(name, p, memory(p, name, True)) for name, p in named(params)]
        self._report, self._function, self._rate = report, optimizer, lr
        tensors = (c.CollaborativeTensor * max(1, len(self._params)))()
        for t, (name, _, x) in zip(tensors, self._params):
            if x.ndim > len(t.shape):
                raise ValueError(f"{name}: {x.ndim} axes, expected at most {len(t.shape)}")
            t.name, t.dims, t.value, t.no_decay = name.encode(), x.ndim, x.ctypes.data, name in no_decay
            t.shape[:x.ndim] = x.shape
        o = c.CollaborativeOptions(target_batch=whole(target_batch, 1, 1 << 60, "target_batch"),
                                   compression=compression.encode())
        self._set_optimizer(o, optimizer, lr, weight_decay, options)
        if delay not in DELAYS:
            raise ValueError(f"delay is {delay!r}, expected None, 'step' or 'round'")
        o.delay = DELAYS[delay]
        fields = {name for name, _ in o._fields_} - {"optimizer", "schedule", "step", "report", "context", "trainer"}
        for name, value in options.items():
            if name not in fields:
                raise TypeError(f"Optimizer has no option {name!r}")
            setattr(o, name, value.encode() if isinstance(value, str) else value)
        o.report = c.ReportFunction(self._on_event)
        r = c.CollaborativeRun(name=run.encode(), client_mode=client_mode, no_port_mapping=not port_mapping, identity=optional(identity or None),
                               authority=optional(authority), token_file=optional(token_file), authority_ca=optional(authority_ca))
        r.initial_peers, r.initial_peer_count = texts(initial_peers)
        r.listen, r.listen_count = texts(listen)
        r.announce, r.announce_count = texts(announce)
        self._kept = (tensors, o, r)  # C borrows from them until close
        self._call("pl_collaborative_open", ctypes.byref(self._handle), ctypes.byref(r), tensors, len(self._params),
                   ctypes.byref(o))
        address = lib.pl_collaborative_address(self._handle)
        self.address = address and address.decode()

    def _set_optimizer(self, o, optimizer, lr, weight_decay, options):
        if callable(optimizer):
            o.step = c.StepFunction(self._on_step)
        elif optimizer in OPTIMIZERS:
            make, min_8bit = OPTIMIZERS[optimizer]
            self._hyper = make()
            if min_8bit is not None:
                self._hyper.min_8bit = min_8bit
            if weight_decay is not None:
                self._hyper.decay = weight_decay
            for name in HYPERPARAMETERS & set(options):
                setattr(self._hyper, name, options.pop(name))
            o.optimizer = ctypes.pointer(self._hyper)
        else:
            raise ValueError(f"optimizer is {optimizer!r}, expected a function or one of {', '.join(map(repr, OPTIMIZERS))}")
        if callable(lr):
            # o.lr goes into the state that newcomers download, as the base rate; it must not be 0, as
            # a schedule's first rate may be: 0 would mean C's default.
            o.schedule, o.lr = c.RateFunction(self._on_rate), lr(0) or 1.0
        else:
            o.lr = lr

    # -- C calls these: an exception must not get lost in it ---------------------------------------

    def _guarded(self, failed, function, *arguments):
        if self._raised is None:
            try:
                return function(*arguments)
            except BaseException as error:  # raised again when the call returns
                self._raised = error
        return failed

    def _on_event(self, _, event):
        if self._report:
            self._guarded(None, self._report, self._event(event.contents))

    def _on_rate(self, _, epoch):
        return float(self._guarded(0.0, self._rate, epoch))

    def _on_step(self, _, gradient, epoch, error):
        arrays = [np.ctypeslib.as_array(gradient[i], x.shape) for i, (_, _, x) in enumerate(self._params)]

        def run():
            self._function(arrays, epoch)
            return 0

        return self._guarded(EUSE, run)

    @staticmethod
    def _event(e):
        why = e.text or (e.round.why if e.round.status else None)
        return Event(KINDS[e.kind], e.status.epoch, e.status.peers, e.loss, e.samples, bool(e.due), e.seconds,
                     e.round.status, e.round.peers, why.decode("utf-8", "replace") if why else None, e.global_samples)

    def _call(self, name, *arguments):
        try:
            call(name, *arguments)
        except PotluckError:
            if self._raised is None:
                raise
        error, self._raised = self._raised, None
        if error is not None:
            raise error

    # -- training ----------------------------------------------------------------------------------

    def _open(self):
        if not self._handle:
            raise ValueError("the optimizer is closed")
        return self._handle

    def step(self, grads: Any = None, samples: int = 0, loss: float = 0.0) -> None:
        """After a batch: its mean gradients, how many samples, their mean loss. grads: a dict by the
        params' names, a list in their order, or None: the torch tensors' .grad; copied, and
        converted to float32. 0 samples: no batch, only follows the others. Gradients that are not
        finite are dropped, with a warning. The params may have changed afterwards."""
        handle = self._open()
        pointers = None
        if samples:
            if grads is None:
                grads = [p.grad for _, p, _ in self._params]
            elif hasattr(grads, "items"):
                grads = [grads[name] for name, _, _ in self._params]
            arrays = [memory(g, f"gradient of {name}", False) for g, (name, _, _) in zip(grads, self._params)]
            if len(arrays) != len(self._params):
                raise ValueError(f"{len(arrays)} gradients for {len(self._params)} params")
            for g, (name, _, x) in zip(arrays, self._params):
                if g.shape != x.shape:
                    raise ValueError(f"gradient of {name}: shape {g.shape}, expected {x.shape}")
            pointers = (ctypes.c_void_p * len(arrays))(*[g.ctypes.data for g in arrays])
        self._call("pl_collaborative_step", handle, pointers, whole(samples, 0, 1 << 60, "samples"), float(loss))

    def finish(self) -> None:
        """Waits until no step is delayed any more."""
        self._call("pl_collaborative_finish", self._open())

    @property
    def epoch(self) -> int:
        """Common steps that are in the params."""
        return lib.pl_collaborative_epoch(self._open())

    @property
    def status(self) -> Status:
        """A Status: progress of this peer and of the run."""
        s = c.CollaborativeStatus()
        lib.pl_collaborative_status(self._open(), ctypes.byref(s))
        return Status(*(getattr(s, name) for name in Status._fields))

    def close(self) -> None:
        """Finishes and leaves the run, which takes up to a few seconds. `with` calls it."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            lib.pl_collaborative_close(handle)
        error, self._raised = self._raised, None
        if error is not None:
            raise error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()
