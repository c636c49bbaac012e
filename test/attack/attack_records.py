"""Records with too long a life, thousands of records by one key, and floods of unsigned values.
Honest peers' records stay, and newcomers find no record that should have been dropped. And metrics and
reports that no honest peer writes: the page that shows them stays readable."""
import urllib.error
import urllib.request

from adversary import *

RUN = "r"
progress_key, metrics_key = dht_id(f"{RUN}_progress"), dht_id(f"{RUN}_metrics")
group_key, plain_key = dht_id("group.0b"), dht_id("plain")
honest, attacker = RecordKey(), RecordKey()
metrics = dict(step=1, samples_per_second=1.0, samples_accumulated=1, loss=1.0, mini_steps=1)
victim = peer("--run", RUN)
friend = Peer(source="127.0.0.2")
c = friend.dial(victim.address)
stranger = Peer(source="127.0.0.3")
s = stranger.dial(victim.address)


def entries(connection, key):
    found = find(connection, [key], timeout=30)[0]
    return unpack(found["value"]) if found["type"] == 2 else {}


# --- how long they live --------------------------------------------------------------------------

now = time.time()
year = now + 3e7
own = pack(stranger.id)
too_long = {
    "progress": attacker.record(progress_key, progress(stranger.id, 7), year),
    "progress of two minutes": attacker.record(progress_key, progress(stranger.id, 7), now + 120),
    "metrics": attacker.record(metrics_key, metrics, year),
    "another signed record": attacker.record(dht_id("signed"), 1, year),
    "a plain value": (plain_key, PLAIN, pack(1), year),
    "a plain item": (plain_key, pack("x"), pack(1), year),
    "a group's declaration": (group_key, own, pack(True), year),
    "a state's announcement": (dht_id("p.all_averagers"), own, pack(1e300), year),
    "one without end": (plain_key, PLAIN, pack(1), float("inf")),
    "one of no time at all": (plain_key, PLAIN, pack(1), float("nan")),
}
for what, r in too_long.items():
    check(f"{what} that lives too long is refused", store(s, [r, (*r, True)]) == [False, False])
    if r[1] != PLAIN:
        whole = pack(Dictionary({unpack(r[1]): (r[2], r[3])}))
        check(f"{what} in a whole dictionary, too", store(s, [(r[0], WHOLE, whole, r[3])]) == [False])
needed = [honest.record(progress_key, progress(friend.id, 0), now + 60), honest.record(metrics_key, metrics, now + 600),
          (plain_key, PLAIN, pack("kept"), now + 600), (group_key, pack(friend.id), pack(True), now + 180),
          (dht_id("p.all_averagers"), pack(friend.id), pack(3.0), now + 30)]
check("what hivemind's peers store is taken", store(c, needed) == [True] * len(needed))

# A node that answers with them: who finds them does not believe them, nor hands them on.
poisoned = pack(Dictionary({attacker.tag: too_long["progress"][2:4]}))
node = os.urandom(20)
serve_dht(stranger, node, {progress_key: (2, poisoned, year), dht_id("only here"): (1, pack(1), year)})
dht_ping(s, node, validate=True)
out = subprocess.run([POTLUCK, "dht", "get", "only here", "--latest", "--json", "--join", victim.address], capture_output=True,
                     timeout=60, text=True, cwd=ROOT)
check("a value of a year is not found, though a node has it", '"absent"' in out.stdout, out.stdout + out.stderr)
second = peer("--run", RUN, join=victim)
for _ in until(10):
    if len(entries(Peer().dial(second.address), progress_key)):
        break
kept = set(entries(Peer().dial(second.address), progress_key))
check("a newcomer is handed the honest record alone", kept <= {honest.tag}, kept)
del stranger.unary["DHTProtocol.rpc_find"], stranger.unary["DHTProtocol.rpc_store"], stranger.unary["DHTProtocol.rpc_ping"]

# --- one key, many records -----------------------------------------------------------------------


def signed(key, subkey, value, expiration):
    value = pack(value)
    return key, pack(subkey), value + b"[signature:" + attacker.sign(pack((key, pack(subkey), value, float(expiration)))) + b"]", expiration


