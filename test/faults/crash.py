"""crash.py - what a power cut leaves of our files, at every moment of a command.

    python3 test/faults/crash.py PROGRAM JOURNAL_LIBRARY STORE

A command runs with journal.c, which writes down what it does to its files. Then the disk is built anew as it may be after a
cut behind each entry. POSIX promises little about that, so each entry gives several disks:

  - creations, renames and removals come in order, and all those up to the last sync of a folder are there; of later ones the
    first n, for every n;
  - of each file the content of its last sync is there; what was written later is there, or missing, or zeros, and of the last
    write only a half may be there.

On each of them: a checkpoint, a shard, a converted file is the old one or the new one, never a part; a history opens, and no
point is missing before another; a cache gives the right block or none. At the end all that a command reported is there."""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

program, library, store = (os.path.abspath(path) for path in sys.argv[1:4])
VARIANTS = ("kept", "missing", "zeros", "torn")
SAMPLE = 12  # disks of a scenario on which the program itself goes on
passed = failed = 0


def check(what, good, why=""):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
    print(("ok   " if good else "FAIL ") + what + (f": {why}" if why and not good else ""), flush=True)


def run(arguments, **environment):
    return subprocess.run(arguments, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", timeout=60)


class File:
    """What was written to one inode, and what of it a sync has made durable."""

    def __init__(self):
        self.now, self.durable, self.torn, self.version = b"", b"", None, 0

    def write(self, at, data):
        whole = self.now.ljust(at, b"\0")
        self.torn = whole[:at] + data[:len(data) // 2] + whole[at + len(data) // 2:]
        self.now = whole[:at] + data + whole[at + len(data):]
        self.version += 1

    def replace(self, data):
        self.torn = data[:(len(self.now) + len(data)) // 2] if len(data) > len(self.now) else None
        self.now = data
        self.version += 1

    def content(self, variant):
        if variant == "missing":
            return self.durable
        if variant == "zeros" and self.now != self.durable:
            return self.durable[:len(self.now)].ljust(len(self.now), b"\0")
        if variant == "torn" and self.torn is not None:
            return self.torn
        return self.now


def entries(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        end = data.index(b"\n", at)
        op, inode, offset, count, name, other = data[at:end].decode().split(" ")
        at = end + 1 + int(count)
        yield op, int(inode), int(offset), data[end + 1:at], name, other


def apply(names, change):
    op, name, what = change
    if op == "create":
        names[name] = what
    elif op == "remove":
        names.pop(name, None)
    elif name in names:
        names[what] = names.pop(name)


def disks(journal, before):
    """Each different disk once: {path: content}, and whether it is one of those after the last entry."""
    durable = {}
    for name, data in before.items():
        durable[name] = File()
        durable[name].now = durable[name].durable = data
    names, inodes, pending, seen = dict(durable), {}, [], set()
    log = list(entries(journal))
    for number, (op, inode, offset, data, name, other) in enumerate(log):
        if op == "create":
            if name in names and inodes.get(inode) is names[name]:
                names[name].replace(b"")
            else:
                pending.append(("create", name, File()))
                apply(names, pending[-1])
                inodes[inode] = names[name]
        elif op in ("rename", "remove"):
            if op == "remove":  # its inode's number may be the next file's or folder's
                inodes = {i: f for i, f in inodes.items() if f is not names.get(name)}
            pending.append((op, name, other))
            apply(names, pending[-1])
        elif op == "sync":
            # A descriptor of a file that was there before shows its inode here first.
            file = inodes.get(inode) or names.get(name)
            if file:
                file.durable, file.torn = file.now, None
            else:
                for change in pending:
                    apply(durable, change)
                pending = []
        elif op in ("write", "whole", "size"):
            file = inodes.setdefault(inode, names.get(name) or File())
            if op == "write":
                file.write(offset, data)
            elif op == "whole":
                file.replace(data)
            else:
                file.replace(file.now[:offset].ljust(offset, b"\0"))
        is_last = number == len(log) - 1
        for n in range(len(pending) + 1):
            there = dict(durable)
            for change in pending[:n]:
                apply(there, change)
            for variant in VARIANTS:
                disk = {path: file.content(variant) for path, file in there.items()}
                key = hashlib.sha1(repr(sorted((p, hashlib.sha1(c).digest()) for p, c in disk.items())).encode()).digest()
                if key not in seen or is_last:
                    seen.add(key)
                    yield disk, is_last


def contents(folder):
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = f.read()
    return found


def build(folder, disk):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, data in disk.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)


class Scenario:
    def __init__(self, name, work, prepare=None):
        self.name, self.folder, self.other = name, f"{work}/{name}", f"{work}/{name}.disk"
        self.journal = f"{work}/{name}.journal"
        os.mkdir(self.folder)
        if prepare:
            prepare(self.folder)
        self.before = contents(self.folder)

    def record(self, arguments):
        done = run(arguments, LD_PRELOAD=library, JOURNAL=self.journal, JOURNAL_ROOT=self.folder)
        self.after = contents(self.folder)
        check(f"{self.name}: runs", done.returncode == 0, done.stderr)

    def judge(self, wrong, goes_on=None):
        """wrong(disk, is_last) -> why, or None; goes_on(folder) -> why, or None, on some disks that were built."""
        all_, bad, tried = list(disks(self.journal, self.before)), [], 0
        for disk, is_last in all_:
            why = wrong(disk, is_last)
            if why:
                bad.append(why)
        check(f"{self.name}: {len(all_)} disks", not bad, f"{len(bad)} of them: {bad[:3]}")
        some = all_[::max(1, len(all_) // SAMPLE)] if goes_on else []
        bad = []
        for disk, _ in some:
            build(self.other, disk)
            why = goes_on(self.other, disk)
            if why:
                bad.append(why)
        if some:
            check(f"{self.name}: goes on from {len(some)} of them", not bad, f"{bad[:3]}")


def step(name):
    return int(name.rsplit("-", 1)[1].split(".")[0])


def checkpoints(disk):
    return sorted((n for n in disk if "/checkpoint-" in n and n.endswith(".safetensors")), key=step)


def training(work):
    def train(out, *more):
        return [program, "train", "--config", "test/program/tiny.json", "--data", "data/demo/emoji-00001.parquet", "--limit", "8",
                "--target-batch", "4", "--batch", "4", "--save-every", "1", "--evaluate-every", "0", "--backend", "fast",
                "--threads", "1", "--quiet", "--steps", "3", "--out", out + "/out", *more]

    run(train(work + "/whole", "--keep", "0"))
    whole = contents(work + "/whole")

    def wrong(disk, is_last):
        there = checkpoints(disk)
        for name in there:
            if disk[name] != whole[name]:
                return f"{name} is no whole checkpoint"
        if begun and not there:
            return "no checkpoint is left"
        if begun and step(there[-1]) < 1 or is_last and step(there[-1]) < last:
            return f"only {there[-1]} is left"
        return None

    def goes_on(folder, disk):
        if not checkpoints(disk):
            return None
        done = run(train(folder, "--keep", "1", "--resume"))
        if done.returncode:
            return done.stderr
        found = contents(folder)
        if found["out/checkpoint-000003.safetensors"] != whole["out/checkpoint-000003.safetensors"]:
            return "ends with other parameters"
        return None

    begun, last = 0, 3
    scenario = Scenario("training", work)
    scenario.record(train(scenario.folder, "--keep", "1"))
    scenario.judge(wrong, goes_on)

    begun, last = 1, 3
    def stopped(folder):
        os.mkdir(folder + "/out")
        for name in "checkpoint-000001.safetensors", "log.jsonl":
            shutil.copy(f"{work}/whole/out/{name}", folder + "/out")

    scenario = Scenario("resumed", work, stopped)
    scenario.record(train(scenario.folder, "--keep", "1", "--resume"))
    scenario.judge(lambda disk, is_last: wrong(disk, is_last) or
                   (None if b'"step":1,' in disk["out/log.jsonl"] else "the log has lost its first step"), goes_on)
    return work + "/whole/out"


def replaced(work, name, arguments, target, old):
    """A command that writes `target` over an old file."""
    scenario = Scenario(name, work, lambda folder: shutil.copy(old, f"{folder}/{target}") if old else None)
    scenario.record([a.replace("FOLDER", scenario.folder) for a in arguments])
    new, former = scenario.after[target], scenario.before.get(target)

    def wrong(disk, is_last):
        if disk.get(target) not in (new, former):
            return f"{target} is neither the old one nor the new one"
        if is_last and disk.get(target) != new:
            return f"{target} is reported, but not on the disk"
        return None

    scenario.judge(wrong)


def stores(work):
    for kind, name, count in (("history", "h.sqlite", 4), ("cache", "blocks", 4)):
        scenario = Scenario(kind, work)
        scenario.record([store, kind, "write", f"{scenario.folder}/{name}", str(count)])
        most = 0
        bad, built = [], set()
        for disk, is_last in disks(scenario.journal, {}):
            # SQLite's shared memory is rebuilt by the first program that opens the file.
            disk = {path: data for path, data in disk.items() if not path.endswith("-shm")}
            key = repr(sorted(disk.items()))
            if key in built and not is_last:
                continue
            built.add(key)
            build(scenario.other, disk)
            done = run([store, kind, "read", f"{scenario.other}/{name}", str(count)])
            if done.returncode:
                bad.append(done.stderr.strip())
            else:
                most = max(most, int(done.stdout))
        check(f"{kind}: {len(built)} disks", not bad, f"{len(bad)} of them: {sorted(set(bad))[:3]}")
        check(f"{kind}: all that was written may be there", most == count, str(most))


def main():
    with tempfile.TemporaryDirectory() as work:
        work = os.path.realpath(work)
        model = training(work) + "/checkpoint-000001.safetensors"
        later = work + "/whole/out/checkpoint-000002.safetensors"
        replaced(work, "convert", [program, "convert", later, "FOLDER/new.safetensors"], "new.safetensors", model)
        run([program, "convert", model, work + "/old.pt"])
        replaced(work, "torch", [program, "convert", later, "FOLDER/new.pt"], "new.pt", work + "/old.pt")
        os.mkdir(work + "/pictures")
        shutil.copy("test/golden/clip/images/gray.png", work + "/pictures")
        with open(work + "/pictures/gray.txt", "w") as f:
            f.write("a grey picture")
        replaced(work, "prepare", [program, "prepare", "--data", work + "/pictures", "--codec",
                                   "data/demo/codec.safetensors", "--out", "FOLDER", "--backend", "fast"],
                 "shard-00000.parquet", None)
        stores(work)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed != 0


sys.exit(main())
