"""Two peers behind routers of every two kinds: which of them get a direct connection, by which way, how fast.

usage: pairs.py BUILD [--pair A B] [--more] [--tries N] [--store]
       --more plays the pairs of IPv6 alone, and two peers behind one router
       pairs.py --table            the table of paper/swarm.md, from what was stored

    relay  other        public; other is there to tell both how it sees them
      |      |
      +------+---+----------+
                 |          |
             [router]   [router]     rig.sh makes them
                 |          |
                 a          b

b holds a reservation at the relay. a dials it through the relay, then waits for a direct connection. Without the right
to make namespaces, or without nft, a line says so.
"""
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
STORED = os.path.join(HERE, "pairs.json")
PAPER = os.path.join(ROOT, "paper", "swarm.md")
BEGIN, END = "<!-- pairs of routers -->", "<!-- end of pairs -->"
KINDS = ["none", "firewall", "full", "restricted", "port", "cgnat", "symmetric"]
MORE = [("none6", "none6"), ("none6", "firewall6"), ("firewall6", "none6"), ("firewall6", "firewall6"), ("shared", "shared")]
# By the rules of TCP: with a public side always, without one if each side's port is the one that the other dials. A
# symmetric router shows everybody another port, which does no harm if the other side lets any port of that address in.
NEVER = {("symmetric", "symmetric"), ("symmetric", "port"), ("symmetric", "cgnat"), ("symmetric", "firewall")}
WAIT = 30  # s for a direct connection: three tries take less
NAME = f"nat{os.getpid()}"


class Skip(Exception):
    """Not on this machine; says why."""


def possible(a, b):
    return (a, b) not in NEVER and (b, a) not in NEVER


def rig(*arguments):
    done = subprocess.run(["sh", os.path.join(HERE, "rig.sh"), *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        raise Skip(done.stdout.strip().removeprefix("skip: "))
    if done.returncode:
        raise RuntimeError(f"rig.sh {arguments}: {done.stdout}")
    return done.stdout.strip()


class Peer:
    def __init__(self, build, family, place, *options):
        self.place, self.ip = place, rig("ip6" if family == 6 else "ip", NAME, place)
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", f"{NAME}-{place}", os.path.join(build, "interop", "peer"), "--report",
             "--listen", f"/ip{family}/{self.ip}/tcp/4001", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addresses = []

    def until(self, wanted):
        """The next event of that kind, or None at the end."""
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "addresses":
                self.addresses = event["multiaddrs"]
            if event["event"] == wanted or event.get("name") == wanted:
                return event
        return None

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def play(build, kind_a, kind_b):
    """{"direct": whether, "ms": after the relayed connection, "at": the address}"""
    rig("up", NAME, kind_a, kind_b)
    family, peers = 6 if kind_a.endswith("6") else 4, []

    def start(*arguments):
        peers.append(Peer(build, family, *arguments))
        return peers[-1]
    try:
        relay = start("relay", "--relay").until("listening")["multiaddr"]
        other = start("other").until("listening")["multiaddr"]
        b = start("b", "--join", other, "--use-relay", relay)
        at = b.until("relayed")["multiaddr"]
        time.sleep(0.2)  # identify of b's last connection
        a = start("a", "--join", relay, "--join", other, "--call", at, "--direct", str(WAIT))
        if not a.until("dial")["ok"]:
            raise RuntimeError(f"{kind_a} to {kind_b}: not even through the relay")
        step = a.until("direct")
        return {"direct": step["ok"], "ms": round(step["ms"], 1), "at": step["note"].split("/p2p/")[0]}
    finally:
        for peer in reversed(peers):
            peer.end()
        rig("down", NAME)


def table():
    with open(STORED) as f:
        stored = json.load(f)
    kinds = [k for k in KINDS if any(k in (r["a"], r["b"]) for r in stored["pairs"])]
    found = {(r["a"], r["b"]): r for r in stored["pairs"]}
    lines = [f"| a dials b | {' | '.join(kinds)} |", "| --- |" + " --- |" * len(kinds)]
    for a in kinds:
        cells = []
        for b in kinds:
            r = found[a, b]
            cells.append(f"{r['direct']}/{r['tries']}" + (f", {r['median_ms']:.0f} ms" if r["direct"] else ""))
        lines.append(f"| {a} | {' | '.join(cells)} |")
    lines += ["", "| a dials b | direct |", "| --- | --- |"]
    for a, b in MORE:
        r = found[a, b]
        lines.append(f"| {a} dials {b} | {r['direct']}/{r['tries']}, {r['median_ms']:.0f} ms |")
    return "\n".join(lines)


def write_table():
    with open(PAPER) as f:
        text = f.read()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    with open(PAPER, "w") as f:
        f.write(f"{before}{BEGIN}\n{table()}\n{END}{after}")


def main():
    if "--table" in sys.argv:
        write_table()
        return 0
    build, options = sys.argv[1], sys.argv[2:]
    tries = int(options[options.index("--tries") + 1]) if "--tries" in options else 1
    pairs = MORE if "--more" in options else list(itertools.product(KINDS, KINDS))
    if "--pair" in options:
        i = options.index("--pair")
        pairs = [tuple(options[i + 1:i + 3])]
    passed = failed = 0
    results = []
    try:
        for a, b in pairs:
            runs = [play(build, a, b) for _ in range(tries)]
            good = [r["ms"] for r in runs if r["direct"]]
            results.append({"a": a, "b": b, "tries": tries, "direct": len(good), "median_ms": statistics.median(good) if good else None})
            is_right = len(good) == tries if possible(a, b) else not good
            passed, failed = passed + is_right, failed + (not is_right)
            print(f"{'ok  ' if is_right else 'FAIL'} {a} dials {b}: {len(good)} of {tries} direct {[(r['ms'], r['at']) for r in runs]}", flush=True)
    except Skip as why:
        print(f"skip routers: {why}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    if "--store" in options:
        with open(STORED) as f:
            stored = {(r["a"], r["b"]): r for r in json.load(f)["pairs"] + results}
        with open(STORED, "w") as f:
            json.dump({"pairs": list(stored.values())}, f, indent=1)
            f.write("\n")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
