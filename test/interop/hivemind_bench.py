"""Averaging of many values among local peers, ours and hivemind's, with the run's compression: wall
time of the slowest peer's all-reduce, without matchmaking; CPU seconds of a peer. `make
bench` runs it last.

usage: hivemind_bench.py POTLUCK [VALUES [PEERS ...]]       (default: 125000000, 2 and 4 peers)
Not a test: on a busy machine figures say little. Needs some 4 GB of memory a peer for hivemind.
"""
import json
import os
import resource
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import hivemind_compat
import numpy as np
import steps
import torch
from hivemind_processes import Peer

PROGRAM = os.path.abspath(sys.argv[1])
VALUES = int(sys.argv[2]) if len(sys.argv) > 2 else 125_000_000
PEERS = [int(n) for n in sys.argv[3:]] or [2, 4]


def make(path, seed):
    """Tensors of two million, and a few small ones, as a transformer has."""
    rng = np.random.default_rng(seed)
    sizes = [2_000_000] * (VALUES // 2_000_000) + [VALUES % 2_000_000] * (VALUES % 2_000_000 > 0) + [50_000] * 2
    hivemind_compat.save_tensors(path, {f"t{i:03}": torch.from_numpy(rng.standard_normal(n, dtype=np.float32)) for i, n in enumerate(sizes)})


def same_priority(pid):
    """Linux shares a processor evenly among sessions, whatever nice says within them: the peers,
    which are sessions of their own, take over the one of ours (echo -20 >/proc/self/autogroup)."""
    try:
        with open("/proc/self/autogroup") as mine:
            nice = mine.read().split()[-1:]  # empty for a process that descends from the first process and has no session of its own
        with open(f"/proc/{pid}/autogroup", "w") as its:
            its.writelines(nice)
    except OSError:
        pass  # a kernel without such groups, or not allowed


def run(kind, peers, folder):
    processes, first = [], None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for k in range(peers):
        path = os.path.join(folder, f"in{k}.safetensors")
        if kind == "potluck":
            command = [PROGRAM, "average", "--json", "--prefix", "bench", "--tensors", path, "--weight", str(k + 1), "--group-size", str(peers),
                       "--matchmaking-time", "100", "--timeout", "300", "--allreduce-timeout", "300", "--chunk-timeout", "60", "--listen", "/ip4/127.0.0.1/tcp/0"]
            command += ["--join", first] if first else []
        else:
            command = [sys.executable, os.path.join(HERE, "hivemind_averager.py"), "--prefix", "bench", "--tensors", path, "--weight", str(k + 1),
                       "--target_group_size", str(peers), "--min_matchmaking_time", "100", "--timeout", "400", "--allreduce_timeout", "400",
                       "--next_chunk_timeout", "120", "--print_values", "0"]
            command += ["--initial_peers", first] if first else []
        processes.append(Peer(command, folder, f"{kind}{k}"))
        same_priority(processes[-1].process.pid)
        if kind == "potluck" or processes[-1].wait("ready", 120):
            first = first or processes[0].address()
    rounds = [p.wait("round", 500) for p in processes]
    exchanges = [p.wait("exchange", 1) for p in processes] if kind == "hivemind" else []
    for p in processes:
        try:
            p.process.wait(60)
        except Exception:  # noqa: BLE001
            pass
        p.end()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / peers
    bad = [r for r in rounds if r is None or r["error"]] + [e for e in exchanges if e is None]
    if bad:
        return {"kind": kind, "peers": peers, "error": str(bad)[:200]}
    seconds = [e["seconds"] for e in exchanges] if kind == "hivemind" else [r["allreduce_seconds"] for r in rounds]
    return {"kind": kind, "peers": peers, "values": VALUES, "seconds": round(max(seconds), 2),
            "round_cpu_seconds": rounds[0].get("cpu_seconds") and round(max(r["cpu_seconds"] for r in rounds), 2),
            "process_cpu_seconds": round(cpu, 1)}


def main():
    steps.end_together()
    for peers in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            for k in range(peers):
                make(os.path.join(folder, f"in{k}.safetensors"), k)
            for kind in ("potluck", "hivemind"):
                print(json.dumps(run(kind, peers, folder)), flush=True)
                time.sleep(1)


if __name__ == "__main__":
    main()
