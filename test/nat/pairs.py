"""Two peers behind routers of every two kinds: which of them get a direct connection, by which way, how fast.

usage: pairs.py BUILD [--pair A B] [--more] [--long] [--tries N] [--store]
       --more plays the pairs of IPv6 alone, and two peers behind one router
       --long plays with links of 50 ms there and back (test/soak/links)
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
import contextlib
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
MORE = [("none6", "none6"), ("none6", "firewall6"), ("firewall6", "none6"), ("firewall6", "firewall6"), ("shared", "shared"), ("hairpin", "hairpin")]
# By the rules of TCP: with a public side always, without one if each side's port is the one that the other dials. A
# symmetric router shows everybody another port, which does no harm if the other side lets any port of that address in.
NEVER = {("symmetric", "symmetric"), ("symmetric", "port"), ("symmetric", "cgnat"), ("symmetric", "firewall")}
DELAY = 50  # ms there and back, between two hosts of the internet
WAIT = 30  # s for a direct connection: three tries take less
REVERSAL, TRY = 1, 5  # s that each takes at least before the next begins: REVERSAL_LIMIT and PUNCH_LIMIT of the source
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
             # Each has its own port: routers keep ports, and two hosts behind one router can't both have the same there.
             "--listen", f"/ip{family}/{self.ip}/tcp/{4002 if place == 'b' else 4001}", *options],
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


@contextlib.contextmanager
def short_links(kind_a, kind_b):
    rig("up", NAME, kind_a, kind_b)
    try:
        yield
    finally:
        rig("down", NAME)


@contextlib.contextmanager
def long_links(build, kind_a, kind_b, more=()):
    """Each host and router has a link to the internet of its own, with a quarter of DELAY each way."""
    outer = {"none": "{}", "firewall": "{}", "cgnat": "isp-{}"}
    names = ["relay", "other", *more, *(outer.get(kind, "router-{}").format(side) for side, kind in (("a", kind_a), ("b", kind_b)))]
    rig("long", NAME, kind_a, kind_b)
    try:
        links = subprocess.Popen([os.path.join(build, "links"), "1", *(f"{NAME}-{name}:11.77.0.{i}:a:1000:1000:{DELAY / 4:g}:0:open" for i, name in enumerate(names, 1))],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if links.stdout.readline() != "ready\n":
                raise Skip("no TUN devices")
            rig("plug", NAME, *names)
            yield
        finally:
            links.stdin.close()
            links.wait()
    finally:
        rig("down", NAME)


def try_of(ms):
    """1: connection reversal, or the first try of DCUtR."""
    return 1 + int(max(0, ms / 1e3 - REVERSAL) // TRY)


def play(build, kind_a, kind_b, is_long):
    """{"direct": whether, "ms": after the relayed connection, "at": the address}"""
    family, peers = 6 if kind_a.endswith("6") else 4, []

    def start(*arguments):
        peers.append(Peer(build, family, *arguments))
        return peers[-1]
    with long_links(build, kind_a, kind_b) if is_long else short_links(kind_a, kind_b):
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


def cell(found):
    return f"{found['direct']}/{found['tries']}" + (f", {found['median_ms']:.0f} ms" if found["direct"] else "")


def grid(found, title):
    lines = [f"| {title} | {' | '.join(KINDS)} |", "| --- |" + " --- |" * len(KINDS)]
    return lines + [f"| {a} | {' | '.join(cell(found[a, b]) for b in KINDS)} |" for a in KINDS]


def table():
    with open(STORED) as f:
        stored = json.load(f)["pairs"]
    short, long = ({(r["a"], r["b"]): r for r in stored if r["delay_ms"] == ms} for ms in (0, DELAY))
    lines = [*grid(short, "a dials b"), "", *grid(long, f"with {DELAY} ms there and back"), "", "| a dials b | direct |", "| --- | --- |"]
    return "\n".join(lines + [f"| {a} dials {b} | {cell(short[a, b])} |" for a, b in MORE])


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
    is_long = "--long" in options
    pairs = MORE if "--more" in options else list(itertools.product(KINDS, KINDS))
    if "--pair" in options:
        i = options.index("--pair")
        pairs = [tuple(options[i + 1:i + 3])]
    passed = failed = 0
    results = []
    try:
        for a, b in pairs:
            runs = [play(build, a, b, is_long) for _ in range(tries)]
            good = [r["ms"] for r in runs if r["direct"]]
            results.append({"a": a, "b": b, "delay_ms": DELAY * is_long, "tries": tries, "direct": len(good), "median_ms": statistics.median(good) if good else None,
                            "succeeded_at": [try_of(ms) for ms in good]})
            is_right = len(good) == tries if possible(a, b) else not good
            passed, failed = passed + is_right, failed + (not is_right)
            print(f"{'ok  ' if is_right else 'FAIL'} {a} dials {b}: {len(good)} of {tries} direct {[(r['ms'], r['at']) for r in runs]}", flush=True)
    except Skip as why:
        print(f"skip routers: {why}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    if "--store" in options:
        with open(STORED) as f:
            stored = {(r["a"], r["b"], r["delay_ms"]): r for r in json.load(f)["pairs"] + results}
        with open(STORED, "w") as f:
            json.dump({"pairs": list(stored.values())}, f, indent=1)
            f.write("\n")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
