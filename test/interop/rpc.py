"""Calls between C peers and real hivemind peers (p2pd), both ways, over each encryption.

usage: rpc.py POTLUCK      (the program; interop/peer is in its folder)
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

os.environ.setdefault("HIVEMIND_LOGLEVEL", "CRITICAL")  # handlers fail on purpose here
warnings.filterwarnings("ignore")
steps.needs("hivemind")
from hivemind.p2p import PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PHandlerError
from hivemind.proto import runtime_pb2, test_pb2
from hivemind_compat import p2p as p2p_daemon, within

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "interop", "peer")
BLOB = runtime_pb2.Tensor(buffer=bytes(i * 2654435761 >> 13 & 255 for i in range(3 << 20)))


class CPeer:
    """A C peer that serves, until it is left."""

    def __init__(self, *options):
        command = [PROGRAM, "--listen", "/ip4/127.0.0.1/tcp/0", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        first = json.loads(steps.line(self.process))
        self.multiaddr, self.id = first["multiaddr"], PeerID.from_base58(first["peer_id"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(steps.PATIENCE)


async def numbers(n):
    for i in range(n):
        yield test_pb2.TestRequest(number=i + 1)


async def messages(n):
    for _ in range(n):
        yield BLOB


async def call_all(p2p, to, prefix):
    """Everything that the C peer's own calls try, from Python."""

    async def attempt(name, coroutine):
        try:
            step(f"{prefix}: {name}", *await asyncio.wait_for(coroutine, steps.PATIENCE))
        except Exception as e:
            step(f"{prefix}: {name}", False, f"{type(e).__name__}: {e}")

    async def square():
        reply = await p2p.call_protobuf_handler(to, "Test.square", test_pb2.TestRequest(number=7), test_pb2.TestResponse)
        return reply.number == 49, reply.number

    async def error():
        try:
            await p2p.call_protobuf_handler(to, "Test.square", test_pb2.TestRequest(number=13), test_pb2.TestResponse)
        except P2PHandlerError as e:
            return "thirteen" in str(e), e
        return False, "no error came"

    async def unknown():
        try:
            await p2p.call_protobuf_handler(to, "Test.unknown", test_pb2.TestRequest(number=1), test_pb2.TestResponse)
        except Exception as e:
            return True, type(e).__name__
        return False, "no error came"

    async def echo():
        reply = await p2p.call_protobuf_handler(to, "Test.echo", BLOB, runtime_pb2.Tensor)
        return reply == BLOB, ""

    async def many():
        async def one(i):
            request = test_pb2.TestRequest(number=i)
            return (await p2p.call_protobuf_handler(to, "Test.square", request, test_pb2.TestResponse)).number == i * i

        got = await asyncio.gather(*(one(i) for i in range(100, 300)))
        return all(got), f"{sum(got)} of {len(got)}"

    async def count():
        stream = await p2p.iterate_protobuf_handler(to, "Test.count", test_pb2.TestRequest(number=100), test_pb2.TestResponse)
        got = [m.number async for m in stream]
        return got == list(range(100)), ""

    async def stream_error():
        try:
            stream = await p2p.iterate_protobuf_handler(to, "Test.count", test_pb2.TestRequest(number=13), test_pb2.TestResponse)
            [m async for m in stream]
        except P2PHandlerError as e:
            return "thirteen" in str(e), e
        return False, "no error came"

    async def total():
        reply = await p2p.call_protobuf_handler(to, "Test.total", numbers(100), test_pb2.TestResponse)
        return reply.number == 5050, reply.number

    async def mirror():
        stream = await p2p.iterate_protobuf_handler(to, "Test.mirror", messages(8), runtime_pb2.Tensor)
        got = [m == BLOB async for m in stream]
        return got == [True] * 8, ""

    for test in square, error, unknown, echo, many, count, stream_error, total, mirror:
        await attempt(test.__name__.replace("_", " "), test())


