"""The cost of finding out whether a record is signed: many tags, and subkeys and dictionaries as
long as a message allows. Each is one unsigned request, handled by the loop that serves all other
peers."""
from adversary import *

RUN = "r"
MESSAGE = (4 << 20) - 2000  # bytes of the longest value in a request
owner = RecordKey()
now = time.time()
tag = pack(owner.tag)
victim = peer("--run", RUN)
stranger = Peer(source="127.0.0.2")
c = stranger.dial(victim.address)


def repeated(text, n):
    return (text * (n // len(text) + 1))[:n]


def numbered(n, value=b"\xc0"):
    """A dictionary of as many short items."""
    return pack(Dictionary({i + (1 << 32): (value, now + 60) for i in range(n)}))


def costs(what, records, refused=True):
    """One request: how much of a processor it takes, and how long a newcomer waits meanwhile."""
    before, begun, waits = victim.cpu(), time.monotonic(), []
    answers = []

    def send():
        try:
            answers.extend(store(c, records, timeout=60))
        except (CallError, Closed, OSError) as e:
            answers.append(repr(e))

    sender = threading.Thread(target=send)
    sender.start()
    while sender.is_alive():
        waits.append(latency(victim, "127.0.0.3", 30))
        sender.join(0.05)
    took, cpu = time.monotonic() - begun, victim.cpu() - before
    check(f"{what}: less than a second of a processor", cpu < 1, f"{cpu:.1f} s, answered after {took:.1f} s")
    check(f"{what}: newcomers are answered", max(waits, default=0) < 15, waits)
    if refused:
        check(f"{what}: read, and refused", answers and not any(answers), answers)


progress_key, other_key = dht_id(f"{RUN}_progress"), dht_id("other")
for size in (1 << 20, 2 << 20, MESSAGE):
    name = f"{size / 1048576:.0f} MiB of"
    costs(f"{name} [signature: under the run's key", [(progress_key, tag, repeated(b"[signature:", size), now + 60)])
    costs(f"{name} [signature: under another", [(other_key, tag, repeated(b"[signature:", size), now + 60)])
costs("4 MiB of broken tags", [(other_key, tag, repeated(b"[signature:x\n", MESSAGE), now + 60)])
costs("4 MiB of signatures", [(other_key, tag, repeated(b"[signature:x]", MESSAGE), now + 60)])
costs("4 MiB of owners in a subkey", [(other_key, pack(repeated(b"[owner:", MESSAGE)), b"\xc0", now + 60)])
costs("4 MiB of an owner, again and again", [(other_key, pack(repeated(owner.tag, MESSAGE)), b"\xc0", now + 60)])
costs("many values with tags", [(other_key, tag, repeated(b"[signature:", 64 << 10), now + 60 + i) for i in range(60)])
costs("3 MB of short items", [(other_key, WHOLE, numbered(3_000_000 // 22), now + 60)], refused=False)
costs("4 MiB of nothing in a list", [(other_key, WHOLE, pack(Ext(0x50, b"\xdd" + struct.pack(">I", MESSAGE - 100) + bytes(MESSAGE - 100))), now + 60)])
deep = pack(bytes(MESSAGE - 1000))
for _ in range(30):
    deep = pack(Ext(0x40, b"\x91" + deep))
costs("a subkey of tuples in each other", [(other_key, deep, b"\xc0", now + 60)])
check("memory stays small", victim.peak() < 200, victim.peak())
good = owner.record(progress_key, progress(stranger.id, 0), now + 55)
check("a signed record is still taken", store(c, [good]) == [True])
check("the peer lives", victim.alive())
finish()
