"""The Python module against the C headers: every structure as the compiler lays it out, every
refusal an exception. notebooks/run.sh runs it; the last line counts."""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "notebooks"))
passed = failed = 0


def test(what, good):
    global passed, failed
    print("ok  " if good else "FAIL", what)
    passed, failed = passed + bool(good), failed + (not good)


def refused(what, kind, words, function):
    try:
        function()
    except kind as error:
        return test(f"refuses: {what}", words in str(error))
    except Exception as error:
        return test(f"refuses: {what}: {type(error).__name__}: {error}", False)
    test(f"refuses: {what}: no error", False)


import numpy as np
import potluck
from potluck import model, operations, signatures

# -- structures: sizes and places of members, as the compiler says ---------------------------------

def members(structure): # "later" is reserved for operations that this Python does not know
    return [field[0] for field in structure._fields_ if field[0] != "later"]


lines = ["#include <stdio.h>", "#include <stddef.h>"]
lines += sorted({f'#include "{header}"' for _, header in signatures.STRUCTURES.values()})
lines += ["int main(void) {"]
for name, (structure, _) in signatures.STRUCTURES.items():
    lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
    lines += [f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));' for field in members(structure)]
with tempfile.TemporaryDirectory() as folder:
    source, program = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
    source.write_text("\n".join(lines + ["return 0; }"]))
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-I", str(root), "-o", program, source], check=True)
    offsets = dict(line.split() for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines())
for name, (structure, header) in signatures.STRUCTURES.items():
    wrong = [f for f in members(structure) if int(offsets[f"{name}.{f}"]) != getattr(structure, f).offset]
    size = int(offsets[name])
    if structure is signatures.Backend:
        fits = structure.later.offset <= size <= ctypes.sizeof(structure)
    else:
        fits = size == ctypes.sizeof(structure)
    test(f"{name} is that of {header}", not wrong and fits)

# -- operations ------------------------------------------------------------------------------------

ref = potluck.Backend("ref")
x = np.arange(24, dtype=np.float32).reshape(2, 3, 1, 4)
test("integers become floats", np.array_equal(ref.linear([[1, 2]], [[3, 4]]), [[11]]))
test("a view that is not contiguous", np.allclose(ref.linear(np.eye(4)[::2], np.eye(4)), np.eye(4)[::2]))
test("quantize and back", np.allclose(ref.dequantize(*ref.quantize([0, 1, -1, 0.5], 4), potluck.codebook(), 4), [0, 1, -1, 0.5], atol=0.01))
refused("a mask nobody knows", potluck.PotluckError, "expected full", lambda: potluck.mask("diagonal", 1, 1))
refused("a backend that is not there", potluck.PotluckError, "nowhere", lambda: potluck.Backend("./nowhere.so"))
refused("more positions than there are", ValueError, "n is 9", lambda: potluck.mask("full", 4, 2, n=9))
refused("a wrong width", ValueError, "W: shape", lambda: ref.linear(np.zeros((2, 3)), np.zeros((5, 4))))
refused("a wrong number of axes", ValueError, "qkv: shape", lambda: ref.attention(x, "full", 2, 1))
refused("angles of other positions", ValueError, "angle: shape", lambda: ref.rotary(x, np.zeros((2, 1))))
refused("scales of other blocks", ValueError, "absmax: shape", lambda: ref.dequantize([1, 2, 3], [1.0, 1.0], potluck.codebook(), 4))
refused("moments of another length", ValueError, "its moments 3", lambda: ref.lamb(np.ones(4, np.float32), np.ones(4), operations.Moments(3), 0.1))
refused("a parameter that cannot change", TypeError, "float32", lambda: ref.lamb(np.ones(4), np.ones(4), operations.Moments(4), 0.1))
refused("vectors of different lengths", ValueError, "one length", lambda: potluck.average_group([np.ones(3), np.ones(4)]))
refused("a negative weight", potluck.PotluckError, "weight", lambda: potluck.average_group([np.ones(3), np.ones(3)], [1, -1]))
refused("nobody with bandwidth", potluck.PotluckError, "", lambda: potluck.balance([0, 0, 0], 10))

# -- models ----------------------------------------------------------------------------------------

config = potluck.Config("demo", D=16, H=1, d=16, L=2)
tiny = potluck.Model(config, ref, gradients=True).init(1)
tokenizer = potluck.Tokenizer()
captions, codes = potluck.pairs(limit=2)
text = np.stack([tokenizer.row(c, config.T) for c in captions])
loss = tiny.step(text, codes)
tiny.clear_gradient()
test("the loss of a batch is the mean of its parts'", abs(sum(tiny.step(text[i:i + 1], codes[i:i + 1])[0] for i in (0, 1)) / 2 - loss[0]) < 1e-5)
test("pieces are the caption again", "".join(tokenizer.pieces(tokenizer.ids("red apple"))).replace(" ", "") == "redapple")
with tempfile.TemporaryDirectory() as folder:
    refused("a folder without a checkpoint", FileNotFoundError, "no checkpoint", lambda: potluck.Model.load(folder, ref))
    broken = pathlib.Path(folder, "checkpoint-1.safetensors")
    broken.write_bytes(b"nothing of the kind")
    refused("a broken checkpoint", potluck.PotluckError, "checkpoint-1.safetensors", lambda: potluck.Model.load(folder, ref))
