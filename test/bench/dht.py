"""A DHT of eight nodes, C's and hivemind's side by side: records a second, time to be ready, idle memory.

usage: dht.py POTLUCK [--count N] [--nodes N] [--json]
Each node is a process of its own on loopback; one node stores, another gets what it has not seen before.
Without hivemind in this Python (`make interop` installs it) only C is measured. On a busy
machine every wake-up waits for a processor, which evens out the two: run it with a higher priority then.
"""
import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "interop"))
import steps

os.environ.setdefault("HIVEMIND_LOGLEVEL", "CRITICAL")
warnings.filterwarnings("ignore")
NODE = """
import sys, warnings
warnings.filterwarnings("ignore")
import hivemind
if __name__ == "__main__":
    dht = hivemind.DHT(initial_peers=sys.argv[1:] or None, host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True, startup_timeout=60)
    print(dht.get_visible_maddrs()[0], flush=True)
    sys.stdin.read()
    dht.shutdown()
"""
NODES_MIN = 4
ORDER = "store, one by one", "store, 32 at once", "get, one by one", "get, 32 at once", "ready in s", "idle MB", "idle MB, not shared"


def tree(pid):
    """A process and its children: p2pd and the DHT's process are hivemind's."""
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        children = [int(p) for p in f.read().split()]
    return [pid] + [p for c in children for p in tree(c)]


def memory(pid, field):
    total = 0
    for p in tree(pid):
        with open(f"/proc/{p}/status") as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith(field))
    return total / 1024


class Node:
    def __init__(self, command, read):
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=os.setpgrp)  # not setsid: Linux gives a session a priority of its own
        self.address = read(self.process.stdout)
        self.seconds = time.perf_counter() - began

    def end(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(20)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # hivemind's daemon, and its DHT's process
        except ProcessLookupError:
            pass


def c_node(program, join):
    def read(out):
        address = json.loads(out.readline())["multiaddr"]
        json.loads(out.readline())  # joined
        return address

    command = [program, "peer", "--json", "--no-check", "--listen", "/ip4/127.0.0.1/tcp/0"]
    return Node(command + [a for j in join for a in ("--join", j)], read)


def py_node(_, join):
    return Node([sys.executable, "-c", NODE, *join], lambda out: out.readline().strip())


def c_rates(program, entry, count):
    out = subprocess.run([program, "dht", "bench", "--join", entry, "--count", str(count), "--json"],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line["what"]: line["per_second"] for line in map(json.loads, out.splitlines())}


async def py_rates(entry, count):
    from hivemind.dht.node import DHTNode
    from hivemind.utils import get_dht_time

    writer = await DHTNode.create(initial_peers=[entry])
    reader = await DHTNode.create(initial_peers=[entry])
    rates = {}

    async def run(name, one, start, width):
        left, began = iter(range(start, start + count)), time.perf_counter()

        async def worker():
            for i in left:
                await one(f"bench {i}")

        await asyncio.gather(*(worker() for _ in range(width)))
        rates[name] = count / (time.perf_counter() - began)

    async def store(key):
        assert await writer.store(key, 42, get_dht_time() + 600)

    async def get(key):
        assert (await reader.get(key)).value == 42

    for i, name in enumerate(ORDER[:4]):
        await run(name, get if i // 2 else store, i % 2 * count, 32 if i % 2 else 1)
    await writer.shutdown()
    await reader.shutdown()
    return rates


def measure(start, rates, program, nodes, count):
    """nodes - 2 of them, and the two that store and get."""
    all_nodes = []
    try:
        for _ in range(nodes - 2):
            all_nodes.append(start(program, [all_nodes[0].address] if all_nodes else []))
        time.sleep(1)
        figures = {
            "ready in s": sorted(n.seconds for n in all_nodes)[len(all_nodes) // 2],
            "idle MB": memory(all_nodes[1].process.pid, "VmRSS"),
            "idle MB, not shared": memory(all_nodes[1].process.pid, "RssAnon"),
        }
        return {**rates(program, all_nodes[0].address, count), **figures}
    finally:
        for n in all_nodes:
            n.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=8, help=f"at least {NODES_MIN} (default: 8)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.nodes < NODES_MIN:
        sys.exit(f"bench dht: --nodes {args.nodes}: at least {NODES_MIN}: one stores, one gets, and two are there besides")
    steps.end_together()
    figures = {"potluck": measure(c_node, c_rates, args.program, args.nodes, args.count)}
    try:
        import hivemind

        name = f"hivemind {hivemind.__version__}"
        figures[name] = measure(py_node, lambda _, entry, n: asyncio.run(py_rates(entry, n)), args.program, args.nodes, args.count)
    except ImportError:
        print("bench dht: hivemind is not installed for this Python, so C alone; make interop brings it", file=sys.stderr)
    if args.json:
        print(json.dumps(figures))
        return
    print(f"a DHT of {args.nodes} nodes, {args.count} records a figure" + "".join(f"{name:>18}" for name in figures))
    for what in ORDER:
        row = [f[what] for f in figures.values()]
        faster = "" if len(row) < 2 else f"{row[0] / row[1]:9.1f} x" if what in ORDER[:4] else f"{row[1] / row[0]:9.1f} x"
        print(f"{what:<42}" + "".join(f"{x:18.2f}" if x < 10 else f"{x:18.0f}" for x in row) + faster)


if __name__ == "__main__":
    main()
