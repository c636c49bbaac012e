"""`potluck conform --peer` against real hivemind peers: a node that averages, and a training one.
Clauses that hivemind is known to break are skipped; any other failure is a mistake in our reading
of the protocol.

usage: conform_peer.py POTLUCK
"""
import os
import subprocess
import sys
import tempfile

import steps
from steps import step

HERE = os.path.dirname(os.path.abspath(__file__))
steps.needs("hivemind")
from hivemind_processes import not_ours, start_original

PROGRAM = os.path.abspath(sys.argv[1])


WALKS = [
    ("an averager", "hivemind_averager.py",
     ["--prefix", "walk", "--shapes", "70000", "64x32", "7", "300x400", "1300000", "--min_matchmaking_time", "6", "--timeout", "300",
      "--rounds", "3", "--share_seconds", "60"],
     ["whose mean is what it handed on", "ACCEPTED", "BAD_EXPIRATION_TIME", "a connection by TLS", "called back, the right id"],
     ["--prefix", "walk"]),
    ("a trainer", "hivemind_trainer.py",
     ["--run_id", "walk", "--target_batch_size", "128", "--matchmaking_time", "5", "--averaging_timeout", "30"],
     ["a training state's", "hivemind 2.1  the owner's signature is accepted"], ["--run", "walk", "--wait", "60"]),
]


def walk(name, peer, needed, options):
    """Every clause holds, and those that are needed were not skipped."""
    if peer.wait("ready", 0) is None:
        raise RuntimeError(f"{name} did not get ready: {peer.output()[-300:]}")
    done = subprocess.run([PROGRAM, "conform", "--peer", peer.address(), *options], capture_output=True, text=True, timeout=2 * steps.PATIENCE)
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if line.startswith("FAIL")]
    step(f"{name}: nothing fails", done.returncode == 0 and not wrong, "; ".join(wrong) or (lines[-1] if lines else done.stderr))
    for clause in needed:
        step(f"{name}: {clause}", any(line.startswith("ok") and clause in line for line in lines),
             "; ".join(line for line in lines if clause in line))


def main():
    for name, script, options, needed, more in WALKS:
        for last in steps.attempts():
            with tempfile.TemporaryDirectory() as folder:
                before, peers = steps.failed, []
                with steps.scenario(name, lambda: not_ours(peers), last):
                    peers.append(start_original(script, options, folder, name))
                    walk(name, peers[0], needed, more)
                for peer in peers:
                    peer.end()
                    if steps.failed > before:
                        sys.stderr.write(f"--- {name}\n{peer.output()}\n")
    return steps.closing()


if __name__ == "__main__":
    sys.exit(main())
