"""retries.py - what a script tries again, or does not judge for a reason that is not ours. run.sh counts all of it, and allows
little in all its suites."""
import os
import sys


def retried(what, why):
    if os.environ.get("RETRIES"):
        with open(os.environ["RETRIES"], "a") as f:
            f.write(f"{os.environ.get('SUITE', sys.argv[0])}: {what[:80]}: {' '.join(str(why).split())[:150]}\n")
