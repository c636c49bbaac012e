"""`potluck conform --peer` against real hivemind peers: a node that averages, and a training one. What the
original is known to do otherwise is skipped there; anything else that fails is our reading of the protocol.

usage: conform_peer.py POTLUCK
Prints one JSON line a step; exit status 0 if every step worked.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

try:
    import hivemind  # noqa: F401
except ImportError:
    print("skip conform_peer: hivemind is not installed for this Python; `make interop` brings its own\n"
          "0 passed, 0 failed, 1 skipped")
    sys.exit(0)
from hivemind_processes import Peer

PROGRAM = os.path.abspath(sys.argv[1])
failed = passed = 0


def step(name, good, note=""):
    global failed, passed
    failed += not good
    passed += bool(good)
    print(json.dumps({"event": "step", "name": name, "ok": bool(good), "note": str(note)}), flush=True)


def start(folder, name, script, *options):
    command = [sys.executable, os.path.join(HERE, script), *options]
    for _ in range(3):  # its daemon sometimes gives up too early
        peer = Peer(command, folder, name)
        if peer.wait("ready", 90) is not None:
            return peer
        peer.end()
    return None


def walk(folder, name, peer, needed, *options):
    """Every clause holds, and those that are needed were not skipped."""
    if peer is None:
        step(name, False, "the real peer did not start")
        return
    try:
        done = subprocess.run([PROGRAM, "conform", "--peer", peer.address(), *options], capture_output=True, text=True, timeout=200)
    finally:
        peer.end()
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if line.startswith("FAIL")]
    step(f"{name}: nothing fails", done.returncode == 0 and not wrong, "; ".join(wrong) or (lines[-1] if lines else done.stderr))
    for clause in needed:
        step(f"{name}: {clause}", any(line.startswith("ok") and clause in line for line in lines))


def main():
    with tempfile.TemporaryDirectory() as folder:
        averager = start(folder, "averager", "hivemind_averager.py", "--prefix", "walk", "--shapes", "70000", "64x32", "7", "300x400",
                         "1300000", "--min_matchmaking_time", "6", "--timeout", "100", "--rounds", "3", "--share_seconds", "60")
        walk(folder, "an averager", averager, ["whose mean is what it handed on", "ACCEPTED", "BAD_EXPIRATION_TIME", "a connection by TLS",
                                               "called back, the right id"], "--prefix", "walk")
        trainer = start(folder, "trainer", "hivemind_trainer.py", "--run_id", "walk", "--target_batch_size", "128",
                        "--matchmaking_time", "5", "--averaging_timeout", "30")
        walk(folder, "a trainer", trainer, ["a training state's", "hivemind 2.1  the owner's signature is accepted"], "--run", "walk", "--wait", "15")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
