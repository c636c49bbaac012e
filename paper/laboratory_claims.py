"""Runs behind "Published claims" of paper/laboratory.md that the comparison itself does not make: a start from a trained
model, Forgather's table, and times over links. laboratory.py calls it."""

import statistics

from laboratory_rows import PEERS, SEARCH_SEED, SEEDS, STEPS, do, evaluated, folder_of, rounded, run_of

# --- a start from a trained model --------------------------------------------------------------

WARM_ROWS = ("gradients", "DiLoCo, H 16, published", "DiLoCo, H 16, 8 bit", "Streaming, H 16, E3M0", "delayed Nesterov, H 16")
WARM_STEPS = 2 * STEPS  # of gradients before, and of each row after
WARM_RATES = (0.0025, 0.005, 0.01, 0.02, 0.04)


def found(row):
    return {k: row[k] for k in ("lr", "nu", "mu") if k in row}


def trained(args, rows, seed, cost):
    """The checkpoint of a training by gradients, at the rate that the search has chosen."""
    name = f"warm start {seed}"
    _, spent = do(args, name, run_of("gradients", found(rows["gradients"]), WARM_STEPS, seed, "fibre", 1), keep=True)
    cost.append(spent)
    return str(folder_of(args, name) / f"checkpoint-{WARM_STEPS:06}.safetensors")


