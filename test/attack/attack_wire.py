"""First the adversary as an honest peer: its messages equal recorded values and are accepted by a
living peer. Then frames that no honest peer sends: each costs its own connection and no other."""
from adversary import *

# --- recorded values -----------------------------------------------------------------------------


def golden(name):
    with open(os.path.join(ROOT, "test", "golden", "protocol", name)) as f:
        return json.load(f)


signatures = golden("signatures.json")
owner = RecordKey(bytes.fromhex(signatures["private_key_pkcs1_der"]))
example = signatures["signed_bytes_example"]
key, subkey, value = (bytes.fromhex(example[k]) for k in ("key", "subkey", "value"))
message = pack((key, subkey, value, float.fromhex(example["expiration_time"])))
check("the message that a record's owner signs", message.hex() == example["message_to_sign"])
check("the owner's tag", owner.tag.decode() == signatures["owner_tag"])
good = next(r for r in signatures["records"] if r["valid"])
check("a recorded signature verifies", owner.verifies(message, bytes.fromhex(good["value"]).split(b"[signature:")[1][:-1]))
ids = [(s, dht_id(s)) for s in ("key", b"key", 1)]
check("ids of the DHT are SHA-1 of msgpack", all(i == hashlib.sha1(s if isinstance(s, bytes) else pack(s)).digest() for s, i in ids))
tricky = [None, True, -1, -33, 128, 70000, 1 << 40, 1.5, "text" * 10, b"bytes", {"a": [1, (2, b"3")]}, list(range(20))]
check("msgpack there and back", unpack(pack(tricky)) == tricky)
both = Dictionary({b"x": (b"1", 2.0)})
check("so are dictionaries", unpack(pack(both)) == both and unpack(pack(both)).latest == 2.0)

# --- an honest visit -----------------------------------------------------------------------------

victim = peer()
visitor = Peer(source="127.0.0.2")
c = visitor.dial(victim.address)
check("ping", c.ping() < 10)
about = c.identify()
check("identify names its protocols", {"/ipfs/ping/1.0.0", "DHTProtocol.rpc_find"} <= set(about["protocols"]), about)
node = os.urandom(20)
serve_dht(visitor, node)
answer = dht_ping(c, node, validate=True)
check("its clock is ours", abs(answer["dht_time"] - time.time()) < 10, answer)
check("it calls us back on the same connection", answer["available"] == 1, answer)
now = time.time()
answers = store(c, [(dht_id("k"), PLAIN, pack(5), now + 60), (dht_id("d"), pack("s"), pack([1]), now + 60),
                    owner.record(dht_id("o"), {"a": 1}, now + 60)])
check("stores of each kind", answers == [True] * 3, answers)
found = find(c, [dht_id("k"), dht_id("d"), dht_id("nothing")])
check("a value is found", found[0]["type"] == 1 and unpack(found[0]["value"]) == 5, found[0])
check("a dictionary is found", found[1]["type"] == 2 and unpack(found[1]["value"])["s"][0] == pack([1]), found[1])
check("nothing is found", found[2]["type"] == 0, found[2])
try:
    c.call("NoSuch.rpc", b"")
    check("an unknown call is refused", False)
except CallError:
    check("an unknown call is refused", True)

# --- frames that no honest peer sends ------------------------------------------------------------


def costs_the_connection(what, attack):
    bad = Peer(source="127.0.0.3").dial(victim.address)
    try:
        attack(bad)
        for _ in until(5):
            if not bad.alive():
                break
    except Closed:
        pass
    check(f"{what}: the connection ends", not bad.alive() or bad.lost)
    bad.close()


costs_the_connection("another version", lambda b: b.raw(struct.pack(">BBHII", 1, WINDOW, SYN, 1, 0)))
costs_the_connection("an invalid type", lambda b: b.frame(9, 0, 1, 0))
costs_the_connection("a stream of the other side's number", lambda b: b.frame(WINDOW, SYN, 2, 0))
costs_the_connection("bytes beyond the window", lambda b: b.frame(DATA, SYN, 1, body=bytes(WINDOW_BYTES + 1)))
costs_the_connection("a stream that is there already", lambda b: (b.open("/ipfs/ping/1.0.0"), b.frame(WINDOW, SYN, 1, 0)))
check("the visitor's connection is still there", c.alive() and c.ping() < 10)
check("so is the peer", victim.alive())
check("newcomers are answered", latency(victim) < 10)
finish()
