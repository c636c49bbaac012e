"""What a grid's groups cost: gradients averaged within groups that are drawn anew for each step, against gradients averaged
by all. paper/scaling.md has the table that this prints.

    laboratory_grid.py POTLUCK [--out FOLDER]

The laboratory's model, samples of a step, rate and steps of *gradients* (laboratory_rows.py), but 32 peers of one sample. A
complete run is not repeated.
"""

import argparse
import os
import statistics
from pathlib import Path

from laboratory_rows import BATCH, PEERS, SEEDS, STEPS, do, evaluated, run_of

MEMBERS = PEERS * BATCH  # one sample each
GROUPS = (1, 2, 4, 8)
RATE = 0.04  # the search's, paper/laboratory.json


def last_loss(args, groups, seed):
    run = {**run_of("gradients", {"lr": RATE}, STEPS, seed, "fibre", 1), "peers": MEMBERS, "batch": 1, "groups": groups}
    log, _ = do(args, f"grid {groups} {seed}", run)
    return evaluated(log)[-1]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("potluck", type=os.path.abspath)
    parser.add_argument("--out", type=lambda p: Path(p).absolute(), default="out/laboratory")
    args = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)  # the demo's data is there
    print(f"| groups of {MEMBERS} peers | differences left by a round | held-out loss, seeds {', '.join(map(str, SEEDS))} | mean |")
    print("| --- | --- | --- | --- |")
    for groups in GROUPS:
        losses = [last_loss(args, groups, seed) for seed in SEEDS]
        left = (groups - 1) / MEMBERS + groups / MEMBERS ** 2 if groups > 1 else 0
        print(f"| {groups} | {100 * left:.1f} % | {', '.join(f'{loss:.3f}' for loss in losses)} | {statistics.mean(losses):.3f} |", flush=True)


main()
