"""Averaging in every mix of C peers and real hivemind averagers: who bootstraps, who leads, client mode,
auxiliary peers, compressions, and the state that newcomers download.

usage: averager.py POTLUCK [SCENARIO ...]
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
    import numpy as np
    import torch  # noqa: F401
except ImportError:
    print("skip averager: hivemind is not installed for this Python; `make interop` brings its own\n"
          "0 passed, 0 failed, 1 skipped")
    sys.exit(0)
import hivemind_compat
from hivemind_averager import made_tensor
from hivemind_processes import Peer

PROGRAM = os.path.abspath(sys.argv[1])
SHAPES = [(70000,), (64, 32), (7,), (300, 400)]  # both compressions of the run, and an uneven cut
failed = passed = 0


def step(name, good, note=""):
    global failed, passed
    failed += not good
    passed += bool(good)
    print(json.dumps({"event": "step", "name": name, "ok": bool(good), "note": str(note)}), flush=True)


class Scenario:
    def __init__(self, name, peers, compression="run", **settings):
        self.name, self.specs, self.compression, self.settings = name, peers, compression, settings

    def command(self, folder, k, spec, first):
        kind, options = spec[0], spec[1] if len(spec) > 1 else {}
        tensors = {f"tensor{i}": made_tensor(s, 100 * k + i, 2.0) for i, s in enumerate(self.settings.get("shapes", SHAPES))}
        path, out = os.path.join(folder, f"in{k}.safetensors"), os.path.join(folder, f"out{k}.safetensors")
        hivemind_compat.save_tensors(path, tensors)
        weight, window = options.get("weight", k + 1), str(options.get("matchmaking", 4))
        if kind == "c":
            command = [PROGRAM, "average", "--json", "--prefix", "mix", "--tensors", path, "--out", out, "--weight", str(weight),
                       "--compression", self.compression, "--matchmaking-time", window, "--chunk-timeout", "10", "--timeout", "50"]
            command += ["--join", first] if first else []
            command += ["--client-mode"] if options.get("client") else ["--listen", "/ip4/127.0.0.1/tcp/0"]
            command += ["--auxiliary"] if options.get("auxiliary") else []
            command += ["--load-state"] if options.get("load") else []
            command += ["--rounds", str(options.get("rounds", 1)), "--share-seconds", str(options.get("share", 0))]
            command += ["--group-size", str(len(self.specs))] if options.get("target") else []
        else:
            command = [sys.executable, os.path.join(HERE, "hivemind_averager.py"), "--prefix", "mix", "--tensors", path, "--out", out,
                       "--weight", str(weight), "--compression", "adaptive" if self.compression == "run" else self.compression,
                       "--min_matchmaking_time", window, "--timeout", "50"]
            command += ["--initial_peers", first] if first else []
            command += ["--client_mode"] if options.get("client") else []
            command += ["--auxiliary"] if options.get("auxiliary") else []
            command += ["--load_state"] if options.get("load") else []
            command += ["--rounds", str(options.get("rounds", 1)), "--share_seconds", str(options.get("share", 0))]
            command += ["--target_group_size", str(len(self.specs))] if options.get("target") else []
        return command

    def start(self, folder):
        peers, first = [], None
        for k, spec in enumerate(self.specs):
            command = self.command(folder, k, spec, first)
            peers.append(Peer(command, folder, f"peer{k}"))
            if spec[0] == "py" and peers[k].wait("ready", 60) is None:  # its daemon sometimes gives up too early
                peers[k].end()
                peers[k] = Peer(command, folder, f"peer{k}")
            if k == 0:
                first = peers[0].address()
                if first is None:
                    break
        return peers

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            peers = self.start(folder)
            try:
                self.check(folder, peers)
            finally:
                for k, peer in enumerate(peers):
                    peer.end()
                    if self.bad:
                        sys.stderr.write(f"--- peer {k}\n" + open(os.path.join(folder, f"peer{k}.err")).read()[-3000:])

    bad = False

    def mean(self):
        """The exact one, and how far from it an answer may be: an 8-bit bin of what travelled, each way."""
        weights = [0.0 if len(s) > 1 and s[1].get("auxiliary") else (s[1] if len(s) > 1 else {}).get("weight", k + 1)
                   for k, s in enumerate(self.specs)]
        result = {}
        for i, shape in enumerate(self.settings.get("shapes", SHAPES)):
            all_of = [made_tensor(shape, 100 * k + i, 2.0).numpy().astype(np.float64) for k in range(len(self.specs))]
            result[f"tensor{i}"] = sum(w * x for w, x in zip(weights, all_of)) / sum(weights)
        return result

    def check(self, folder, peers):
        rounds = [p.wait("round", 90) for p in peers]
        errors = [r if r is None else r["error"] for r in rounds]
        same = all(r and not r["error"] and sorted(r["group"]) == sorted(rounds[0]["group"]) for r in rounds)
        size = len(rounds[0]["group"]) if rounds[0] and rounds[0].get("group") else 0
        good = same and size == len(peers)
        sizes = [r and r.get("group") and len(r["group"]) for r in rounds]
        note = f"groups of {sizes}, errors {errors}" if not good else f"{size} peers, {max(r['seconds'] for r in rounds):.1f} s"
        self.bad |= not good
        step(f"{self.name}: one group", good, note)
        if not good:
            return
        want = self.mean()
        limit = {"none": 1e-5, "float16": 3e-3}.get(self.compression, 0.05)
        for k, peer in enumerate(peers):
            out = os.path.join(folder, f"out{k}.safetensors")
            end = time.time() + 20
            while not os.path.exists(out) and time.time() < end:
                time.sleep(0.1)
            try:
                time.sleep(0.2)
                got = hivemind_compat.load_tensors(out)
                worst = max(float(np.abs(got[n].numpy() - want[n]).max()) for n in want)
            except Exception as e:  # noqa: BLE001
                worst = float("inf")
                step(f"{self.name}: peer {k} wrote", False, repr(e))
            self.bad |= worst > limit
            step(f"{self.name}: peer {k} ({self.specs[k][0]}) has the mean", worst <= limit, f"{worst:.2g} off, {limit} allowed")


class Download(Scenario):
    """The first averages nothing and shares; the others take its tensors over."""

    def check(self, folder, peers):
        want = {f"tensor{i}": made_tensor(s, i, 2.0).double().sum().item() for i, s in enumerate(SHAPES)}
        for k, peer in list(enumerate(peers))[1:]:
            state = peer.wait("state", 60)
            taken = state is not None and (state.get("donor") or state.get("tensors"))
            self.bad |= not taken
            step(f"{self.name}: peer {k} took over", taken, state)
        rounds = [p.wait("round", 90) for p in peers]
        for k, spec in enumerate(self.specs):
            if rounds[k] is None or k == 0:
                continue
            out = os.path.join(folder, f"out{k}.safetensors")
            end = time.time() + 20
            while not os.path.exists(out) and time.time() < end:
                time.sleep(0.1)
            time.sleep(0.2)
            if not os.path.exists(out):
                continue
            got = hivemind_compat.load_tensors(out)
            worst = max(abs(float(got[n].double().sum()) - want[n]) / max(1, abs(want[n])) for n in want)
            step(f"{self.name}: peer {k} has the donor's tensors", worst < 0.05, f"sums {worst:.2g} off")


LONG = {"target": 1, "matchmaking": 20}  # begins when all are there, however long Python takes to start
SCENARIOS = [
    Scenario("C leads Python", [("c",), ("py",)]),
    Scenario("Python leads C", [("py",), ("c",)]),
    Scenario("none of it compressed", [("c",), ("py",)], "none"),
    Scenario("uniform8", [("py",), ("c",)], "uniform8"),
    Scenario("float16", [("c",), ("py",)], "float16"),
    Scenario("meanstd16", [("py",), ("c",)], "meanstd16"),
    Scenario("target size", [("py", {"target": 1, "matchmaking": 15}), ("c", {"target": 1, "matchmaking": 15})]),
    Scenario("two of each kind", [("py", LONG), ("c", LONG), ("py", LONG), ("c", LONG)]),
    Scenario("C client", [("py", LONG), ("c", {"client": 1, **LONG}), ("c", LONG)]),
    Scenario("Python client", [("c", LONG), ("py", {"client": 1, **LONG}), ("c", LONG)]),
    Scenario("C helps", [("py", LONG), ("c", {"auxiliary": 1, **LONG}), ("py", LONG)]),
    Scenario("Python helps", [("c", LONG), ("py", {"auxiliary": 1, **LONG}), ("c", LONG)]),
    Scenario("many parts", [("c",), ("py",)], shapes=[(1300000,), (5,)]),
    Download("Python takes over from C", [("c", {"matchmaking": 12, "share": 1}), ("py", {"load": 1})]),
    Download("C takes over from Python", [("py", {"matchmaking": 12}), ("c", {"load": 1})]),
]


def main():
    only = sys.argv[2:]
    for scenario in SCENARIOS:
        if not only or any(re.search(o, scenario.name) for o in only):
            scenario.run()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
