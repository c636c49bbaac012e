"""inject.py - each command with one allocation or file operation that fails: the first, the second, ... all of them.

    python3 test/faults/inject.py PROGRAM LIBRARY              every call of every scenario: hours
    python3 test/faults/inject.py PROGRAM LIBRARY --each N     of calls with the same stack this many at most: 1 takes half an hour
    python3 test/faults/inject.py PROGRAM LIBRARY --runs N     this many calls of each scenario and kind of fault, at most
    python3 test/faults/inject.py PROGRAM LIBRARY --set alone|talking [...]   only the commands that talk to no other program, or do
    python3 test/faults/inject.py PROGRAM LIBRARY --only NAME --kind KIND --at N [--lasts] [--trace]   one again; also --place HASH

LIBRARY is inject.c, preloaded. What a failing call may lead to, in a command that is alone (talking.py describes the others):

  - the command succeeds, and its output is that of an undisturbed run, byte for byte; or
  - it ends with status 1 and one line that begins with its name. Every file that it leaves is whole: as before, or as the
    undisturbed run has it. No temporary file stays, and no file that was there is lost. No memory leaks.

A sample takes calls with different stacks first: a loop that allocates a thousand times is one place in the code. Of 68,000 calls
4,000 have different stacks. With --each 2 a place's last call fails, too: what it has built by then has to be undone."""
import argparse
import glob
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import scenarios
from scenarios import FOLDER, LIMIT, SCENARIOS, run
from talking import TALKING, Talking, talk

STACKS_AT = 48  # struct report: two counters and the name of a function, then a number for each call's stack
KINDS = ("memory", "file", "full")
TALKS_MOST = 150  # faults of a command that talks, and of a kind: each takes seconds

options = leak_library = None
passed = failed = 0


def digest(path):
    """Of a file's content; a log's rates and times are left out."""
    with open(path, "rb") as f:
        data = f.read()
    if path.endswith(".jsonl"):
        lines = []
        for line in data.split(b"\n")[:-1]:  # what follows the last end of a line is none yet
            entry = json.loads(line)
            lines.append({k: v for k, v in entry.items() if "second" not in k and k != "peak_bytes"})
        data = json.dumps(lines).encode()
    return hashlib.sha1(data).hexdigest()


