"""C nodes and real hivemind DHT nodes in one DHT, each entered through the other.

usage: dht.py POTLUCK      (the program)
"""
import asyncio
import json
import os
import subprocess
import sys
import time
import warnings

import steps
from steps import step

os.environ.setdefault("HIVEMIND_LOGLEVEL", "CRITICAL")  # some nodes are killed on purpose here
warnings.filterwarnings("ignore")
steps.needs("hivemind")
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2
from hivemind.utils import MSGPackSerializer, get_dht_time
from hivemind.utils.crypto import RSAPrivateKey
import hivemind_compat
from hivemind_compat import within

PROGRAM = os.path.abspath(sys.argv[1])
LIFE = 600  # s of a record; those that are newer or older than others differ by 100: longer than any machine stands still

VALUES = {  # as hivemind gives them back; and as JSON for the command line
    "int": (7, "7"),
    "negative": (-40_000, "-40000"),
    "large": (2**40, str(2**40)),
    "float": (0.1, "0.1"),
    "text": ("größer 🌍", json.dumps("größer 🌍")),
    "bytes": (b"\x00\xff" * 100, json.dumps({"bytes": "00ff" * 100})),
    "null": (None, "null"),
    "true": (True, "true"),
    "list": ([1, [2.5, "x"], None], '[1, [2.5, "x"], null]'),
    "tuple": ((1, 2), '{"tuple": [1, 2]}'),
    "map": ({"a": 1, "b": [True]}, '{"a": 1, "b": [true]}'),
    "long": ("y" * 100_000, json.dumps("y" * 100_000)),
}


class CNode:
    """potluck peer, until it is left. The real nodes live on this process's event loop: nothing
    here may block it."""

    def __init__(self, *join, client=False):
        self.command = [PROGRAM, "peer", "--json"]
        self.command += ["--client-mode"] if client else ["--listen", "/ip4/127.0.0.1/tcp/0"]
        for address in join:
            self.command += ["--join", address]
        self.client, self.multiaddr, self.peer_id = client, None, None

    async def line(self):
        while True:  # what it has found before joining has a test of its own
            line = json.loads(await asyncio.wait_for(self.process.stdout.readline(), steps.PATIENCE))
            if line["event"] != "check":
                return line

    async def __aenter__(self):
        self.process = await asyncio.create_subprocess_exec(*self.command, stdout=subprocess.PIPE)
        if not self.client:
            self.multiaddr = (await self.line())["multiaddr"]
            self.peer_id = PeerID.from_base58(self.multiaddr.rsplit("/", 1)[1])
        self.entry = await self.line()
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.terminate()
        await asyncio.wait_for(self.process.wait(), steps.PATIENCE)


async def c_dht(*arguments):
    """potluck dht ... as a client; the last line, but for the error's, and the exit status."""
    if arguments[0] == "put" and "--expires" not in arguments:
        arguments += ("--expires", str(LIFE))
    process = await asyncio.create_subprocess_exec(PROGRAM, "dht", *arguments, "--json", stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), steps.PATIENCE)
    lines = [line for line in map(json.loads, out.decode().splitlines()) if line["event"] != "error"]
    return (lines[-1] if lines else {}), process.returncode


class PyNode:
    """A real node with p2pd of its own."""

    def __init__(self, *join, client=False, validator=None):
        self.join, self.client, self.validator = list(join), client, validator

    async def __aenter__(self):
        mode = dict(dht_mode="client") if self.client else {}
        self.p2p = await hivemind_compat.p2p(initial_peers=self.join or None, **mode)
        self.node = await hivemind_compat.dht_node(self.p2p, initial_peers=self.join or None, client_mode=self.client,
                                                  record_validator=self.validator)
        self.multiaddr = None if self.client else str((await within(self.p2p.get_visible_maddrs(), "its address"))[0])
        return self

    async def __aexit__(self, *_):
        await within(self.node.shutdown(), "leaving the DHT")
        await within(self.p2p.shutdown(), "shutting p2pd down")

    async def store(self, key, value, seconds=LIFE, **more):
        return await within(self.node.store(key, value, get_dht_time() + seconds, **more), "storing")

    async def get(self, key, latest=True):
        entry = await within(self.node.get(key, latest=latest), "getting")
        return entry.value if entry is not None else "ABSENT"


def unwrapped(value):
    """A dictionary as get returns it: {subkey: (value, expiration)}."""
    return {k: v.value for k, v in value.items()} if isinstance(value, dict) else value


def same(a, b):
    return type(a) is type(b) and a == b


async def values(name, entry, py, other):
    for kind, (value, text) in VALUES.items():
        await py.store(f"{name} py {kind}", value)
        line, _ = await c_dht("get", f"{name} py {kind}", "--join", entry)
        step(f"{name}: C finds what Python stored, {kind}", line.get("value", "?") == json.loads(text), line)
        line, rc = await c_dht("put", f"{name} c {kind}", text, "--join", entry)
        got = await other.get(f"{name} c {kind}")
        step(f"{name}: Python finds what C stored, {kind}", rc == 0 and same(got, value), (line, got))


