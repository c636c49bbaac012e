"""What the scripts here say: a line a verdict, and a closing count."""

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
