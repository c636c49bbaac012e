#!/usr/bin/env python3
"""Runs the laboratory's comparison and writes paper/laboratory.md: `make laboratory`.

    laboratory.py run POTLUCK [--out FOLDER]     searches, trains, measures; stores paper/laboratory.json
    laboratory.py write POTLUCK                  tables and figures from paper/laboratory.json

Every run is a folder under --out. A complete one is not repeated and an interrupted one is resumed, so that `run` may be
stopped at any time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STORED = HERE / "laboratory.json"
PAGE = HERE / "laboratory.md"

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

# Where nobody waits for the others, the loss depends on the links. Elsewhere it does not: all peers compute alike, and
# test/program/lab.sh holds that two links give the same losses.
WITHOUT_ROUNDS = ("delayed_nesterov",)
TRAINED_CLASSES = ("fibre", "adsl", "mobile")  # of such a row: every class takes as many gradients as the row itself

# The search: five trials for each row. Rows with one rate try five, a factor of two apart (DGC: three); rows with an
# outer rate try three inner rates and three outer ones, as a cross.
RATES = [(lr, None) for lr in (0.01, 0.02, 0.04, 0.08, 0.16)]
LOW = [(lr, None) for lr in (0.002, 0.004, 0.008, 0.016, 0.032)]
SGD = [(lr, None) for lr in (0.1, 0.3, 1, 3, 9)]
CROSS = [(0.02, 0.7), (0.01, 0.7), (0.04, 0.7), (0.02, 0.4), (0.02, 1.0)]
DELAYED = [(0.01, 0.7), (0.005, 0.7), (0.02, 0.7), (0.01, 0.4), (0.01, 1.0)]  # an old change needs smaller steps

ROWS = {
    "gradients": ("gradients", {}, RATES),
    "gradients, 8 bit": ("gradients", {"coding": "uniform8"}, RATES),
    "gradients, Muon": ("gradients", {}, RATES),
    "delayed gradients": ("delayed_gradients", {}, RATES),
    "PowerSGD, rank 4": ("powersgd", {"rank": 4}, RATES),
    "1-bit Adam": ("onebit_adam", {"warm_up": 0.2, "beta2": 0.95}, LOW),
    "DGC, 1 %": ("dgc", {"share": 0.01, "beta": 0.9}, SGD),
    "DeMo, 32 of 32 x 32": ("demo", {"topk": 32, "chunk": 32, "beta": 0.999}, LOW),
    "local SGD, H 16": ("local_sgd", {"H": 16}, RATES),
    "DiLoCo, H 16": ("diloco", {"H": 16}, CROSS),
    "DiLoCo, H 16, 8 bit": ("diloco", {"H": 16, "coding": "uniform8"}, CROSS),
    "DiLoCo, H 16, E3M0": ("diloco", {"H": 16, "coding": "e3m0"}, CROSS),
    "DiLoCo, H 16, Muon": ("diloco", {"H": 16}, CROSS),
    "DiLoCo, H 40": ("diloco", {"H": 40}, CROSS),
    "Streaming, H 16, E3M0": ("streaming", {"H": 16, "fragments": 4, "tau": 2, "coding": "e3m0"}, CROSS),
    "delayed DiLoCo, H 16": ("delayed", {"H": 16}, DELAYED),
    "eager DiLoCo, H 16": ("eager", {"H": 16}, DELAYED),
    "delayed Nesterov, H 16": ("delayed_nesterov", {"H": 16, "N": PEERS}, DELAYED),
    "SparseLoCo, H 16": ("sparseloco", {"H": 16, "topk": 16, "chunk": 32}, CROSS),
    "NoLoCo, H 16": ("noloco", {"H": 16, "mu": 0.5}, CROSS),
    "SPARTA, 5 %": ("partial", {"H": 1, "share": 0.05}, RATES),
}


# Rows that are trained once more for four times as many steps, at the rate of the search.
LONGER = ("gradients", "gradients, Muon", "local SGD, H 16", "DiLoCo, H 16, 8 bit", "DiLoCo, H 16, Muon",
          "Streaming, H 16, E3M0")
LONGER_STEPS = 4 * STEPS


# --- runs --------------------------------------------------------------------------------------


def run_of(row, trial, steps, seed, klass, evaluations):
    """A run's file, as cmd/lab/README.md describes it."""
    algorithm, outer, _ = ROWS[row]
    outer = dict(outer)
    if "warm_up" in outer:
        outer["warm_up"] = round(outer["warm_up"] * steps)
    if trial[1] is not None:
        outer["nu"] = trial[1]
    inner = "muon" if row.endswith("Muon") else "adamw"
    return {**COMMON, **CLASSES[klass], "inner": inner, "algorithm": algorithm, "outer": outer, "lr": trial[0], "steps": steps,
            "seed": seed, "evaluate": steps * PEERS // evaluations}


def read_log(folder):
    entries = [json.loads(line) for line in open(folder / "log.jsonl")]
    return entries if entries and entries[-1]["event"] == "ended" else None


def do(args, name, run, timing=False):
    """Runs one file, unless it is complete; returns its log and the seconds of processor time that it took."""
    folder = args.out / name.replace(" ", "_").replace(",", "").replace("%", "pc").replace("/", "_")
    file, cost = folder.with_suffix(".json"), folder / "cost.json"
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


def do_row(args, row, cost):
    trials = []
    for number, trial in enumerate(ROWS[row][2]):
        log, spent = do(args, f"search {row} {number}", run_of(row, trial, SEARCH_STEPS, SEARCH_SEED, "fibre", 1))
        cost.append(spent)
        trials.append({"lr": trial[0], "nu": trial[1], "loss": rounded(evaluated(log)[-1]["loss"])})
    best = min(trials, key=lambda t: float("inf") if t["loss"] is None else t["loss"])
    trial = best["lr"], best["nu"]
    result = {"algorithm": ROWS[row][0], "outer": ROWS[row][1], "trials": trials, "lr": best["lr"], "nu": best["nu"],
              "curves": [], "classes": {}}
    for seed in SEEDS:
        log, spent = do(args, f"final {row} {seed}", run_of(row, trial, STEPS, seed, "fibre", POINTS))
        cost.append(spent)
        points = evaluated(log)
        result["curves"].append([rounded(p["loss"]) for p in points])
        result["samples"] = [p["samples"] for p in points]
        result["bytes"] = [p["bytes"] / PEERS for p in points]
    for klass in CLASSES:
        if ROWS[row][0] in WITHOUT_ROUNDS:
            if klass not in TRAINED_CLASSES:
                continue
            result["classes"][klass] = measured_class(args, row, trial, klass, cost)
            continue
        log, spent = do(args, f"time {row} {klass}", run_of(row, trial, STEPS, SEEDS[0], klass, POINTS), timing=True)
        cost.append(spent)
        # What is under way at an evaluation is counted when it arrives.
        assert abs(evaluated(log)[-1]["bytes"] / PEERS / result["bytes"][-1] - 1) < 0.1
        result["classes"][klass] = class_of(log)
    if row in LONGER:
        result["longer"] = []
        for seed in SEEDS:
            log, spent = do(args, f"longer {row} {seed}", run_of(row, trial, LONGER_STEPS, seed, "fibre", 1))
            cost.append(spent)
            result["longer"].append(rounded(evaluated(log)[-1]["loss"]))
    return result


def class_of(log):
    points = evaluated(log)
    return {
        "time": [rounded(p["time"]) for p in points],
        "utilization": rounded(points[-1]["utilization"], 4),
        "mean_up": rounded(points[-1]["bytes"] / PEERS / points[-1]["time"], 4),
        "peak_up": rounded(max(p["peak_up"] for p in log[-1]["peers"]), 4),
    }


def measured_class(args, row, trial, klass, cost):
    """Without rounds the order of the messages depends on the links, and so does the loss: all seeds are trained again."""
    curves = []
    for seed in SEEDS:
        name = f"final {row} {seed}" + (f" {klass}" if klass != "fibre" else "")
        log, spent = do(args, name, run_of(row, trial, STEPS, seed, klass, POINTS))
        cost.append(spent)
        curves.append([rounded(p["loss"]) for p in evaluated(log)])
        found = class_of(log)
    return {**found, "curves": curves}


def run(args):
    cost, rows = [], {}
    args.out.mkdir(parents=True, exist_ok=True)
    for row in ROWS:
        rows[row] = do_row(args, row, cost)
        store(rows, cost)


def store(rows, cost):
    stored = {"peers": PEERS, "batch": BATCH, "steps": STEPS, "search_steps": SEARCH_STEPS, "longer_steps": LONGER_STEPS,
              "seeds": SEEDS, "rows": rows, "runs": len(cost), "cpu_s": rounded(sum(c["cpu_s"] for c in cost), 4),
              "wall_s": rounded(sum(c["wall_s"] for c in cost), 4)}
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


# --- the page ----------------------------------------------------------------------------------

DRAWN = ("gradients", "PowerSGD, rank 4", "DGC, 1 %", "DeMo, 32 of 32 x 32", "local SGD, H 16", "DiLoCo, H 16", "DiLoCo, H 16, 8 bit",
         "Streaming, H 16, E3M0", "SparseLoCo, H 16", "NoLoCo, H 16")
BUDGETS = (0.01, 0.1, 1)  # of the bytes that `gradients` sends in a whole run
AIM = "DiLoCo, H 16"  # a loss within 2 % of this row's last one is what "Equal time" waits for
SLACK = 1.2  # of the time that computing alone takes
DIVERGED = 7  # nats; the untrained model is at 5.7


def sound(curve):
    """A run has diverged from its first such loss on, though its numbers may stay finite, or come back."""
    bad = next((i for i, loss in enumerate(curve) if loss is None or loss > DIVERGED), len(curve))
    return curve[:bad] + [None] * (len(curve) - bad)


def plus_minus(values, digits, otherwise="diverge"):
    values = [v for v in values if v is not None]
    if len(values) < len(SEEDS):
        return f"{len(SEEDS) - len(values)} of {len(SEEDS)} {otherwise}"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def reached(xs, losses, x):
    """The loss at x, between two evaluations; after the last one, the last."""
    if x >= xs[-1]:
        return losses[-1]
    i = next(i for i, at in enumerate(xs) if at > x)
    if None in losses[i - 1:i + 1]:
        return None
    return losses[i - 1] + (losses[i] - losses[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1])


def first_below(xs, losses, target):
    """Where the loss first is as low as the target."""
    for i, loss in enumerate(losses):
        if loss is not None and loss <= target:
            before = losses[i - 1]
            return xs[i - 1] + (xs[i] - xs[i - 1]) * (before - target) / (before - loss)
    return None


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows])


