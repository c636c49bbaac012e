"""A large swarm of real processes, for the simulator to be compared with: trainers that average small
tensors in the grid (net/hivemind/matchmaking/grid.h), come and die at random, and have peers around
them that only keep the DHT.

usage: grid.py POTLUCK [--trainers N] [--idle N] [--pace N] [--steps N] [--full S] [--life S]
                       [--limit S] [--seed N]

--pace: idle peers that start each second; --full: s that a batch of all takes to collect; --life: s
that a trainer lives on average; --limit: it ends so long after the trainers have started, with the
steps that there are. A third of the trainers accept no connections; three in ten die without a word:
they freeze. Prints one line: how long averaging took behind the first peer's last batch until 95 % of
the peers were done; for the steps that took longer than a silent sender is waited for, when which
groups ended: [s, size, peers]; rounds and groups; the processor time, and how long a trainer waited
for a core in each step. Not a test. Compare with
  build/simulate --peers TRAINERS TENSORS FULL LIFE
where TENSORS are soak.SHAPES' sizes, with commas: they decide how many peers of a group reduce.
"""
import argparse
import collections
import contextlib
import glob
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.argv, given = sys.argv[:2], sys.argv[1:]
import soak  # noqa: E402

NEARLY_ALL = 0.95
CLIENTS, SILENT = 1 / 3, 0.3
BATCHES = (1, 5)  # s that a local batch takes
LONG = 15  # s that a silent sender is waited for (net/hivemind/training/training.c)


class Trainer:
    def __init__(self, folder, number, join, dice, batch, life):
        self.seconds = BATCHES[0] * (BATCHES[1] / BATCHES[0]) ** dice.random()
        self.dies, self.events = time.time() + dice.expovariate(1 / life), []
        files = [os.path.join(folder, n + ".safetensors") for n in ("model", "targets")]
        command = [soak.trainer, "--run", "soak", "--model", files[0], "--targets", files[1], "--target-batch", str(batch), "--batch", "8",
                   "--step-seconds", f"{self.seconds:.3f}", "--matchmaking-time", "15", "--averaging-timeout", "180", "--seed", str(number + 1), "--join", join]
        command += ["--client-mode"] if number and dice.random() < CLIENTS else ["--listen", "/ip4/127.0.0.1/tcp/0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:  # killed within a line
                return
            if event["event"] in ("epoch", "loaded", "ready"):
                self.events.append({k: event.get(k) for k in ("event", "time", "epoch", "peers", "round_status", "round_peers", "seconds")})

    def waited(self):
        """Seconds that its threads were ready to run and waited for a core."""
        seconds = 0
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            with contextlib.suppress(OSError), open(path) as f:
                seconds += int(f.read().split()[1]) / 1e9
        return seconds

    def end(self):
        self.process.kill()
        self.process.wait()


def figures(trainers, first, last):
    """Of each epoch between these: behind the first peer's last batch, until nearly all were done."""
    took, groups, failed, rounds, long = [], [], 0, 0, []
    for epoch in range(first, last + 1):
        done = [e for t in trainers for e in t.events if e["event"] == "epoch" and e["epoch"] == epoch]
        if not done:
            continue
        ends = sorted(e["time"] for e in done)
        took.append(ends[int(NEARLY_ALL * (len(ends) - 1))] - min(e["time"] - e["seconds"] for e in done))
        if took[-1] > LONG:
            begun = min(e["time"] - e["seconds"] for e in done)
            ended = collections.Counter((round(e["time"] - begun), e["round_peers"]) for e in done)
            long.append([[*key, peers] for key, peers in sorted(ended.items())])
        groups += [e["round_peers"] for e in done if e["round_status"] == 0]
        failed += sum(e["round_status"] != 0 for e in done)
        rounds += len(done)
    # As many groups as there are members, each counted by its own size.
    mean = len(groups) / sum(1 / g for g in groups) if groups else 0
    return {"steps": len(took), "averaging_s": [round(t, 1) for t in took], "long": long, "rounds": rounds, "failed": round(failed / max(1, rounds), 4), "group": round(mean, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    for name, value in (("trainers", 128), ("idle", 1000), ("pace", 30), ("steps", 4), ("full", 60), ("life", 1200), ("seed", 1), ("limit", 1200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args(given)
    dice = random.Random(args.seed)
    rate = 8 * (1 / BATCHES[0] - 1 / BATCHES[1]) / math.log(BATCHES[1] / BATCHES[0])  # samples a second of a trainer, on average
    given_all = round(args.full * args.trainers * rate), args.life
    idle, living, dead, began = [], [], [], time.time()
    with tempfile.TemporaryDirectory() as folder:
        soak.make_files(folder)
        entry, join = soak.entry_peer()
        try:
            for _ in range(args.idle):
                idle.append(subprocess.Popen([soak.program, "peer", "--no-check", "--run", "soak", "--listen", "/ip4/127.0.0.1/tcp/0", "--join", join],
                                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                time.sleep(1 / args.pace)
            print(f"{args.idle} idle peers have started after {time.time() - began:.0f} s", file=sys.stderr, flush=True)
            started = time.time()
            living = [Trainer(folder, n, join, dice, *given_all) for n in range(args.trainers)]
            number, warm, last = args.trainers, None, 0
            while time.time() < started + args.limit:
                last = max((e["epoch"] for t in living for e in t.events if e["event"] == "epoch"), default=0)
                # The peers come one after the other: the first steps have few of them.
                if warm is None and sum(any(e["event"] == "epoch" and e["peers"] >= 0.9 * args.trainers for e in t.events) for t in living) > 0.9 * args.trainers:
                    warm = last + 1
                if warm is not None and last >= warm + args.steps:
                    break
                for t in [t for t in living if warm is not None and time.time() > t.dies]:
                    living.remove(t)
                    dead.append(t)
                    if dice.random() < SILENT:
                        t.process.send_signal(signal.SIGSTOP)
                    else:
                        t.end()
                    living.append(Trainer(folder, number, join, dice, *given_all))
                    number += 1
                time.sleep(0.25)
            result = figures(living + dead, warm or 1, last - 1)
            result["core_wait_s"] = round(sum(t.waited() for t in living) / len(living) / max(1, last), 2)
        finally:
            for t in living + dead:
                t.end()
            for p in [entry, *idle]:
                p.kill()
                p.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"trainers": args.trainers, "idle": args.idle, "deaths": len(dead), **result,
                      "cores_used": round((used.ru_utime + used.ru_stime) / (time.time() - began), 2)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
