"""Initial peers with a false clock: one moves a newcomer's clock by seconds at most, and a
majority of honest ones keeps it. A hostile majority moves it by an hour at most, and that peer alone."""
from adversary import *

BOUND = 5.5  # s; an unconfirmed offset, and the time of a call


def attacker(ahead):
    p = Peer(source="127.0.0.7")
    p.address = p.listen("127.0.0.7")
    serve_dht(p, os.urandom(20), clock=lambda: time.time() + ahead)
    return p.address


def offset(*join):
    """Of a peer that has joined by these."""
    p = start("peer", "--listen", "/ip4/127.0.0.1/tcp/0", "--no-check", *(x for j in join for x in ("--join", j)))
    e = p.wait_for("joined", 30)
    p.stop()
    return e["clock_offset"] if e else None


honest = peer()
others = [peer(join=honest) for _ in range(2)]
for ahead in (1e6, -1e6, 3600.0, -3600.0, 1e300, -1e300, float("nan"), float("inf"), 60.0):
    got = offset(attacker(ahead))
    check(f"alone, {ahead:g} s ahead", got is not None and abs(got) < BOUND, got)
same = attacker(1e6)
got = offset(same, *[p.address for p in (honest, *others)])
check("one of four", got is not None and abs(got) < 1.5, got)
got = offset(same, attacker(-1e6), honest.address)
check("two of three that say different times", got is not None and abs(got) < BOUND, got)
got = offset(same, same, same, honest.address)
check("one that is named three times", got is not None and abs(got) < BOUND, got)
for ahead in (1e6, -1e6, 1e300):
    got = offset(attacker(ahead), attacker(ahead), honest.address)
    check(f"two of three, {ahead:g} s ahead: its neighbours keep its time", got is not None and abs(got) < BOUND, got)
hostile = [attacker(3600.0), attacker(1e6), attacker(1e6)]
check("hostile ones alone that agree: an hour at most", abs(offset(*hostile) - 3600) < 5)
moved = start("peer", "--listen", "/ip4/127.0.0.1/tcp/0", "--no-check", "--join", hostile[1], "--join", hostile[2])
check("that peer has joined", moved.wait_for("joined", 30))
now = time.time()
records = [(dht_id("kept"), PLAIN, pack(1), now + 300), (dht_id("an hour later"), PLAIN, pack(1), now + 3600 + 300)]
for what, p, taken in (("an honest peer", honest, [True, False]), ("one that is an hour ahead", moved, [False, True])):
    check(f"{what} takes records of its own time alone", store(Peer(source="127.0.0.8").dial(p.address), records) == taken)
check("the others' clocks have not moved", offset(honest.address) is not None and abs(offset(honest.address)) < 1.5)
finish()
