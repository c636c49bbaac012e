#!/usr/bin/env python3
"""How well does the laboratory's clock agree with real processes? Stores paper/laboratory_links.json.

    laboratory_links.py POTLUCK [NAME...]

NAME: an algorithm of the table below; without any, all of them. The rows of the others stay as they are.

    peer 0 --[tbf up]--+        a process and a network namespace each; tc limits both directions of its link
    peer 1 --[tbf up]--+ hub    to the rates that the simulation is given, too
       ...  <-[tbf down]

Four processes of `potluck average` exchange tensors as large as an algorithm's message, and report how long each all-reduce
took; where peers gather messages, four of `potluck train` report how long each round took. `potluck lab run --timing` says how
long it takes on the virtual clock. Takes root, `ip` and `tc`.
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
NARROWER = {**MODEL, "name": "narrower", "dim": 192, "heads": 3}  # where messages are gathered: newcomers download the state
LINKS = {"ADSL, 10 up and 50 down": (10, 50), "cable, 25 up and 25 down": (25, 25)}
ALGORITHMS = {  # of the laboratory; how the averager sends the same values, None: train gathers them
    "gradients": ({"algorithm": "gradients"}, "none"),
    "DiLoCo, 8 bit": ({"algorithm": "diloco", "outer": {"H": 1, "coding": "uniform8"}}, "uniform8"),
    "SPARTA, 20 %, reduced": ({"algorithm": "partial", "all_reduce": 1, "outer": {"H": 1, "share": 0.2}}, "none"),
    "SPARTA, 50 %": ({"algorithm": "partial", "outer": {"H": 1, "share": 0.5}}, None),
    "NoLoCo": ({"algorithm": "noloco", "outer": {"H": 1}}, None),
}
# tc counts the headers of Ethernet, IP and TCP, too: 66 of a frame's 1,514 bytes; and a peer that sends while it receives
# acknowledges two frames by one of 66 bytes. To the simulation both are a loss.
HEADERS = (66 + 66 / 2) / 1514
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


def simulate(potluck, folder, name, link, peers=PEERS):
    """The seconds of an exchange on the virtual clock, the bytes of a message, and how often a peer sends them."""
    file, model = folder / "run.json", folder / "model.json"
    model.write_text(json.dumps(NARROWER if ALGORITHMS[name][1] is None else MODEL))
    file.write_text(json.dumps({**ALGORITHMS[name][0], "model": str(model), "peers": peers, "steps": 6, "batch": 1, "pairs": 8, "held_out": 1,
                                "links": {"up_mbit": link[0], "down_mbit": link[1], "loss": HEADERS}}))
    subprocess.run([potluck, "lab", "run", str(file), "--out", str(folder / "lab"), "--timing", "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    log = [json.loads(line) for line in open(folder / "lab" / "log.jsonl")]
    exchanges = [e for e in log if e["event"] == "exchanged"]
    sent = sum(p["sent"] for p in log[-1]["peers"]) / peers
    return statistics.median(e["to"] - e["from"] for e in exchanges), sent / len(exchanges)


class Peers:
    """A process in each namespace; the first line with an address is the others' entry. They end with the block."""

    def __init__(self, network, folder):
        self.network, self.folder, self.running, self.entry = network, folder, [], []

    def start(self, k, *words):
        out = open(self.folder / f"peer{len(self.running)}.jsonl", "w+")
        words = ["ip", "netns", "exec", self.network.names[k], *map(str, words), "--json", "--listen",
                 f"/ip4/10.78.0.{k + 1}/tcp/0", *self.entry]
        self.running.append((subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT), Path(out.name)))
        while not self.entry:
            time.sleep(0.2)
            found = re.search(r'"multiaddr": ?"([^"]+)"', Path(out.name).read_text())
            if found:
                self.entry = ["--join", found.group(1)]

    def events(self, kind):
        for k, (_, path) in enumerate(self.running):
            for line in path.read_text().splitlines():
                if line.startswith("{") and line.endswith("}") and (e := json.loads(line)).get("event") == kind:
                    yield {"peer": k, **e}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, _ in self.running:
            process.kill()
            process.wait()