def curves_of(row, klass):
    return [sound(c) for c in row["classes"][klass].get("curves", row["curves"])]


def tables(stored):
    rows = stored["rows"]
    base = rows["gradients"]
    base_loss = statistics.mean(c[-1] for c in base["curves"])
    target = 1.02 * statistics.mean(c[-1] for c in rows[AIM]["curves"])
    computing = {k: stored["steps"] * BATCH * CLASSES[k]["sample_ms"] / 1000 for k in CLASSES}
    longer_base = statistics.mean(base["longer"])
    search, samples, bytes_, time_, until, use, longer = [], [], [], [], [], [], []
    for name, row in rows.items():
        row_curves = [sound(c) for c in row["curves"]]
        losses = [c[-1] for c in row_curves]
        search.append([name, ", ".join(
            f"{t['lr']:g}{'' if t['nu'] is None else ' / ' + format(t['nu'], 'g')}: "
            f"{'-' if t['loss'] is None else format(t['loss'], '.3f')}" for t in row["trials"]),
            f"{row['lr']:g}{'' if row['nu'] is None else ' / ' + format(row['nu'], 'g')}"])
        mean = statistics.mean(losses) if None not in losses else None
        if "longer" in row:
            longer.append([name, plus_minus(losses, 3), f"{100 * (mean / base_loss - 1):+.1f} %", plus_minus(row["longer"], 3),
                           f"{100 * (statistics.mean(row['longer']) / longer_base - 1):+.1f} %"])
        samples.append([name, plus_minus(losses, 3), "-" if mean is None else f"{100 * (mean / base_loss - 1):+.1f} %",
                        f"{row['bytes'][-1] / stored['steps'] / 1000:.2f}", f"{base['bytes'][-1] / row['bytes'][-1]:.1f}"])
        bytes_.append([name] + [plus_minus([reached(row["bytes"], c, share * base["bytes"][-1]) for c in row_curves], 3)
                                for share in BUDGETS])
        time_.append([name] + [plus_minus([reached(row["classes"][k]["time"], c, SLACK * computing[k])
                                           for c in curves_of(row, k)], 3) if k in row["classes"] else "" for k in CLASSES])
        until.append([name] + [plus_minus([first_below(row["classes"][k]["time"], c, target) for c in curves_of(row, k)], 1, "never")
                               if k in row["classes"] else "" for k in CLASSES])
        use.append([name] + [f"{100 * row['classes'][k]['utilization']:.0f} %, {row['classes'][k]['mean_up'] * 8e-6:.2f}"
                             if k in row["classes"] else "" for k in CLASSES])
    classes = list(CLASSES)
    cost = f"{stored['runs']} runs took {stored['cpu_s'] / 60:.0f} minutes of processor time."
    return {
        "cost": cost + ("" if set(rows) == set(ROWS) else " Not all rows were complete when this page was made; "
                        "`make laboratory` adds " +
                        ", ".join(f"*{r}*" for r in ROWS if r not in rows) + "."),
        "search": table(["row", "rate (or inner rate / ν): held-out loss", "taken"], search),
        "samples": table(["row", "held-out loss", "against gradients", "KB sent, a peer and step", "times fewer"], samples),
        "longer": table(["row", f"{stored['steps']} steps", "against gradients", f"{stored['longer_steps']} steps",
                         "against gradients"], longer),
        "bytes": table(["row", *(f"{100 * b:g} % of the bytes" for b in BUDGETS)], bytes_),
        "time": table(["row", *(f"{k}, {SLACK * computing[k]:.1f} s" for k in classes)], time_),
        "until": f"Within 2 % of the last loss of *{AIM}*, that is {target:.3f}:\n\n" + table(["row", *(f"{k}, s" for k in classes)], until),
        "use": table(["row", *classes], use),
        "links": links_table(),
    }


