"""Peers of either kind as processes, for the scripts here: what they print is JSON lines."""
import json
import os
import signal
import subprocess
import threading
import time


class Peer:
    """A process that prints lines of JSON."""

    def __init__(self, command, folder, name):
        self.events, self.changed = [], threading.Condition()
        self.errors = open(os.path.join(folder, name + ".err"), "w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                with self.changed:
                    self.events.append(json.loads(line))
                    self.changed.notify_all()
        with self.changed:
            self.events.append({"event": "closed"})
            self.changed.notify_all()

    def wait(self, kind, limit=60, number=1):
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
        e = self.wait("listening", 30) if "python" not in self.process.args[0] else self.wait("ready", 60)
        if e is None:
            return None
        return e.get("multiaddr") or e["maddrs"][0]

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.errors.close()

    def kill(self):
        """As a power cut does; nothing of it is left, child processes included."""
        self.end()
