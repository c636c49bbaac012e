"""Output of the scripts here: one line per verdict, and a closing count."""

import os

passed = failed = 0


def verdict(good, what):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(("ok   " if good else "FAIL ") + what, flush=True)


def retried(what, why):
    """run.sh counts what is tried again, and allows few in all its suites."""
    if os.environ.get("RETRIES"):
        with open(os.environ["RETRIES"], "a") as f:
            f.write(f"{os.environ.get('SUITE', '')}: {what}: {' '.join(why.split())[:150]}\n")


def closing(skipped=0):
    """The count; gives the exit status."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