def links_table():
    path = HERE / "laboratory_links.json"
    if not path.exists():
        return "Not measured."
    rows = []
    for r in json.loads(path.read_text()):
        measured = statistics.median(r["measured"])
        rows.append([r["link"], r["algorithm"], f"{r['message'] / 1e6:.2f}", f"{r['simulated']:.2f}",
                     f"{measured:.2f} ({min(r['measured']):.2f} to {max(r['measured']):.2f})",
                     f"{100 * (r['simulated'] / measured - 1):+.1f} %"])
    return table(["link, Mbit/s", "message", "MB", "simulated, s", "measured, s", "error"], rows)


def draw(args, stored):
    """`potluck lab compare` draws folders of runs: one for each row, with the mean of the seeds' losses."""
    for klass in ("fibre", "adsl"):
        folders = []
        for name in DRAWN:
            row = stored["rows"].get(name)
            if row is None:
                continue
            folder = args.out / "drawn" / f"{klass}-{len(folders)}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "run.json").write_text(json.dumps({"name": name, "algorithm": row["algorithm"]}))
            curves = curves_of(row, klass)
            with open(folder / "log.jsonl", "w") as log:
                for i, samples in enumerate(row["samples"]):
                    at = [c[i] for c in curves]
                    event = {"event": "evaluated", "samples": samples, "bytes": row["bytes"][i] * PEERS,
                             "time": row["classes"][klass]["time"][i], "utilization": row["classes"][klass]["utilization"],
                             "loss": None if None in at else statistics.mean(at)}
                    log.write(json.dumps(event) + "\n")
            folders.append(str(folder))
        figures = args.out / "figures" / klass
        subprocess.run([args.potluck, "lab", "compare", *folders, "--out", str(args.out / f"{klass}.html"), "--figures",
                        str(figures), "--quiet"], check=True)
        for figure in ("bytes", "time") if klass == "fibre" else ("time",):
            name = figure if figure == "bytes" else f"time_{klass}"
            (HERE / "figures" / f"laboratory_{name}.svg").write_text((figures / f"{figure}.svg").read_text())


def write(args):
    """Every part of the page between <!-- NAME --> and <!-- end --> is replaced."""
    stored = json.loads(STORED.read_text())
    args.out.mkdir(parents=True, exist_ok=True)
    draw(args, stored)
    page = PAGE.read_text()
    for name, text in tables(stored).items():
        begin, end = f"<!-- {name} -->", "\n<!-- end -->"
        at = page.index(begin) + len(begin)
        page = page[:at] + "\n" + text + page[page.index(end, at):]
    PAGE.write_text(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "write"))
    parser.add_argument("potluck")
    parser.add_argument("--out", type=Path, default=Path("out/laboratory"))
    args = parser.parse_args()
    args.potluck, args.out = os.path.abspath(args.potluck), args.out.absolute()
    os.chdir(HERE.parent)  # the demo's data is there
    run(args) if args.what == "run" else write(args)


if __name__ == "__main__":
    main()
