"""A signal that ends a benchmark ends its peers and their daemons, too, and removes what it wrote.

usage: leftovers.py POTLUCK
"""
import glob
import os
import signal
import subprocess
import sys
import tempfile

import steps
from steps import PATIENCE, step, until

HERE = os.path.dirname(os.path.abspath(__file__))
steps.needs("hivemind")

PROGRAM = os.path.abspath(sys.argv[1])
MARK = "INTEROP_LEFTOVERS"  # an environment variable that every process started by a benchmark inherits
AVERAGING = [os.path.join(HERE, "hivemind_bench.py"), PROGRAM, "4000000", "2"]
DHT = [os.path.join(HERE, "..", "bench", "dht.py"), PROGRAM, "--nodes", "4", "--count", "2000"]


def marked(mark, name=""):
    """Processes that have inherited it, by their command lines."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                if f"{MARK}={mark}".encode() not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:  # it has ended, or is somebody else's
            continue
        if name in words[0]:  # of a zombie there is no environment
            found.append(" ".join(words)[:60])
    return found


def apart():
    """A group of its own, and the signals as a terminal leaves them: a shell's job in the
    background ignores SIGINT."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_of(words):
    words.seek(0)
    return words.read()[-800:]


def ends(name, command, number):
    mark = f"{os.getpid()}.{name}.{number}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as words:
        bench = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=words,
                                 env={**os.environ, MARK: mark, "TMPDIR": folder}, preexec_fn=apart)
        what = f"{name}, {signal.Signals(number).name}"
        try:
            there = until(lambda: len(marked(mark, "p2pd")) > 1 or bench.poll() is not None) and bench.poll() is None
            step(f"{what}: hivemind's daemons are there", there, "" if there else end_of(words))
            bench.send_signal(number)
            step(f"{what}: it ends", bench.wait(PATIENCE) == 128 + number, f"{bench.returncode}: {end_of(words)}")
            gone = until(lambda: not marked(mark), steps.GRACE)  # a busy machine takes its time to end what has been killed
            step(f"{what}: nobody is left", gone, marked(mark))
        finally:
            bench.kill()
        left = glob.glob(os.path.join(folder, "tmp*", "*"))  # what torch has there besides is its own
        step(f"{what}: no file is left", not left, left)


def main():
    for name, command, number in (("averaging", AVERAGING, signal.SIGINT), ("a DHT", DHT, signal.SIGTERM)):
        for last in steps.attempts():  # hivemind's daemons may start too late, which ends a benchmark
            with steps.scenario(name, lambda: None, last):
                ends(name, command, number)
    few = subprocess.run([sys.executable, *DHT, "--nodes", "3"], capture_output=True, text=True, timeout=PATIENCE)
    step("too few nodes are refused in a line", few.returncode == 1 and len(few.stderr.splitlines()) == 1 and "--nodes 3: at least 4" in few.stderr,
         few.stderr)
    return steps.closing()


if __name__ == "__main__":
    sys.exit(main())
