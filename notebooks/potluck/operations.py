"""The algorithms themselves: masks, angles, code books, sharing out, and the table of operations of
a backend (ref/backend.h), each on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import signatures as c
from .core import array, at, call, check, lib, whole

INT = 2**31 - 1
MASKS = {"full": 0, "none": 5}
MAPS = {"signed": 0, "unsigned": 1}
RULES = {"run": 0, "lut": 1, "cuda": 2}
METHODS = {"none": 0, "float16": 2, "uniform8": 4}
ROLES = {"node": 0, "client": 1, "auxiliary": 2}


def choose(table, name, what):
    if name not in table:
        raise ValueError(f"{what} is {name!r}, expected one of {', '.join(map(repr, table))}")
    return table[name]


# -- without a backend -----------------------------------------------------------------------------


def mask_struct(kind, P, F):
    m = c.Mask()
    if kind == "none":
        m.kind = MASKS["none"]
    else:
        call("pl_mask_parse", ctypes.byref(m), kind.encode())
    m.P, m.F = whole(P, 0, 1 << 20, "P"), whole(F, 0, 1 << 10, "F")
    return m


def mask(kind: str, P: int, F: int, n: int | None = None) -> NDArray[np.bool_]:
    """(n, n) bools: may query (row) attend to key (column)? P text positions, then F x F image cells.
    kind: "full", "axial_row", "axial_col", "conv5", ... [ref/mask.h]

    >>> mask("axial_row", P=1, F=2).astype(int)
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [1, 1, 1, 0, 0],
           [1, 0, 0, 1, 0],
           [1, 0, 0, 1, 1]])
    """
    m = mask_struct(kind, P, F)
    n = whole(m.P + m.F**2 if n is None else n, 1, m.P + m.F**2, "n")
    bits = np.zeros((n, (n + 7) // 8), np.uint8)
    lib.pl_mask_bits(at(bits), ctypes.byref(m), n)
    return np.unpackbits(bits, axis=1)[:, :n].astype(bool)


def rotary_channels(d: int) -> int:
    """How many of a head's d channels rotate.

    >>> rotary_channels(64)
    60
    """
    return lib.pl_rotary_channels(whole(d, 1, 1 << 16, "d"))


def angles(P: int, F: int, d: int) -> NDArray[np.float32]:
    """(P + F*F, R/2) radians: text axis, row axis, column axis. [ref/rotary.h]

    >>> angles(P=3, F=0, d=6).round(3)
    array([[  0.   , -31.416, -31.416],
           [  1.   , -31.416, -31.416],
           [  2.   , -31.416, -31.416]], dtype=float32)
    """
    out = np.zeros((whole(P, 0, 1 << 20, "P") + whole(F, 0, 1 << 10, "F")**2, rotary_channels(d) // 2), np.float32)
    lib.pl_rotary_angles(at(out), P, F, d)
    return out


def codebook(map: str = "signed", rule: str = "run") -> NDArray[np.float32]:
    """The 256 values of an 8-bit moment, ascending; map: "signed", "unsigned". [ref/quant.h]

    >>> book = codebook()
    >>> len(book), float(book[0]), float(book[127]), float(book[255])
    (256, -1.0, 0.0, 1.0)
    """
    book = np.zeros(c.CODES, np.float32)
    lib.pl_codebook(at(book), choose(MAPS, map, "map"), choose(RULES, rule, "rule"))
    return book


def schedule(peak: float, warmup: int, total: int, step: int) -> float:
    """The learning rate of the update that leads from `step` to the next one. [ref/schedule.h]

    >>> [schedule(1.0, warmup=2, total=6, step=s) for s in range(7)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    return lib.pl_schedule_linear(peak, warmup, total, step)


def balance(bandwidth: ArrayLike, total: int, min_size: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(fractions, elements): how much of a vector each peer reduces. Bandwidth 0: only sends; -1:
    unknown. [ref/balance.h]

    >>> balance([100, 100, 0], total=1000)[1]
    array([500, 500,   0])
    """
    bandwidth = array(bandwidth, np.float64, (None,), "bandwidth")
    n, total = whole(len(bandwidth), 1, 65536, "peers"), whole(total, 1, 1 << 40, "total")
    fraction, share = np.zeros(n), np.zeros(n, np.uint64)
    call("pl_balance_fractions", at(fraction), at(bandwidth), n, total, min_size)
    call("pl_balance", at(share), at(bandwidth), n, total, min_size)
    return fraction, share.astype(np.int64)


def partition(elements: ArrayLike, fraction: ArrayLike, method: str = "uniform8", part_bytes: int = 1 << 19) -> NDArray[np.int64]:
    """Parts of tensors: an array with the columns tensor, index, start, length, reducer.
    [ref/partition.h]

    >>> partition([10], [0.5, 0.5], method="none", part_bytes=20)
    array([[0, 0, 0, 5, 0],
           [0, 1, 5, 5, 1]])
    """
    elements = array(elements, np.uint64, (None,), "elements")
    fraction = array(fraction, np.float64, (None,), "fraction")
    methods = np.full(len(elements), choose(METHODS, method, "method"), np.int32)
    parts, count = ctypes.POINTER(c.Part)(), ctypes.c_size_t()
    call("pl_partition", ctypes.byref(parts), ctypes.byref(count), at(elements), at(methods), len(elements),
         at(fraction), whole(len(fraction), 1, 65536, "peers"), whole(part_bytes, 1, 1 << 30, "part_bytes"))
    names = ("tensor", "index", "start", "length", "reducer")
    out = np.array([[getattr(parts[i], k) for k in names] for i in range(count.value)], np.int64)
    lib.pl_free(parts)
    return out.reshape(-1, len(names))


def average_group(tensors: Sequence[ArrayLike | None], weights: Sequence[float] | None = None, roles: Sequence[str] | None = None,
                  fractions: Sequence[float] | None = None, method: str = "float16", part_bytes: int = 1 << 19,
                  backend: Backend | None = None) -> list[NDArray[np.float32] | None]:
    """What each member of a group holds after one round of averaging: tensors[i] is member i's
    vector (None: an auxiliary that has none). A list of the same shape comes back. roles: "node",
    "client", "auxiliary". [ref/average.h]

    >>> average_group([[1.0, 2.0], [4.0, 8.0]], weights=[2, 1], method="none")
    [array([2., 4.], dtype=float32), array([2., 4.], dtype=float32)]
    """
    backend = backend or Backend("ref")
    n = whole(len(tensors), 1, 65536, "members")
    own = [None if t is None else array(t, what="tensor").copy() for t in tensors]
    lengths = {t.size for t in own if t is not None}
    if len(lengths) != 1:
        raise ValueError(f"tensors: one length expected, these have {sorted(lengths)}")
    roles = roles or ["node"] * n
    weights = [1.0] * n if weights is None else list(weights)
    fractions = [float(r != "client") for r in roles] if fractions is None else list(fractions)
    if not len(roles) == len(weights) == len(fractions) == n:
        raise ValueError(f"{n} members, but {len(roles)} roles, {len(weights)} weights, {len(fractions)} fractions")
    members = (c.Member * n)()
    pointers = [(ctypes.c_void_p * 1)(at(t)) for t in own]
    for i, member in enumerate(members):
        member.role, member.weight, member.fraction = choose(ROLES, roles[i], "role"), weights[i], fractions[i]
        if own[i] is not None:
            member.tensor = pointers[i]
    elements, methods = (ctypes.c_size_t * 1)(lengths.pop()), (ctypes.c_int * 1)(choose(METHODS, method, "method"))
    group = c.Group(member=members, members=n, tensors=1, elements=elements, method=methods, part_bytes=part_bytes)
    call("pl_average_group", ctypes.byref(group), backend.address)
    return own


# -- the table of operations -----------------------------------------------------------------------


class Moments:
    """What an optimizer remembers of one tensor: floats, or with bits=8 codes and a scale a
    block."""

    def __init__(self, n: int, bits: int = 32, block: int = 4096, rule: str = "run"):
        self.n, self.block = n, block
        self.struct = c.Moments(block=block, rule=choose(RULES, rule, "rule"))
        if bits not in (8, 32):
            raise ValueError(f"bits is {bits}, expected 8 or 32")
        if bits == 32:
            self.arrays = [np.zeros(n, np.float32) for _ in range(2)]
        else:
            self.arrays = [np.zeros(n, np.uint8) for _ in range(2)]
            self.scales = [np.zeros(-(-n // block), np.float32) for _ in range(2)]
        for k in range(2):
            (self.struct.value if bits == 32 else self.struct.code)[k] = at(self.arrays[k])
            if bits == 8:
                self.struct.absmax[k] = at(self.scales[k])
        self.bytes = sum(a.nbytes for a in self.arrays) + (sum(a.nbytes for a in self.scales) if bits == 8 else 0)


class Backend:
    """A table of operations: "ref" reads like the equations, "fast" uses all cores, "auto" takes
    the best."""

    def __init__(self, name: str = "auto", threads: int = 0):
        self.table = c.Backend()
        self.address = ctypes.byref(self.table)
        call("pl_backend_open", self.address, name.encode())
        if not c.Backend.later.offset <= self.table.size <= ctypes.sizeof(c.Backend):
            raise ImportError(f"libpotluck.so has a table of {self.table.size} bytes, signatures.py one of "
                              f"{c.Backend.later.offset} or a little more: they are of different versions")
        if self.table.name == b"cuda":
            raise ImportError("the notebooks pass numpy's memory, which a device cannot read: take 'fast'")
        check(self.table.set_threads(whole(threads, 0, 1024, "threads")))
        self.name, self.note = self.table.name.decode(), self.table.note.decode()

    def __repr__(self):
        return f"<potluck backend {self.note or self.name}>"

    # transformer

    def linear(self, x: ArrayLike, W: ArrayLike, b: ArrayLike | None = None) -> NDArray[np.float32]:
        """x (n,D) times the transposed W (m,D), plus b (m). [ref/linear.h]

        >>> Backend("ref").linear([[1, 2]], [[3, 4], [5, 6]], [0, 1])
        array([[11., 18.]], dtype=float32)
        """
        x, W = array(x, shape=(None, None), what="x"), array(W, shape=(None, np.shape(x)[1]), what="W")
        b = None if b is None else array(b, shape=(len(W),), what="b")
        y = np.zeros((len(x), len(W)), np.float32)
        check(self.table.linear(at(y), at(x), at(W), at(b), len(x), x.shape[1], len(W)))
        return y

    def layer_norm(self, x: ArrayLike, weight: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> NDArray[np.float32]:
        """Each row of x (n,D) with mean 0 and deviation 1, times weight, plus bias. [ref/norm.h]"""
        x = array(x, shape=(None, None), what="x")
        weight, bias = (array(v, shape=(x.shape[1],), what="weight, bias") for v in (weight, bias))
        y = np.zeros_like(x)
        check(self.table.layer_norm(at(y), at(x), at(weight), at(bias), *x.shape, eps))
        return y

    def geglu(self, z: ArrayLike) -> NDArray[np.float32]:
        """u gelu(g), (n,D), where z (n,2D) holds u and then g. [ref/feedforward.h]"""
        z = array(z, shape=(None, None), what="z")
        if z.shape[1] % 2:
            raise ValueError(f"z: {z.shape[1]} columns, expected an even number")
        y = np.zeros((len(z), z.shape[1] // 2), np.float32)
        check(self.table.geglu(at(y), at(z), len(z), y.shape[1]))
        return y

    def shift(self, x: ArrayLike, P: int, F: int) -> NDArray[np.float32]:
        """x (B,n,D) with channels of the tokens before, above and to the left. [ref/shift.h]"""
        x = array(x, shape=(None, None, None), what="x")
        whole(x.shape[1], 1, P + F * F, "positions of x")
        y = np.zeros_like(x)
        check(self.table.shift(at(y), at(x), *x.shape, P, F))
        return y

    def rotary(self, x: ArrayLike, angle: ArrayLike, inverse: bool = False) -> NDArray[np.float32]:
        """x (B,n,G,d) with the pairs (2i, 2i+1) of each head rotated by angle (n, R/2)."""
        x = array(x, shape=(None, None, None, None), what="x").copy()
        B, n, G, d = x.shape
        angle = array(angle, shape=(n, None), what="angle")
        R = whole(2 * angle.shape[1], 2, d, "channels that rotate")
        cosine, sine = np.zeros_like(angle), np.zeros_like(angle)
        lib.pl_rotary_tables(at(cosine), at(sine), at(angle), angle.size)
        check(self.table.rotary(at(x), at(cosine), at(sine), B, n, G, d, R, int(inverse)))
        return x

    def attention(self, qkv: ArrayLike, kind: str, P: int, F: int) -> NDArray[np.float32]:
        """qkv (B,n,3,H,d), rotated: o (B,n,H,d)."""
        qkv = array(qkv, shape=(None, None, 3, None, None), what="qkv")
        B, n, _, H, d = qkv.shape
        m = mask_struct(kind, P, F)
        whole(n, 1, m.P + m.F**2, "positions of qkv")
        o = np.zeros((B, n, H, d), np.float32)
        check(self.table.attention(at(o), None, at(qkv), B, n, H, d, ctypes.byref(m), None))
        return o

    # codes

    def quantize(self, x: ArrayLike, block: int = 4096, map: str = "signed", rule: str = "run") -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """(codes, absmax), both flat. [8-bit optimizers, section 2]

        >>> codes, absmax = Backend("ref").quantize([0.0, 3.0, -3.0], block=3)
        >>> codes, absmax
        (array([127, 255,   0], dtype=uint8), array([3.], dtype=float32))
        """
        x = array(x).ravel()
        block = whole(block, 1, 1 << 40, "block")
        codes, absmax = np.zeros(x.size, np.uint8), np.zeros(-(-x.size // block), np.float32)
        check(self.table.quantize(at(codes), at(absmax), at(x), x.size, block, choose(MAPS, map, "map"),
                                  choose(RULES, rule, "rule")))
        return codes, absmax

    def dequantize(self, codes: ArrayLike, absmax: ArrayLike, book: ArrayLike, block: int = 4096) -> NDArray[np.float32]:
        """book[code] times the block's absmax.

        >>> Backend("ref").dequantize([127, 255, 0], [3.0], codebook(), block=3)
        array([ 0.,  3., -3.], dtype=float32)
        """
        codes, block = array(codes, np.uint8, (None,), "codes"), whole(block, 1, 1 << 40, "block")
        absmax = array(absmax, shape=(-(-codes.size // block),), what="absmax")
        book, y = array(book, shape=(c.CODES,), what="book"), np.zeros(codes.size, np.float32)
        check(self.table.dequantize(at(y), at(codes), at(absmax), codes.size, block, at(book)))
        return y

    def through(self, x: ArrayLike, method: str) -> NDArray[np.float32]:
        """What is left of x on its way to another peer: "float16", "uniform8" or "quantile8".
        [ref/compress.h]"""
        x = array(x).ravel()
        y, codes, table = np.zeros_like(x), np.zeros(x.size, np.uint16), np.zeros(c.CODES, np.float32)
        if method == "float16":
            check(self.table.float16_encode(at(codes), at(x), x.size))
            check(self.table.float16_decode(at(y), at(codes), x.size))
            return y
        if method == "uniform8":
            check(self.table.uniform8_encode(at(codes), at(table), at(x), x.size))
        elif method == "quantile8":
            check(self.table.quantile8_encode(at(codes), at(table), at(x), x.size))
        else:
            raise ValueError(f"method is {method!r}, expected 'float16', 'uniform8' or 'quantile8'")
        check(self.table.table8_decode(at(y), at(codes), at(table), x.size))
        return y

    # optimizers: p changes in place

    def lamb(self, p: NDArray[np.float32], g: ArrayLike, moments: Moments, lr: float, beta1: float = 0.9, beta2: float = 0.96,
             eps: float = 1e-6, decay: float = 0.0, clamp: float = 1e4) -> tuple[float, float, float]:
        """One step of LAMB; the weight's norm, the step's norm and their trust ratio.
        [ref/lamb.h]"""
        g = self._same(p, g, moments)
        u, norms = np.zeros_like(g), c.LambNorms()
        step = c.Lamb(lr=lr, beta1=beta1, beta2=beta2, eps=eps, decay=decay, clamp=clamp, clip=1, chunk=0)
        check(self.table.lamb(ctypes.byref(norms), at(p), at(u), at(g), ctypes.byref(moments.struct), p.size,
                              ctypes.byref(step)))
        return norms.weight, norms.step, norms.trust

    def adam(self, p: NDArray[np.float32], g: ArrayLike, moments: Moments, lr: float, t: int, beta1: float = 0.9,
             beta2: float = 0.999, eps: float = 1e-8, decay: float = 0.0) -> None:
        """Step number t, from 1, of AdamW. [ref/adam.h]"""
        g = self._same(p, g, moments)
        step = c.Adam(lr=lr, beta1=beta1, beta2=beta2, eps=eps, decay=decay, bias1=1 - beta1**t, bias2=1 - beta2**t,
                      clip=1)
        check(self.table.adam(at(p), at(g), ctypes.byref(moments.struct), p.size, ctypes.byref(step)))

    @staticmethod
    def _same(p, g, moments):
        if not (isinstance(p, np.ndarray) and p.dtype == np.float32 and p.flags.c_contiguous and p.flags.writeable):
            raise TypeError("p: a contiguous float32 array expected, since it changes in place")
        if moments.n != p.size or p.size == 0:
            raise ValueError(f"p has {p.size} elements, its moments {moments.n}")
        return array(g, shape=p.shape, what="g")

    # averaging

    def centered_clip(self, x: ArrayLike, tau: float, iterations: int = 1, v: ArrayLike | None = None,
                      weights: ArrayLike | None = None) -> tuple[NDArray[np.float64], int]:
        """(v, how many inputs were beyond the radius in the last iteration) of x (n,d).
        [ref/centered_clip.h]

        >>> Backend("ref").centered_clip([[0.0], [0.0], [0.0], [1000.0]], tau=1.0)
        (array([0.25]), 1)
        """
        x = array(x, shape=(None, None), what="x")
        v = np.zeros(x.shape[1]) if v is None else array(v, np.float64, (x.shape[1],), "v").copy()
        weights = None if weights is None else array(weights, np.float64, (len(x),), "weights")
        result = c.ClipResult()
        how = c.Clip(tau=tau, iterations=whole(iterations, 1, 10**6, "iterations"), stop_norm=-1, stop_largest=-1)
        check(self.table.centered_clip(at(v), ctypes.byref(result), at(x), at(weights), *x.shape, ctypes.byref(how)))
        return v, result.clipped

    def median(self, x: ArrayLike) -> NDArray[np.float32]:
        """The lower median of every coordinate of x (n,d).

        >>> Backend("ref").median([[1.0, 5.0], [2.0, 6.0], [9.0, 7.0]])
        array([2., 6.], dtype=float32)
        """
        x = array(x, shape=(None, None), what="x")
        whole(len(x), 1, INT, "inputs")
        m = np.zeros(x.shape[1], np.float32)
        check(self.table.median(at(m), at(x), *x.shape, 0))
        return m
