"""A swarm whose peers come and go at random: joins, SIGKILL, SIGSTOP, for SOAK_S seconds.

usage: soak.py POTLUCK        environment: SOAK_S seconds of churn (1800), SOAK_PEERS (16),
                              SOAK_SEED, SOAK_DELAYS

The bootstrap peer always runs; every trainer's life is random. Verdicts are about what happened,
never about how fast:
  - nobody's epoch goes back in its life, nor the swarm's by more than the one step that is lost
    with the peer that made it
  - the loss falls
  - peers that average parameters in a round have the same ones right after it
  - no peer's resident memory or file descriptors grow without bound
  - when the churn ends, all that live come to agree on the parameters, within what 16-bit floats
    round away
Prints a line a verdict and a closing count; what was measured on the line before it.
"""
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import verdicts
from verdicts import verdict

SECONDS = float(os.environ.get("SOAK_S", "1800"))
PEERS = int(os.environ.get("SOAK_PEERS", "16"))
# One is drawn for each peer. With several the rounds of parameters begin at several times, and it
# takes minutes until one has everybody.
DELAYS = os.environ.get("SOAK_DELAYS", "none step round").split()
SEED = int(os.environ.get("SOAK_SEED", str(random.randrange(1 << 30))))
DONORS_MIN = 3          # so many that have the swarm's state are left alone at any time: else it is lost, by anybody's rules
BATCH = 8
SHAPES = [(48, 32), (48,), (300,)]
LIVES = (10, 90) if SECONDS > 120 else (4, 30)  # s until something happens to a peer
SLEEPS = (2, 12)         # s in SIGSTOP
EMPTY = (1, 10)          # s until a killed one is replaced
SETTLING = 15            # s of a life, at least, that memory may grow in: connections, tables, first rounds
# Bytes of memory beyond that: a snapshot of state or two, allocator's pieces.
GROWTH = int(os.environ.get("SOAK_GROWTH_MB", "12")) << 20
# Each peer has a connection to each other, two while they cross, and those of the dead until they
# are noticed.
FILES = 60 + 4 * PEERS
LASTING = 8              # polls, two seconds: for a moment a newcomer dials all peers that others still name, dead ones too
CALM_LIMIT = 600         # s for the survivors to agree
EPOCHS_MIN = 8           # that churn goes on for on a slow machine, within that limit: else there is nothing to judge
RATE = 0.02
# Parameters below 2 travel as halves, and each of two peers keeps the rounding of its own way out;
# a third for the differences on the way back. Peers that don't average part by RATE a step.
TOLERANCE = 3 * 2 ** -11

program = sys.argv[1]
trainer = os.path.join(os.path.dirname(os.path.abspath(program)), "interop", "trainer")