async def versions(name, entry, py, other):
    """The record with the later expiration is the newer one, whichever peer writes it."""
    key = f"{name} versions"
    await py.store(key, 1, 400)
    line, rc = await c_dht("put", key, "2", "--expires", "300", "--join", entry)
    step(f"{name}: C's older record is refused", rc == 1 and line["event"] == "refused", line)
    line, rc = await c_dht("put", key, "3", "--expires", "600", "--join", entry)
    step(f"{name}: C's newer record is taken", rc == 0 and await other.get(key) == 3, line)
    step(f"{name}: Python's older record is refused", not await py.store(key, 4, 500))
    await py.store(key, 5, 700)
    line, _ = await c_dht("get", key, "--latest", "--join", entry)
    step(f"{name}: Python's newer record is found", line.get("value") == 5, line)


async def short(name, entry, py, other):
    """Of lives of one second, and of longer ones where a busy machine takes longer to search."""
    for life in 1, 4, 16, 64:
        key, key_c = f"{name} short {life}", f"{name} short c {life}"
        await py.store(key, 1, life)
        begun = time.time()
        ours, rc = await c_dht("put", key_c, "1", "--expires", str(life), "--join", entry)
        over = time.time() + life
        got = await other.get(key_c)
        if got == 1 or time.time() < begun + life:
            break
    step(f"{name}: short records are there", rc == 0 and got == 1, (ours, got, f"a life of {life} s"))
    await asyncio.sleep(max(0.0, over - time.time()) + 0.2)
    line, rc = await c_dht("get", key, "--join", entry)
    gone = await other.get(key_c)
    step(f"{name}: and are forgotten in time", rc == 1 and line["event"] == "absent" and gone == "ABSENT", (line, gone))


async def dictionaries(name, entry, py, other):
    key = f"{name} dictionary"
    await py.store(key, 1, subkey=b"py")
    await other.store(key, 2, subkey=b"other")
    for word, value in (("from c", "3"), ("twice", "4")):
        await c_dht("put", key, value, "--subkey", json.dumps({"bytes": word.encode().hex()}), "--join", entry)
    await c_dht("put", key, "5", "--subkey", json.dumps({"bytes": b"twice".hex()}), "--expires", str(LIFE + 100), "--join", entry)
    want = {b"py": 1, b"other": 2, b"from c": 3, b"twice": 5}
    for who in py, other:
        got = unwrapped(await who.get(key))
        step(f"{name}: a dictionary of both sides, read by Python", got == want, got)
    line, _ = await c_dht("get", key, "--latest", "--join", entry)
    got = {bytes.fromhex(e["subkey"]["bytes"]): e["value"] for e in line.get("dictionary", [])}
    step(f"{name}: a dictionary of both sides, read by C", got == want, line)


async def signatures(name, entry, signer, plain):
    """Records that only their owner can write."""
    key, owner = f"{name} signed", signer.validator.local_public_key
    step(f"{name}: Python stores a signed record", await signer.store(key, {"n": 1}, subkey=owner))
    line, _ = await c_dht("get", key, "--latest", "--join", entry)
    records = line.get("dictionary", [])
    step(f"{name}: C reads it without its signature", len(records) == 1 and records[0]["value"] == {"n": 1}, line)
    await c_dht("put", key, '{"n": 2}', "--owner", "--join", entry)
    got = unwrapped(await signer.get(key))
    step(f"{name}: Python accepts C's signature", len(got) == 2 and {"n": 2} in got.values(), got)
    # A forger: no validator, so nothing is signed nor checked on its side.
    ok = await plain.store(key, {"n": 666}, 2 * LIFE, subkey=owner)
    line, _ = await c_dht("get", key, "--latest", "--join", entry)
    good = [r["value"] for r in line.get("dictionary", [])]
    step(f"{name}: C neither keeps nor believes a forged record", sorted(v["n"] for v in good) == [1, 2], (ok, line))


async def forged_at_c(name, c, py, owner):
    """rpc_store by hand, straight to a C node."""
    remote = py.node.protocol.get_stub(c.peer_id)
    key, later = DHTID.generate(f"{name} by hand").to_bytes(), get_dht_time() + LIFE
    subkey, value = MSGPackSerializer.dumps(owner), MSGPackSerializer.dumps(1)
    bad = value + b"[signature:" + RSAPrivateKey().sign(b"something else") + b"]"
    request = dht_pb2.StoreRequest(keys=[key] * 3, subkeys=[subkey, subkey, MSGPackSerializer.dumps(b"x")], values=[value, bad, value],
                                   expiration_time=[later] * 3, in_cache=[False] * 3, peer=dht_pb2.NodeInfo())
    reply = await remote.rpc_store(request, timeout=steps.PATIENCE)
    step(f"{name}: C refuses unsigned and falsely signed records, takes plain ones", list(reply.store_ok) == [False, False, True],
         list(reply.store_ok))
    try:
        await remote.rpc_store(dht_pb2.StoreRequest(keys=[key], values=[value, value]), timeout=steps.PATIENCE)
        step(f"{name}: C answers uneven lists with an error", False, "it answered")
    except Exception as e:
        step(f"{name}: C answers uneven lists with an error", "Error" in str(e), e)


