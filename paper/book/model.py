"""The model that the figure "draw" samples from, as a script for its page.

usage: model.py CHECKPOINT CODEC TOKENIZER     CHECKPOINT: a file, or a folder of `potluck train`, whose newest one is taken

Parameters stay in float32, so that the page draws what `potluck generate` does; the optimizer's state is left out. Base85 keeps the
script of the demo's model below 10 MB, which base64 does not.
"""
import base64
import json
import pathlib
import struct
import sys


def parameters(path):
    """The same safetensors file without the optimizer's tensors."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    kept, tensors = {"__metadata__": {"config": header["__metadata__"]["config"]}}, b""
    for name, tensor in header.items():
        if name.startswith("model."):
            begin, end = tensor["data_offsets"]
            kept[name] = {**tensor, "data_offsets": [len(tensors), len(tensors) + end - begin]}
            tensors += body[begin:end]
    head = json.dumps(kept, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + tensors


checkpoint, codec, tokenizer = map(pathlib.Path, sys.argv[1:])
if checkpoint.is_dir():
    checkpoint = max(checkpoint.glob("checkpoint-*.safetensors"))
parts = {"checkpoint": parameters(checkpoint), "codec": codec.read_bytes(), "tokenizer": tokenizer.read_bytes()}
print('"use strict";')
print("const MODEL = " + json.dumps({name: base64.b85encode(part).decode() for name, part in parts.items()}) + ";")
