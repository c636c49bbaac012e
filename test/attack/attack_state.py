"""Byzantine donors: endless states, states of other shapes and values, and whole states that are
not the swarm's. And newcomers that use more of a donor than their share."""
from adversary import *

STATE = "_state_averager::TrainingStateAverager.rpc_download_state"


def state_of(victim, run="r", source="127.0.0.8", patience=60):
    """Its whole state, as messages. A reader before us may keep its place for half a minute."""
    call = Peer(source=source).dial(victim.address).stream_call(run + STATE, encode("DownloadRequest"), timeout=30)
    messages = []
    while (m := call.receive(patience)) is not None:
        messages.append(decode("DownloadData", m))
    return messages


def parameters(victim):
    """The float32 tensors of two axes and more: the moments are among them, too."""
    values, whole = [], b"".join(m["tensor_part"]["buffer"] for m in state_of(victim))
    values = struct.unpack(f"<{len(whole) // 4}f", whole[:len(whole) // 4 * 4])
    return values[:20000]


def apart(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b)) / max(sum(x * x for x in a), 1e-30)


class Donor:
    """Says to have a state, of that priority, and gives messages(): True while it is read."""

    def __init__(self, victims, priority, messages, source="127.0.0.7", run="r"):
        self.peer, self.over, self.bytes, self.asked = Peer(source=source), False, 0, 0
        self.peer.listen(source)
        serve_dht(self.peer, os.urandom(20))
        self.peer.streaming[run + STATE] = self.give
        self.messages, self.priority, self.key = messages, priority, dht_id(run + "_state_averager.all_averagers")
        self.connections = [self.peer.dial(v.address) for v in victims]
        threading.Thread(target=self.repeat, daemon=True).start()

    def repeat(self):
        while not self.over:
            for c in self.connections:
                try:
                    store(c, [(self.key, pack(self.peer.id), pack(self.priority), time.time() + 30)])
                except (Closed, CallError, OSError):
                    pass
            time.sleep(0.5)

    def give(self, call, connection):
        self.asked += 1
        call.receive()
        for m in self.messages():
            call.send(m)
            self.bytes += len(m)
        call.end()
        call.finish()

    def end(self):
        self.over = True
        for c in self.connections:
            c.close()


def message(m, metadata=None, **tensor):
    return encode("DownloadData", metadata=metadata or m["metadata"] or None, tensor_part=encode("Tensor", **{**m["tensor_part"], **tensor}))


first = trainer("--slow", "0.1")
first.wait_for("epoch", 60)
second = trainer("--slow", "0.1", "--data-seed", "2", join=first)
loaded = second.wait_for("loaded", 30)
check("a newcomer takes over the only donor's state, and is warned", loaded and "no other confirmed" in (loaded["text"] or ""), loaded)
first.wait_for("epoch", 30, round_peers=2)
model = state_of(first)
size = sum(len(m["tensor_part"]["buffer"]) for m in model)


def endless():
    for m in model:
        yield message(m)
    while True:
        yield message(model[-1])


def large_metadata():
    yield message(model[0], metadata=bytes(3 << 20))
    for m in model[1:]:
        yield message(m)


def other_shape():
    m = model[0]
    yield message(m, size=list(reversed(m["tensor_part"]["size"])) + [1])
    yield from (message(x) for x in model[1:])


def not_finite():
    n = len(model[0]["tensor_part"]["buffer"])
    yield message(model[0], buffer=struct.pack("<f", float("nan")) * (n // 4))
    yield from (message(x) for x in model[1:])


def junk():
    """Finite, of the right shapes: only the others can tell. Parameters come first, so 40 kB of
    them are enough."""
    at = 0
    for m in model:
        b = m["tensor_part"]["buffer"]
        yield message(m, buffer=struct.pack("<f", 0.7) * (len(b) // 4)) if at < 40000 and len(b) % 4 == 0 and len(b) > 1000 else message(m)
        at += len(b)


newcomers = 0
for what, messages, priority in (("an endless state", endless, 1e300), ("an endless state", endless, 10 ** 9),
                                 ("3 MB of metadata", large_metadata, 1e9), ("another shape", other_shape, 1e9),
                                 ("no numbers", not_finite, 1e9), ("another model's values", junk, 1e9)):
    attacker = Donor([first, second], priority, messages)
    time.sleep(0.7)
    late = trainer("--slow", "0.1", "--data-seed", str(10 + newcomers), join=first)
    newcomers += 1
    begin = time.monotonic()
    loaded = late.wait_for("loaded", 30)
    took = time.monotonic() - begin
    check(f"{what}, priority {priority:g}: the honest state comes", loaded and took < 25, (took, late.log()[-300:]))
    if messages is junk:
        d = apart(parameters(first), parameters(late))
        check("and it is that of the others", d < 0.2, d)
    late.stop()
    check(f"{what}: {size} bytes are a state, it could give few times as many", attacker.bytes < 5 * size + (8 << 20), attacker.bytes)
    if priority > 1e9:
        check(f"who says priority {priority:g} is not asked", not attacker.asked, attacker.asked)
    attacker.end()

# Among honest donors the draw may pass over a false one. Here it is the only one, so it is asked.
boot = peer()
attacker = Donor([boot], 10 ** 9, endless, run="alone")
time.sleep(0.7)
late = trainer("--slow", "0.1", run="alone", join=boot)
check("with no other donor it is asked, and training begins without its state",
      late.wait_for("epoch", 30, epoch=1) and attacker.asked and not late.wait_for("loaded", 0), (attacker.asked, late.log()[-300:]))
check("it could give few times as much as a state", attacker.bytes < 5 * size + (8 << 20), attacker.bytes)
attacker.end()
late.stop()
boot.stop()

# --- newcomers -----------------------------------------------------------------------------------

greedy = Peer(source="127.0.0.9").dial(first.address)
calls = [greedy.stream_call("r" + STATE, encode("DownloadRequest"), timeout=10) for _ in range(40)]
ended = 0
for call in calls:
    try:
        ended += call.receive(1) is None
    except (Closed, CallError):
        ended += 1
    except socket.timeout:
        pass
check("one peer has two downloads at a time", ended >= 30, ended)
check("others get the state meanwhile", len(state_of(first)) == len(model))

# Two readers that take nothing have both of the donor's usual places; more than a window is left to be
# sent. Another subnet's newcomer has a place of its own.
slow = [Peer(source=f"127.0.0.{20 + i}").dial(first.address).stream_call("r" + STATE, encode("DownloadRequest"), timeout=10) for i in range(2)]
time.sleep(0.5)
begin = time.monotonic()
got = state_of(first, source="127.0.0.30")
took = time.monotonic() - begin
check("a newcomer of another subnet does not wait for readers that take nothing",
      size > 400000 and len(got) == len(model) and took < 20, (size, len(got), took))
time.sleep(max(10, 42 - took))  # they are ended after half a minute, on a busy machine some seconds later
for call in slow:
    messages = []
    try:
        while (m := call.receive(10)) is not None:
            messages.append(m)
        why = "the end"
    except (Closed, CallError, socket.timeout) as e:
        why = str(e) or "silence"
    check("such a reader has no whole state", len(messages) < len(model) and why != "the end", (len(messages), why))
check("the trainers live", first.alive() and second.alive())
finish()