refused("an id outside of the vocabulary", potluck.PotluckError, "", lambda: tiny.step(text, codes + 100000))
refused("texts of another length", ValueError, "text: shape", lambda: tiny.step(text[:, :5], codes))
refused("fractions of ids", TypeError, "whole numbers", lambda: tiny.step(text + 0.5, codes))
refused("a size that no model has", ValueError, "is no size", lambda: potluck.Config("demo", width=3))
refused("a model of no blocks", ValueError, "L is 0", lambda: potluck.Config("demo", L=0))
refused("sizes that do not fit", potluck.PotluckError, "width", lambda: potluck.Config("demo", D=0))
refused("gradients of a model without", ValueError, "without gradients", lambda: potluck.Model(config, ref).step(text, codes))
codec = potluck.Codec(backend=ref)
test("a picture of 2 x 2 codes", codec.decode(codes[:1, :4]).shape == (1, 16, 16, 3))
refused("a code that the codec lacks", ValueError, "a square of them", lambda: codec.decode(np.full((1, 4), 256)))
refused("a command that fails", RuntimeError, "no configuration", lambda: potluck.program("train", "--config", "nothing"))
late = potluck.Program("calc", "demo")
end_late = lambda text: late.end() == 0 and "parameters" in text
try:  # it ends during the call: its last message is still seen
    test("what a command says last", late.wait_for(end_late))
except RuntimeError:
    test("what a command says last", False)

# -- the collaborative optimizer -------------------------------------------------------------------

loopback = dict(run="module", target_batch=8, listen=["/ip4/127.0.0.1/tcp/0"], matchmaking_time=1)
x, goal = np.zeros((3, 2), np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
events = []
with potluck.Optimizer({"x": x}, optimizer="adam", lr=0.5, report=events.append, **loopback) as first:
    while first.epoch < 20:
        first.step([x - goal], 4, float(((x - goal)**2).mean()))
    test("numpy alone: steps are taken", np.abs(x - goal).max() < 3)
    test("numpy alone: they are reported", sum(e.kind == "epoch" for e in events) == 20 and events[0].kind == "ready")
    y = np.full((3, 2), 99, np.float32)
    with potluck.Optimizer([y], optimizer="adam", lr=0.5, initial_peers=[first.address], **loopback) as second:
        test("a newcomer takes over values and epoch", second.epoch == 20 and np.array_equal(x, y))
    refused("a gradient of another shape", ValueError, "shape (2,)", lambda: first.step([np.zeros(2)], 4, 0))
    refused("too few gradients", ValueError, "0 gradients", lambda: first.step([], 4, 0))
    first.step({"x": np.full((3, 2), np.nan)}, 8, 1.0)
    test("a gradient that is not finite is dropped", first.epoch == 20 and events[-1].kind == "warning")
refused("a step after close", ValueError, "closed", lambda: first.step([x], 4, 0))
seen = []


def own(gradients, epoch):
    seen.append((epoch, gradients[0].copy()))
    x[:] -= gradients[0]


x[:] = 0
with potluck.Optimizer([x], optimizer=own, **loopback) as alone:
    alone.step([np.ones((3, 2))], 2, 1.0)
    alone.step([np.full((3, 2), 3)], 6, 1.0)
    test("an optimizer of the caller's own", alone.epoch == 1 and seen[0][0] == 0 and np.all(seen[0][1] == 2.5) and np.all(x == -2.5))
with potluck.Optimizer([x], optimizer=lambda gradients, epoch: 1 / 0, **loopback) as broken:
    refused("what the caller's optimizer raises", ZeroDivisionError, "division", lambda: broken.step([x], 8, 1.0))
refused("an optimizer nobody knows", ValueError, "'sgd'", lambda: potluck.Optimizer([x], optimizer="sgd", **loopback))
refused("an option nobody knows", TypeError, "'speed'", lambda: potluck.Optimizer([x], speed=1, **loopback))
refused("values that cannot change", TypeError, "float64", lambda: potluck.Optimizer([np.zeros(3)], **loopback))
refused("a method of compression nobody knows", potluck.PotluckError, "'zip'", lambda: potluck.Optimizer([x], compression="zip", **loopback))
refused("a peer that is not there", potluck.PotluckError, "", lambda: potluck.Optimizer(
    [x], initial_peers=["/ip4/127.0.0.1/tcp/1/p2p/12D3KooWNSUHnNwMPvtP9HDj6Ro7BmmPgbhaSky2mzo5HgWoXw7U"], **loopback))

os.environ["POTLUCK_LIBRARY"] = "/nowhere/libpotluck.so"
refused("no library", ImportError, "type 'make'", signatures.find)

print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