def contents(folder):
    """Path -> digest of every file in a folder."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            found[os.path.relpath(path, folder)] = digest(path)
    return found


def without_times(output):
    """What a command printed, without what a clock has to do with."""
    return re.sub(r"\(?[+0-9.e-]+ (ms|s|pictures/s)\)?", "TIME", output)


def without_numbers(line):
    return re.sub(r"[0-9.]+", "N", line)


def is_step(name):
    return os.path.basename(name).startswith("checkpoint-")


class Trial:
    """A scenario, prepared, with what an undisturbed run leaves."""

    def __init__(self, scenario, work):
        self.scenario, self.template, self.folder = scenario, work + "/template", work + "/run"
        self.report, self.leaks = work + "/report", work + "/leaks"
        self.talks = isinstance(scenario, Talking)
        if self.talks and scenario.partner:
            scenario.partner.begin(work + "/partner")
        os.mkdir(self.template)
        if scenario.prepare:
            scenario.prepare(self.template)
        self.before = contents(self.template)
        self.allowed = {}
        for arguments in ([scenario.more] if scenario.more else []) + [scenario.arguments]:
            done = self.play(arguments)
            if done.returncode and not (self.talks and scenario.judges):
                raise SystemExit(f"{scenario.name}: does not even run undisturbed: {done.stderr}")
            if self.talks and scenario.ends and not re.search(scenario.ends, done.stdout):
                raise SystemExit(f"{scenario.name}: does not get far enough even undisturbed: {done.stderr}")
            self.usual = {without_numbers(line) for line in done.stderr.splitlines()}
            self.after, self.output = contents(self.folder), without_times(done.stdout)
            self.after = {name: value for name, value in self.after.items() if not self.is_drawn(name)}
            for name, value in self.after.items():
                self.allowed.setdefault(name, set()).add(value)
        for name, value in self.before.items():
            self.allowed.setdefault(name, set()).add(value)

    def end(self):
        if self.talks and self.scenario.partner:
            self.scenario.partner.end()

    def is_drawn(self, name):
        return any(re.fullmatch(pattern, name) for pattern in self.scenario.drawn)

    def play(self, arguments, **environment):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)
        environment["TMPDIR"] = self.folder
        arguments = [a.replace(FOLDER, self.folder) for a in arguments]
        if self.talks:
            return talk(self.scenario, arguments, environment, self.folder)
        with open(self.folder + ".input", "w+") as f:
            f.write(self.scenario.reads)
            f.seek(0)
            return run(arguments, environment, stdin=f, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")

    def inject(self, kind, at=0, lasts=False, trace=False):
        """Plays it with a fault in the call of that number, or in the first one with that stack (a text); returns the completed
        process, the number of calls, those that failed, and the first."""
        for path in [self.report, *glob.glob(self.leaks + ".*")]:
            if os.path.exists(path):
                os.remove(path)
        libraries = [options.library]
        if leak_library and not (kind == "memory" and lasts):  # it needs memory itself
            libraries.append(leak_library)
        environment = {"LD_PRELOAD": " ".join(libraries), "FAULT_KIND": kind, "FAULT_REPORT": self.report,
                       "FAULT_PLACE" if isinstance(at, str) else "FAULT_AT": str(at), "FAULT_LASTS": "1" if lasts else "0",
                       "LSAN_OPTIONS": f"exitcode=0:handle_segv=0:handle_abort=0:handle_sigbus=0:log_path={self.leaks}"}
        if trace:
            environment["FAULT_TRACE"] = "1"
        done = self.play(self.scenario.arguments, **environment)
        with open(self.report, "rb") as f:
            calls, hit, what = struct.unpack("<QQ32s", f.read(STACKS_AT))
        return done, calls, hit, what.rstrip(b"\0").decode()

    def places(self, kind):
        """The number of calls, and those of each stack, in the order of their first ones; by stack if the command talks."""
        _, calls, _, _ = self.inject(kind)
        of_stack = {}
        with open(self.report, "rb") as f:
            f.seek(STACKS_AT)
            for n, (stack,) in enumerate(struct.iter_unpack("<Q", f.read(8 * calls)), 1):
                of_stack.setdefault(stack, []).append(n)
        return calls, [[f"{stack:x}"] for stack in of_stack] if self.talks else list(of_stack.values())

    def leaked(self):
        """What is lost in memory, or None."""
        for path in glob.glob(self.leaks + ".*"):
            with open(path, errors="replace") as f:
                found = f.read()
            if "detected memory leaks" in found:
                return "leaks: " + re.search(r"(?s)(Direct|Indirect) leak.*?(?=\n\n)", found)[0]
        return None

    def wrong_talk(self, done, what):
        """The same of a command that talks to others."""
        name = self.scenario.arguments[0]
        if done.returncode < 0:
            return f"killed by signal {-done.returncode}"
        if done.returncode > 1:
            return f"exit status {done.returncode}"
        if self.scenario.partner and not self.scenario.partner.lives():
            raise SystemExit(f"{self.scenario.name}: the partner has ended")
        lines = [line for line in done.stderr.splitlines() if not line.startswith(("/", "_"))]
        strange = [line for line in lines if not line.startswith(f"potluck {name}: ") and without_numbers(line) not in self.usual]
        if strange:
            return "a line that does not begin with the command: " + strange[0]
        if done.returncode and not lines and not self.scenario.judges:
            return "exit status 1 without a line"
        found = contents(self.folder)
        for file, value in found.items():
            if not self.is_drawn(file) and value not in self.allowed.get(file, ()) and (file in self.allowed or what != "unlink"):
                return f"{file} is damaged" if file in self.allowed else f"leaves {file}"
        missing = [file for file in self.before if file not in found and not self.is_drawn(file)]
        if missing:
            return f"lost {missing[0]}"
        return self.scenario.checks(self.folder, not done.returncode) if self.scenario.checks else None

    def wrong(self, done, kind, hit, what):
        """What is wrong with the end of a run in which something failed, or None."""
        if done.returncode < 0:
            return f"killed by signal {-done.returncode}"
        found, lines = {}, []
        for line in done.stderr.splitlines():
            if without_numbers(line) not in self.usual and not line.startswith(("/", "_")):  # those are of --trace
                lines.append(line)
        left_out = [line for line in lines if line.startswith("left out: ")]  # pictures that could not be read
        lines = [line for line in lines if line not in left_out]
        try:
            found = contents(self.folder)
        except ValueError:
            return "a log with a line that is not JSON"
        for name, value in found.items():
            if self.is_drawn(name):
                continue
            if name not in self.allowed:
                if what != "unlink":
                    return f"leaves {name}"
            elif value not in self.allowed[name] and not name.endswith(".jsonl") and not left_out:
                return f"{name} is damaged"
        if done.returncode == 0 and left_out:
            return None
        if not hit or done.returncode == 0:
            missing = [n for n, v in self.after.items() if found.get(n) != v]
            if missing:
                return f"succeeds, but {missing[0]} is {'not as it should be' if missing[0] in found else 'missing'}"
            # A size that could not be asked for may be missing in the sums that a command prints of its files.
            prints_sums = kind != "memory" and FOLDER in " ".join(self.scenario.arguments)
            if done.returncode == 0 and not prints_sums and not self.scenario.drawn and without_times(done.stdout) != self.output:
                return "succeeds, but prints something else"
            return "fails without a fault" if done.returncode else None
        if done.returncode != 1:
            return f"exit status {done.returncode}"
        if self.scenario.judges and not lines and "out of memory" in done.stdout:
            return None
        if len(lines) != 1 or not lines[0].startswith("potluck " + self.scenario.arguments[0] + ": "):
            return f"{len(lines)} lines of error, not one that begins with the command"
        for name in self.before:
            if name not in found and not (is_step(name) and any(is_step(n) for n in found)):
                return f"lost {name}"
        return None

    def check(self, kind, at, lasts, trace=False):
        global passed, failed
        try:
            done, _, hit, what = self.inject(kind, at, lasts, trace)
            why = self.wrong_talk(done, what) if self.talks else self.wrong(done, kind, hit, what)
            why = why or self.leaked()
        except subprocess.TimeoutExpired:
            done, what, why = None, "", f"hangs for {LIMIT} s"
        if trace and done:
            print(done.stderr, end="")
        if not why:
            passed += 1
            return
        failed += 1
        print(f"FAIL {self.scenario.name}: {what} fails: {why}\n     python3 test/faults/inject.py {options.program} "
              f"{options.library} --only {self.scenario.name} --kind {kind} "
              f"{'--place' if isinstance(at, str) else '--at'} {at}{' --lasts' if lasts else ''}")
        for line in (done.stderr.splitlines()[:4] if done and not trace else []):
            print("     | " + line[:200])
        sys.stdout.flush()


def spread(found, most):
    """At most this many of them, the first one and the last one among them."""
    if most >= len(found):
        return found
    return [found[i * (len(found) - 1) // max(most - 1, 1)] for i in range(most)]


def sample(trial, calls, places):
    if trial.talks:
        return spread([place[0] for place in places], options.runs or TALKS_MOST)
    if options.each:
        return sorted(n for place in places for n in spread(place, options.each))
    if not options.runs or options.runs >= calls:
        return range(1, calls + 1)
    return spread([place[0] for place in places], options.runs)


def library_of_leaks():
    """LeakSanitizer's, which gcc brings; None: leaks are not looked for."""
    try:
        path = subprocess.run(["gcc", "-print-file-name=liblsan.so"], stdout=subprocess.PIPE, text=True).stdout.strip()
    except OSError:
        return None
    return os.path.realpath(path) if "/" in path else None


