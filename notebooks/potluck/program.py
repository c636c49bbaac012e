"""The program `potluck`, run from a notebook: a command to its end, or one that goes on in the
background."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

from . import signatures

T = TypeVar("T")


def find() -> str:
    """The program that belongs to the library: next to it in a build folder, in bin/ of a wheel; or one on the PATH."""
    folder = signatures.find().parent
    places = [place for place in (folder / "potluck", folder.parent / "bin" / "potluck") if place.is_file()]
    found = str(places[0]) if places else shutil.which("potluck")
    if not found:
        raise FileNotFoundError("no program 'potluck': type 'make' in its folder")
    return found


def main() -> NoReturn:
    """The command `potluck` of a wheel: the program takes this process over."""
    path = find()
    os.execv(path, ["potluck", *sys.argv[1:]])


def program(*arguments: object, limit_s: float = 600) -> str:
    """Standard output of a command that has ended well; else what it complained about is raised."""
    done = subprocess.run([find(), *map(str, arguments)], capture_output=True, text=True, timeout=limit_s)
    if done.returncode:
        raise RuntimeError(f"potluck {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


class Program:
    """A command in the background, for `with`: whatever happens in the notebook, it ends with
    it."""

    def __init__(self, *arguments: object):
        self.output = tempfile.NamedTemporaryFile("r", suffix=".log")
        with open(self.output.name, "w") as to:
            self.process = subprocess.Popen([find(), *map(str, arguments)], stdout=to, stderr=subprocess.STDOUT)

    def text(self) -> str:
        """What it has printed so far, errors too."""
        return pathlib.Path(self.output.name).read_text(errors="replace")

    def running(self) -> bool:
        """It has not ended."""
        return self.process.poll() is None

    def wait_for(self, found: Callable[[str], T], limit_s: float = 60) -> T:
        """Calls found(text so far) until it gives something, and returns that."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            over = not self.running() # before what it printed last is read
            answer = found(self.text())
            if answer:
                return answer
            if over:
                break
            time.sleep(0.1)
        raise RuntimeError("potluck did not print what was waited for; it printed:\n" + self.text()[-2000:])

    def stop(self) -> None:
        """Asks the command to end, as Ctrl-C does: a training saves its state first."""
        if self.running():
            self.process.terminate()

    def end(self, limit_s: float = 600) -> int:
        """Waits until the command is done; its exit status."""
        return self.process.wait(limit_s)

    def __enter__(self):
        return self

    def __exit__(self, *why):
        if self.running():
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()
