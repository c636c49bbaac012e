"""False progress with a matching state: states of epochs that no peer has trained, served to
trainers in step and to a newcomer; and groupmates that claim in parameter rounds to be ahead."""
from false_progress import *

STATE = "_state_averager::TrainingStateAverager"


def state_of(victim, run):
    """Its whole state, as messages."""
    call = Peer(source="127.0.0.8").dial(victim.address).stream_call(
        run + STATE + ".rpc_download_state", encode("DownloadRequest"), timeout=30)
    messages = []
    while (m := call.receive(30)) is not None:
        messages.append(decode("DownloadData", m))
    return messages


def serve_state(stranger, victim, epoch, run="r"):
    """A trainer's own state, with another epoch: finite, of the right shape."""
    served = []

    def give(call, connection):
        call.receive()
        served.append(connection.peer)
        for m in state_of(victim, run):
            if m["metadata"]:
                m["metadata"] = pack({**unpack(m["metadata"]), "epoch": epoch()})
            call.send(encode("DownloadData", metadata=m["metadata"] or None, tensor_part=encode("Tensor", **m["tensor_part"])))
        call.end()
        call.finish()

    stranger.streaming[run + STATE + ".rpc_download_state"] = give
    return served


def donor(peer, priority, run="r"):
    return dht_id(run + "_state_averager.all_averagers"), pack(peer.id), pack(priority), time.time() + 30


# --- with a state --------------------------------------------------------------------------------

trainers, quiet = averaging("--save-every", "20")
first = trainers[0]
gave = []


def one_ahead_with_a_state():
    s = Stranger(trainers, lambda me: [progress(me.id, lead(trainers, 1), 10), donor(me, 1e9)])
    gave.append(serve_state(s.peer, first, lambda: lead(trainers, 1)))
    return [s]


goes_on("one ahead, and it gives a state", trainers, quiet, one_ahead_with_a_state)

attacker = Stranger(trainers, lambda me: [progress(me.id, HUGE, 10), donor(me, 1e9)])
gave.append(serve_state(attacker.peer, first, lambda: HUGE))
byzantine = [attacker] + [Stranger(trainers, lambda me, e=lead(trainers, 30): [progress(me.id, e, 10)], f"127.0.1.{k}") for k in range(1, 5)]
late = trainer(*SWARM, "--data-seed", "4", join=first)
loaded = late.wait_for("loaded", 30)
check("a newcomer takes over the trainers' epoch", loaded and loaded["epoch"] <= lead(trainers, 2),
      [e for e in late.lines() if e["event"] != "batch"])
check("and is among them", wait_common([*trainers, late], 3, 30), [(e["epoch"], e["round_peers"]) for e in epochs(late)])
for s in byzantine:
    s.end()
late.stop()

# --- a straggler among false leads ---------------------------------------------------------------

strangers = [Stranger(trainers, lambda me: [progress(me.id, HUGE, 10)]),
             Stranger(trainers, lambda me: [progress(me.id, lead(trainers, 1), 10)], "127.0.3.1")]
slept = trainers[2]
slept.popen.send_signal(signal.SIGSTOP)
time.sleep(6)
seen = len(slept.lines())
slept.popen.send_signal(signal.SIGCONT)
# If it fell asleep within a round it has failed the others: they leave it out for 15 s, after a second failure for 30 more
# (reliability.h), whatever the strangers say.
check("a trainer that was stopped is among them again", wait_common(trainers, 3, 120), [newest(p) for p in trainers])
check("by a state of the others", any(e["event"] == "loaded" and e["epoch"] <= newest(first) for e in slept.lines()[seen:]),
      [(e["event"], e.get("epoch")) for e in slept.lines()[seen:]][:20])
for s in strangers:
    s.end()

# --- in rounds of the parameters -----------------------------------------------------------------

KEY = "r_state_averager.0b"
asked = []
bait = Peer(source="127.0.0.9")
bait.streaming["r" + STATE + ".rpc_join_group"] = lambda call, c: (asked.append(decode("JoinRequest", call.receive())), call.fail())
serve_dht(bait, os.urandom(20))
c = bait.dial(first.address)
for _ in until(20, 0.1):
    store(c, [(dht_id(KEY), pack(bait.id), b"\xc3", time.time() + 0.8)])
    if asked:
        break
c.close()
groups = []


def join_rounds(s, victim):
    """As a client that says to be ahead; it gives nothing, and is left out after a second."""
    while not s.over and asked:
        gather = pack([0.0, 1, pack(lead(trainers, HUGE if len(groups) % 2 else 1))])
        try:
            call = s.peer.connected(victim.peer, 1).stream_call("r" + STATE + ".rpc_join_group", encode(
                "JoinRequest", schema_hash=asked[0]["schema_hash"], expiration=time.time() + 30, client_mode=1, gather=gather, group_key=KEY))
            if decode("MessageFromLeader", call.receive(5))["code"] == CODES["ACCEPTED"]:
                if decode("MessageFromLeader", call.receive(30))["code"] == CODES["BEGIN_ALLREDUCE"]:
                    groups.append(victim.peer)
        except (Closed, CallError, OSError, TypeError):
            pass
        time.sleep(0.05)


def ahead_in_the_parameters():
    s = Stranger(trainers, lambda me: [])
    for p in trainers:
        threading.Thread(target=join_rounds, args=(s, p), daemon=True).start()
    for _ in until(60):  # where steps are slow it may come late to the first rounds
        if groups:
            break
    return [s]


goes_on("ahead in rounds of the parameters", trainers, quiet, ahead_in_the_parameters)
check("in which it was", groups, (len(asked), groups))

for p in trainers[1:]:
    p.stop()

# --- one trainer and one stranger, who serves its claim ------------------------------------------

lone = trainer(*SWARM, "--data-seed", "5", "--steps", "5000", "--save-every", "1", run="lone")
lone.wait_for("epoch", 30)
attacker = Stranger([lone], lambda me: [progress(me.id, HUGE, 10), donor(me, 1e9, "lone")], run="lone")
gave.append(serve_state(attacker.peer, lone, lambda: HUGE, "lone"))
for _ in until(30):
    if gave[-1]:
        break
begun = newest(lone)
check("one trainer: it is offered a state of 4e18", lone.peer in gave[-1])
check("one trainer: it goes on, without that", lone.wait_for("epoch", 30, epoch=begun + 3) and newest(lone) < 5000 and lone.alive(),
      (begun, newest(lone)))
attacker.end()
check("one trainer: nor does it save it", written([lone]) <= set(range(newest(lone) + 1)), written([lone]))
trainers = [first, lone]
check("checkpoints are of epochs that were trained", max(written(trainers)) <= lead(trainers, 0), written(trainers))
check("all live to be ended", [p.stop() for p in trainers] == [0] * 2)
finish()