before, begun = victim.cpu(), time.time()
taken = 0
for part in range(4):
    records = [signed(progress_key, b"%d" % (part * 100 + i) + attacker.tag, progress(stranger.id, 0), begun + 60) for i in range(100)]
    taken += sum(store(s, records, timeout=60))
commented = signed(progress_key, b"[owner:" + attacker.text + b" me]", progress(stranger.id, 0), begun + 60)
check("one key has no second record under the run's key", taken == 0 and store(s, [commented]) == [False], taken)
check("but it has one", store(s, [attacker.record(progress_key, progress(stranger.id, 0), begun + 60)]) == [True])
check("one record for each key is there", set(entries(c, progress_key)) <= {honest.tag, attacker.tag})
others = [signed(dht_id("any"), b"%d" % i + attacker.tag, 1, begun + 60) for i in range(100)]
check("under any other key it has a few", sum(store(s, others, timeout=60)) <= 8)
check("that cost little", victim.cpu() - before < 3, victim.cpu() - before)

# --- metrics and reports that no honest peer writes ------------------------------------------------

long_name = "x" * (1 << 20)
wild = {
    "a name of 1 MB": {**metrics, long_name: 1}, "a loss of 1 MB": {**metrics, "loss": long_name}, "10,000 names": {**metrics, **{f"{i}": 1 for i in range(10000)}},
    "one name more": {**metrics, "<script>": 1}, "a name left out": {k: v for k, v in metrics.items() if k != "loss"}, "a text for a number": {**metrics, "step": "1"},
    "a step below 0": {**metrics, "step": -1}, "no number of samples a second": {**metrics, "samples_per_second": float("nan")},
    "a speed below 0": {**metrics, "samples_per_second": -1.0}, "a truth value for a loss": {**metrics, "loss": True}, "a list": [1] * 1000, "nothing": None,
}
writer = RecordKey()
for what, value in wild.items():
    check(f"metrics with {what} are refused", store(s, [writer.record(metrics_key, value, time.time() + 60)], timeout=30) == [False])
check("an owner's tag of 1 MB, too", store(s, [writer.record(metrics_key, metrics, time.time() + 60, subkey=writer.tag + b"x" * (1 << 20))], timeout=30) == [False])
report = dict(version=b"1", reach=2, rounds=1, failed=0, retried=0, sent=1, received=1, uncompressed=1, held_out=1.0)
report_key = dht_id(f"{RUN}_report")
check("a report of 10,000 names is refused", store(s, [writer.record(report_key, {**report, **{f"{i}": 1 for i in range(10000)}}, time.time() + 60)]) == [False])
check("metrics whose numbers have no end are stored, as hivemind does", store(s, [writer.record(metrics_key, {
    "step": 2 ** 63 - 1, "samples_per_second": float("inf"), "samples_accumulated": 2 ** 63 - 1, "loss": float("nan"), "mini_steps": 0}, time.time() + 600)]) == [True])
# Control characters, HTML, and marks that turn the direction of text: a page and a terminal get none of them.
odd = b"\x1b[2J\x1b]0;x\x07<script>alert(1)</script>\r\n\xe2\x80\xae\xe2\x80\x8f\x00\xff"
check("a report with a name of control characters and HTML is stored", store(s, [writer.record(report_key, {
    **report, "version": odd, "device": odd, "name": odd, "reach": 2 ** 63 - 1}, time.time() + 600)]) == [True])
