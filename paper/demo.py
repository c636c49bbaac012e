#!/usr/bin/env python3
"""What paper/demo.md and its log say about the demo's runs: stores figures of real runs, and writes tables and pictures.

    demo.py store NAME FOLDER    a run's figures.json into paper/demo.json; its pictures, and for "swarm" its curve, too
    demo.py speed POTLUCK        short runs in turn: one process alone, and the two kinds of swarms
    demo.py pair POTLUCK         two peers with default options against one, to the same loss
    demo.py write                the tables of both, and paper/figures/demo_loss.svg (needs matplotlib)
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "demo"
FIGURES = HERE / "figures"
STORED = HERE / "demo.json"
PAGES = [HERE / "demo.md", HERE / "log" / "demo.md"]

PAIRS = {"swarm": 3513, "alone": 3513, "gradients": 973, "quick": 973}
REFERENCES = {"swarm": 3662, "alone": 3662, "gradients": 1122, "quick": 1122}
TURNS = 2  # of each kind in `speed`
SHORT = {  # runs of about half a minute
    "alone": ["--alone", "--steps", "300"],
    "swarm": ["--steps", "325"],
    "gradients": ["--algorithm", "gradients", "--steps", "60"],
}
POINT = 5  # steps, or rounds, in one point of a stored curve
ROWS = 4  # of held-out.png that the page shows


def load():
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def save(stored):
    STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


def crop(source, target, rows):
    """The first rows of a contact sheet: tiles are 64 pixels, with gaps of 4."""
    from PIL import Image

    with Image.open(source) as sheet:
        sheet.crop((0, 0, sheet.width, min(sheet.height, 4 + rows * 68))).save(target, optimize=True)


def store_curve(folder, figures):
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    log = [entry for entry in log if "loss_image" in entry]
    with open(DATA / "curve-swarm.jsonl", "w") as out:
        for at in range(0, len(log), POINT):
            some = log[at : at + POINT]
            mean = {key: round(statistics.mean(e[key] for e in some), 4) for key in ("loss_text", "loss_image")}
            # A trainer's log knows its own samples; the run's figures know those of all.
            samples = round(figures["samples"] * len(some) / len(log))
            out.write(json.dumps({"step": some[-1]["step"], "samples": samples, **mean}) + "\n")


def store(name, folder):
    folder = Path(folder)
    figures = json.loads((folder / "figures.json").read_text())
    stored = load()
    stored.setdefault("runs", {})[name] = figures
    save(stored)
    if name == "swarm":
        store_curve(folder, figures)
        shutil.copy(folder / "drawn.png", FIGURES / "drawn.png")
        crop(folder / "held-out.png", FIGURES / "held-out.png", ROWS)


def speed(potluck):
    turns = []
    for _ in range(TURNS):
        turn = {}
        for kind, options in SHORT.items():
            with tempfile.TemporaryDirectory() as folder:
                load_before = os.getloadavg()[0]
                subprocess.run([potluck, "demo", "--no-dash", "--out", folder, *options], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                figures = json.loads((Path(folder) / "figures.json").read_text())
            turn[kind] = {"samples_per_second": figures["samples_per_second"], "seconds": figures["train_seconds"],
                          "averaging_share": figures["averaging_share"], "load_before": load_before}
            print(kind, turn[kind], flush=True)
        turns.append(turn)
    stored = load()
    stored["speed"] = turns
    save(stored)


LOSS = 4.0  # nats: a run from scratch is there after half a minute or so
MEAN_OF = 5  # steps


def log_of(folder):
    try:
        log = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return []
    return [entry for entry in log if "loss" in entry]


def until_loss(potluck, peers, folder):
    """Seconds from the first step of the last peer's start until the first peer's loss is LOSS, each peer on a core of its own."""
    processes, began, first = [], time.time(), f"{folder}/1"
    entry = None
    for k in range(1, peers + 1):
        args = ["taskset", "-c", str(k - 1), potluck, "train", "--threads", "1", "--save-every", "0", "--out", f"{folder}/{k}"]
        if peers > 1:
            args += ["--run", "pair", "--json", "--quiet", "--listen", "/ip4/127.0.0.1/tcp/0", "--no-check", "--data-seed", str(k)]
            args += ["--join", entry] if entry else []
        p = subprocess.Popen(args, stdout=subprocess.PIPE if peers > 1 else subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        processes.append(p)
        if peers > 1:
            out = open(f"{folder}/{k}.out", "w")
            while entry is None:
                line = p.stdout.readline()
                if '"listening"' in line:
                    entry = json.loads(line)["multiaddr"]
            processes.append(subprocess.Popen(["cat"], stdin=p.stdout, stdout=out))
    try:
        while True:
            log = log_of(first)
            last = log[-MEAN_OF:]
            if len(last) == MEAN_OF and statistics.mean(e["loss"] for e in last) <= LOSS:
                break
            time.sleep(0.05)
    finally:
        took = time.time() - began
        for p in processes:
            p.send_signal(signal.SIGKILL)
            p.wait()
    return {"seconds": took, "steps": log[-1]["step"]}


def pair(potluck):
    turns = []
    for _ in range(TURNS):
        turn = {"load_before": os.getloadavg()[0]}
        for peers in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                turn[f"{peers}"] = until_loss(potluck, peers, folder)
            print(peers, turn[f"{peers}"], flush=True)
        turns.append(turn)
    stored = load()
    stored["pair"] = {"loss": LOSS, "turns": turns}
    save(stored)


def minutes(seconds):
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d} min"


def table_runs(runs):
    names = {"swarm": "the swarm, local SGD", "gradients": "the swarm, gradients", "alone": "alone", "quick": "quick"}
    shown = [name for name in names if name in runs]
    rows = [[""] + [names[name] for name in shown]]
    rows.append(["pairs trained on"] + [f"{PAIRS[n]:,}" for n in shown])
    rows.append(["samples"] + [f"{runs[n]['samples']:,}" for n in shown])
    rows.append(["image loss, nats per image token (target: below 0.1)"] + [f"{runs[n]['loss_image']:.4f}" for n in shown])
    rows.append(["trained captions nearest to their own image (target: 90 %)"]
                + [f"{runs[n]['nearest_own']} of {runs[n]['drawn']}" for n in shown])
    rows.append(["of this many reference images"] + [f"{REFERENCES[n]:,}" for n in shown])
    for label, key in (("unseen combinations, the right image", "held_out_nearest_own"),
                       ("unseen combinations, the right subject", "held_out_same_subject")):
        cells = [f"{runs[n][key]} of {runs[n]['held_out']} ({100 * runs[n][key] / runs[n]['held_out']:.0f} %)" for n in shown]
        rows.append([label] + [c if PAIRS[n] == 3513 else f"({c.split(' (')[0]})" for n, c in zip(shown, cells)])
    rows.append(["training time"] + [minutes(runs[n]["train_seconds"]) for n in shown])
    rows.append(["samples/s, by wall clock"] + [f"{runs[n]['samples_per_second']:.0f}" for n in shown])
    return rows


def table_speed(turns):
    rows = [["turn", "alone", "swarm, local SGD", "relative to alone", "averaging", "swarm, gradients", "relative to alone", "averaging"]]
    for number, turn in enumerate(turns, 1):
        alone = turn["alone"]["samples_per_second"]
        row = [str(number), f"{alone:.0f}"]
        for kind in ("swarm", "gradients"):
            rate = turn[kind]["samples_per_second"]
            row += [f"{rate:.0f}", f"{100 * rate / alone:.0f} %", f"{100 * turn[kind]['averaging_share']:.0f} %"]
        rows.append(row)
    return rows


def table_pair(turns):
    rows = [["turn", "one peer, s (steps)", "two peers, s (steps)", "times faster"]]
    for number, turn in enumerate(turns, 1):
        one, two = turn["1"], turn["2"]
        rows.append([str(number), f"{one['seconds']:.1f} ({one['steps']})", f"{two['seconds']:.1f} ({two['steps']})",
                     f"{one['seconds'] / two['seconds']:.2f}"])
    return rows


def table_tuning(trials):
    rows = [["local steps × samples", "peak", "outer step", "rounds", "image loss at the end", "samples/s"]]
    for t in trials:
        outer = "0.7, momentum 0.9" if t.get("algorithm") == "diloco" else "the mean"
        rate = f"{t['samples_per_second']:.0f}" if "samples_per_second" in t else ""
        rows.append([f"{t['inner']} × {t['batch']}", f"{t['peak']}", outer, str(t["rounds"]), f"{t['loss_image']:.3f}", rate])
    return rows


def table_noise(trials):
    rows = [["`--token-noise`", "steps", "samples", "image loss", "captions", "unseen: image, subject", "lowest held-out loss, at step", "at the end"]]
    for t in trials:
        held = [f"{t['lowest']:.2f}, {t['lowest_at']:,}", f"{t['last']:.2f}"] if "lowest" in t else ["not stored", ""]
        rows.append([f"{t['noise']:g}", f"{t['steps']:,}", f"{t['samples']:,}", f"{t['loss_image']:.4f}", f"{t['nearest_own']} of {t['drawn']}",
                     f"{t['held_out_nearest_own']} and {t['held_out_same_subject']} of {t['held_out']}", *held])
    return rows


def markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def draw_curves():
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "demo"
    figure, axes = pyplot.subplots(figsize=(8, 4))
    curves = {
        "curve.jsonl": "alone, 3,513 pairs",
        "curve-swarm.jsonl": "the swarm, local SGD, 3,513 pairs",
        "curve-gradients.jsonl": "the swarm's batches of gradients, 973 pairs",
    }
    for name, label in curves.items():
        samples, x, y = 0, [], []
        for line in (DATA / name).read_text().splitlines():
            point = json.loads(line)
            samples += point["samples"]
            x.append(samples)
            y.append(point["loss_image"])
        axes.plot(x, y, label=label, linewidth=1.5)
    axes.set(xlabel="samples of all peers", ylabel="image loss, nats per image token", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(FIGURES / "demo_loss.svg", metadata={"Date": None})


def written(text, stored):
    """The text of a page, with its tables as stored."""
    tables = {"runs": table_runs(stored["runs"]), "speed": table_speed(stored["speed"]), "tuning": table_tuning(stored["tuning"]),
              "noise": table_noise(stored["noise"]), "pair": table_pair(stored["pair"]["turns"])}
    return re.sub(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", lambda m: m[1] + markdown(tables[m[2]]) + "\n" + m[3], text, flags=re.S)


def write():
    for page in PAGES:
        page.write_text(written(page.read_text(), load()))
    draw_curves()


if __name__ == "__main__":
    commands = {"store": (store, 2), "speed": (speed, 1), "pair": (pair, 1), "write": (write, 0)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands or len(sys.argv) - 2 != commands[sys.argv[1]][1]:
        sys.exit(__doc__)
    commands[sys.argv[1]][0](*sys.argv[2:])
