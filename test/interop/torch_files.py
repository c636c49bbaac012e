#!/usr/bin/env python3
"""torch_files.py - PyTorch reads our files and we read its files: both kinds of file,
every type, views, names that are not ASCII, storages beyond 2 GiB (in a sparse file)."""
import json
import os
import struct
import subprocess
import sys
import tempfile

import steps
from steps import step

potluck = sys.argv[1]

steps.needs("torch")
import torch

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
         "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
         "BOOL": torch.bool}


def read_safetensors(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        flat = torch.frombuffer(bytearray(data[a:b]), dtype=TYPES[t["dtype"]]) if b > a else torch.zeros(0)
        out[name] = flat.to(TYPES[t["dtype"]]).reshape(t["shape"])
    return out


def same(a, b):
    a, b = a.detach().contiguous(), b.detach().contiguous()
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.numel() == 0 or bytes(a.reshape(-1).view(torch.uint8).numpy()) == bytes(b.reshape(-1).view(torch.uint8).numpy())


def convert(a, b):
    return subprocess.run([potluck, "convert", a, b], capture_output=True, text=True, timeout=steps.PATIENCE)


torch.manual_seed(1)
base = torch.arange(24.0)
state = {"view": base[4:16].view(3, 4), "transposed": base.view(4, 6).t(), "scalar": torch.tensor(2.5),
         "empty": torch.zeros(0, 5), "größe.重み": torch.randn(3), "parameter": torch.nn.Parameter(torch.randn(2, 3)),
         "expanded": torch.ones(1).expand(7)}
for name, dtype in TYPES.items():
    x = torch.randn(5) * 50
    state[name] = (x > 0) if dtype == torch.bool else x.abs().to(dtype)

with tempfile.TemporaryDirectory() as folder:
    zipped, stream = os.path.join(folder, "zip.pt"), os.path.join(folder, "stream.pt")
    nested, back = os.path.join(folder, "nested.ckpt"), os.path.join(folder, "back.pt")
    tensors = os.path.join(folder, "t.safetensors")
    torch.save(state, zipped)
    torch.save(state, stream, _use_new_zipfile_serialization=False)
    torch.save({"state_dict": state, "epoch": 3, "big": 2 ** 70}, nested)
    framed = os.path.join(folder, "framed.pt")
    torch.save({"state_dict": state, "set": {1}}, framed, pickle_protocol=5, _use_new_zipfile_serialization=False)
    first = os.path.join(folder, "first.pt")
    torch.save({"state_dict": state, 7: 2 ** 40}, first, pickle_protocol=1, _use_new_zipfile_serialization=False)
    script = os.path.join(folder, "script.pt")
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ModuleList([torch.nn.BatchNorm1d(2)])[0]).eval()
    torch.jit.save(torch.jit.trace(module, torch.ones(4, 3)), script)
    result = convert(script, tensors)
    got = read_safetensors(tensors) if result.returncode == 0 else {}
    step("reads TorchScript", got.keys() == module.state_dict().keys() and
          all(same(got[k], v) for k, v in module.state_dict().items()))
    for path in (zipped, stream, nested, framed, first):
        result = convert(path, tensors)
        step("reads " + os.path.basename(path), result.returncode == 0)
        got = read_safetensors(tensors) if result.returncode == 0 else {}
        step("the same tensors from " + os.path.basename(path),
              got.keys() == state.keys() and all(same(got[k], state[k]) for k in state))
    step("writes a zip", convert(tensors, back).returncode == 0)
    for options in ({"weights_only": True}, {}):
        try:
            loaded = torch.load(back, **options)
        except Exception as e:  # whatever PyTorch does not like is the failure that this looks for
            print(e)
            loaded = {}
        step("torch.load %s" % options, loaded.keys() == state.keys() and
              all(same(loaded[k], state[k]) for k in state))

    class Trap:
        def __reduce__(self):
            return os.system, ("echo trapped",)
    torch.save({"w": torch.zeros(1), "trap": Trap()}, zipped)
    result = convert(zipped, tensors)
    step("a call of os.system is refused by name", result.returncode == 1 and "system" in result.stderr
          and "trapped" not in result.stdout and result.stderr.count("\n") == 1)

    # A tensor that begins beyond 2 GiB, in a sparse file.
    far = 3 << 30
    header = json.dumps({"far": {"dtype": "F16", "shape": [4], "data_offsets": [far, far + 8]},
                         "near": {"dtype": "U8", "shape": [far], "data_offsets": [0, far]}}).encode()
    with open(tensors, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.seek(far, 1)
        f.write(torch.tensor([1, 2, 3, 4.0]).half().numpy().tobytes())
    result = subprocess.run([potluck, "show", "--json", tensors], capture_output=True, text=True, timeout=steps.PATIENCE)
    step("an offset beyond 2 GiB", result.returncode == 0 and '"far"' in result.stdout)

sys.exit(steps.closing())
