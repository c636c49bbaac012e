"""The algorithms themselves: masks, angles, code books, sharing out, and the table of operations of
a backend (ref/backend.h), each on numpy arrays."""

import ctypes

import numpy as np

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


def mask(kind, P, F, n=None):
    """(n, n) bools: may query (row) look at key (column)? P text positions, then F x F image cells.
    kind: "full", "axial_row", "axial_col", "conv5", ... [ref/mask.h]"""
    m = mask_struct(kind, P, F)
    n = whole(m.P + m.F**2 if n is None else n, 1, m.P + m.F**2, "n")
    bits = np.zeros((n, (n + 7) // 8), np.uint8)
    lib.pl_mask_bits(at(bits), ctypes.byref(m), n)
    return np.unpackbits(bits, axis=1)[:, :n].astype(bool)


def rotary_channels(d):
    """How many of a head's d channels turn."""
    return lib.pl_rotary_channels(whole(d, 1, 1 << 16, "d"))


def angles(P, F, d):
    """(P + F*F, R/2) radians: text axis, row axis, column axis. [ref/rotary.h]"""
    out = np.zeros((whole(P, 0, 1 << 20, "P") + whole(F, 0, 1 << 10, "F")**2, rotary_channels(d) // 2), np.float32)
    lib.pl_rotary_angles(at(out), P, F, d)
    return out


def codebook(map="signed", rule="run"):
    """The 256 values of an 8-bit moment, ascending. [ref/quant.h]"""
    book = np.zeros(c.CODES, np.float32)
    lib.pl_codebook(at(book), choose(MAPS, map, "map"), choose(RULES, rule, "rule"))
    return book


def schedule(peak, warmup, total, step):
    """The learning rate of the update that leads from `step` to the next one. [ref/schedule.h]"""
    return lib.pl_schedule_linear(peak, warmup, total, step)


def balance(bandwidth, total, min_size=0):
    """(fractions, elements): how much of a vector each peer reduces. Bandwidth 0: only sends; -1:
    unknown. [ref/balance.h]"""
    bandwidth = array(bandwidth, np.float64, (None,), "bandwidth")
    n, total = whole(len(bandwidth), 1, 65536, "peers"), whole(total, 1, 1 << 40, "total")
    fraction, share = np.zeros(n), np.zeros(n, np.uint64)
    call("pl_balance_fractions", at(fraction), at(bandwidth), n, total, min_size)
    call("pl_balance", at(share), at(bandwidth), n, total, min_size)
    return fraction, share.astype(np.int64)


def partition(elements, fraction, method="uniform8", part_bytes=1 << 19):
    """Parts of tensors: an array with the columns tensor, index, start, length, reducer.
    [ref/partition.h]"""
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


def average_group(tensors, weights=None, roles=None, fractions=None, method="float16", part_bytes=1 << 19,
                  backend=None):
    """What each member of a group holds after one round of averaging: tensors[i] is member i's
    vector (None: an auxiliary that has none). A list of the same shape comes back.
    [ref/average.h]"""
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

    def __init__(self, n, bits=32, block=4096, rule="run"):
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

    def __init__(self, name="auto", threads=0):
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

    def linear(self, x, W, b=None):
        x, W = array(x, shape=(None, None), what="x"), array(W, shape=(None, np.shape(x)[1]), what="W")
        b = None if b is None else array(b, shape=(len(W),), what="b")
        y = np.zeros((len(x), len(W)), np.float32)
        check(self.table.linear(at(y), at(x), at(W), at(b), len(x), x.shape[1], len(W)))
        return y

    def layer_norm(self, x, weight, bias, eps=1e-5):
        x = array(x, shape=(None, None), what="x")
        weight, bias = (array(v, shape=(x.shape[1],), what="weight, bias") for v in (weight, bias))
        y = np.zeros_like(x)
        check(self.table.layer_norm(at(y), at(x), at(weight), at(bias), *x.shape, eps))
        return y

    def geglu(self, z):
        z = array(z, shape=(None, None), what="z")
        if z.shape[1] % 2:
            raise ValueError(f"z: {z.shape[1]} columns, expected an even number")
        y = np.zeros((len(z), z.shape[1] // 2), np.float32)
        check(self.table.geglu(at(y), at(z), len(z), y.shape[1]))
        return y

    def shift(self, x, P, F):
        x = array(x, shape=(None, None, None), what="x")
        whole(x.shape[1], 1, P + F * F, "positions of x")
        y = np.zeros_like(x)
        check(self.table.shift(at(y), at(x), *x.shape, P, F))
        return y

    def rotary(self, x, angle, inverse=False):
        """x (B,n,G,d) with the pairs (2i, 2i+1) of each head rotated by angle (n, R/2)."""
        x = array(x, shape=(None, None, None, None), what="x").copy()
        B, n, G, d = x.shape
        angle = array(angle, shape=(n, None), what="angle")
        R = whole(2 * angle.shape[1], 2, d, "channels that rotate")
        cosine, sine = np.zeros_like(angle), np.zeros_like(angle)
        lib.pl_rotary_tables(at(cosine), at(sine), at(angle), angle.size)
        check(self.table.rotary(at(x), at(cosine), at(sine), B, n, G, d, R, int(inverse)))
        return x

    def attention(self, qkv, kind, P, F):
        """qkv (B,n,3,H,d), rotated: o (B,n,H,d)."""
        qkv = array(qkv, shape=(None, None, 3, None, None), what="qkv")
        B, n, _, H, d = qkv.shape
        m = mask_struct(kind, P, F)
        whole(n, 1, m.P + m.F**2, "positions of qkv")
        o = np.zeros((B, n, H, d), np.float32)
        check(self.table.attention(at(o), None, at(qkv), B, n, H, d, ctypes.byref(m), None))
        return o

    # codes

    def quantize(self, x, block=4096, map="signed", rule="run"):
        """(codes, absmax), both flat. [8-bit optimizers, section 2]"""
        x = array(x).ravel()
        block = whole(block, 1, 1 << 40, "block")
        codes, absmax = np.zeros(x.size, np.uint8), np.zeros(-(-x.size // block), np.float32)
        check(self.table.quantize(at(codes), at(absmax), at(x), x.size, block, choose(MAPS, map, "map"),
                                  choose(RULES, rule, "rule")))
        return codes, absmax

    def dequantize(self, codes, absmax, book, block=4096):
        codes, block = array(codes, np.uint8, (None,), "codes"), whole(block, 1, 1 << 40, "block")
        absmax = array(absmax, shape=(-(-codes.size // block),), what="absmax")
        book, y = array(book, shape=(c.CODES,), what="book"), np.zeros(codes.size, np.float32)
        check(self.table.dequantize(at(y), at(codes), at(absmax), codes.size, block, at(book)))
        return y

    def through(self, x, method):
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

    def lamb(self, p, g, moments, lr, beta1=0.9, beta2=0.96, eps=1e-6, decay=0.0, clamp=1e4):
        """One step of LAMB; the weight's norm, the step's norm and their trust ratio.
        [ref/lamb.h]"""
        g = self._same(p, g, moments)
        u, norms = np.zeros_like(g), c.LambNorms()
        step = c.Lamb(lr=lr, beta1=beta1, beta2=beta2, eps=eps, decay=decay, clamp=clamp, clip=1, chunk=0)
        check(self.table.lamb(ctypes.byref(norms), at(p), at(u), at(g), ctypes.byref(moments.struct), p.size,
                              ctypes.byref(step)))
        return norms.weight, norms.step, norms.trust

    def adam(self, p, g, moments, lr, t, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0):
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

    def centered_clip(self, x, tau, iterations=1, v=None, weights=None):
        """(v, how many inputs were beyond the radius in the last iteration) of x (n,d).
        [ref/centered_clip.h]"""
        x = array(x, shape=(None, None), what="x")
        v = np.zeros(x.shape[1]) if v is None else array(v, np.float64, (x.shape[1],), "v").copy()
        weights = None if weights is None else array(weights, np.float64, (len(x),), "weights")
        result = c.ClipResult()
        how = c.Clip(tau=tau, iterations=whole(iterations, 1, 10**6, "iterations"), stop_norm=-1, stop_largest=-1)
        check(self.table.centered_clip(at(v), ctypes.byref(result), at(x), at(weights), *x.shape, ctypes.byref(how)))
        return v, result.clipped

    def median(self, x):
        """The lower median of every coordinate of x (n,d)."""
        x = array(x, shape=(None, None), what="x")
        whole(len(x), 1, INT, "inputs")
        m = np.zeros(x.shape[1], np.float32)
        check(self.table.median(at(m), at(x), *x.shape, 0))
        return m