async def until_found(p2p, to):
    """Identify runs by itself after connecting; before it is done nobody can say where a peer
    is."""
    for _ in range(300):
        try:
            request = test_pb2.TestRequest(number=1)
            await within(p2p.call_protobuf_handler(to, "Test.square", request, test_pb2.TestResponse), "a call", 20 * steps.SLOW)
            return
        except Exception:
            await asyncio.sleep(0.2)


async def until_findable(through, peer_id):
    """The same for who is asked where another is: by a C peer that comes for that alone."""
    end = time.time() + steps.PATIENCE
    while time.time() < end:
        process = await asyncio.create_subprocess_exec(PROGRAM, "--join", through, "--call", str(peer_id), stdout=subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(), steps.PATIENCE)
        events = [json.loads(line) for line in out.decode().splitlines()]
        if any(line["event"] == "step" and line["name"] == "find" and line["ok"] for line in events):
            return
        await asyncio.sleep(0.2)


async def serve(p2p):
    """The same RPCs that the C peer serves."""

    async def square(request, _):
        if request.number == 13:
            raise ValueError("thirteen")
        return test_pb2.TestResponse(number=request.number**2)

    async def echo(request, _):
        return request

    async def count(request, _):
        for i in range(request.number):
            yield test_pb2.TestResponse(number=i)
        if request.number == 13:
            raise ValueError("thirteen")

    async def total(requests, _):
        return test_pb2.TestResponse(number=sum([r.number async for r in requests]))

    async def mirror(requests, _):
        async for r in requests:
            yield r

    await p2p.add_protobuf_handler("Test.square", square, test_pb2.TestRequest)
    await p2p.add_protobuf_handler("Test.echo", echo, runtime_pb2.Tensor)
    await p2p.add_protobuf_handler("Test.count", count, test_pb2.TestRequest, stream_output=True)
    await p2p.add_protobuf_handler("Test.total", total, test_pb2.TestRequest, stream_input=True)
    await p2p.add_protobuf_handler("Test.mirror", mirror, runtime_pb2.Tensor, stream_input=True, stream_output=True)


async def c_calls(prefix, *options):
    """A C peer calls, its steps become ours."""
    process = await asyncio.create_subprocess_exec(PROGRAM, *options, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), steps.PATIENCE)
    for line in out.decode().splitlines():
        line = json.loads(line)
        if line["event"] == "step":
            step(f"{prefix}: {line['name']}", line["ok"], line.get("note", ""))
    step(f"{prefix}: exit status", process.returncode == 0, process.returncode)


async def both_ways(name, c_options, tls):
    """Each side calls the other on the one connection that exists, whichever side dialled."""
    with CPeer(*c_options) as c:
        p2p = await p2p_daemon(initial_peers=[c.multiaddr], tls=tls)
        await serve(p2p)
        await call_all(p2p, c.id, f"{name}, p2pd dials and calls C")
        await within(p2p.shutdown(), 'shutting p2pd down')
    p2p = await p2p_daemon(tls=tls)
    await serve(p2p)
    where = str((await p2p.get_visible_maddrs())[0])
    await c_calls(f"{name}, C dials and calls p2pd", *c_options, "--call", where)
    await within(p2p.shutdown(), 'shutting p2pd down')


async def reverse():
    """p2pd calls a C peer that only dials, on the connection that this one made."""
    p2p = await p2p_daemon()
    where = str((await p2p.get_visible_maddrs())[0])
    command = [PROGRAM, "--client-mode", "--join", where]
    c = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    peer_id = PeerID.from_base58(json.loads(steps.line(c))["peer_id"])
    step("C has joined", json.loads(steps.line(c))["ok"])
    await within(p2p.wait_for_at_least_n_peers(1), "C's connection")
    await call_all(p2p, peer_id, "p2pd calls a C peer that only dials")
    c.stdin.close()
    c.wait(steps.PATIENCE)
    await within(p2p.shutdown(), 'shutting p2pd down')


