"""Output of the scripts here: one line per step, and a closing count.

    steps.needs("hivemind")           before importing it: without it run.sh tries another Python
    steps.step(name, good, note)      one assertion
    steps.skip(what, why)             an assertion that could not be tried
    for s in steps.part_of(scenarios):  all of them; with INTEROP_PART "2/3" the second, fifth, ...
    for last in steps.attempts():
        with steps.scenario(name, excuse, last):
                                      steps that are skipped together if excuse() finds a failure of
                                      others, and run once more if one of them fails
    steps.line(process)               the next line of a program, with a time limit
    steps.end_together()              a signal that ends this program ends its children, too
    sys.exit(steps.closing())

needs() also sets the script's limit: a script that still waits then is ended with one line that
says where it is. INTEROP_SLOW multiplies every limit, for sanitized programs.
"""
import contextlib
import importlib
import os
import signal
import sys
import threading
import time
import traceback

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from retries import retried

MISSING = 77  # exit status: this Python lacks a module that the whole script needs
SLOW = int(os.environ.get("INTEROP_SLOW", "1"))
LIMIT = 2400 * SLOW  # s of a script; a busy machine takes a few hundred, and twice that where scenarios are played once more
PATIENCE = 240 * SLOW  # s for anything that must come: a busy machine takes a minute to import torch
ANSWER = 3.0  # s that hivemind waits for what others say, mostly
GRACE = 30 * SLOW  # s from a signal to the end: files are removed on the way, on a busy machine
me = os.getpid()
passed = failed = skipped = 0
under_way = ""  # what was begun, or has been seen, last
held = None  # failures of the scenario under way


def end_children(parent):
    """With their own, as a power cut does; and what is left of those who had a group for
    themselves."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as f:
                is_child = int(f.read().rsplit(")", 1)[1].split()[1]) == parent
            if is_child:
                end_children(int(entry))
                leads = os.getpgid(int(entry)) == int(entry)
                (os.killpg if leads else os.kill)(int(entry), signal.SIGKILL)
        except OSError:  # it has ended
            pass


def out_of_time():
    here = os.path.dirname(os.path.abspath(__file__))
    frames = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident])
    stands = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames if os.path.dirname(os.path.abspath(f.filename)) == here]
    step(f"{os.path.basename(sys.argv[0])}: done within {LIMIT} s", False, f"it stands in {' > '.join(stands)}, after \"{under_way}\"", final=True)
    closing()
    end_children(os.getpid())
    os._exit(1)


def on_signal(number, _):
    end_children(os.getpid())
    if os.getpid() != me:  # a process that hivemind has forked off
        os._exit(128 + number)
    signal.alarm(GRACE)  # ends a process that still waits for an ended child
    sys.exit(128 + number)  # folders are removed on the way


def end_together():
    """Peers have sessions of their own: nobody else would end them."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, on_signal)


limit = threading.Timer(LIMIT, out_of_time)
limit.daemon = True


def needs(*modules):
    if not limit.is_alive():
        limit.start()
        stands_still.start()
        end_together()
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as e:  # noqa: BLE001 - a broken package is a missing one
            sys.stderr.write(f"{os.path.basename(sys.argv[0])}: no {name} for {sys.executable} ({e})\n")
            sys.exit(MISSING)


def step(name, good, note="", final=False):
    global passed, failed, under_way
    under_way = under_way if final else name
    note = " ".join(str(note).split())
    line = name + ("  " + note[:120 if good else 1000] if note else "")
    if not good and held is not None and not final:
        held.append(line)
        return
    passed += bool(good)
    failed += not good
    print(("ok   " if good else "FAIL ") + line, flush=True)


def line(process, patience=PATIENCE):
    """The next line of a program that was started with a pipe; else it is ended."""
    last = threading.Timer(patience, process.kill)
    last.start()
    try:
        text = process.stdout.readline()
    finally:
        last.cancel()
    if not text:
        raise RuntimeError(f"{process.args[0]} printed nothing more within {patience} s, or has ended")
    return text


def skip(what, why):
    global skipped
    skipped += 1
    print(f"skip {what}: {why}", flush=True)


class StandsStill(threading.Thread):
    """How long this machine has given nobody a processor: a sleeping process is woken late."""
    MOMENT = 0.1  # s

    def __init__(self):
        super().__init__(daemon=True)
        self.longest = 0.0

    def run(self):
        while True:
            begun = time.monotonic()
            time.sleep(self.MOMENT)
            self.longest = max(self.longest, time.monotonic() - begun - self.MOMENT)

    def why(self):
        if self.longest > ANSWER:
            return f"this machine stood still for {self.longest:.1f} s, and hivemind gives an answer {ANSWER:g}"
        return None


stands_still = StandsStill()
again = False  # whether the scenario that has just ended is to be played once more


@contextlib.contextmanager
def scenario(name, excuse, last=True):
    """What fails in it counts when it is over, unless excuse() then gives a reason that is not
    ours. Not the last: it is reported and run again; real peers draw their delays and leaders at
    random, and a fault of ours comes back. The last: also a machine that stood still in it, for
    longer than real peers wait, is a reason."""
    global again, failed, held, under_way
    again = False
    under_way = name
    stands_still.longest = 0.0
    held = []
    try:
        yield
    except Exception as e:  # noqa: BLE001 - one scenario's end is not the script's
        held.append(f"{name}: {type(e).__name__}: {e}")
    lines, held = held, None
    why = lines and (excuse() or last and stands_still.why())
    if why:
        skip(name, f"{why} (else: {lines[0][:200]})")
        retried(name, f"not judged, for {why}")
        return
    if lines and not last:
        again = True
        print(f"once more, for it did not hold: {lines[0]}", flush=True)
        retried(name, lines[0])
        return
    for line in lines:
        step(line, False)


def part_of(scenarios):
    """Scenarios do not meet: several processes may share them."""
    part, parts = map(int, os.environ.get("INTEROP_PART", "1/1").split("/"))
    return [s for i, s in enumerate(scenarios) if i % parts == part - 1]


def attempts():
    """Whether it is the last one: for a scenario with real peers, whose calls end after the seconds
    that they have been given, even if a busy machine runs none of them meanwhile."""
    for last in (False, True):
        yield last
        if not again:
            return


def until(what, limit=PATIENCE):
    """The first true value of what(), or the last one when the limit, s, has passed."""
    end = time.time() + limit
    value = what()
    while not value and time.time() < end:
        time.sleep(0.1)
        value = what()
    return value


def closing():
    """Prints the count that run.sh reads; the exit status."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0
