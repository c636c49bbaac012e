"""The program `potluck`, run from a notebook: a command to its end, or one that goes on in the
background."""

import pathlib
import shutil
import subprocess
import tempfile
import time

from . import signatures


def find():
    installed = signatures.find().parent / "potluck"
    found = str(installed) if installed.exists() else shutil.which("potluck")
    if not found:
        raise FileNotFoundError("no program 'potluck': type 'make' in its folder")
    return found


def program(*arguments, limit_s=600):
    """Standard output of a command that has ended well; else what it complained about is raised."""
    done = subprocess.run([find(), *map(str, arguments)], capture_output=True, text=True, timeout=limit_s)
    if done.returncode:
        raise RuntimeError(f"potluck {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


class Program:
    """A command in the background, for `with`: whatever happens in the notebook, it ends with
    it."""

    def __init__(self, *arguments):
        self.output = tempfile.NamedTemporaryFile("r", suffix=".log")
        with open(self.output.name, "w") as to:
            self.process = subprocess.Popen([find(), *map(str, arguments)], stdout=to, stderr=subprocess.STDOUT)

    def text(self):
        return pathlib.Path(self.output.name).read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def wait_for(self, found, limit_s=60):
        """Calls found(text so far) until it gives something, and returns that."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            over = not self.running() # before what it said last is read
            answer = found(self.text())
            if answer:
                return answer
            if over:
                break
            time.sleep(0.1)
        raise RuntimeError("potluck did not say what was waited for; it said:\n" + self.text()[-2000:])

    def end(self, limit_s=600):
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
