"""A stranger in a run with access tokens: without a token, with another user's token, or with a
member's signed request, it joins no group, sends no part and gets no state. A member does."""
import http.client
import ssl

from adversary import *

allow, key = os.path.join(WORK, "list"), os.path.join(WORK, "key")
files = {}
for user in ("ann", "bob"):
    files[user] = os.path.join(WORK, user)
    with open(files[user], "w") as f:
        f.write(subprocess.run([POTLUCK, "authority", "--invite", user, "--allow", allow], capture_output=True, text=True).stdout)
authority = Process("authority", "--key", key, "--allow", allow, "--port", "0", "--json")
port = authority.wait_for("listening", 30)["port"]


def token(user, user_key):
    """As a member gets it."""
    context = ssl.create_default_context(cafile=key + ".crt")
    c = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)
    c.request("PUT", "/api/experiments/join", json.dumps({"experiment_join_input": {"peer_public_key": user_key.text.decode()}}),
              {"Authorization": "Bearer " + open(files[user]).read().strip()})
    access = json.load(c.getresponse())["hivemind_access"]
    return dict(username=access["username"], public_key=access["peer_public_key"].encode(),
                expiration_time=access["expiration_time"].replace("T", " "), signature=access["signature"].encode())


options = ("--authority", f"https://localhost:{port}", "--authority-ca", key + ".crt", "--token-file", files["ann"])
first = trainer(*options)
second = trainer("--data-seed", "2", *options, join=first)
first.wait_for("epoch", 60)

STATE = "r_state_averager::TrainingStateAverager."
CALLS = [STATE + "rpc_download_state", STATE + "rpc_join_group", STATE + "rpc_aggregate_part",
         "r_grad_averager::GradientAverager.rpc_join_group", "r_grad_averager::GradientAverager.rpc_aggregate_part"]


def answers(c, name, request=b""):
    """Messages, and how it ended."""
    call, got = c.stream_call(name, request, timeout=15), []
    try:
        while (m := call.receive(15)) is not None:
            got.append(m)
            if len(got) > 3:
                break
        return got, ""
    except (CallError, Closed) as e:
        return got, str(e)


def refused(what, c):
    for name in CALLS:
        got, why = answers(c, name)
        check(f"{what}: {name.split('::')[1]}", not got and "moderated" in why, (len(got), why))


nobody = Peer(source="127.0.0.3").dial(first.address)
refused("without a token", nobody)
try:
    got = nobody.call(STATE + "rpc_state_samples", b"12345678")
except CallError as e:
    got = e
check("samples of the state are refused", isinstance(got, CallError), got)

# A token that was copied from somewhere, with our own key's signature.
bob, thief = RecordKey(), RecordKey()
stolen = token("bob", bob)
c = Peer(source="127.0.0.4").dial(first.address)
try:
    got = c.call("DHTProtocol.rpc_ping", thief.authenticate(encode("PingRequest", peer={}), stolen))
except CallError as e:
    got = e
check("another's token is refused on the DHT", isinstance(got, CallError), got)
refused("with another's token", c)

# The trainer asks who we are; its own signed request is handed on to the other one, who shall take
# us for it.
asked = []
relay = Peer(source="127.0.0.5")
relay.listen("127.0.0.5")


def hand_on(request, connection):
    try:
        answer = to_second.call("DHTProtocol.rpc_ping", request)
        asked.append("answered")
        return answer
    except CallError as e:
        asked.append(str(e))
        raise


relay.unary["DHTProtocol.rpc_ping"] = hand_on
to_second = relay.dial(second.address)
answers(relay.dial(first.address), CALLS[0])
check("a caller is asked for its token, and a request handed on is refused", asked and "another peer" in asked[0], asked)
relay.unary.clear()
time.sleep(10.5)  # a refusal is remembered for ten seconds
refused("with a request that a member has signed", to_second)

# Wrong tokens cost the trainer a signature check each: this many tries, then it does not look at them
# any more. Members go on.
def flood(connection, tries):
    """What the tries were answered with."""
    replies = []
    for _ in range(tries):
        try:
            connection.call("DHTProtocol.rpc_ping", thief.authenticate(encode("PingRequest", peer={}), stolen))
            replies.append("answered")
        except CallError as e:
            replies.append(str(e))
    return replies


replies = flood(Peer(source="127.0.0.7").dial(first.address), 100)
check("a stranger's wrong tokens are checked 64 times and then refused unchecked",
      sum("too many" in x for x in replies) >= 30 and "too many" not in replies[0] and "answered" not in replies, (replies[0], replies[-1]))

# A member, as hivemind's: its DHT calls carry the token, the others nothing.
c = Peer(source="127.0.0.7").dial(first.address)
dht = c.call("DHTProtocol.rpc_ping", bob.authenticate(encode("PingRequest", peer={}), stolen))
got, why = answers(c, CALLS[0], encode("DownloadRequest"))
check("a member gets the state", dht and got and not why, (len(got), why))
check("the trainers go on together", first.alive() and second.alive() and
      any(e["event"] == "epoch" and e["round_peers"] == 2 for e in second.lines()))
late = trainer("--data-seed", "3", *options, join=first)
check("and a newcomer takes their state over", late.wait_for("loaded", 40))
finish()