def main():
    global options, leak_library
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--each", type=int)
    parser.add_argument("--only")
    parser.add_argument("--set", choices=("alone", "talking"))
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--at", type=int)
    parser.add_argument("--place")
    parser.add_argument("--lasts", action="store_true")
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    options.program, options.library = os.path.abspath(options.program), os.path.abspath(options.library)
    scenarios.program = options.program
    leak_library = library_of_leaks()
    for scenario in (SCENARIOS if options.set != "talking" else []) + (TALKING if options.set != "alone" else []):
        if options.only and options.only != scenario.name:
            continue
        with tempfile.TemporaryDirectory() as work:
            trial, before = Trial(scenario, work), failed
            counts = []
            for kind in [options.kind] if options.kind else KINDS:
                if options.at or options.place:
                    trial.check(kind, options.at or options.place, options.lasts, options.trace)
                    continue
                calls, places = trial.places(kind)
                chosen = sample(trial, calls, places)
                counts.append(f"{len(chosen)} of {calls} calls ({kind})")
                for i, n in enumerate(chosen):
                    for lasts in (False, True) if not options.runs else (i % 2 == 1,):
                        trial.check(kind, n, lasts)
            trial.end()
            print(f"{'ok  ' if failed == before else 'FAIL'} {scenario.name}: {', '.join(counts)}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


sys.exit(main())
