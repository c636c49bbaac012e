"""A peer of a moderated run by the public Python API: the model of `potluck train`, gradients by
potluck.Model, steps by potluck.Optimizer. Prints an event a line, "common N" once N steps were
averaged with others.

usage: moderated_peer.py CONFIG TRAIN_PEER STEPS [option=value ...]
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "notebooks"))
import numpy as np
import potluck

BATCH = 4
config = potluck.Config.read(sys.argv[1])
model = potluck.Model(config, potluck.Backend("ref"), gradients=True).init(1)
params = model.pointer.contents.params
listed = [params.list[i] for i in range(params.count)]
values = np.ctypeslib.as_array(params.value, (params.total,))
tensors = {p.name.decode(): values[p.offset:p.offset + p.n].reshape(p.shape[:p.dims]) for p in listed}
tokenizer = potluck.Tokenizer("data/demo/t5_2k.model")
captions, codes = potluck.pairs(limit=64)
texts = np.stack([tokenizer.row(c, config.T) for c in captions])
common, random = 0, np.random.default_rng(2)


def report(e):
    global common
    print(e.kind, e.epoch, e.text or "", flush=True)
    if e.kind == "epoch" and e.round_status == 0 and e.round_peers > 1:
        common += 1
        print("common", common, flush=True)


try:
    with potluck.Optimizer(tensors, "moderated", [sys.argv[2]], target_batch=32, optimizer="lamb8", lr=0.01, report=report, matchmaking_time=2,
                           no_decay=[p.name.decode() for p in listed if not p.decay], listen=["/ip4/127.0.0.1/tcp/0"],
                           **dict(option.split("=", 1) for option in sys.argv[4:])) as optimizer:
        while common < int(sys.argv[3]):
            batch = random.integers(0, len(texts), BATCH)
            model.clear_gradient()
            loss = model.step(texts[batch], codes[batch], 1 / BATCH)[0]
            gradient = model.gradient()
            optimizer.step([gradient[p.offset:p.offset + p.n].reshape(p.shape[:p.dims]) for p in listed], BATCH, loss)
except potluck.PotluckError as error:
    sys.exit(f"refused: {error}")