async def find():
    """Peers that only know a C peer find one another through it, in every mix."""
    with CPeer() as hub, CPeer("--join", hub.multiaddr) as other:
        a = await p2p_daemon(initial_peers=[hub.multiaddr])
        b = await p2p_daemon(initial_peers=[hub.multiaddr])
        await serve(a)
        await until_found(b, a.peer_id)
        await call_all(b, a.peer_id, "p2pd finds p2pd through C")
        await until_found(b, other.id)
        await call_all(b, other.id, "p2pd finds C through C")
        await c_calls("C finds p2pd through C", "--join", hub.multiaddr, "--call", str(a.peer_id))
        await within(a.shutdown(), 'shutting p2pd down')
        await within(b.shutdown(), 'shutting p2pd down')
    a, b = await p2p_daemon(), None
    where = str((await a.get_visible_maddrs())[0])
    b = await p2p_daemon(initial_peers=[where])
    await serve(b)
    await until_findable(where, b.peer_id)
    await c_calls("C finds p2pd through p2pd", "--join", where, "--call", str(b.peer_id))
    with CPeer("--join", where) as c:
        await until_found(b, c.id)
        await call_all(b, c.id, "p2pd finds C through p2pd")
    await within(a.shutdown(), 'shutting p2pd down')
    await within(b.shutdown(), 'shutting p2pd down')


async def small_call(p2p, to, name):
    """What a circuit surely carries."""
    await until_found(p2p, to)
    try:
        request = test_pb2.TestRequest(number=7)
        reply = await asyncio.wait_for(p2p.call_protobuf_handler(to, "Test.square", request, test_pb2.TestResponse), steps.PATIENCE)
        step(name, reply.number == 49, reply.number)
    except Exception as e:
        step(name, False, f"{type(e).__name__}: {e}")


async def relayed():
    """A C peer that listens nowhere is called through a relay, which is p2pd or C."""
    hub = await p2p_daemon()
    where = str((await hub.get_visible_maddrs())[0])
    command = [PROGRAM, "--client-mode", "--use-relay", where]
    hidden = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    hidden_id = PeerID.from_base58(json.loads(steps.line(hidden))["peer_id"])
    steps.line(hidden)  # connected to the relay
    step("C holds a reservation at p2pd", json.loads(steps.line(hidden)).get("event") == "relayed")
    other = await p2p_daemon(initial_peers=[where])
    await small_call(other, hidden_id, "p2pd calls C through p2pd's relay")
    hidden.stdin.close()
    hidden.wait(steps.PATIENCE)
    await within(other.shutdown(), 'shutting p2pd down')
    await within(hub.shutdown(), 'shutting p2pd down')
    with CPeer("--relay") as hub:
        command = [PROGRAM, "--client-mode", "--use-relay", hub.multiaddr]
        hidden = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hidden_id = PeerID.from_base58(json.loads(steps.line(hidden))["peer_id"])
        steps.line(hidden)
        step("C holds a reservation at C", json.loads(steps.line(hidden)).get("event") == "relayed")
        other = await p2p_daemon(initial_peers=[hub.multiaddr])
        await small_call(other, hidden_id, "p2pd calls C through C's relay")
        hidden.stdin.close()
        hidden.wait(steps.PATIENCE)
        await within(other.shutdown(), 'shutting p2pd down')


SCENARIOS = {
    "noise and tls": lambda: both_ways("noise and tls", [], True),
    "noise only": lambda: both_ways("noise only", ["--security", "noise"], True),
    "tls only": lambda: both_ways("tls only", ["--security", "tls"], True),
    "p2pd without tls": lambda: both_ways("p2pd without tls", [], False),
    "p2pd calls who only dials": reverse,
    "peers that find one another": find,
    "a relay": relayed,
}


async def main():
    for name, scenario in SCENARIOS.items():
        for last in steps.attempts():
            with steps.scenario(name, lambda: None, last):
                await scenario()
    return steps.closing()


sys.exit(asyncio.run(main()))
