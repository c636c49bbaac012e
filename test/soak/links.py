"""Hosts on one machine: a network namespace each, and links between them that are slow, long,
lossy, uneven, and cut for a while. By veth and netem where the kernel has them, otherwise by a
program of ours, links.c.

    with Network({"entry": Place("a"), 0: Place("a", up=2), 1: Place("b")}, program) as network: ...

Every place has a link of its own, half of DELAY_MS and LOSS_PERCENT each way, so between any two of
them there are DELAY_MS there and back, and LOSS_PERCENT of the packets are lost each way.
"""
import dataclasses
import json
import os
import signal
import subprocess
import sys

DELAY_MS = 50.0
LOSS_PERCENT = 1.0
QUEUE_S = 0.1  # as links.c's
PACKET = 1500


@dataclasses.dataclass
class Place:
    side: str            # "a" or "b": what can be cut apart
    up: float = 100      # Mbit/s
    down: float = 100
    closed: bool = False  # behind a router that puts its own address in place of the host's, and lets nobody connect inwards


class Impossible(Exception):
    """Not on this machine; says why."""


def run(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


class Network:
    def __init__(self, places, program, kind=None, delay=DELAY_MS, loss=LOSS_PERCENT, seed=1):
        """program: links.c's. kind: "netem" or "links"; None: the first of them that works. delay:
        ms there and back; loss: % each way."""
        self.places, self.program = places, program
        self.delay, self.loss, self.seed = delay / 4, loss / 2, seed
        self.numbers = {place: i + 1 for i, place in enumerate(places)}
        self.me, self.process = f"potluck{os.getpid()}", None
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # who is ended leaves no namespaces and no peers behind
        try:
            if not all(run("ip", "netns", "add", self.name(p)) for p in ("hub", *places)):
                raise Impossible("this machine lets nobody make network namespaces (it takes root, and `ip`)")
            closed = any(p.closed for p in places.values())
            netem = not closed and run(*self.inside("hub"), "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
            self.kind = kind or ("netem" if netem else "links")
            (self.build_netem if self.kind == "netem" else self.build_links)()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
            self.process = None
        for place in ("hub", *self.places):
            run("ip", "netns", "delete", self.name(place))

    def name(self, place):
        return f"{self.me}-{place}"

    def inside(self, place):
        """What stands before a command to run it there."""
        return ("ip", "netns", "exec", self.name(place))

    def ip(self, place):
        """Its own address."""
        return f"10.77.{int(self.places[place].closed)}.{self.numbers[place]}"

    def outside(self, place):
        """What others see it as."""
        return f"10.77.0.{self.numbers[place]}"

    # --- by a program of ours

    def build_links(self):
        hosts = [f"{self.name(k)}:{self.outside(k)}:{p.side}:{p.up:g}:{p.down:g}:{self.delay:g}:{self.loss:g}:{'closed' if p.closed else 'open'}"
                 for k, p in self.places.items()]
        try:
            self.process = subprocess.Popen([self.program, str(self.seed), *hosts], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)
        except OSError as e:
            raise Impossible(f"no program for the links: {e}") from None
        if self.process.stdout.readline() != "ready\n":
            raise Impossible(self.process.stderr.read().strip())

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def counts(self):
        """What links.c has counted, by place."""
        line, found = self.ask("counts"), {}
        while line.startswith("{"):
            one = json.loads(line)
            found[next(p for p in self.places if self.name(p) == one["host"])] = one
            line = self.process.stdout.readline()
        return found

    # --- by the kernel: two bridges, the cut between them

    def build_netem(self):
        hub = self.inside("hub")
        good = all(run(*hub, "ip", "link", "add", f"br-{side}", "type", "bridge") for side in "ab")
        good = good and run(*hub, "ip", "link", "add", "cut-a", "type", "veth", "peer", "name", "cut-b")
        for side in "ab":
            good = good and run(*hub, "ip", "link", "set", f"cut-{side}", "master", f"br-{side}")
            good = good and all(run(*hub, "ip", "link", "set", d, "up") for d in (f"br-{side}", f"cut-{side}"))
        for place, p in self.places.items():
            number, there = self.numbers[place], self.inside(place)
            good = good and run(*hub, "ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth", "netns", self.name(place))
            good = good and run(*hub, "ip", "link", "set", f"v{number}", "master", f"br-{p.side}", "up")
            good = good and run(*there, "ip", "address", "add", self.ip(place) + "/24", "dev", "eth")
            good = good and all(run(*there, "ip", "link", "set", d, "up") for d in ("eth", "lo"))
            good = good and self.shape(hub, f"v{number}", p.down) and self.shape(there, "eth", p.up)
        if not good:
            raise Impossible("no veth, no bridge or no netem")

    def shape(self, within, device, mbit):
        packets = round((QUEUE_S + self.delay / 1e3) * mbit * 1e6 / 8 / PACKET)
        return run(*within, "tc", "qdisc", "add", "dev", device, "root", "netem", "limit", str(packets), "rate", f"{mbit:g}mbit",
                   "delay", f"{self.delay:g}ms", "loss", f"{self.loss:g}%", "seed", str(self.seed)) or \
            run(*within, "tc", "qdisc", "add", "dev", device, "root", "netem", "limit", str(packets), "rate", f"{mbit:g}mbit",
                "delay", f"{self.delay:g}ms", "loss", f"{self.loss:g}%")

    # --- what happens to it

    def cut(self):
        self.ask("cut") if self.process else run(*self.inside("hub"), "ip", "link", "set", "cut-a", "down")

    def heal(self):
        self.ask("heal") if self.process else run(*self.inside("hub"), "ip", "link", "set", "cut-a", "up")