def save(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


class Peer:
    """A trainer, what it has printed, and what the kernel says of it."""

    def __init__(self, folder, number, join, within=(), ip="127.0.0.1", target=None, delay="none", matchmaking=2):
        files = [os.path.join(folder, n + ".safetensors") for n in ("model", "targets")]
        self.error = open(os.path.join(folder, f"{number}.err"), "w")
        self.process = subprocess.Popen(
            [*within, trainer, "--run", "soak", "--model", files[0], "--targets", files[1], "--target-batch", str(target or BATCH * PEERS), "--batch", str(BATCH),
             "--step-seconds", "1", "--matchmaking-time", str(matchmaking), "--averaging-timeout", "20", "--lr", str(RATE), "--noise", "0.3",
             "--seed", str(number + 1), "--delay", delay, "--listen", f"/ip4/{ip}/tcp/0", "--join", join],
            stdout=subprocess.PIPE, stderr=self.error, text=True)
        self.number, self.born, self.asleep = number, time.time(), False
        self.events, self.memory, self.files, self.recent, self.peak = [], [], 0, [], 0
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                self.events.append(json.loads(line))
            except json.JSONDecodeError:  # killed within a line
                pass

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(5)

    def output(self):
        with open(self.error.name, errors="replace") as f:
            return f.read()

    def measure(self):
        try:
            with open(f"/proc/{self.process.pid}/statm") as f:
                self.memory.append((time.time() - self.born, int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")))
            self.recent = (self.recent + [len(os.listdir(f"/proc/{self.process.pid}/fd"))])[-LASTING:]
            self.peak = max(self.peak, self.recent[-1])
            if len(self.recent) == LASTING:
                self.files = max(self.files, min(self.recent))
        except (OSError, IndexError):
            pass

    def of(self, *kinds):
        return [e for e in list(self.events) if e["event"] in kinds]

    def story(self):
        """What it has reported, an event a line, to find the cause of a failure."""
        return [f"{e['time'] - self.born:6.1f} {e['event']} epoch {e['epoch']} of {e['global_epoch']}, {e['peers']} peers; "
                f"round of {e['round_peers']}: {e['round_status']} {e['why'] or ''} {e['text'] or ''}"
                for e in list(self.events) if "global_epoch" in e]

    def epoch(self):
        reported = self.of("epoch", "corrected", "loaded")
        return reported[-1]["epoch"] if reported else 0

    def growth(self):
        """From the most that it took while it settled: until its second step, however long a busy
        machine takes for that."""
        steps = self.of("epoch")
        settled = max(SETTLING, steps[1]["time"] - self.born) if len(steps) > 1 else float("inf")
        before = [m for t, m in self.memory if t <= settled]
        after = [m for t, m in self.memory if t > settled]
        return max(after) - max(before) if before and after else 0


def make_files(folder):
    for name, seed in (("model", 1), ("targets", 2)):
        drawn = random.Random(seed)
        save(os.path.join(folder, name + ".safetensors"),
             {f"t{i}": (list(s), [drawn.uniform(0.3, 1.0) for _ in range(s[0] * (s[1] if len(s) > 1 else 1))]) for i, s in enumerate(SHAPES)})


def entry_peer(within=(), ip="127.0.0.1", *more):
    """Starts a bootstrap peer. Returns its process and its address."""
    entry = subprocess.Popen([*within, program, "peer", "--json", "--run", "soak", "--listen", f"/ip4/{ip}/tcp/0", *more],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    address = json.loads(entry.stdout.readline())["multiaddr"]
    threading.Thread(target=entry.stdout.read, daemon=True).start()
    return entry, address


def apart(peers):
    """The newest round in which all of them have averaged their parameters: the epoch that it was
    of, and the largest difference of any two right after it; or None."""
    averaged = [{e["round"]: e for e in p.of("corrected") if e["round_status"] == 0 and e["round_peers"] == len(peers)} for p in peers]
    common = set.intersection(*map(set, averaged)) if averaged else set()
    if len(averaged) < 2 or not common:
        return None, None
    epoch, newest = max((averaged[0][r]["epoch"], r) for r in common)
    return epoch, max(max(column) - min(column) for column in zip(*(a[newest]["sample"] for a in averaged)))


def apart_after_rounds(peers):
    """How many rounds of the parameters have more than one witness, and the largest difference that
    any of them has left between those who were in it."""
    rounds = {}
    for p in peers:
        for e in p.of("corrected"):
            if e["round_status"] == 0:
                rounds.setdefault(e["round"], []).append(e["sample"])
    far = [max(max(column) - min(column) for column in zip(*s)) for s in rounds.values() if len(s) > 1]
    return len(far), max(far, default=0)


class Swarm:
    def __init__(self, folder, dice):
        self.folder, self.dice, self.numbers = folder, dice, 0
        self.living, self.dead, self.highest, self.lost = [], [], 0, 0
        self.joins = self.kills = self.stops = 0
        self.own_deaths, self.refused = [], 0
        make_files(folder)
        self.entry, self.join = entry_peer()

    def add(self):
        self.living.append(Peer(self.folder, self.numbers, self.join, delay=self.dice.choice(DELAYS)))
        self.numbers += 1
        self.joins += 1

    def bury(self, peer):
        peer.kill()
        self.living.remove(peer)
        self.dead.append(peer)

    def watch(self):
        for peer in list(self.living):
            peer.measure()
            if peer.process.poll() is not None:
                if peer.of("ready"):
                    self.own_deaths.append(f"peer {peer.number}: status {peer.process.returncode}")
                else:  # the initial peer has not answered in time, which it says and exits
                    self.refused += 1
                self.bury(peer)
        highest = max((p.epoch() for p in self.living), default=0)
        self.lost = max(self.lost, self.highest - highest)
        self.highest = max(self.highest, highest)

    def can_spare(self, peer):
        others = [p for p in self.living if p is not peer and not p.asleep and p.epoch() >= self.highest - 1]
        return len(others) >= DONORS_MIN

    def churn(self, seconds):
        """Each life: a while of peace, then death and somebody new after a while, or a sleep."""
        end = time.time() + seconds
        due = [(time.time() + self.dice.uniform(0, 10 if i > 2 else 0.1), "join", None) for i in range(PEERS)]
        while time.time() < end or (self.highest < EPOCHS_MIN and time.time() < end + CALM_LIMIT):
            now = time.time()
            for event in [e for e in due if e[0] <= now]:
                due.remove(event)
                _, what, peer = event
                if what == "join":
                    self.add()
                    due.append((now + self.dice.uniform(*LIVES), "fate", self.living[-1]))
                elif peer not in self.living:
                    due.append((now + self.dice.uniform(*EMPTY), "join", None))
                elif what == "wake":
                    peer.signal(signal.SIGCONT)
                    peer.asleep = False
                    due.append((now + self.dice.uniform(*LIVES), "fate", peer))
                elif not self.can_spare(peer):
                    due.append((now + self.dice.uniform(*LIVES) / 4, "fate", peer))
                elif self.dice.random() < 0.5:
                    self.bury(peer)
                    self.kills += 1
                    due.append((now + self.dice.uniform(*EMPTY), "join", None))
                else:
                    peer.signal(signal.SIGSTOP)
                    peer.asleep = True
                    self.stops += 1
                    due.append((now + self.dice.uniform(*SLEEPS), "wake", peer))
            self.watch()
            time.sleep(0.25)
        for peer in self.living:
            if peer.asleep:
                peer.signal(signal.SIGCONT)

    def agree(self):
        begun, from_epoch, least = time.time(), self.highest, None
        while time.time() < begun + CALM_LIMIT:
            self.watch()
            epoch, far = apart(self.living)
            if epoch is not None and epoch > from_epoch + 1:
                least = far if least is None else min(least, far)
                if far <= TOLERANCE:
                    return epoch, far
            time.sleep(0.25)
        return None, least

    def end(self):
        for peer in list(self.living):
            self.bury(peer)
        self.entry.kill()
        self.entry.wait()


def backwards(peer):
    """A peer whose own epoch goes back, or whose view of the swarm's does by more than the step
    that is lost with the peer that made it: no other peer has its state, and all go on from the
    step before."""
    for field, allowed in (("epoch", 0), ("global_epoch", 1)):
        reported = [e[field] for e in peer.of("epoch", "corrected", "loaded")]
        if any(b < a - allowed for a, b in zip(reported, reported[1:])):
            return f"peer {peer.number}: {field} {reported}"
    return None


def main():
    dice = random.Random(SEED)
    print(f"soak: {PEERS} peers, {SECONDS:g} s, SOAK_SEED={SEED}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        swarm = Swarm(folder, dice)
        try:
            swarm.churn(SECONDS)
            alive = len(swarm.living)
            agreed, far = swarm.agree()
            everybody = swarm.living + swarm.dead
            steps = sorted((e for p in everybody for e in p.of("epoch")), key=lambda e: e["time"])
            first, last = steps[:PEERS], steps[-PEERS:]
            rounds = [e for e in steps if e["peers"] > 1]
            together = sum(e["round_status"] == 0 for e in rounds)
            before, after = (sum(e["loss"] for e in s) / max(1, len(s)) for s in (first, last))
            back = [b for b in map(backwards, everybody) if b]
            verdict(not swarm.own_deaths, f"nobody dies by itself {swarm.own_deaths[:3] or ''}")
            verdict(not back, f"no peer's epoch goes back {back[:2] or ''}")
            verdict(swarm.lost <= 1, f"the swarm's epoch never goes back: {swarm.lost} steps lost with those who made them")
            verdict(swarm.highest > 3, f"the swarm goes on: epoch {swarm.highest}")
            verdict(after < 0.8 * before, f"the loss falls: {before:.4f} to {after:.4f}")
            count, most = apart_after_rounds(everybody)
            verdict(count and most <= TOLERANCE, f"a round leaves its peers with the same parameters: {count} rounds, {most:.2g} apart at most")
            worst = max(everybody, key=Peer.growth)
            verdict(worst.growth() <= GROWTH, f"memory is bounded: the worst grows by {worst.growth() / 1e6:.1f} MB in {len(worst.memory) // 4} s")
            files = max(p.files for p in everybody)
            verdict(files <= FILES, f"file descriptors are bounded: {files} at most for two seconds, {max(p.peak for p in everybody)} for a moment")
            verdict(agreed is not None, f"{len(swarm.living)} survivors agree: epoch {agreed}, {far and f'{far:.2g}'} apart, {TOLERANCE:.2g} allowed")
            print(f"     {swarm.joins} joins, {swarm.kills} SIGKILL, {swarm.stops} SIGSTOP, {swarm.refused} that could not join, {alive} alive at the end; {together} of {len(rounds)} gradient rounds "
                  f"averaged, {max((m for p in everybody for _, m in p.memory), default=0) / 1e6:.1f} MB at most")
            if verdicts.failed:
                for p in everybody[-3:]:
                    sys.stdout.write(f"--- peer {p.number}: {p.output()[-400:]}\n")
                for p in [p for p in everybody if backwards(p)][:2]:
                    print(f"--- the life of peer {p.number}, in seconds since it was started:", *p.story(), sep="\n    ")
        finally:
            swarm.end()
    return verdicts.closing()


if __name__ == "__main__":
    sys.exit(main())