dash = Process("dash", "--run", RUN, "--join", victim.address, "--port", "0", "--every", "0.5", "--json")
serving = dash.wait_for("serving", 30)
if check("a page of the run is served", serving, dash.log()[-300:]):
    url, seen = serving["url"].rstrip("/"), {}
    feeds = [f"/api/{name}.json" for name in ("state", "peers", "board", "history", "join")] + ["/data.js", "/metrics"]
    for _ in until(20, 0.5):
        for feed in feeds:
            try:
                with urllib.request.urlopen(url + feed, timeout=10) as f:
                    seen[feed] = f.read()
            except urllib.error.HTTPError:  # the page's first look at the run is not over
                seen[feed] = b""
        if b"alert(1)" in seen["/api/peers.json"] and all(seen.values()):
            break
    check("it serves all its feeds", all(seen.values()), [feed for feed in feeds if not seen[feed]])
    check("it shows the rest of that name", b"alert(1)" in seen["/api/peers.json"], seen["/api/peers.json"][:500])
    forbidden = [b"\\u001b", b"\x1b", b"\\u202e", b"\xe2\x80\xae", b"\xe2\x80\x8f", b"\\u0000", b"\\u0007", b"\x07", b"</script>"]
    shown = [(feed, x) for feed in feeds for x in forbidden if x in seen[feed] and (feed, x) != ("/api/peers.json", b"</script>")]
    check("without control characters and marks of direction", not shown, shown)
    check("and its JSON can be read", all(json.loads(seen[feed]) is not None for feed in feeds if feed.endswith(".json")))
    check("nor has its log", not any(x in dash.log() for x in ("\x1b]", "<script", "\u202e")))
dash.stop()

# --- floods --------------------------------------------------------------------------------------

now = time.time()
store(c, [honest.record(progress_key, progress(friend.id, 1), now + 60)])
before = victim.cpu()
sent = 0
flooders = [Peer(source="127.0.0.3").dial(victim.address) for _ in range(4)]
value = os.urandom(1 << 20)
for i in range(24):
    records = [(os.urandom(20), PLAIN, value, time.time() + (3600 if i % 2 else 20)) for _ in range(3)]
    store(flooders[0] if i < 12 else flooders[i % 4], records, timeout=60)
    sent += 3
small = [(os.urandom(20), PLAIN, b"\x01", time.time() + 3600) for _ in range(20000)]
for at in range(0, len(small), 4000):
    store(flooders[at // 4000 % 4], small[at:at + 4000], timeout=60)
items = {}
for i in range(40000):
    items[i] = (b"\x01" * 40, time.time() + 600)
for at in range(4):
    part = pack(Dictionary({k + at * 40000: v for k, v in items.items()}))
    for key in dht_id("flooded"), group_key, progress_key:
        store(flooders[at], [(key, WHOLE, part, time.time() + 600)], timeout=60)
    store(flooders[at], [(group_key, PLAIN, b"\x01", time.time() + 3000), (progress_key, PLAIN, b"\x01", time.time() + 3000)])
    fakes = pack(Dictionary({b"\x12\x20" + os.urandom(32): (b"\xc3", time.time() + 600) for _ in range(2000)}))
    store(flooders[at], [(group_key, WHOLE, fakes, time.time() + 600)], timeout=60)
check("the honest progress record is there", honest.tag in entries(c, progress_key))
check("so is the honest declaration", entries(c, group_key).get(friend.id, (b"",))[0] == pack(True), len(entries(c, group_key)))
check("nobody who is made up has declared", not any(isinstance(k, bytes) and len(k) == 34 for k in entries(c, group_key)))
check("and the honest metrics", honest.tag in entries(c, metrics_key))
found = find(c, [plain_key])[0]
check("an honest plain value is there", found["type"] == 1 and unpack(found["value"]) == "kept", found["type"])
victim.wait_for("resources", 30)
most = [e for e in victim.lines() if e["event"] == "resources"]
check("what records take is shown, with its limits", most and 0 < most[-1]["system"]["record_bytes"] <= most[-1]["limits"]["system"]["record_bytes"]
      and most[-1]["limits"]["peer"]["record_bytes"] == 12 << 20, most[-1:])
greedy = Peer(source="127.0.7.1").dial(second.address)
taken = sum(sum(store(greedy, [(os.urandom(20), PLAIN, value, time.time() + 600)], timeout=60)) for _ in range(20))
check("one peer stores no more than 12 MiB", taken == 11, taken)
check("another one is not refused for that", store(Peer(source="127.0.8.1").dial(second.address),
                                                   [(os.urandom(20), PLAIN, b"\x01", time.time() + 600)]) == [True])
check("72 MiB took no more than their share of memory", victim.peak() < 160, victim.peak())
check("the floods cost the node little", victim.cpu() - before < 10, victim.cpu() - before)
check("newcomers are answered", latency(victim) < 10)
check("the peer lives", victim.alive())
finish()
