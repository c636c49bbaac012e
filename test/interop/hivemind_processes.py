"""Peers of both kinds as processes that print lines of JSON, for the scripts here.

A real peer sometimes fails by itself, mostly on a busy machine. The scenario is then repeated; or
skipped, if its messages show that our peers had no part in it, or the kernel shows that it got no
processor time.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

from steps import PATIENCE, retried

HERE = os.path.dirname(os.path.abspath(__file__))
# What a real peer says that has not started: hivemind's p2pd, torch's shared memory, have not
# answered it in time.
NOT_OURS = ("Daemon failed to start in", "Shared memory manager connection has timed out")
LATE = (*NOT_OURS, "Daemon failed to start", "none of the initial_peers responded")  # or who it was to join has not
TOO_BUSY = 0.3  # peers that wait for one another sleep: with four busy loops on two processors it is a tenth


class Peer:
    """A process that prints lines of JSON."""

    def __init__(self, command, folder, name):
        self.events, self.changed = [], threading.Condition()
        self.begun, self.waited = time.time(), 0.0
        self.log = os.path.join(folder, name + ".err")
        self.errors = open(self.log, "w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:  # a library's word; or killed within a line
                continue
            if isinstance(event, dict) and "event" in event:
                with self.changed:
                    self.events.append(event)
                    self.changed.notify_all()
        with self.changed:
            self.events.append({"event": "closed"})
            self.changed.notify_all()

    def wait(self, kind, limit=PATIENCE, number=1):
        """The number-th event of a kind, or None when there will be none."""
        end = time.time() + limit
        with self.changed:
            while True:
                found = [e for e in self.events if e["event"] == kind]
                if len(found) >= number:
                    return found[number - 1]
                if any(e["event"] == "closed" for e in self.events) or time.time() > end:
                    return None
                self.changed.wait(max(0, end - time.time()))

    def address(self):
        e = self.wait("listening") if "python" not in self.process.args[0] else self.wait("ready")
        if e is None:
            return None
        return e.get("multiaddr") or e["maddrs"][0]

    def busy(self):
        """The share of its life in which it wanted to run and others had the processors."""
        try:
            with open(f"/proc/{self.process.pid}/schedstat") as f:
                self.waited = int(f.read().split()[1]) / 1e9 / max(1.0, time.time() - self.begun)
        except (OSError, IndexError, ValueError):  # it is over: what was seen last; or a kernel that doesn't count
            pass
        return self.waited

    def output(self):
        """The end of what it wrote to standard error."""
        with open(self.log, errors="replace") as f:
            return f.read()[-3000:]

    def end(self):
        """As a power cut does; nothing of it is left, child processes included."""
        self.busy()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)
        self.errors.close()


def start_original(script, options, folder, name):
    """A real peer that is ready; or not, for a reason that may be ours. What it needs is given some
    seconds, which a busy machine may take (hivemind's users know it well): then again, three times
    in all."""
    for left in (2, 1, 0):
        peer = Peer([sys.executable, os.path.join(HERE, script), *options], folder, name)
        if peer.wait("ready") or not left or not any(words in peer.output() for words in LATE):
            return peer
        retried(f"start of {script}", next(words for words in LATE if words in peer.output()))
        peer.end()


def not_ours(peers):
    """Why a scenario of these peers could not be judged, or None."""
    for peer in peers:
        for words in NOT_OURS:
            if words in peer.output():
                return f"what a real peer needs was too late: {words}"
        if peer.busy() > TOO_BUSY:
            return f"the machine is too busy: a peer had no processor for {100 * peer.waited:.0f} % of its time"
    return None
