"""What watchers cost a training peer that serves its own page (--dash), on a machine with other
work.

usage: watchers.py POTLUCK [WATCHERS [ROUNDS [SECONDS]]]

Steps in a minute tell no change of 1 % where others compute. So: processor time, by the scheduler's
own nanoseconds, in many short windows in turns: nobody watches; wrk holds WATCHERS connections to
the events; and, in addition, the feeds are fetched as this many open pages would, each after every
update that changed it. From step to step a window tells the trainer's processor time a sample; each
round compares its windows with one another, and medians come with the 95 % interval that order
statistics give them.
"""
import glob
import http.client
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

POTLUCK = os.path.abspath(sys.argv[1])
WATCHERS, ROUNDS, SECONDS = [int(x) for x in (sys.argv[2:] + ["1000", "20", "10"][len(sys.argv) - 2:])]
BATCH = 4  # small: many steps a window; one thread, for threads that wait for each other take time, too
SETTLE = 2  # s, in which connections are made
AFTER = 2.5  # s; and that a watcher has left is seen when it is sent the next event, in the quiet window
KINDS = ("nobody", "events", "pages")


def cpu(pid):
    """Seconds that all threads of a process were on a processor."""
    total = 0
    for path in glob.glob("/proc/%d/task/*/schedstat" % pid):
        try:
            with open(path) as f:
                total += int(f.read().split()[0])
        except OSError:  # a thread that has just ended
            pass
    return total / 1e9


def median(values):
    v, n = sorted(values), len(values)
    k = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2))
    return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2, v[k], v[n - 1 - k]


def shown(values, unit):
    return "%.3f %s (95 %%: %.3f to %.3f)" % (median(values)[0], unit, *median(values)[1:])


class Pages:
    """What WATCHERS open pages fetch, over a few connections: the server's work is the same."""

    def __init__(self, port):
        self.port, self.over, self.fetched, self.bytes = port, threading.Event(), 0, 0
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(4)]
        for t in self.threads:
            t.start()

    def get(self, c, path):
        c.request("GET", path, headers={"Accept-Encoding": "gzip"})
        body = c.getresponse().read()
        self.fetched, self.bytes = self.fetched + 1, self.bytes + len(body)
        return body

    def run(self, index):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        seen = {}
        while not self.over.is_set():
            c.request("GET", "/api/state.json")
            state = json.loads(c.getresponse().read())
            due = {"peers": state["rows"], "history": state["history_version"], "board": state["history_version"]}
            changed = [name for name in due if seen.get(name) != due[name]]
            if not seen:
                changed = []
            seen = due
            for _ in range(WATCHERS // len(self.threads)):
                for name in changed:
                    self.get(c, "/api/%s.json" % name)
                    if self.over.is_set():
                        return
            self.over.wait(0.2)

    def close(self):
        self.over.set()
        for t in self.threads:
            t.join()


class Peer:
    def __init__(self, folder):
        self.log = os.path.join(folder, "log.jsonl")
        self.err = open(os.path.join(folder, "err"), "w+")
        self.process = subprocess.Popen([POTLUCK, "train", "--run", "bench", "--listen", "/ip4/127.0.0.1/tcp/0", "--target-batch", str(BATCH),
                                         "--batch", str(BATCH), "--threads", "1", "--steps", "1000000", "--save-every", "0", "--quiet", "--dash",
                                         "--out", folder], stderr=self.err)
        words = None
        while not words and self.process.poll() is None:
            time.sleep(0.1)
            self.err.seek(0)
            words = [line[10:].strip() for line in self.err if line.startswith("the page: ")]
        self.url = words[0]
        self.port = int(self.url.rstrip("/").rsplit(":", 1)[1])
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as f:
            self.page = int(f.read().split()[0])
        self.at = 0

    def steps(self):
        """Lines written since the last call."""
        with open(self.log, "rb") as f:
            f.seek(self.at)
            data = f.read()
        self.at += data.rfind(b"\n") + 1
        return data.count(b"loss_image")

    def watchers(self):
        with urllib.request.urlopen(self.url + "metrics") as answer:
            return int(re.search(r"potluck_watchers\S* (\d+)", answer.read().decode()).group(1))

    def window(self):
        """The trainer's processor time a sample, the page's a second."""
        self.steps()
        first = last = None
        n, page, began = 0, cpu(self.page), time.time()
        while time.time() < began + SECONDS or n < 3:
            new = self.steps()
            if new:
                now = cpu(self.process.pid)
                if first is None:
                    first = now
                else:
                    n += new
                last = now
            time.sleep(0.02)
        return (last - first) / n / BATCH, (cpu(self.page) - page) / (time.time() - began)


def main():
    if not shutil.which("wrk"):
        sys.exit("watchers.py: wrk is not installed")
    folder = tempfile.mkdtemp()
    peer = Peer(folder)
    results = {k: [] for k in KINDS}
    watching, fetched = [], 0
    try:
        for _ in range(ROUNDS):
            time.sleep(AFTER)
            results["nobody"].append(peer.window())
            wrk = subprocess.Popen(["wrk", "-t1", "-c%d" % WATCHERS, "-d600", peer.url + "api/events"], stdout=subprocess.DEVNULL)
            time.sleep(SETTLE)
            results["events"].append(peer.window())
            pages = Pages(peer.port)
            results["pages"].append(peer.window())
            pages.close()
            fetched += pages.fetched
            watching.append(peer.watchers())
            wrk.kill()
            wrk.wait()
    finally:
        peer.process.terminate()
        peer.process.wait()
        shutil.rmtree(folder)
    print("%d rounds of windows of %d s, load %.1f; watchers while somebody looked: %d to %d; %d feeds fetched" %
          (ROUNDS, SECONDS, os.getloadavg()[0], min(watching), max(watching), fetched))
    print("training, processor time a sample: %s" % shown([1e3 * t for t, _ in results["nobody"]], "ms"))
    for kind in KINDS:
        print("the page's process, %-6s: %s" % (kind, shown([100 * p for _, p in results[kind]], "% of a processor")))
    for kind in KINDS[1:]:
        print("training with %-6s against nobody, processor time a sample: %s" % (kind, shown(
            [100 * (a[0] / b[0] - 1) for a, b in zip(results[kind], results["nobody"])], "% more")))


main()
