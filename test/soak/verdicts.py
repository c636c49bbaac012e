"""Output of the scripts here: one line per verdict, and a closing count."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from retries import retried

passed = failed = 0


def verdict(good, what):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(("ok   " if good else "FAIL ") + what, flush=True)


def closing(skipped=0):
    """The count; gives the exit status."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