def measure(potluck, folder, values, compression, link):
    """The seconds of each round's all-reduce, of its slowest peer; and the bytes that a peer sent."""
    tensors = folder / "tensors.safetensors"
    write_tensors(tensors, values)
    with Network(*link) as network, Peers(network, folder) as peers:
        for k in range(PEERS):
            peers.start(k, potluck, "average", "--prefix", "lab", "--tensors", tensors, "--compression", compression, "--rounds", ROUNDS,
                        "--group-size", PEERS, "--expect", PEERS, "--part-bytes", 131072, "--no-check", "--matchmaking-time", 20,
                        "--allreduce-timeout", 300, "--timeout", 400, "--chunk-timeout", 60, "--threads", 1)
        for process, _ in peers.running:
            process.wait(timeout=900)
        rounds = {}
        for e in peers.events("round"):
            if e["error"] or len(e["group"]) != PEERS:
                sys.exit(f"a round failed: {e}")
            rounds.setdefault(e["number"], []).append(e)
    return [max(e["allreduce_seconds"] for e in rounds[r]) for r in sorted(rounds)], rounds[min(rounds)][0]["bytes_out"]


def measure_gather(potluck, folder, keys, link):
    """How many peers of `potluck train` have gathered their messages, and the seconds of such rounds, from the last peer's
    begin to the last one's end.

    A peer that comes late misses rounds, so not all groups are whole: the first size of which ROUNDS rounds are complete counts."""
    outer = dict(keys["outer"])
    inner_steps, settings = outer.pop("H"), ",".join(f"{k}={v}" for k, v in outer.items())
    with Network(*link) as network, Peers(network, folder) as peers:
        peers.start(0, potluck, "peer", "--run", "lab")
        for k in range(PEERS):
            peers.start(k, potluck, "train", "--quiet", "--run", "lab", "--config", folder / "model.json", "--limit", 64, "--data-seed", k,
                        "--threads", 1, "--algorithm", keys["algorithm"], "--inner-steps", inner_steps,
                        *(("--algorithm-settings", settings) if settings else ()), "--target-batch", 4, "--batch", 4, "--slow", 10,
                        "--steps", 10 ** 6, "--matchmaking-time", 10, "--averaging-timeout", 100, "--allreduce-timeout", 90,
                        "--save-every", 0, "--no-check", "--out", folder / f"{link[0]}-{keys['algorithm']}-{k}")
        began, rounds = time.time(), {}
        while time.time() - began < 600:
            time.sleep(0.2)
            complete = {}
            for e in peers.events("epoch"):
                if not e["round_status"]:  # events have no time: when it was first seen
                    rounds.setdefault((e["round"], e["round_peers"]), {}).setdefault(e["peer"], (time.time() - e["round_seconds"], time.time()))
            for (_, members), by_peer in rounds.items():
                times = by_peer.values()
                if len(times) == members:  # nothing moves until the last one has its message
                    complete.setdefault(members, []).append(max(end for _, end in times) - max(begin for begin, _ in times))
            for members, seconds in complete.items():
                if len(seconds) >= ROUNDS:
                    return members, seconds[:ROUNDS]
    print(f"{keys}: too few rounds in ten minutes: {complete}; its row stays", flush=True)
    return 0, []


def main():
    potluck = os.path.abspath(sys.argv[1])
    names = sys.argv[2:] or list(ALGORITHMS)
    if unknown := set(names) - set(ALGORITHMS):
        sys.exit(f"no such algorithm: {', '.join(unknown)}; there are {', '.join(ALGORITHMS)}")
    os.chdir(HERE.parent)
    order = [(link, name) for link in LINKS for name in ALGORITHMS]
    rows = {(row["link"], row["algorithm"]): row for row in json.loads(STORED.read_text())} if STORED.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for link_name, link in LINKS.items():
            for name in names:
                keys, compression = ALGORITHMS[name]
                simulated, sent = simulate(potluck, Path(folder), name, link)
                if compression:
                    values = round(sent / (2 * (PEERS - 1) / PEERS) / BYTES_PER_VALUE[compression])
                    members, (seconds, sent) = PEERS, measure(potluck, Path(folder), values, compression, link)
                else:
                    members, seconds = measure_gather(potluck, Path(folder), keys, link)
                    if not members:
                        continue
                    if keys["algorithm"] != "noloco":
                        simulated, sent = simulate(potluck, Path(folder), name, link, members)
                row = {"link": link_name, "algorithm": name, "peers": members, "sent": round(sent), "simulated": round(simulated, 3),
                       "measured": [round(s, 3) for s in seconds]}
                rows[link_name, name] = row
                STORED.write_text(json.dumps([rows[k] for k in order if k in rows], indent=1) + "\n")
                print(row, f"error {simulated / statistics.median(seconds) - 1:+.1%}", flush=True)


if __name__ == "__main__":
    main()
