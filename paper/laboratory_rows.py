"""The laboratory's rows: what each one runs, and how its rates are searched for."""

import json
import os
import subprocess
import sys
import time

PEERS, BATCH, STEPS, SEARCH_STEPS, POINTS = 4, 8, 240, 120, 15
SEARCH_SEED, SEEDS = 1, (2, 3, 4)
MODEL = {"base": "demo", "name": "tiny", "dim": 32, "depth": 2, "heads": 1, "dim_head": 32}
COMMON = {"peers": PEERS, "batch": BATCH, "held_out": 64, "warmup": 20}
# Computing: 56 ms a gradient for 0.45 MB of parameters is the ratio of the paper's model, a minute for 0.5 GB.
CLASSES = {
    "datacentre": {"links": "datacentre", "sample_ms": 7},
    "fibre": {"links": "fibre", "sample_ms": 7},
    "adsl": {"links": "adsl", "sample_ms": 7},
    "mobile": {"links": "mobile", "sample_ms": 7},
    "adsl, fast": {"links": "adsl", "sample_ms": 1},
}

# The search, the same for each row: the inner rate, then the outer momentum mu, then the outer rate nu, each at the
# best of the others so far. While the best value of a rate is the last one on a side, the next one on that side is
# tried, too, WIDER times at most.
RATES = (0.01, 0.02, 0.04, 0.08, 0.16)
LOW = (0.002, 0.004, 0.008, 0.016, 0.032)
SGD = (0.1, 0.3, 1, 3, 9)
INNER = (0.01, 0.02, 0.04)
DELAYED = (0.005, 0.01, 0.02)  # an old change needs smaller steps
NU, MU = (0.4, 0.7, 1.0), (0.5, 0.9)
WIDER = 3
BEYOND = {"lr": (lambda x: x / 2, lambda x: 2 * x), "nu": (lambda x: x / 2, lambda x: x + 0.3)}
PUBLISHED = {"nu": 0.7, "mu": 0.9}  # DiLoCo's
BOTH = {"mu": MU, "nu": NU}

# Algorithm, its settings, the rates and the momenta that the search tries.
ROWS = {
    "gradients": ("gradients", {}, {"lr": RATES}),
    "gradients, 8 bit": ("gradients", {"coding": "uniform8"}, {"lr": RATES}),
    "gradients, Muon": ("gradients", {}, {"lr": RATES}),
    "delayed gradients": ("delayed_gradients", {}, {"lr": RATES}),
    "PowerSGD, rank 4": ("powersgd", {"rank": 4}, {"lr": RATES}),
    "1-bit Adam": ("onebit_adam", {"warm_up": 0.2, "beta2": 0.95}, {"lr": LOW}),
    "DGC, 1 %": ("dgc", {"share": 0.01, "beta": 0.9}, {"lr": SGD}),
    "DeMo, 32 of 32 x 32": ("demo", {"topk": 32, "chunk": 32, "beta": 0.999}, {"lr": LOW}),
    "local SGD, H 16": ("local_sgd", {"H": 16}, {"lr": RATES}),
    "DiLoCo, H 16, published": ("diloco", {"H": 16, **PUBLISHED}, {"lr": INNER}),
    "DiLoCo, H 16": ("diloco", {"H": 16, **PUBLISHED}, {"lr": INNER, **BOTH}),
    "DiLoCo, H 16, 8 bit": ("diloco", {"H": 16, "coding": "uniform8", **PUBLISHED}, {"lr": INNER, **BOTH}),
    "DiLoCo, H 16, E3M0": ("diloco", {"H": 16, "coding": "e3m0", **PUBLISHED}, {"lr": INNER, **BOTH}),
    "DiLoCo, H 16, Muon": ("diloco", {"H": 16, **PUBLISHED}, {"lr": INNER, **BOTH}),
    "DiLoCo, H 40": ("diloco", {"H": 40, **PUBLISHED}, {"lr": INNER, **BOTH}),
    "Streaming, H 16, E3M0": ("streaming", {"H": 16, "fragments": 4, "tau": 2, "coding": "e3m0", **PUBLISHED},
                              {"lr": INNER, **BOTH}),
    "delayed DiLoCo, H 16": ("delayed", {"H": 16, **PUBLISHED}, {"lr": DELAYED, **BOTH}),
    "eager DiLoCo, H 16": ("eager", {"H": 16, **PUBLISHED}, {"lr": DELAYED, **BOTH}),
    "delayed Nesterov, H 16": ("delayed_nesterov", {"H": 16, "N": PEERS, **PUBLISHED}, {"lr": DELAYED, **BOTH}),
    "SparseLoCo, H 16": ("sparseloco", {"H": 16, "topk": 16, "chunk": 32, "nu": 0.7}, {"lr": INNER, "nu": NU}),
    "NoLoCo, H 16": ("noloco", {"H": 16, "nu": 0.7, "mu": 0.5}, {"lr": INNER, **BOTH}),
    "SPARTA, 5 %": ("partial", {"H": 1, "share": 0.05}, {"lr": RATES}),
}


