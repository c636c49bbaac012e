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
from pathlib import Path

import laboratory_claims
from laboratory_rows import BATCH, CLASSES, PEERS, POINTS, ROWS, SEARCH_STEPS, SEEDS, STEPS, do, evaluated, rounded, run_of, search

HERE = Path(__file__).resolve().parent
STORED = HERE / "laboratory.json"
PAGE = HERE / "laboratory.md"

# Where nobody waits for the others, the loss depends on the links. Elsewhere it does not: all peers compute alike, and
# test/program/lab.sh holds that two links give the same losses.
WITHOUT_ROUNDS = ("delayed_nesterov",)
TRAINED_CLASSES = ("fibre", "adsl", "mobile")  # of such a row: every class takes as many gradients as the row itself

# Rows that are trained once more for four times as many steps, at the rate of the search.
LONGER = ("gradients", "gradients, Muon", "local SGD, H 16", "DiLoCo, H 16, published", "DiLoCo, H 16, 8 bit",
          "DiLoCo, H 16, Muon", "Streaming, H 16, E3M0")
LONGER_STEPS = 4 * STEPS


# --- runs --------------------------------------------------------------------------------------


def do_row(args, row, cost):
    trial, trials = search(args, row, cost)
    result = {"algorithm": ROWS[row][0], "outer": ROWS[row][1], "trials": trials, **trial, "curves": [], "classes": {}}
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
        store(rows, cost, {})
    store(rows, cost, laboratory_claims.run(args, rows, cost))


def store(rows, cost, claims):
    stored = {"peers": PEERS, "batch": BATCH, "steps": STEPS, "search_steps": SEARCH_STEPS, "longer_steps": LONGER_STEPS,
              "seeds": SEEDS, "rows": rows, "claims": claims, "runs": len(cost), "cpu_s": rounded(sum(c["cpu_s"] for c in cost), 4),
              "wall_s": rounded(sum(c["wall_s"] for c in cost), 4)}
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


# --- the page ----------------------------------------------------------------------------------

DRAWN = ("gradients", "PowerSGD, rank 4", "DGC, 1 %", "DeMo, 32 of 32 x 32", "local SGD, H 16", "DiLoCo, H 16", "DiLoCo, H 16, 8 bit",
         "Streaming, H 16, E3M0", "SparseLoCo, H 16", "NoLoCo, H 16")
BUDGETS = (0.01, 0.1, 1)  # of the bytes that `gradients` sends in a whole run
AIM = "DiLoCo, H 16, published"  # a loss within 2 % of this row's last one is what "Equal time" waits for
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


def tried(row):
    """The search's trials, by what was varied."""
    names, parts = {"lr": "η", "nu": "ν", "mu": "μ"}, []
    for axis in dict.fromkeys(t["axis"] for t in row["trials"]):
        at = sorted((t for t in row["trials"] if t["axis"] == axis), key=lambda t: t[axis])
        parts.append(f"{names[axis]} " + ", ".join(
            f"{t[axis]:g}: {'-' if t['loss'] is None else format(t['loss'], '.3f')}" for t in at))
    return "; ".join(parts)


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
        search.append([name, tried(row), " / ".join(f"{row[k]:g}" for k in ("lr", "nu", "mu") if k in row)])
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
        "search": table(["row", "tried: held-out loss", "taken: η / ν / μ"], search),
        "samples": table(["row", "held-out loss", "against gradients", "KB sent, a peer and step", "times fewer"], samples),
        "longer": table(["row", f"{stored['steps']} steps", "against gradients", f"{stored['longer_steps']} steps",
                         "against gradients"], longer),
        "bytes": table(["row", *(f"{100 * b:g} % of the bytes" for b in BUDGETS)], bytes_),
        "time": table(["row", *(f"{k}, {SLACK * computing[k]:.1f} s" for k in classes)], time_),
        "until": f"Within 2 % of the last loss of *{AIM}*, that is {target:.3f}:\n\n" + table(["row", *(f"{k}, s" for k in classes)], until),
        "use": table(["row", *classes], use),
        "links": links_table(),
        **laboratory_claims.tables(stored["claims"], table, plus_minus),
    }


def links_table():
    path = HERE / "laboratory_links.json"
    if not path.exists():
        return "Not measured."
    rows = []
    for r in json.loads(path.read_text()):
        measured = statistics.median(r["measured"])
        rows.append([r["link"], r["algorithm"], str(r["peers"]), f"{r['sent'] / 1e6:.2f}", f"{r['simulated']:.2f}",
                     f"{measured:.2f} ({min(r['measured']):.2f} to {max(r['measured']):.2f})",
                     f"{100 * (r['simulated'] / measured - 1):+.1f} %"])
    return table(["link, Mbit/s", "exchange", "peers", "MB a peer sends", "simulated, s", "measured, s", "error"], rows)


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


def filled(page, stored):
    """The page with every part between <!-- NAME --> and <!-- end --> made anew."""
    for name, text in tables(stored).items():
        begin, end = f"<!-- {name} -->", "\n<!-- end -->"
        at = page.index(begin) + len(begin)
        page = page[:at] + "\n" + text + page[page.index(end, at):]
    return page


def write(args):
    stored = json.loads(STORED.read_text())
    args.out.mkdir(parents=True, exist_ok=True)
    draw(args, stored)
    PAGE.write_text(filled(PAGE.read_text(), stored))


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
