"""The dashboard in a swarm of real hivemind peers: signed metrics and progress that Python stores,
read by ours.

usage: dash.py POTLUCK
"""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import warnings

import steps
from steps import PATIENCE, step

os.environ.setdefault("HIVEMIND_LOGLEVEL", "CRITICAL")
warnings.filterwarnings("ignore")
steps.needs("hivemind")
import hivemind
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.utils import get_dht_time
from hivemind.utils.crypto import RSAPrivateKey
from hivemind.optim.progress_tracker import LocalTrainingProgress
import hivemind_compat
from pydantic import BaseModel, StrictFloat, confloat, conint

RUN = "ttt"


class LocalMetrics(BaseModel):  # as the run's trainers declared it
    step: conint(ge=0, strict=True)
    samples_per_second: confloat(ge=0.0, strict=True)
    samples_accumulated: conint(ge=0, strict=True)
    loss: StrictFloat
    mini_steps: conint(ge=0, strict=True)


def trainer(initial=()):
    """A peer with a key of its own: the DHT, and its public key as subkey."""
    signer = RSASignatureValidator(RSAPrivateKey())
    dht = hivemind.DHT(initial_peers=list(initial), start=True, host_maddrs=["/ip4/127.0.0.1/tcp/0"],
                       record_validators=[signer], startup_timeout=hivemind_compat.DAEMON_TIMEOUT)
    return dht, signer.local_public_key


def report(dht, key, metrics, epoch, samples, rate, client=False):
    now = get_dht_time()
    progress = LocalTrainingProgress(peer_id=dht.peer_id.to_bytes(), epoch=epoch, samples_accumulated=samples,
                                     samples_per_second=rate, time=now, client_mode=client)
    # As hivemind's tracker: a progress record lives for a minute, and one that would live longer is
    # refused.
    return dht.store(RUN + "_progress", progress.dict(), now + 60, subkey=key) and \
        dht.store(RUN + "_metrics", metrics.dict(), now + 3600, subkey=key)


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError:  # before the first poll
        return None


def swarm_of_two():
    first = second = program = None
    try:
        first, key1 = trainer()
        second, key2 = trainer(first.get_visible_maddrs())
        one = LocalMetrics(step=3, samples_per_second=2.5, samples_accumulated=40, loss=12.0, mini_steps=4)
        two = LocalMetrics(step=3, samples_per_second=0.5, samples_accumulated=10, loss=4.0, mini_steps=4)
        step("Python peers store", report(first, key1, one, 3, 60, 2.5) and report(second, key2, two, 3, 20, 0.5, True))
        program = subprocess.Popen([sys.argv[1], "dash", "--join", str(first.get_visible_maddrs()[0]), "--run", RUN, "--port", "0",
                                    "--every", "1", "--target-batch", "1000", "--json"], stdout=subprocess.PIPE, text=True)
        shown(json.loads(steps.line(program))["url"], first, second, key2)
    finally:
        if program:
            program.terminate()
            program.wait(PATIENCE)
        for dht in second, first:
            if dht:
                dht.shutdown()


def shown(url, first, second, key2):
    """One poll finds what one asks the DHT for at that moment, and a real node may take too long to
    answer: so what must be there is waited for."""
    feed = lambda name: fetch(f"{url}api/{name}.json")  # noqa: E731
    whole = lambda s: s and (s["peers"], s["clients"], s["loss"], s["samples"], s["samples_per_second"]) == (2, 1, 2.0, 80, 3.0)  # noqa: E731
    steps.until(lambda: whole(feed("state")))
    state = feed("state")
    step("loss is the mean over mini-steps", state and state["loss"] == 2.0, state)
    step("step, samples, speed", state and (state["step"], state["samples"], state["samples_per_second"]) == (3, 80, 3.0), state)
    step("the time that is left is what hivemind would say", state and 0 < state["eta"] <= 920 / 3, state)

    def both():
        peers = {p["id"]: p for p in feed("peers") or []}
        return peers.get(str(first.peer_id)), peers.get(str(second.peer_id))

    met = lambda a, b: a and b and a["state"] == "reachable" and a["loss"] == 3.0 and b["state"] == "client" and b["samples"] == 20  # noqa: E731
    step("both records of a peer met under its id", steps.until(lambda: met(*both())), both())
    answers = lambda a, b: a and b and (a["answers"] is True and a["round_trip_ms"] > 0 and not a["relayed"] and b["answers"] is None)  # noqa: E731
    step("hivemind's daemon answers a ping; who cannot be called is not tried", steps.until(lambda: answers(*both())), both())
    ids = str(first.peer_id), str(second.peer_id)
    counted = lambda: [(b["id"], b["samples"]) for b in feed("board") or []]  # noqa: E731
    step("the board counts signed samples", steps.until(lambda: counted() == [(ids[0], 40), (ids[1], 10)]), counted())
    two = LocalMetrics(step=4, samples_per_second=0.5, samples_accumulated=100, loss=4.0, mini_steps=4)
    report(second, key2, two, 4, 5, 0.5, True)
    step("the next step is added", steps.until(lambda: counted()[:1] == [(ids[1], 110)]), counted())


def main():
    hivemind_compat.apply()
    for last in steps.attempts():
        with steps.scenario("a swarm of two", lambda: None, last):
            swarm_of_two()
    sys.exit(steps.closing())


if __name__ == "__main__":
    main()
