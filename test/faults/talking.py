"""talking.py - the commands of inject.py that talk to other programs, and the programs that they talk to.

What a peer does depends on the time and on others: which call is the n-th does, too, so a call is named by its stack here.
A command may go on without what a failing call would have given, or end with status 1 and one line that says why; on the
way it may print lines that begin with its name. It neither crashes nor hangs, and its partner lives."""
import http.server
import json
import os
import re
import signal
import ssl
import struct
import subprocess
import threading
import time
import urllib.request

import scenarios
from scenarios import BACKEND, FOLDER, LIMIT, Scenario, run

PARTNER = "PARTNER"  # stands for the partner's address in the arguments
PATIENCE = 4  # s for a command that is ended from outside to get there; a fault may keep it from that
VALUES = 65536
MINE = struct.pack("<f", 0.5) * VALUES
QUIETLY = ["--listen", "/ip4/127.0.0.1/tcp/0", "--no-port-mapping"]


class Program:
    """A partner: the program itself, undisturbed. `first`: a command that is played once, before all others."""

    def __init__(self, *arguments, prepare=None, first=()):
        self.arguments, self.prepare, self.first = [*arguments, "--json", *QUIETLY], prepare, first

    def begin(self, folder):
        os.mkdir(folder)
        if self.prepare:
            self.prepare(folder)
        with open(folder + "/output", "w") as out, open(folder + "/errors", "w") as errors:
            self.process = subprocess.Popen([scenarios.program] + [a.replace(FOLDER, folder) for a in self.arguments], stdout=out,
                                            stderr=errors)
        match = wait_for(folder + "/output", self.process, r'"multiaddr":"([^"]*)"', LIMIT)
        if not match:
            raise SystemExit(f"partner {self.arguments[0]}: no address")
        self.address = match[1]
        if self.first:
            run([a.replace(PARTNER, self.address) for a in self.first], stdout=subprocess.DEVNULL)

    def lives(self):
        return self.process.poll() is None

    def end(self):
        self.process.kill()
        self.process.wait()


class WebServer:
    """A partner that keeps what is put there."""

    def begin(self, _):
        self.kept = kept = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_PUT(self):
                kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/"

    def lives(self):
        return True

    def end(self):
        self.server.shutdown()


class Talking(Scenario):
    """A scenario with a partner. `ends`: the output at which the command is terminated; `asks` takes the match first. `checks`
    takes the folder and the success, and returns a fault of the files or None. `judges`: the command prints faults, with status 1."""

    def __init__(self, name, arguments, partner=None, ends=None, asks=None, checks=None, **others):
        super().__init__(name, arguments, **others)
        self.partner, self.ends, self.asks, self.checks = partner, ends, asks, checks


def wait_for(path, process, pattern, seconds):
    """The match of what a living process prints into a file, or None."""
    until = time.monotonic() + seconds
    while True:
        over = process.poll() is not None or time.monotonic() > until
        with open(path, errors="replace") as f:
            match = re.search(pattern, f.read())
        if match or over:
            return match
        time.sleep(0.02)


def talk(scenario, arguments, environment, folder):
    """Plays it until it ends, or has come far enough. As subprocess.run()."""
    paths = [folder + ".stdout", folder + ".stderr"]
    if scenario.partner:
        arguments = [a.replace(PARTNER, scenario.partner.address) for a in arguments]
    with open(paths[0], "w") as out, open(paths[1], "w") as errors:
        process = subprocess.Popen([scenarios.program, *arguments], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=errors)
    try:
        if scenario.ends:
            match = wait_for(paths[0], process, scenario.ends, PATIENCE)
            if match and scenario.asks:
                scenario.asks(match)
            process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    texts = []
    for path in paths:
        with open(path, errors="replace") as f:
            texts.append(f.read())
    return subprocess.CompletedProcess(arguments, process.returncode, *texts)


