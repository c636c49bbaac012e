"""Averaging over links as users have them, ours and hivemind's: 100 Mbit/s, 50 ms there and back, 1
% of packets lost each way (test/soak/links.py), each peer in a network namespace of its own; and
over loopback.

usage: hivemind_links.py POTLUCK [--values N] [--peers 2 4] [--rounds N]
                         [--links loopback clean lossy uneven] [--control cubic bbr]
                         [--kinds potluck hivemind] [--bandwidths] [--upload-limit SECONDS]

Links: clean loses nothing; uneven is lossy, with 2 Mbit/s for what the first peer sends. --control:
how the kernel's TCP answers to loss; cubic is most systems' default. --bandwidths: peers state what
their links carry. --upload-limit: of our peers' values. Prints a line of JSON a run: seconds of the exchange, the slowest peer's, and
Mbit/s of messages that a peer sends and gets meanwhile. Not a test.
"""
import argparse
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "soak")]
import hivemind_compat
import numpy as np
import steps
import torch
from hivemind_processes import Peer
from links import Network, Place, run


def make(path, seed, values):
    rng = np.random.default_rng(seed)
    sizes = [500_000] * (values // 500_000) + [20_000] * 2
    hivemind_compat.save_tensors(path, {f"t{i:03}": torch.from_numpy(rng.standard_normal(n, dtype=np.float32)) for i, n in enumerate(sizes)})


def command(args, kind, path, ip, k, peers, first, bandwidth):
    if kind == "potluck":
        c = [os.path.abspath(args.program), "average", "--json", "--no-check", "--prefix", "links", "--tensors", path, "--weight", str(k + 1),
             "--group-size", str(peers), "--matchmaking-time", "100", "--timeout", "300", "--allreduce-timeout", "300", "--chunk-timeout", "60",
             "--rounds", str(args.rounds), "--upload-limit", str(args.upload_limit), "--listen", f"/ip4/{ip}/tcp/0"] + (["--join", first] if first else [])
    else:
        c = [sys.executable, os.path.join(HERE, "hivemind_averager.py"), "--prefix", "links", "--tensors", path, "--weight", str(k + 1),
             "--target_group_size", str(peers), "--min_matchmaking_time", "100", "--timeout", "300", "--allreduce_timeout", "300",
             "--next_chunk_timeout", "60", "--request_timeout", "20", "--rounds", str(args.rounds), "--print_values", "0",
             "--host_maddr", f"/ip4/{ip}/tcp/0"] + (["--initial_peers", first] if first else [])
    return c + (["--bandwidth", str(bandwidth)] if args.bandwidths else [])


def exchange(args, kind, peers, network, folder, places):
    processes, first = [], None
    try:
        for k in range(peers):
            path = os.path.join(folder, f"in{k}.safetensors")
            ip = network.ip(k) if network else "127.0.0.1"
            c = command(args, kind, path, ip, k, peers, first, places[k].up)
            processes.append(Peer([*(network.inside(k) if network else ()), *c], folder, f"{kind}{k}"))
            event = processes[-1].wait("listening" if kind == "potluck" else "ready", 120)
            if event is None:
                return {"error": processes[-1].output()[-300:]}
            first = first or event.get("multiaddr") or event["maddrs"][0]
        found = []
        for n in range(args.rounds):
            rounds = [p.wait("round", 400, n + 1) for p in processes]
            bad = [r and r["error"] for r in rounds if r is None or r["error"]]
            if bad:
                return {"error": str(bad)[:300]}
            if kind == "potluck":
                found.append(max(r["allreduce_seconds"] for r in rounds))
            else:
                found.append(max(p.wait("exchange", 10, n + 1)["seconds"] for p in processes))
        return {"seconds": [round(s, 2) for s in found]}
    finally:
        for p in processes:
            p.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--values", type=int, default=4_000_000)
    parser.add_argument("--peers", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--links", nargs="*", default=["loopback", "lossy"])
    parser.add_argument("--control", nargs="*", default=["cubic", "bbr"])
    parser.add_argument("--kinds", nargs="*", default=["potluck", "hivemind"])
    parser.add_argument("--bandwidths", action="store_true")
    parser.add_argument("--upload-limit", type=float, default=0)
    args = parser.parse_args()
    steps.end_together()
    program = os.path.join(os.path.dirname(os.path.abspath(args.program)), "links")
    with tempfile.TemporaryDirectory() as folder:
        for k in range(max(args.peers)):
            make(os.path.join(folder, f"in{k}.safetensors"), k, args.values)
        for links in args.links:
            for control in args.control if links != "loopback" else [""]:
                for peers in args.peers:
                    for kind in args.kinds:
                        places = {k: Place("a", up=2 if links == "uneven" and k == 0 else 100) for k in range(peers)}
                        network = None if links == "loopback" else Network(places, program, loss=0 if links == "clean" else 1)
                        try:
                            if network and not all(run(*network.inside(k), "ip", "route", "replace", "10.77.0.0/16", "dev", "eth", "src", network.ip(k),
                                                       "congctl", control) for k in places):
                                print(f"this kernel has no {control}")
                                continue
                            result = exchange(args, kind, peers, network, folder, places)
                            if network and network.kind == "links":
                                result["sent_mb"] = [round(c["up_bytes"] / 1e6, 1) for c in network.counts().values()]
                        finally:
                            if network:
                                network.close()
                        # Each value leaves a peer once as a byte, and comes back once: for its own
                        # share to others and from others.
                        if "seconds" in result:
                            bits = 8 * 2 * args.values * (peers - 1) / peers
                            result["mbit_each_way"] = round(bits / min(result["seconds"]) / 1e6, 1)
                        print(json.dumps({"kind": kind, "peers": peers, "links": links, "control": control, **result}), flush=True)
                        time.sleep(0.5)


if __name__ == "__main__":
    main()
