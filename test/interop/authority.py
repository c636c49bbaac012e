"""A swarm moderated by `potluck authority`: C and real hivemind nodes with tokens of the same
authority.

usage: authority.py POTLUCK      (the program)
"""
import asyncio
import json
import os
import random
import ssl
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from datetime import datetime, timedelta

import steps
from steps import step

os.environ.setdefault("HIVEMIND_LOGLEVEL", "CRITICAL")  # outsiders are refused on purpose here
warnings.filterwarnings("ignore")
steps.needs("hivemind")
from hivemind.proto.auth_pb2 import AccessToken
from hivemind.utils import get_dht_time
from hivemind.utils.auth import TokenAuthorizerBase
from hivemind.utils.crypto import RSAPrivateKey, RSAPublicKey
import hivemind_compat
from hivemind_compat import within

PROGRAM = os.path.abspath(sys.argv[1])


class Authorizer(TokenAuthorizerBase):
    """As the run's volunteers had it: the token comes from the authority's service."""

    def __init__(self, url, ca, user_token):
        super().__init__(RSAPrivateKey())
        self.url, self.user_token, self.authority = url, user_token, None
        self.context = ssl.create_default_context(cafile=ca)

    def ask(self):
        body = json.dumps({"experiment_join_input": {"peer_public_key": self.local_public_key.to_bytes().decode()}}).encode()
        request = urllib.request.Request(f"{self.url}/api/experiments/join?organization_name=o&model_name=m", body, method="PUT", headers={
            "Authorization": f"Bearer {self.user_token}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, context=self.context, timeout=steps.PATIENCE) as reply:
            return json.load(reply)

    async def get_token(self):
        self.answer = await asyncio.get_running_loop().run_in_executor(None, self.ask)
        self.authority = RSAPublicKey.from_bytes(self.answer["auth_server_public_key"].encode())
        access = self.answer["hivemind_access"]
        return AccessToken(username=access["username"], public_key=access["peer_public_key"].encode(),
                           expiration_time=str(datetime.fromisoformat(access["expiration_time"])), signature=access["signature"].encode())

    def is_token_valid(self, token):
        data = f"{token.username} {token.public_key} {token.expiration_time}".encode()
        return self.authority.verify(data, token.signature) and datetime.fromisoformat(token.expiration_time) >= datetime.utcnow()

    def does_token_need_refreshing(self, token):
        return datetime.fromisoformat(token.expiration_time) < datetime.utcnow() + timedelta(minutes=1)


async def run(*command):
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = await asyncio.wait_for(process.communicate(), steps.PATIENCE)
    return out.decode(), err.decode(), process.returncode


class Served:
    """A program that serves, until it is left; its first JSON lines."""

    def __init__(self, *command, lines=1):
        self.command, self.count = command, lines

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(*self.command, stdout=subprocess.PIPE)
        self.lines = []
        while len(self.lines) < self.count:
            line = json.loads(await asyncio.wait_for(self.process.stdout.readline(), steps.PATIENCE))
            self.lines += [line] if line.get("event") != "check" else []
        return self

    async def __aexit__(self, *_):
        self.process.terminate()
        await asyncio.wait_for(self.process.wait(), steps.PATIENCE)


class PyNode:
    def __init__(self, *join, authorizer=None):
        self.join, self.authorizer = list(join), authorizer

    async def __aenter__(self):
        self.p2p = await hivemind_compat.p2p(initial_peers=self.join or None)
        self.node = await hivemind_compat.dht_node(self.p2p, initial_peers=self.join or None, authorizer=self.authorizer)
        self.multiaddr = str((await within(self.p2p.get_visible_maddrs(), "its address"))[0])
        return self.node, self.multiaddr

    async def __aexit__(self, *_):
        await within(self.node.shutdown(), "leaving the DHT")
        await within(self.p2p.shutdown(), "shutting p2pd down")


async def members(name, entry, node, c_member):
    ok = await within(node.store(f"{name} py", 1, get_dht_time() + 600), "storing")
    out, err, _ = await run(PROGRAM, "dht", "get", f"{name} py", "--join", entry, *c_member, "--json")
    step(f"{name}: C reads what a real member stored", ok and '"value":1' in out, out + err)
    out, err, _ = await run(PROGRAM, "dht", "put", f"{name} c", "2", "--expires", "600", "--join", entry, *c_member, "--json")
    got = await within(node.get(f"{name} c", latest=True), "getting")
    step(f"{name}: a real member reads what C stored", got is not None and got.value == 2, out + err)
    out, err, rc = await run(PROGRAM, "dht", "get", f"{name} py", "--join", entry)
    step(f"{name}: C without a token is refused", rc == 1 and "nobody has" not in err, err)
    try:
        async with PyNode(entry) as (outsider, _):
            got = await asyncio.wait_for(outsider.get(f"{name} py", latest=True), 20 * steps.SLOW)
            step(f"{name}: a real outsider is refused", got is None, got)
    except Exception:
        step(f"{name}: a real outsider is refused", True)


async def both_entries():
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)  # noqa: E731
        for user in "ann", "bob":
            token, _, _ = await run(PROGRAM, "authority", "--invite", user, "--allow", at("list"))
            with open(at(user), "w") as f:
                f.write(token)
        command = [PROGRAM, "authority", "--key", at("key"), "--allow", at("list"), "--port", "0", "--life", "3600", "--json",
                   "--coordinator", "10.0.0.1:31337"]
        async with Served(*command) as authority:
            url = f"https://localhost:{authority.lines[0]['port']}"
            c_member = ["--authority", url, "--authority-ca", at("key.crt"), "--token-file", at("ann")]
            with open(at("bob")) as f:
                secret = f.read().strip()
            authorizer = Authorizer(url, at("key.crt"), secret)
            peer = [PROGRAM, "peer", "--json", "--listen", "/ip4/127.0.0.1/tcp/0", *c_member]
            async with Served(*peer, lines=2) as hub:
                entry = hub.lines[0]["multiaddr"]
                async with PyNode(entry, authorizer=authorizer) as (node, _):
                    step("a real node gets a token and joins a C peer", True)
                    step("the answer names the coordinator", authorizer.answer["coordinator_ip"] == "10.0.0.1"
                         and authorizer.answer["coordinator_port"] == 31337, authorizer.answer)
                    await members("C is the entry", entry, node, c_member)
            async with PyNode(authorizer=authorizer) as (node, entry):
                async with Served(*peer, "--join", entry, lines=2) as c:
                    step("a C peer joins a real one", c.lines[1]["event"] == "joined", c.lines)
                    await members("Python is the entry", entry, node, c_member)


def some_time(r):
    """What an authority might write as a time, or nobody would."""
    year = r.choice(["2026", "2027", "2024", "1999", "0000", f"19{r.randrange(100):02}", f"20{r.randrange(100):02}"])
    month, day, week, weekday = f"{r.randrange(14):02}", f"{r.randrange(33):02}", f"{r.choice([0, 1, 9, 22, 52, 53, 54]):02}", r.randrange(9)
    hour, minute, second = f"{r.randrange(26):02}", f"{r.randrange(62):02}", f"{r.randrange(62):02}"
    fraction = "".join(r.choice("0123456789") for _ in range(r.randrange(10)))
    date = r.choice([f"{year}-{month}-{day}"] * 3 + [f"{year}{month}{day}"] * 3 + [
        f"{year}-W{week}", f"{year}W{week}", f"{year}-W{week}-{weekday}", f"{year}W{week}{weekday}", f"{year}-{month}{day}", f"{year}-{month}",
        f"{year}W{week}-{weekday}", f"{year}-W{week}{weekday}"])
    clock = r.choice(["", hour, f"{hour}:{minute}", f"{hour}{minute}", f"{hour}:{minute}:{second}", f"{hour}{minute}{second}",
                      f"{hour}:{minute}{second}", f"{hour}{minute}:{second}"])
    text = date + r.choice(["T", "T", " ", " ", "-", "_", "7", "é", "€", "W", ""]) + clock
    text += r.choice(["", "", "." + fraction, "," + fraction, ":" + fraction, fraction]) + r.choice(["", "", "", "", "Z", "+00:00", "-0130", " "])
    for _ in range(r.choice([0, 0, 0, 1, 2])):
        at = r.randrange(len(text))
        text = text[:at] + r.choice(["", *"0123456789-:W.T ,é"]) + text[at + r.randrange(2):]
    return text


def python_reads(text):
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return "-"
    return "-" if time.tzinfo else str(time)


def token_times():
    """Older Pythons read less than 3.11: what they take, ours take."""
    r = random.Random(4)
    texts = [some_time(r) for _ in range(20000)] + ["20261122T225000", "2026-W47-7T22:50", "2026-11-22T22:50:00.5", "2026-11-22T22:50Z"]
    ours = subprocess.run([os.path.join(os.path.dirname(PROGRAM), "interop", "peer"), "--token-times"],
                          input="".join(text + "\0" for text in texts).encode(), stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    theirs = [python_reads(text) for text in texts]
    differ = [(text, a, b) for text, a, b in zip(texts, ours, theirs)
              if a != b and (b != "-" or sys.version_info >= (3, 11))]
    taken = sum(t != "-" for t in theirs)
    step(f"times of tokens: {len(texts)} texts are read as Python reads them, {taken} of them as a time",
         len(ours) == len(texts) and taken > 1000 and not differ, differ[:5])


async def main():
    token_times()
    for last in steps.attempts():
        with steps.scenario("members of an authority", lambda: None, last):
            await both_entries()
    return steps.closing()


sys.exit(asyncio.run(main()))
