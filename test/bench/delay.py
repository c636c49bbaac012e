"""What delayed updates save: trainers of uneven speed on this machine, whose batches take their
time without computing, so that only waiting is measured; the same swarm with --delay none, step and
round.

usage: delay.py POTLUCK [SECONDS]
Prints, for each, samples that went into common steps a second, common steps a minute, and the loss
reached.
"""
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import json

TRAINER = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "interop", "trainer")
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
BATCH_SECONDS = (0.3, 0.3, 2.0)   # the third is a slow device, that others' rounds wait for
BATCH, TARGET = 16, 128
SHAPES = [(1024, 1024), (1024,)]


def save(path, dice):
    header, data, at = {}, [], 0
    for i, shape in enumerate(SHAPES):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        raw = struct.pack(f"<{n}f", *(dice.uniform(0.3, 1.0) for _ in range(n)))
        header[f"t{i}"] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


class Peer:
    def __init__(self, folder, number, delay, join):
        command = [TRAINER, "--run", "delay", "--model", folder + "/model", "--targets", folder + "/targets", "--target-batch", str(TARGET),
                   "--batch", str(BATCH), "--step-seconds", str(BATCH_SECONDS[number]), "--matchmaking-time", "4", "--lr", "0.02",
                   "--noise", "0.3", "--seed", str(number + 1), "--seconds", str(SECONDS), "--delay", delay]
        self.process = subprocess.Popen(command + (["--join", join] if join else []), stdout=subprocess.PIPE, text=True)
        self.events = []
        self.address = json.loads(self.process.stdout.readline())["multiaddr"]
        self.reader = threading.Thread(target=lambda: self.events.extend(map(json.loads, self.process.stdout)), daemon=True)
        self.reader.start()

    def steps(self):
        self.process.wait()
        self.reader.join()
        return [e for e in self.events if e["event"] == "epoch"]


def measure(folder, delay):
    peers = [Peer(folder, 0, delay, None)]
    peers += [Peer(folder, k, delay, peers[0].address) for k in range(1, len(BATCH_SECONDS))]
    steps = [p.steps() for p in peers]
    samples = sum(e["local_samples"] for s in steps for e in s)
    failed = sum(e["round_status"] != 0 for s in steps for e in s)
    took = max(e["time"] for s in steps for e in s) - min(e["time"] for s in steps for e in s)
    print(f"--delay {delay:5}  {samples / SECONDS:6.1f} samples/s  {60 * (max(map(len, steps)) - 1) / took:5.1f} steps/min  "
          f"loss {steps[0][-1]['loss']:.4f}  {failed} of {sum(map(len, steps))} rounds failed", flush=True)


with tempfile.TemporaryDirectory() as work:
    for name, seed in (("model", 1), ("targets", 2)):
        save(os.path.join(work, name), random.Random(seed))
    for which in ("none", "step", "round"):
        measure(work, which)