def get(url):
    """Whatever it answers: what fails in there must not end it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            answer.read()
    except OSError:
        pass


def open_page(match):
    get(match[1])
    get(match[1] + "api/state.json")


def ask_authority(match):
    get(f"https://127.0.0.1:{match[1]}/")


def invited(folder):
    run(["authority", "--invite", "ann", "--allow", folder + "/allow"], stdout=subprocess.DEVNULL)


def tensors(folder):
    header = json.dumps({"t": {"dtype": "F32", "shape": [VALUES], "data_offsets": [0, 4 * VALUES]}}).encode()
    with open(folder + "/mine.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + MINE)


def averaged(folder, succeeded):
    """The mean of the same values twice, if it is there: whole."""
    path = folder + "/mean.safetensors"
    if not os.path.exists(path):
        return "succeeds, but writes nothing" if succeeded else None
    with open(path, "rb") as f:
        data = f.read()
    whole = len(data) > 8 and len(data) == 8 + struct.unpack("<Q", data[:8])[0] + 4 * VALUES
    return None if whole and data.endswith(MINE) else "mean.safetensors is not the mean"


def readable(folder, _):
    for name in os.listdir(folder + "/out") if os.path.isdir(folder + "/out") else []:
        if name.endswith(".safetensors") and run(["show", f"{folder}/out/{name}"], stdout=subprocess.PIPE).returncode:
            return f"{name} cannot be read"
    return None


def arrived(folder, succeeded):
    with open(folder + "/mine.safetensors", "rb") as f:
        wrong = succeeded and web.kept.pop("/mine.safetensors", None) != f.read()
    return "succeeds, but the server has something else" if wrong else None


def average(*more):
    return ["average", "--prefix", "p", "--tensors", FOLDER + "/mine.safetensors", "--compression", "none", "--expect", "2",
            "--matchmaking-time", "1", "--timeout", "5", "--no-check", *BACKEND, *more]


def bootstrap(**others):
    return Program("peer", "--run", "emoji", **others)


def trainer():
    return Program(*scenarios.train("--run", "emoji", "--steps", "1000000", "--slow", "0.3", "--no-check", "--matchmaking-time",
                                    "1", "--averaging-timeout", "5", "--keep", "1", "--out", FOLDER + "/out"))


VALUE = '{"a": [1, 2.5, "text"]}'
web = WebServer()
TALKING = [
    Talking("dht-put", ["dht", "put", "key", VALUE, "--subkey", "mine", "--owner", "--join", PARTNER], bootstrap()),
    Talking("dht-get", ["dht", "get", "key", "--join", PARTNER],
            bootstrap(first=["dht", "put", "key", VALUE, "--expires", "3600", "--join", PARTNER])),
    Talking("peer", ["peer", "--run", "emoji", "--join", PARTNER, "--identity", FOLDER + "/identity", "--json", *QUIETLY],
            bootstrap(), '"event":"joined"', drawn=["identity"]),
    Talking("peer-save", ["peer", "--run", "emoji", "--config", "test/program/tiny.json", "--save", FOLDER + "/out", "--save-every", "1",
                          "--join", PARTNER, "--no-check", "--json", *QUIETLY], trainer(), '"event":"checkpoint"',
            checks=readable, drawn=["out/checkpoint-[0-9]*.safetensors"]),
    Talking("doctor", ["doctor", "--quick", "--join", PARTNER, *QUIETLY], bootstrap(), judges=True),
    Talking("dash", ["dash", "--run", "emoji", "--join", PARTNER, "--port", "0", "--database", FOLDER + "/history", "--every", "0.3",
                     "--export", FOLDER + "/page", "--json"], trainer(), '"url":"([^"]*)"', open_page,
            drawn=["history(-wal|-shm|-journal)?", "page/.*"]),
    Talking("authority", ["authority", "--key", FOLDER + "/key", "--allow", FOLDER + "/allow", "--port", "0", "--json"], None,
            '"port":([0-9]*)', ask_authority, prepare=invited, drawn=[r"key(\.crt|\.tls)?"]),
    Talking("average", average("--out", FOLDER + "/mean.safetensors", "--join", PARTNER, *QUIETLY),
            Program(*average("--rounds", "1000000"), prepare=tensors),
            checks=averaged, prepare=tensors, drawn=["mean.safetensors"]),
    Talking("join", ["join", PARTNER, "--data", "data/demo/emoji-00001.parquet", "--limit", "8", "--batch", "4", "--out",
                     FOLDER + "/out", "--matchmaking-time", "1", "--averaging-timeout", "5", "--no-check", "--quiet", "--json",
                     *QUIETLY, *BACKEND], trainer(),
            '"event":"epoch"', checks=readable, drawn=["out/.*"]),
    Talking("upload", ["upload", "--to", PARTNER, "--tries", "2", "--quiet", FOLDER + "/mine.safetensors"], web, checks=arrived,
            prepare=tensors),
]
