"""official_names.py - a checkpoint in the official format: official_names.py CHECKPOINT TRAINING
INFERENCE

Of the checkpoint's tensors and its table of aliases: every name of the official state dict, a
shared tensor under each of its names, and the table of angles, without optimizer state and
metadata. TRAINING has the names of training checkpoints, INFERENCE those of the inference branch.
How many there are is printed.
"""
import json
import math
import re
import struct
import sys

source, training, inference = sys.argv[1:]
with open(source, "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = file.read()
metadata = header.pop("__metadata__")
alias, config = json.loads(metadata["alias"]), json.loads(metadata["config"])


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def angles():
    """transformer.pos_emb: rows are positions of text, then cells; each angle stands twice. [spec
    dalle 7]"""
    m, side = config["dim_head"] // 3, config["F"]
    n = m // 2
    word = [float32(1 / float32(10000 ** float32(2 * i / m))) for i in range(n)]
    axis = [float32(math.pi * (1 + 4 * i / max(n - 1, 1))) for i in range(n)]
    at = [float32(2 * k / (side - 1) - 1) for k in range(side)]
    places = [(p, -10, -10) for p in range(config["T"] + 1)] + [(8192, y, x) for y in at for x in at]
    return len(places), [float32(v * f) for place in places for v, frequencies in zip(place, (word, axis, axis))
                         for f in frequencies for _ in range(2)]


def renamed(name):
    """The inference branch wraps layers once more, and attention's once more than that."""
    name = re.sub(r"^model\.", "", name)
    name = re.sub(r"\.net\.fn\.fn\.", ".net.fn.fn.fn.", name)
    return re.sub(r"\.(to_qkv|to_out)\.", r".fn.\1.", name)


rows, table = angles()
pos_emb = {"dtype": "F32", "shape": [1, rows, len(table) // rows], "data_offsets": [len(data), len(data) + 4 * len(table)]}
data += struct.pack("<%df" % len(table), *table)
tensors = {name: header[alias.get(name, name)] for name in [*header, *alias] if not name.startswith("optimizer.")}
tensors["model.transformer.pos_emb"] = pos_emb
for path, names in ((training, {n: n for n in tensors}), (inference, {renamed(n): n for n in tensors})):
    out, body = {}, b""
    for name in sorted(names):
        t = tensors[names[name]]
        begin, end = t["data_offsets"]
        out[name] = {"dtype": t["dtype"], "shape": t["shape"], "data_offsets": [len(body), len(body) + end - begin]}
        body += data[begin:end]
    text = json.dumps(out).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
print(len(tensors))