async def ping(name, c, py):
    remote = py.node.protocol.get_stub(c.peer_id)
    request = dht_pb2.PingRequest(peer=dht_pb2.NodeInfo(node_id=py.node.node_id.to_bytes()), validate=True)
    before = time.time()
    reply = await remote.rpc_ping(request, timeout=steps.PATIENCE)
    step(f"{name}: C calls back before it answers a ping", reply.available and before - 1 < reply.dht_time < time.time() + 1, reply)
    line, rc = await c_dht("ping", "--join", py.multiaddr)  # whose clock it knows no better than an answer's way takes
    step(f"{name}: C pings Python", rc == 0 and abs(line.get("clock_error", 9)) < 1 + line.get("seconds", 0), line)


def knows(py, peer_id):
    return py.node.protocol.routing_table.get(peer_id=peer_id) is not None


async def mixed(name, hub):
    """Everything, in a DHT whose only entry is `hub`."""
    signer = RSASignatureValidator()
    entry = hub.multiaddr
    async with PyNode(entry) as plain, PyNode(entry, validator=signer) as signing, PyNode(entry, client=True) as client:
        async with CNode(entry) as c:
            step(f"{name}: a C node enters", c.entry["event"] == "joined" and c.entry["nodes"] == 3, c.entry)
            await plain.get("anything")  # a search meets everybody
            step(f"{name}: Python's table has the C node", knows(plain, c.peer_id))
            await values(name, entry, plain, signing)
            await versions(name, c.multiaddr, signing, plain)
            await short(name, c.multiaddr, signing, plain)
            await dictionaries(name, entry, plain, signing)
            await signatures(name, entry, signing, plain)
            await forged_at_c(name, c, plain, signer.local_public_key)
            await ping(name, c, plain)
            # Clients: not in anybody's table, but they read and write.
            ok = await client.store(f"{name} client", 1)
            line, _ = await c_dht("get", f"{name} client", "--join", entry)
            step(f"{name}: a Python client writes, C reads", ok and line.get("value") == 1, line)
            _, rc = await c_dht("put", f"{name} for client", "2", "--join", entry)
            step(f"{name}: C writes, a Python client reads", rc == 0 and await client.get(f"{name} for client") == 2)
            async with CNode(entry, client=True) as lurker:
                step(f"{name}: a C client enters", lurker.entry["event"] == "joined", lurker.entry)
            # No record is lost when a peer dies.
            await plain.store(f"{name} kept", 3)
            c.process.kill()
            step(f"{name}: records survive a killed C node, for Python", await signing.get(f"{name} kept") == 3)
            line, _ = await c_dht("get", f"{name} kept", "--latest", "--join", entry)
            step(f"{name}: records survive a killed C node, for C", line.get("value") == 3, line)


async def until(what):
    """Its first value that is not 0, or the last one when patience has run out."""
    end = time.time() + steps.PATIENCE
    value = await what()
    while not value and time.time() < end:
        await asyncio.sleep(0.2)
        value = await what()
    return value


async def newcomers():
    """A node that joins later is handed the records that it is nearest to, in both directions."""
    async with PyNode() as old:
        for i in range(30):
            await old.store(f"hand {i}", i)
        async with CNode(old.multiaddr) as c:
            remote = old.node.protocol.get_stub(c.peer_id)
            keys = [DHTID.generate(f"hand {i}").to_bytes() for i in range(30)]

            async def at_c():
                reply = await remote.rpc_find(dht_pb2.FindRequest(keys=keys, peer=dht_pb2.NodeInfo()), timeout=steps.PATIENCE)
                return sum(r.type != dht_pb2.NOT_FOUND for r in reply.results)

            here = await until(at_c)
            step("a real node hands its records to a new C node", here > 0, here)
            for i in range(30):
                await c_dht("put", f"hand c {i}", str(i), "--join", c.multiaddr)
            async with PyNode(c.multiaddr) as fresh:
                async def at_fresh():
                    return sum(fresh.node.protocol.storage.get(DHTID.generate(f"hand c {i}")) is not None for i in range(30))

                here = await until(at_fresh)
                step("a C node hands its records to a new real node", here > 0, here)


async def main():
    for name, kind in (("C is the entry", CNode), ("Python is the entry", PyNode)):
        for last in steps.attempts():
            with steps.scenario(name, lambda: None, last):
                async with kind() as hub:
                    await mixed(name, hub)
    for last in steps.attempts():
        with steps.scenario("newcomers", lambda: None, last):
            await newcomers()
    return steps.closing()


sys.exit(asyncio.run(main()))
