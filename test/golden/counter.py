"""Weights from a counter, for full-size golden values: a value depends on its name, the seed and its position alone, so no
file has to store it. vqgan/README.md, "Counter weights", has the formula."""
import numpy as np

MASK = (1 << 64) - 1


def counter_uniform(name, seed, n):
    """n float32 in [-1, 1), a function of (name, seed, position) only.  See README.md, 'Counter weights'."""
    key = 0xCBF29CE484222325
    for b in name.encode():
        key = ((key ^ b) * 0x100000001B3) & MASK
    key ^= (seed * 0x9E3779B97F4A7C15) & MASK
    out = np.empty(n, np.float32)
    step = 1 << 22
    with np.errstate(over="ignore"):
        for s in range(0, n, step):
            e = min(n, s + step)
            z = np.uint64(key) + np.arange(s + 1, e + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            out[s:e] = (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0 ** -23) - np.float32(1)
    return out
