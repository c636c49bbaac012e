"""The dashboard beside real hivemind peers: signed metrics and progress that Python stores, read by ours.

usage: dash.py POTLUCK
"""
import json
import os
import subprocess
import sys
import time
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
    return dht.store(RUN + "_progress", progress.dict(), now + 60, subkey=key) and \
        dht.store(RUN + "_metrics", metrics.dict(), now + 600, subkey=key)


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError:  # before the first look
        return None


def main():
    first, key1 = trainer()
    second, key2 = trainer(first.get_visible_maddrs())
    one = LocalMetrics(step=3, samples_per_second=2.5, samples_accumulated=40, loss=12.0, mini_steps=4)
    two = LocalMetrics(step=3, samples_per_second=0.5, samples_accumulated=10, loss=4.0, mini_steps=4)
    step("Python peers store", report(first, key1, one, 3, 60, 2.5) and report(second, key2, two, 3, 20, 0.5, True))
    program = subprocess.Popen([sys.argv[1], "dash", "--join", str(first.get_visible_maddrs()[0]), "--run", RUN, "--port", "0",
                                "--every", "1", "--target-batch", "1000", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(steps.line(program))["url"]
        end = time.time() + PATIENCE
        state = fetch(url + "api/state.json")
        while time.time() < end and not (state and state["peers"] == 2 and state["clients"] == 1):
            time.sleep(0.3)
            state = fetch(url + "api/state.json")
        step("loss is the mean over mini-steps", state and state["loss"] == 2.0, state)
        step("step, samples, speed", state and (state["step"], state["samples"], state["samples_per_second"]) == (3, 80, 3.0), state)
        step("the time that is left is what hivemind would say", state and 0 < state["eta"] <= 920 / 3, state)
        peers = {p["id"]: p for p in fetch(url + "api/peers.json")}
        mine = peers.get(str(first.peer_id)), peers.get(str(second.peer_id))
        step("both records of a peer met under its id", all(mine) and mine[0]["state"] == "reachable" and mine[0]["loss"] == 3.0
             and mine[1]["state"] == "client" and mine[1]["samples"] == 20, peers)
        while time.time() < end and mine[0]["answers"] is None:
            time.sleep(0.3)
            peers = {p["id"]: p for p in fetch(url + "api/peers.json")}
            mine = peers[str(first.peer_id)], peers[str(second.peer_id)]
        step("hivemind's daemon answers a ping; who cannot be called is not tried", mine[0]["answers"] is True
             and mine[0]["round_trip_ms"] > 0 and not mine[0]["relayed"] and mine[1]["answers"] is None, mine)
        board = fetch(url + "api/board.json")
        step("the board counts signed samples", [(b["id"], b["samples"]) for b in board] ==
             [(str(first.peer_id), 40), (str(second.peer_id), 10)], board)
        two = LocalMetrics(step=4, samples_per_second=0.5, samples_accumulated=100, loss=4.0, mini_steps=4)
        report(second, key2, two, 4, 5, 0.5, True)
        while time.time() < end and fetch(url + "api/board.json")[0]["samples"] != 110:
            time.sleep(0.3)
        step("the next step is added", fetch(url + "api/board.json")[0]["samples"] == 110, fetch(url + "api/board.json"))
    finally:
        program.terminate()
        program.wait(PATIENCE)
        second.shutdown()
        first.shutdown()
    sys.exit(steps.closing())


if __name__ == "__main__":
    main()