def run_of(row, found, steps, seed, klass, evaluations):
    """A run's file, as cmd/lab/README.md describes it. found: what the search has chosen: lr, maybe nu and mu."""
    algorithm, outer, _ = ROWS[row]
    outer = {**outer, **{k: v for k, v in found.items() if k != "lr"}}
    if "warm_up" in outer:
        outer["warm_up"] = round(outer["warm_up"] * steps)
    inner = "muon" if row.endswith("Muon") else "adamw"
    return {**COMMON, **CLASSES[klass], "inner": inner, "algorithm": algorithm, "outer": outer, "lr": found["lr"], "steps": steps,
            "seed": seed, "evaluate": steps * PEERS // evaluations}


def read_log(folder):
    entries = [json.loads(line) for line in open(folder / "log.jsonl")]
    return entries if entries and entries[-1]["event"] == "ended" else None


def folder_of(args, name):
    return args.out / name.replace(" ", "_").replace(",", "").replace("%", "pc").replace("/", "_")


def do(args, name, run, timing=False, keep=False):
    """Runs one file, unless it is complete; returns its log and the seconds of processor time that it took. keep: the trained
    model stays in the folder."""
    folder = folder_of(args, name)
    file, cost = folder.parent / f"{folder.name}.json", folder / "cost.json"
    folder.mkdir(parents=True, exist_ok=True)
    model = args.out / "tiny.json"
    model.write_text(json.dumps(MODEL))
    text = json.dumps({**run, "model": str(model)})
    if file.exists() and file.read_text() == text and cost.exists() and (log := read_log(folder)):
        return log, json.loads(cost.read_text())
    resume = (folder / "state.bin").exists() and file.exists() and file.read_text() == text
    if not resume:
        (folder / "state.bin").unlink(missing_ok=True)
    file.write_text(text)
    command = [args.potluck, "lab", "run", str(file), "--out", str(folder), "--threads", "1", "--quiet"]
    before, began = os.times(), time.time()
    subprocess.run(command + ["--timing"] * timing + ["--resume"] * resume, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    for checkpoint in folder.glob("checkpoint-*") if not keep else ():
        checkpoint.unlink()
    spent = {"cpu_s": after.children_user + after.children_system - before.children_user - before.children_system,
             "wall_s": time.time() - began}
    cost.write_text(json.dumps(spent))
    log = read_log(folder)
    if log is None:
        sys.exit(f"{folder}: interrupted; run again to go on")
    print(f"{name}: {spent['cpu_s']:.1f} s", flush=True)
    return log, spent


def evaluated(log):
    return [e for e in log if e["event"] == "evaluated"]


def rounded(x, digits=6):
    return None if x is None else float(f"{x:.{digits}g}")


def loss_of(trial):
    return float("inf") if trial["loss"] is None else trial["loss"]


def search(args, row, cost):
    """Tries one setting after the other; returns the best values and all trials."""
    _, outer, axes = ROWS[row]
    found = {k: outer[k] for k in axes if k in outer}
    trials = []

    def at(axis, value):
        setting = {**found, axis: value}
        same = [t for t in trials if all(t[k] == v for k, v in setting.items())]
        if not same:
            name = f"search {row} " + " ".join(f"{k} {setting[k]:g}" for k in ("nu", "mu", "lr") if k in setting)
            log, spent = do(args, name, run_of(row, setting, SEARCH_STEPS, SEARCH_SEED, "fibre", 1))
            cost.append(spent)
            trials.append({"axis": axis, **setting, "loss": rounded(evaluated(log)[-1]["loss"])})
            same = trials[-1:]
        return loss_of(same[0])

    for axis, values in axes.items():
        values = sorted(values)
        best = min(values, key=lambda v: at(axis, v))
        for _ in range(WIDER if axis in BEYOND else 0):
            if best not in (values[0], values[-1]):
                break
            low = best == values[0]
            values.insert(0 if low else len(values), rounded(BEYOND[axis][not low](best)))
            best = min(values, key=lambda v: at(axis, v))
        found[axis] = best
    return found, trials
