"""A stranger stores records as fast as it can: of hundreds of owners under one key, and plain values
that replace each other. It may add so many and no more; honest records keep arriving."""
import itertools

from adversary import *

RUN = "r"
OWNERS, PLAIN_VALUES = 512, 8192  # DHT_OWNERS_BURST, DHT_UNSIGNED_BURST of net/hivemind/kademlia/dht_checks.h
progress_key = dht_id(f"{RUN}_progress")


def private_key(numbers):
    """Without a check of its primes, 30 ms each, if the package can leave it out (cryptography 39)."""
    try:
        return numbers.private_key(unsafe_skip_rsa_key_validation=True)
    except TypeError:
        return numbers.private_key()


def many_keys(n):
    """As RecordKey, but each takes two of few primes: n keys in the time of a dozen."""
    primes = []
    while len(primes) * (len(primes) - 1) // 2 < n:
        numbers = rsa.generate_private_key(65537, 2048).private_numbers()
        primes += [numbers.p, numbers.q]
    for p, q in itertools.islice(itertools.combinations(primes, 2), n):
        d = pow(65537, -1, (p - 1) * (q - 1))
        numbers = rsa.RSAPrivateNumbers(p, q, d, rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q),
                                        rsa.RSAPublicNumbers(65537, p * q))
        yield RecordKey(key=private_key(numbers))


victim = peer("--run", RUN)
honest, friend = RecordKey(), Peer(source="127.0.9.1")
c = friend.dial(victim.address)


def honest_progress(epoch):
    return store(c, [honest.record(progress_key, progress(friend.id, epoch), time.time() + 60)])[0]


# --- owners --------------------------------------------------------------------------------------

stranger = Peer(source="127.0.3.1")
s = stranger.dial(victim.address)
keys = list(many_keys(OWNERS + 60))
arrived, taken, begin, before = [], 0, time.monotonic(), victim.cpu()
for at in range(0, len(keys), 52):
    expires = time.time() + 60
    taken += sum(store(s, [k.record(progress_key, progress(stranger.id, 1), expires) for k in keys[at:at + 52]], timeout=30))
    arrived.append(honest_progress(at))
took = time.monotonic() - begin
check(f"one peer adds {OWNERS} owners under a key and one a second", OWNERS <= taken <= OWNERS + took + 1, (taken, took))
check("honest records arrive meanwhile", all(arrived), arrived)
check("known owners' records are renewed", all(store(s, [k.record(progress_key, progress(stranger.id, 2), time.time() + 60)
                                                         for k in keys[:20]])))
last = keys[-1]
check("a new owner is taken from another peer", store(Peer(source="127.0.3.2").dial(victim.address), [
    last.record(progress_key, progress(stranger.id, 1), time.time() + 60)]) == [True])
last = keys[-2]
check("and under another key", store(s, [last.record(dht_id("other"), 1, time.time() + 60)]) == [True])
check("the flood costs little", victim.cpu() - before < 5, victim.cpu() - before)

# --- plain values --------------------------------------------------------------------------------

key, taken, begin, arrived = dht_id("plain"), 0, time.monotonic(), []
for at in range(3):
    now = time.time()
    taken += sum(store(s, [(key, PLAIN, pack(k), now + 60 + at + k / 1e4) for k in range(4000)], timeout=30))
    arrived.append(honest_progress(1000 + at))
took = time.monotonic() - begin
check("one peer stores 8,192 values and 80 a second", PLAIN_VALUES <= taken <= PLAIN_VALUES + 80 * (took + 1), (taken, took))
check("honest records arrive meanwhile, and values", arrived == [True] * 3 and store(
    c, [(dht_id("honest"), PLAIN, pack(1), time.time() + 60)]) == [True], arrived)
found = find(c, [progress_key], timeout=30)[0]
check("the honest record is found", found["type"] == 2 and honest.tag in unpack(found["value"]))
check("the peer lives", victim.alive())
finish()
