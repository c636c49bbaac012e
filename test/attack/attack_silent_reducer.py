"""Groupmates that accept a share to reduce and never respond: three trainers still average most of
their steps, in at most about twice the time. The silent peers are present from the first round; or
join later, two at once, with a new identity after each refusal; or respond to some peers only; or
send a byte now and then."""
import threading

from adversary import *

PREFIX = "r_grad_averager"
KEY = PREFIX + ".0b"
JOIN, PART = (f"{PREFIX}::GradientAverager.{rpc}" for rpc in ("rpc_join_group", "rpc_aggregate_part"))
STEPS = 10
GRACE = 4  # s: a reducer's timeout of two seconds, and as much for a busy machine

signal.alarm(300)  # s: six swarms, one after the other


class Silent:
    """Joins every group it can, under a new name after each that it was in if `renew`; `answers`:
    who is answered."""

    def __init__(self, victims, schema, renew=False, answers=(), trickle=False):
        self.victims, self.schema, self.renew, self.answers, self.trickle = victims, schema, renew, answers, trickle
        self.groups, self.names, self.over = 0, 0, False
        self.become()
        for victim in victims:
            threading.Thread(target=self.knock, args=(victim,), daemon=True).start()

    def become(self):
        self.names += 1
        self.peer = Peer(source=f"127.0.1.{self.names % 200 + 1}")
        self.peer.streaming[PART] = self.on_part
        self.peer.listen()
        for victim in self.victims:
            serve_dht(self.peer, os.urandom(20))
            self.peer.dial(victim.address)

    def knock(self, victim):
        """Asks it to lead, again and again."""
        while not self.over:
            me = self.peer
            try:
                c = me.connected(victim.peer, 1)
                call = c.stream_call(JOIN, encode("JoinRequest", schema_hash=self.schema, expiration=time.time() + 30,
                                                  gather=pack([None, 0, pack(None)]), group_key=KEY))
                answer = decode("MessageFromLeader", call.receive(5))
                if answer["code"] == CODES["ACCEPTED"]:
                    begun = decode("MessageFromLeader", call.receive(30))
                    if begun["code"] == CODES["BEGIN_ALLREDUCE"]:
                        self.groups += 1
                        if self.renew and me is self.peer:
                            self.become()
            except (Closed, CallError, OSError, TypeError):
                pass
            time.sleep(0.1)

    def on_part(self, call, connection):
        while not self.over:
            part = decode("AveragingData", call.receive(60))["tensor_part"]
            if connection.peer in self.answers:
                n = part["size"][0]
                call.send(encode("AveragingData", code=CODES["AVERAGED_PART"], tensor_part=float_tensor([0.0] * n)))
            elif self.trickle:
                call.stream.write(b"\0" + struct.pack(">Q", 1 << 16))
                while not self.over:
                    call.stream.write(b"x")
                    time.sleep(0.3)


def swarm(**options):
    first = trainer("--slow", "0.5", "--data-seed", "1", "--seed", "1", **options)
    return [first] + [trainer("--slow", "0.5", "--data-seed", str(k), "--seed", "1", join=first, **options) for k in (2, 3)]


def epochs(p):
    return [e for e in p.lines() if e["event"] == "epoch"]


def averaged(e):
    return e["round_status"] == 0 and e["round_peers"] > 1


def together(trainers, n=2, timeout=40):
    """Until each has averaged n times with both of the others."""
    for _ in until(timeout):
        if all(sum(averaged(e) and e["round_peers"] >= 3 for e in epochs(p)) >= n for p in trainers):
            return True
    return False


def steps(trainers, timeout):
    """The next STEPS of the first: seconds, and how many of each trainer's in that time were
    averaged, of how many."""
    before = [len(epochs(p)) for p in trainers]
    begin = time.monotonic()
    for _ in until(timeout):
        if len(epochs(trainers[0])) >= before[0] + STEPS:
            break
    took = time.monotonic() - begin
    after = [epochs(p)[n:] for p, n in zip(trainers, before)]
    return took, [(sum(averaged(e) for e in es), len(es)) for es in after]


def attack(what, quiet, schema, early=False, count=1, answers_one=False, **how):
    """A swarm of its own, and this many silent peers: from its beginning, or once it averages."""
    trainers = swarm()
    silent = [Silent(trainers, schema, **how) for _ in range(count)] if early else []
    # With silent peers among them from the beginning, too, they find each other.
    if not check(f"{what}: three trainers average", together(trainers, 1 if early else 2), [len(epochs(p)) for p in trainers]):
        return
    silent = silent or [Silent(trainers, schema, **how) for _ in range(count)]
    if answers_one:
        silent[0].answers = [trainers[0].peer]
    for _ in until(20):
        if any(s.groups for s in silent):
            break
    took, good = steps(trainers, 60)
    for s in silent:
        s.over = True
    groups = sum(s.groups for s in silent)
    check(f"{what}: in a group", groups, groups)
    check(f"{what}: 8 of {STEPS} steps are averaged", all(g >= 0.8 * n and n >= 0.8 * STEPS for g, n in good), (good, took))
    check(f"{what}: in about twice the time", took <= 2 * quiet + GRACE, f"{took:.1f} s, without it {quiet:.1f} s")
    print(f"     {took:.1f} s for {good}, without it {quiet:.1f} s; in {groups} groups under {sum(s.names for s in silent)} names")
    for p in trainers:
        p.stop()


trainers = swarm()
if check("three trainers average", together(trainers)):
    quiet, good = steps(trainers, 60)
    schema = ask_for_schema(trainers[0], PREFIX, JOIN)
    check("a stranger learns what is averaged", schema is not None and len(schema) == 20, schema)
    for p in trainers:
        p.stop()
    attack("silent", quiet, schema)
    attack("silent from the first round on", quiet, schema, early=True)
    attack("trickling", quiet, schema, early=True, trickle=True)
    attack("answering one", quiet, schema, early=True, answers_one=True)
    attack("two, under new names", quiet, schema, early=True, count=2, renew=True)
finish()
