#!/usr/bin/env python3
"""How well does the laboratory's clock agree with real processes? Stores paper/laboratory_links.json.

    laboratory_links.py POTLUCK

    peer 0 --[tbf up]--+        a process and a network namespace each; tc limits both directions of its link
    peer 1 --[tbf up]--+ hub    to the rates that the simulation is given, too
       ...  <-[tbf down]

Four processes of `potluck average` exchange tensors as large as an algorithm's message, and report how long each all-reduce
took. `potluck lab run --timing` says how long it takes on the virtual clock. Takes root, `ip` and `tc`.
"""

import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STORED = HERE / "laboratory_links.json"
PEERS, ROUNDS = 4, 3
MODEL = {"base": "demo", "name": "wide", "dim": 320, "depth": 4, "heads": 5, "dim_head": 64}
LINKS = {"ADSL, 10 up and 50 down": (10, 50), "cable, 25 up and 25 down": (25, 25)}
ALGORITHMS = {  # of the laboratory; how the averager sends the same values
    "gradients": ({"algorithm": "gradients"}, "none"),
    "DiLoCo, 8 bit": ({"algorithm": "diloco", "outer": {"H": 1, "coding": "uniform8"}}, "uniform8"),
    "SPARTA, 20 %": ({"algorithm": "partial", "outer": {"H": 1, "share": 0.2}}, "none"),
}
# tc counts the headers of Ethernet, IP and TCP, too: 66 of a frame's 1,514 bytes. To the simulation they are a loss.
HEADERS = 66 / 1514
BYTES_PER_VALUE = {"none": 4, "uniform8": 1}


def command(*words):
    subprocess.run(words, check=True)


class Network:
    """Peers on one bridge; every link is a veth whose two ends a token bucket limits."""

    def __init__(self, up, down):
        self.names = [f"lab{os.getpid()}-{k}" for k in range(PEERS)]
        self.hub = f"lab{os.getpid()}-hub"
        self.up, self.down = up, down

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        for name in [self.hub, *self.names]:
            command("ip", "netns", "add", name)
        command("ip", "-n", self.hub, "link", "add", "bridge0", "type", "bridge")
        command("ip", "-n", self.hub, "link", "set", "bridge0", "up")
        for k, name in enumerate(self.names):
            command("ip", "-n", self.hub, "link", "add", f"v{k}", "type", "veth", "peer", "name", "eth", "netns", name)
            command("ip", "-n", self.hub, "link", "set", f"v{k}", "master", "bridge0", "up")
            command("ip", "-n", name, "address", "add", f"10.78.0.{k + 1}/24", "dev", "eth")
            for device in ("eth", "lo"):
                command("ip", "-n", name, "link", "set", device, "up")
            for space, device, mbit in ((name, "eth", self.up), (self.hub, f"v{k}", self.down)):
                command("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                        f"{mbit}mbit", "burst", "128k", "latency", "200ms")

    def __exit__(self, *_):
        for name in [self.hub, *self.names]:
            subprocess.run(("ip", "netns", "delete", name))


def write_tensors(path, values):
    head = json.dumps({"x": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    head += b" " * (-len(head) % 8)
    one = struct.pack("<256f", *((i * 37 % 256 - 128) / 99 for i in range(256)))
    path.write_bytes(struct.pack("<Q", len(head)) + head + (one * (values // 256 + 1))[: 4 * values])


def simulate(potluck, folder, keys, link):
    """The seconds of one exchange on the virtual clock, and the bytes of a message."""
    file, model = folder / "run.json", folder / "model.json"
    model.write_text(json.dumps(MODEL))
    file.write_text(json.dumps({**keys, "model": str(model), "peers": PEERS, "steps": 3, "batch": 1, "pairs": 8, "held_out": 1,
                                "links": {"up_mbit": link[0], "down_mbit": link[1], "loss": HEADERS}}))
    subprocess.run([potluck, "lab", "run", str(file), "--out", str(folder / "lab"), "--timing", "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    log = [json.loads(line) for line in open(folder / "lab" / "log.jsonl")]
    exchanges = [e for e in log if e["event"] == "exchanged"]
    sent = sum(p["sent"] + p["cancelled"] for p in log[-1]["peers"])
    return exchanges[0]["to"] - exchanges[0]["from"], sent / len(exchanges) / (2 * (PEERS - 1))


def measure(potluck, folder, values, compression, link):
    """The seconds of each round's all-reduce, of its slowest peer; and the bytes that a peer sent."""
    tensors = folder / "tensors.safetensors"
    write_tensors(tensors, values)
    with Network(*link) as network:
        peers, join = [], []
        try:
            for k, name in enumerate(network.names):
                out = open(folder / f"peer{k}.jsonl", "w+")
                words = ["ip", "netns", "exec", name, potluck, "average", "--prefix", "lab", "--tensors", str(tensors),
                         "--compression", compression, "--rounds", str(ROUNDS), "--group-size", str(PEERS), "--expect", str(PEERS),
                         "--part-bytes", "131072",
                         "--json", "--no-check", "--matchmaking-time", "20", "--allreduce-timeout", "300", "--timeout", "400",
                         "--chunk-timeout", "60", "--threads", "1", "--listen", f"/ip4/10.78.0.{k + 1}/tcp/0", *join]
                peers.append((subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT), out))
                while not join:
                    time.sleep(0.2)
                    found = re.search(r'"multiaddr": ?"([^"]+)"', Path(out.name).read_text())
                    if found:
                        join = ["--join", found.group(1)]
            for process, _ in peers:
                process.wait(timeout=900)
        finally:
            for process, _ in peers:
                process.kill()
                process.wait()
    rounds = {}
    for _, out in peers:
        for line in Path(out.name).read_text().splitlines():
            if line.startswith("{") and (e := json.loads(line)).get("event") == "round":
                if e["error"] or len(e["group"]) != PEERS:
                    sys.exit(f"a round failed: {line}")
                rounds.setdefault(e["number"], []).append(e)
    return [max(e["allreduce_seconds"] for e in rounds[r]) for r in sorted(rounds)], rounds[min(rounds)][0]["bytes_out"]


def main():
    potluck = os.path.abspath(sys.argv[1])
    os.chdir(HERE.parent)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for link_name, link in LINKS.items():
            for name, (keys, compression) in ALGORITHMS.items():
                simulated, message = simulate(potluck, Path(folder), keys, link)
                seconds, sent = measure(potluck, Path(folder), round(message / BYTES_PER_VALUE[compression]), compression, link)
                row = {"link": link_name, "algorithm": name, "message": round(message), "sent": sent,
                       "simulated": round(simulated, 3), "measured": [round(s, 3) for s in seconds]}
                rows.append(row)
                print(row, f"error {simulated / statistics.median(seconds) - 1:+.1%}", flush=True)
    STORED.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
