"""LAMB with 8-bit moments in torch, as the run's: its numbers under the names, and of the types,
that its state had.

Parameters of at least 65536 elements have codes (state1, state2: uint8), of each block of 4096
values the largest (absmax1, absmax2) and the tables that the codes are of (qmap1, qmap2); smaller
ones have float32 moments.
"""
import functools

import torch
from hivemind_trainer import lamb

MIN_8BIT, BLOCK = 65536, 4096


def fma(a, b, c):
    return (a.double() * b + c).float()  # products of floats are exact in doubles


@functools.lru_cache(None)
def table(signed):
    """256 ascending codes: midpoints of equal steps from 0.1 to 1 in each of seven decades, 0 and
    1; the run's library has written -1 over the first."""
    f32 = lambda x: torch.tensor(x, dtype=torch.float32)  # noqa: E731
    entries = [f32(0.0), f32(1.0)]
    for e in range(7):
        k = 2 ** (e + (not signed)) + 1
        step = (1 - f32(0.1)) / f32(float(k - 1))
        edge = [fma(step, i, f32(0.1)) if i < k // 2 else fma(-step, k - 1 - i, f32(1.0)) for i in range(k)]
        scale = f32(10.0 ** (e - 6))
        middle = [((a + b) / 2) * scale for a, b in zip(edge, edge[1:])]
        entries += middle + ([-m for m in middle] if signed else [])
    entries = torch.stack(entries).sort().values
    entries[0] = -1.0
    return entries


def encode(x, book):
    """Codes and absmax: of the two neighbours of x / absmax the nearer one, of equally near ones
    the lower."""
    flat = x.flatten()
    blocks = flat.split(BLOCK)
    absmax = torch.stack([b.abs().max() for b in blocks])
    z = torch.cat([b / a for b, a in zip(blocks, absmax)])
    low = (torch.searchsorted(book, z, right=True) - 1).clamp(0, 255)
    high = (low + 1).clamp(max=255)
    codes = torch.where((z - book[high]).abs() < (z - book[low]).abs(), high, low)
    codes[z.isnan()] = 0
    return codes.to(torch.uint8).reshape(x.shape), absmax


def decode(codes, absmax, book):
    return (book[codes.flatten().long()] * absmax.repeat_interleave(BLOCK)[: codes.numel()]).reshape(codes.shape)


class Lamb8(lamb()):
    def moments(self, p):
        state = self.state[p]
        if p.numel() < MIN_8BIT:
            return super().moments(p)
        if not state:
            codes = torch.zeros_like(p, dtype=torch.uint8)
            none = torch.zeros(-(-p.numel() // BLOCK))
            state.update(step=0, state1=codes, state2=codes.clone(), absmax1=none, absmax2=none.clone(),
                         qmap1=table(True).clone(), qmap2=table(False).clone())
        return [decode(state[f"state{k}"], state[f"absmax{k}"], state[f"qmap{k}"]) for k in (1, 2)]

    def keep(self, p, moments):
        state = self.state[p]
        for k, moment in enumerate(moments, 1):
            if p.numel() >= MIN_8BIT:
                state[f"state{k}"], state[f"absmax{k}"] = encode(moment, state[f"qmap{k}"])

    def load_state_dict(self, given):
        """torch makes floats of codes."""
        super().load_state_dict(given)
        for index, p in enumerate(p for group in self.param_groups for p in group["params"]):
            for key, value in given["state"].get(index, {}).items():
                if torch.is_tensor(value) and value.dtype == torch.uint8:
                    self.state[p][key] = value.clone()

    def has_own_tables(self):
        """Whether those that came with a state are those that we would make."""
        given = [(s["qmap1"], s["qmap2"]) for s in self.state.values() if "qmap1" in s]
        return bool(given) and all(torch.equal(a, table(True)) and torch.equal(b, table(False)) for a, b in given)
