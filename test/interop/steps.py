"""How the scripts here speak: a line a step, and a closing count.

    steps.needs("hivemind")           before its imports: without it run.sh looks for another Python
    steps.step(name, good, note)      one thing that must hold
    steps.skip(what, why)             what could not be tried
    with steps.scenario(name, excuse):
                                      steps that are skipped together where excuse() says that it was not ours
    sys.exit(steps.closing())
"""
import contextlib
import importlib
import os
import sys

MISSING = 77  # exit status: this Python lacks a module that the whole script needs
passed = failed = skipped = 0
held = None  # failures of the scenario under way


def needs(*modules):
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as e:  # noqa: BLE001 - a broken package is a missing one
            sys.stderr.write(f"{os.path.basename(sys.argv[0])}: no {name} for {sys.executable} ({e})\n")
            sys.exit(MISSING)


def step(name, good, note=""):
    global passed, failed
    note = " ".join(str(note).split())
    line = name + ("  " + note[:120 if good else 1000] if note else "")
    if not good and held is not None:
        held.append(line)
        return
    passed += bool(good)
    failed += not good
    print(("ok   " if good else "FAIL ") + line, flush=True)


def skip(what, why):
    global skipped
    skipped += 1
    print(f"skip {what}: {why}", flush=True)


again = False  # whether the scenario that has just ended is to be played once more


@contextlib.contextmanager
def scenario(name, excuse, last=True):
    """What fails in it counts when it is over, unless excuse() then gives a reason that is not ours. Not the last: it
    is told, and played again; real peers draw their delays and leaders at random, and a fault of ours comes back."""
    global again, failed, held
    again = False
    held = []
    try:
        yield
    except Exception as e:  # noqa: BLE001 - one scenario's end is not the script's
        held.append(f"{name}: {e!r}")
    lines, held = held, None
    why = lines and excuse()
    if why:
        skip(name, f"{why} (else: {lines[0][:200]})")
        return
    if lines and not last:
        again = True
        print(f"once more, for it did not hold: {lines[0]}", flush=True)
        return
    for line in lines:
        step(line, False)


def closing():
    """Prints the count that run.sh reads; the exit status."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0
