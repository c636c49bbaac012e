"""Averaging in every mix of C peers and real hivemind averagers: which kind bootstraps, which
leads, client mode, auxiliary peers, compressions, and the state that newcomers download.

usage: averager.py POTLUCK [SCENARIO ...]
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
import numpy as np
from hivemind_averager import made_tensor
from hivemind_processes import PATIENCE, Peer, not_ours, start_original

PROGRAM = os.path.abspath(sys.argv[1])
SHAPES = [(70000,), (64, 32), (7,), (300, 400)]  # both compressions of the run, and an uneven cut


def rounds_of(peers, limit=steps.PATIENCE + 60):
    """Everybody's round, or None: all at once when somebody has ended without any, for then the
    others wait in vain."""
    end = time.time() + limit
    of = lambda: [p.wait("round", 0) for p in peers]  # noqa: E731
    while time.time() < end and not all(of()) and not any(p.wait("closed", 0) and not p.wait("round", 0) for p in peers):
        time.sleep(0.1)
    return of()


class Scenario:
    def __init__(self, name, peers, compression="run", **settings):
        self.name, self.specs, self.compression, self.settings = name, peers, compression, settings

    def command(self, folder, k, spec, first):
        kind, options = spec[0], spec[1] if len(spec) > 1 else {}
        tensors = {f"tensor{i}": made_tensor(s, 100 * k + i, 2.0) for i, s in enumerate(self.settings.get("shapes", SHAPES))}
        path, out = os.path.join(folder, f"in{k}.safetensors"), os.path.join(folder, f"out{k}.safetensors")
        hivemind_compat.save_tensors(path, tensors)
        weight, window = options.get("weight", k + 1), str(options.get("matchmaking", 100))
        if kind == "c":
            command = [PROGRAM, "average", "--json", "--prefix", "mix", "--tensors", path, "--out", out, "--weight", str(weight),
                       "--compression", self.compression, "--matchmaking-time", window, "--chunk-timeout", "60", "--timeout", str(PATIENCE), "--allreduce-timeout", "120"]
            command += ["--join", first] if first else []
            command += ["--client-mode"] if options.get("client") else ["--listen", "/ip4/127.0.0.1/tcp/0"]
            command += ["--auxiliary"] if options.get("auxiliary") else []
            command += ["--announce", "/ip4/127.0.0.1/tcp/9"] if options.get("hidden") else []
            command += ["--load-state"] if options.get("load") else []
            command += ["--rounds", str(options.get("rounds", 1)), "--share-seconds", str(options.get("share", 0))]
            command += ["--group-size", str(len(self.specs))] if options.get("target", 1) else []
            command += ["--upload-limit", str(options["limit"])] if options.get("limit") else []
            command += ["--bandwidth", str(options["bandwidth"])] if options.get("bandwidth") else []
        else:
            command = ["--prefix", "mix", "--tensors", path, "--out", out, "--weight", str(weight), "--compression", "adaptive" if self.compression == "run" else self.compression,
                       "--min_matchmaking_time", window, "--next_chunk_timeout", "60", "--timeout", str(PATIENCE), "--allreduce_timeout", "120"]
            command += ["--initial_peers", first] if first else []
            command += ["--client_mode"] if options.get("client") else []
            command += ["--auxiliary"] if options.get("auxiliary") else []
            command += ["--load_state"] if options.get("load") else []
            command += ["--rounds", str(options.get("rounds", 1)), "--share_seconds", str(options.get("share", 0))]
            command += ["--target_group_size", str(len(self.specs))] if options.get("target", 1) else []
            command += ["--bandwidth", str(options["bandwidth"])] if options.get("bandwidth") else []
        return command

    def start(self, folder, peers):
        first = None
        for k, spec in enumerate(self.specs):
            command = self.command(folder, k, spec, first)
            if spec[0] == "py":
                peers.append(start_original("hivemind_averager.py", command, folder, f"peer{k}"))
            else:
                peers.append(Peer(command, folder, f"peer{k}"))
            if k == 0:
                first = peers[0].address()
                if first is None:
                    raise RuntimeError("the first peer did not start")

    def run(self):
        for last in steps.attempts():
            with tempfile.TemporaryDirectory() as folder:
                peers, before = [], steps.failed
                with steps.scenario(self.name, lambda: not_ours(peers), last):
                    self.start(folder, peers)
                    self.check(folder, peers)
                for k, peer in enumerate(peers):
                    peer.end()
                    if steps.failed > before:
                        sys.stderr.write(f"--- {self.name}: peer {k}\n" + peer.output())

    def mean(self, without=None):
        """The exact one, of all peers but one."""
        weights = [0.0 if k == without or len(s) > 1 and s[1].get("auxiliary") else (s[1] if len(s) > 1 else {}).get("weight", k + 1)
                   for k, s in enumerate(self.specs)]
        result = {}
        for i, shape in enumerate(self.settings.get("shapes", SHAPES)):
            all_of = [made_tensor(shape, 100 * k + i, 2.0).numpy().astype(np.float64) for k in range(len(self.specs))]
            result[f"tensor{i}"] = sum(w * x for w, x in zip(weights, all_of)) / sum(weights)
        return result

    def check(self, folder, peers):
        rounds = rounds_of(peers)
        errors = [r["error"] if r else f"no round: {p.output()[-200:]}" for r, p in zip(rounds, peers)]
        same = all(r and not r["error"] and sorted(r["group"]) == sorted(rounds[0]["group"]) for r in rounds)
        size = len(rounds[0]["group"]) if rounds[0] and rounds[0].get("group") else 0
        good = same and size == len(peers)
        sizes = [r and r.get("group") and len(r["group"]) for r in rounds]
        note = f"groups of {sizes}, errors {errors}" if not good else f"{size} peers, {max(r['seconds'] for r in rounds):.1f} s"
        step(f"{self.name}: one group", good, note)
        if not good:
            return
        want = self.mean()
        limit = {"none": 1e-5, "float16": 3e-3, "quantile8": 0.15}.get(self.compression, 0.05)
        for k, peer in enumerate(peers):
            out = os.path.join(folder, f"out{k}.safetensors")
            steps.until(lambda: os.path.exists(out) or peer.wait("closed", 0))
            try:
                got = hivemind_compat.load_tensors(out)
                worst = max(float(np.abs(got[n].numpy() - want[n]).max()) for n in want)
            except Exception as e:  # noqa: BLE001
                worst = float("inf")
                step(f"{self.name}: peer {k} wrote", False, repr(e))
            step(f"{self.name}: peer {k} ({self.specs[k][0]}) has the mean", worst <= limit, f"{worst:.2g} off, {limit} allowed")


class Slow(Scenario):
    """The last peer's uplink is too slow for all of its values: each tensor, which is one part, is a
    mean with it or without it, the same one at all peers."""

    def check(self, folder, peers):
        rounds, last = rounds_of(peers), len(peers) - 1
        step(f"{self.name}: one group", all(r and not r["error"] and len(r["group"]) == len(peers) for r in rounds),
             [r and (r["error"] or len(r["group"])) for r in rounds])
        every, without = self.mean(), self.mean(last)
        kinds = []
        for k, peer in enumerate(peers):
            out = os.path.join(folder, f"out{k}.safetensors")
            steps.until(lambda: os.path.exists(out) or peer.wait("closed", 0))
            try:
                got = {n: x.numpy() for n, x in hivemind_compat.load_tensors(out).items()}
            except Exception as e:  # noqa: BLE001
                step(f"{self.name}: peer {k} wrote", False, repr(e))
                return
            off = [[float(np.abs(got[n] - want[n]).max()) for n in every] for want in (every, without)]
            kinds.append([a < b for a, b in zip(*off)])
            worst = max(map(min, zip(*off)))
            step(f"{self.name}: peer {k} ({self.specs[k][0]}) has one of the means", worst <= 0.05, f"{worst:.2g} off")
        step(f"{self.name}: the same ones, some with its values and some without", kinds.count(kinds[0]) == len(peers) and len(set(kinds[0])) == 2, kinds)


class Download(Scenario):
    """The first averages nothing and shares; the others take its tensors over."""

    def check(self, folder, peers):
        want = {f"tensor{i}": made_tensor(s, i, 2.0).double().sum().item() for i, s in enumerate(SHAPES)}
        for k, peer in list(enumerate(peers))[1:]:
            state = peer.wait("state")
            taken = state is not None and (state.get("donor") or state.get("tensors"))
            step(f"{self.name}: peer {k} took over", taken, state)
        rounds = rounds_of(peers)
        for k, spec in enumerate(self.specs):
            if rounds[k] is None or k == 0:
                continue
            out = os.path.join(folder, f"out{k}.safetensors")
            steps.until(lambda: os.path.exists(out) or peers[k].wait("closed", 0))
            if not os.path.exists(out):
                continue
            got = hivemind_compat.load_tensors(out)
            worst = max(abs(float(got[n].double().sum()) - want[n]) / max(1, abs(want[n])) for n in want)
            step(f"{self.name}: peer {k} has the donor's tensors", worst < 0.05, f"sums {worst:.2g} off")


# A round begins when all are there, however long Python takes to start; but for a window: then when
# it is over.
WINDOW = {"target": 0, "matchmaking": 4}
SCENARIOS = [
    Scenario("C leads Python", [("c",), ("py",)]),
    Scenario("Python leads C", [("py",), ("c",)]),
    Scenario("none of it compressed", [("c",), ("py",)], "none"),
    Scenario("uniform8", [("py",), ("c",)], "uniform8"),
    Scenario("float16", [("c",), ("py",)], "float16"),
    Scenario("meanstd16", [("py",), ("c",)], "meanstd16"),
    Scenario("quantile8", [("c",), ("py",)], "quantile8"),
    Scenario("a window", [("py", WINDOW), ("c", WINDOW)]),
    Scenario("two of each kind", [("py",), ("c",), ("py",), ("c",)]),
    Scenario("C client", [("py",), ("c", {"client": 1}), ("c",)]),
    Scenario("Python client", [("c",), ("py", {"client": 1}), ("c",)]),
    Scenario("C cannot be called", [("c",), ("py",), ("c", {"hidden": 1})]),
    Scenario("C helps", [("py",), ("c", {"auxiliary": 1}), ("py",)]),
    Scenario("Python helps", [("c",), ("py", {"auxiliary": 1}), ("c",)]),
    # 0.2 MB in 0.78 s would take 2 Mbit/s
    Slow("a slow C client", [("py", {"bandwidth": 100}), ("c", {"bandwidth": 100}), ("py", {"bandwidth": 100}),
                             ("c", {"client": 1, "bandwidth": 1, "limit": 0.78})]),
    Scenario("many parts", [("c",), ("py",)], shapes=[(1300000,), (5,)]),
    Download("Python takes over from C", [("c", {"target": 0, "matchmaking": 12, "share": 1}), ("py", {"load": 1, "target": 0})]),
    Download("C takes over from Python", [("py", {"target": 0, "matchmaking": 12}), ("c", {"load": 1, "target": 0})]),
]


def main():
    only = sys.argv[2:]
    for scenario in steps.part_of(SCENARIOS):
        if not only or any(re.search(o, scenario.name) for o in only):
            scenario.run()
    return steps.closing()


if __name__ == "__main__":
    sys.exit(main())
