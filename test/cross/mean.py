"""mean.py make FROM TO: the same tensors with the other sign; mean.py check FROM A B: A and B are equal,
and the mean of FROM with weight 1 and of what `make` wrote with weight 3, which is -FROM / 2."""
import json
import struct
import sys

LETTER = {"F32": "f", "F16": "e"}


def tensors(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + n])
    head.pop("__metadata__", None)
    for name, t in sorted(head.items()):
        begin, end = (8 + n + x for x in t["data_offsets"])
        letter = LETTER[t["dtype"]]
        yield name, t["dtype"], begin, struct.unpack(f"<{(end - begin) // struct.calcsize(letter)}{letter}", data[begin:end])


def make(source, to):
    out = bytearray(open(source, "rb").read())
    for _, dtype, begin, values in tensors(source):
        struct.pack_into(f"<{len(values)}{LETTER[dtype]}", out, begin, *(-x for x in values))
    open(to, "wb").write(out)


def check(source, first, second):
    worst = 0
    for (name, _, _, x), (_, _, _, a), (_, _, _, b) in zip(tensors(source), tensors(first), tensors(second)):
        scale = max(map(abs, x)) or 1
        worst = max(worst, max(abs(p + q / 2) / scale for y in (a, b) for p, q in zip(y, x)))
    print(f"largest error: {worst:.2g} of a tensor's largest value")
    sys.exit(worst > 2e-3)


{"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