def warm(args, rows, cost):
    """Every row goes on from the same models, with new moments. The inner rate is searched for anew, the rest stays."""
    start = {seed: trained(args, rows, seed, cost) for seed in (SEARCH_SEED, *SEEDS)}
    result = {}
    for row in WARM_ROWS:
        trials = []
        for lr in WARM_RATES:
            run = run_of(row, {**found(rows[row]), "lr": lr}, WARM_STEPS // 2, SEARCH_SEED, "fibre", 1)
            log, spent = do(args, f"warm search {row} {lr:g}", {**run, "start": start[SEARCH_SEED]})
            cost.append(spent)
            trials.append({"lr": lr, "loss": rounded(evaluated(log)[-1]["loss"])})
        lr = min(trials, key=lambda t: float("inf") if t["loss"] is None else t["loss"])["lr"]
        result[row] = {"trials": trials, "lr": lr, "begin": [], "end": []}
        for seed in SEEDS:
            run = run_of(row, {**found(rows[row]), "lr": lr}, WARM_STEPS, seed, "fibre", 1)
            log, spent = do(args, f"warm {row} {seed}", {**run, "start": start[seed]})
            cost.append(spent)
            points = evaluated(log)
            result[row]["begin"].append(rounded(points[0]["loss"]))
            result[row]["end"].append(rounded(points[-1]["loss"]))
            result[row]["bytes"] = rounded(points[-1]["bytes"] / PEERS)
    return result


# --- Forgather's table -------------------------------------------------------------------------

# Name: the row whose rates are taken, and what is different.
FORGATHER = {
    "Streaming, 4 fragments": ("DiLoCo, H 16", {"algorithm": "streaming"}, {"fragments": 4, "tau": 2}),
    "Streaming, 2 fragments": ("DiLoCo, H 16", {"algorithm": "streaming"}, {"fragments": 2, "tau": 2}),
    "asynchronous, N 1 (none)": ("delayed Nesterov, H 16", {}, {"N": 1}),
    "asynchronous, N 8": ("delayed Nesterov, H 16", {}, {"N": 8}),
    "asynchronous, N 16": ("delayed Nesterov, H 16", {}, {"N": 16}),
}


def forgather(args, rows, cost):
    result = {name: [c[-1] for c in rows[row]["curves"]]
              for name, row in (("DiLoCo", "DiLoCo, H 16"), ("asynchronous, N 4", "delayed Nesterov, H 16"))}
    for name, (row, keys, outer) in FORGATHER.items():
        result[name] = []
        for seed in SEEDS:
            run = run_of(row, found(rows[row]), STEPS, seed, "fibre", 1)
            log, spent = do(args, f"forgather {name} {seed}", {**run, **keys, "outer": {**run["outer"], **outer}})
            cost.append(spent)
            result[name].append(rounded(evaluated(log)[-1]["loss"]))
    return result


# --- times over links --------------------------------------------------------------------------

# diloco-measured 07b7885: 4 peers on one switch, 30,846,720 values, 24.6 ms of computing a step (its telemetry without
# limits, H 8 to 128); the share of time computing in %, by H and Mbit/s.
MEASURED = {1: (0.07, 0.32, 1.74, 7.76), 8: (0.55, 2.48, 12.35, 40.24), 32: (2.41, 10.01, 36.01, 68.10),
            128: (11.55, 36.09, 71.52, 87.00)}
MEASURED_MBIT = (50, 200, 1000, 5000)
MEASURED_VALUES, MEASURED_STEP_S = 30_846_720, 0.0246
VALUES = 112_132  # of the laboratory's model


def rounds(args, name, keys, mbit, step_s, scale, cost):
    """Share of the time computing and seconds of an exchange, in rounds of H steps. The model is smaller than the one that is
    meant by `scale`, and so are the links: times stay."""
    H, links = keys["outer"].get("H", 1), {"up_mbit": rounded(mbit * scale, 12), "down_mbit": rounded(mbit * scale, 12)}
    run = {"peers": PEERS, **keys, "batch": 1, "held_out": 1, "pairs": 8, "steps": 4 * H + 1, "evaluate": 10 ** 6,
           "sample_ms": 1000 * step_s, "links": links}
    log, spent = do(args, f"rounds {name}", run, timing=True)
    cost.append(spent)
    ends = [e for e in log if e["event"] == "exchanged"]
    seconds = statistics.mean(e["to"] - e["from"] for e in ends)
    period = (ends[-1]["to"] - ends[0]["to"]) / (len(ends) - 1)
    sent = sum(p["sent"] + p["cancelled"] for p in log[-1]["peers"]) / run["peers"] / len(ends)
    return {"share": rounded(100 * H * step_s / period, 4), "seconds": rounded(seconds, 4), "bytes": rounded(sent / scale, 5)}


def times(args, cost):
    scale = VALUES / MEASURED_VALUES
    result = {"measured": {H: [rounds(args, f"measured {H} {mbit}", {"algorithm": "diloco", "outer": {"H": H}}, mbit,
                                      MEASURED_STEP_S, scale, cost)["share"] for mbit in MEASURED_MBIT] for H in MEASURED}}
    # INTELLECT-1: 10 B values in 8 bits, up to 14 peers, 38 minutes of computing in 100 steps.
    result["intellect"] = {mbit: rounds(args, f"intellect {mbit}", {"algorithm": "diloco", "peers": 14, "outer":
                           {"H": 100, "coding": "uniform8"}}, mbit, 38 * 60 / 100, VALUES / 10e9, cost) for mbit in (300, 1600)}
    # Covenant-72B: SparseLoCo, H 30, 20 minutes of computing, some 20 peers whose messages count; 64 of 4096 entries in 14 bits.
    # Small tensors need more bits an entry, so here it is the message that is scaled.
    keys, message = {"algorithm": "sparseloco", "peers": 20, "outer": {"H": 30, "topk": 16, "chunk": 32}}, 72e9 * 64 / 4096 * 14 / 8
    small = rounds(args, "covenant, small", keys, 1000, 1, 1, cost)["bytes"] / 19
    result["covenant"] = {mbit: rounds(args, f"covenant {mbit}", keys, mbit, 20 * 60 / 30, small / message, cost)
                          for mbit in (1000, 4300)}
    # Seconds of DiLoCo's all-reduce and of NoLoCo's exchange within pairs, of more and more peers.
    result["pairs"] = {}
    for peers in (4, 16, 64):
        for name in ("diloco", "noloco"):
            keys = {"algorithm": name, "peers": peers, "outer": {"H": 1}}
            result["pairs"].setdefault(peers, []).append(rounds(args, f"pairs {name} {peers}", keys, 300, 0.05, 1, cost)["seconds"])
    return result


# --- all ---------------------------------------------------------------------------------------


def run(args, rows, cost):
    return {"warm": warm(args, rows, cost), "forgather": forgather(args, rows, cost), "times": times(args, cost)}


def tables(claims, table, plus_minus):
    """Parts of the page; table and plus_minus are laboratory.py's."""
    warm_rows = []
    base = claims["warm"]["gradients"]
    base_loss = statistics.mean(base["end"])
    for name, row in claims["warm"].items():
        gap = "" if None in row["end"] else f"{100 * (statistics.mean(row['end']) / base_loss - 1):+.1f} %"
        warm_rows.append([name, f"{row['lr']:g}", plus_minus(row["begin"], 3), plus_minus(row["end"], 3), gap,
                          f"{base['bytes'] / row['bytes']:.1f}"])
    diloco = statistics.mean(claims["forgather"]["DiLoCo"])
    forgather_rows = [[name, plus_minus(losses, 3), "" if None in losses else f"{100 * (statistics.mean(losses) / diloco - 1):+.1f} %"]
                      for name, losses in claims["forgather"].items()]
    shares = claims["times"]["measured"]
    measured_rows = [[f"{H}", *(f"{ours:.3g} / {theirs:.3g} ({ours / theirs:.2f})" for ours, theirs in zip(shares[str(H)], published))]
                     for H, published in MEASURED.items()]
    return {
        "warm": table(["row", "η", "loss at its start", f"after {WARM_STEPS} steps", "against gradients", "times fewer bytes"], warm_rows),
        "forgather": table(["", "held-out loss", "against DiLoCo"], forgather_rows),
        "measured": table(["H", *(f"{mbit} Mbit/s, %" for mbit in MEASURED_MBIT)], measured_rows),
    }
