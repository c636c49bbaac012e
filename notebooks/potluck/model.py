"""The text-to-image transformer, its tokenizer, its picture codec, and the pairs it learns from."""

from __future__ import annotations

import ctypes
import os
import pathlib
import tempfile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import signatures as c
from .core import array, at, call, check, lib, whole
from .operations import Backend, choose

ACTIVATIONS = {"reversible": 0, "recomputed": 1, "stored": 2}
MODEL_NAMES = ctypes.cast(lib.pl_dalle_find_param, ctypes.c_void_p)


def demo_file(name):
    """A file of the demo's data: of the source tree, or where `make install` put it."""
    library = c.find().parent
    for folder in (library.parent / "data" / "demo", library.parent / "share" / "potluck" / "demo"):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"no {name} of the demo's data next to {library}")


class Config:
    """Sizes of a model: Config("demo"), Config.read("my.json"), or Config("run", L=8) with some of
    them changed."""

    def __init__(self, name: str = "demo", **sizes: int):
        self.struct = c.DalleConfig()
        call("pl_dalle_config_named", ctypes.byref(self.struct), name.encode())
        for key, value in sizes.items():
            if key not in ("T", "F", "D", "H", "d", "L", "V", "Vi"):
                raise ValueError(f"{key!r} is no size of a model; there are T F D H d L V Vi")
            setattr(self.struct, key, value)
        if "L" in sizes:
            whole(sizes["L"], 1, 256, "L")
            lib.pl_dalle_config_pattern(ctypes.byref(self.struct), 5, 1)
        call("pl_dalle_config_check", ctypes.byref(self.struct))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Config:
        """From a JSON file, as `potluck train --config` reads it."""
        config = cls.__new__(cls)
        config.struct = c.DalleConfig()
        call("pl_dalle_config_read", ctypes.byref(config.struct), str(path).encode())
        return config

    def untied(self) -> Config:
        """The same with a layer for each block: what sharing saves."""
        other = Config.__new__(Config)
        other.struct = c.DalleConfig.from_buffer_copy(self.struct)
        lib.pl_dalle_config_untie(ctypes.byref(other.struct))
        return other

    def __getattr__(self, key):
        if key in ("T", "F", "D", "H", "d", "L", "V", "Vi", "pad"):
            return getattr(self.__dict__["struct"], key)
        raise AttributeError(key)

    def kind(self, block: int) -> str:
        """The mask of a block, as mask() calls it.

        >>> [Config("run").kind(l) for l in (0, 1, 63)]
        ['axial_row', 'axial_col', 'conv5']
        """
        b = self.struct.block[whole(block, 0, self.L - 1, "block")]
        return {0: "full", 1: "axial_row", 2: "axial_col"}.get(b.kind, f"conv{b.kernel}")


class Model:
    """The transformer: its parameters and buffers. All parameters are zero before init() or load().

    >>> from potluck.operations import Backend
    >>> Model(Config("demo", D=16, H=1, d=16, L=2), Backend("ref")).init(seed=1).parameters
    49060
    """

    def __init__(self, config: Config, backend: Backend, gradients: bool = False):
        self.backend, self.gradients = backend, gradients # the model borrows the table, so it stays
        self.pointer = ctypes.POINTER(c.Dalle)()
        call("pl_dalle_open", ctypes.byref(self.pointer), ctypes.byref(config.struct), backend.address, int(gradients))
        self.config = config

    def __del__(self):
        if getattr(self, "pointer", None):
            lib.pl_dalle_close(self.pointer)
            self.pointer = None

    @classmethod
    def load(cls, path: str | os.PathLike[str], backend: Backend) -> Model:
        """From a checkpoint, or the newest one in a training's folder."""
        path = pathlib.Path(path)
        if path.is_dir():
            found = sorted(path.glob("checkpoint-*.safetensors"))
            if not found:
                raise FileNotFoundError(f"{path}: no checkpoint-<step>.safetensors in this folder")
            path = found[-1]
        file = ctypes.c_void_p()
        call("pl_weights_open", ctypes.byref(file), str(path).encode())
        try:
            config = lib.pl_safetensors_meta(file, b"config")
            if config is None:
                raise ValueError(f"{path}: a checkpoint without its model's sizes")
            with tempfile.NamedTemporaryFile("w", suffix=".json") as text:
                text.write(config.decode())
                text.flush()
                model = cls(Config.read(text.name), backend)
            call("pl_checkpoint_load_params", ctypes.byref(model.pointer.contents.params), file, MODEL_NAMES)
        finally:
            lib.pl_safetensors_close(file)
        return model

    def init(self, seed: int = 1) -> Model:
        """Random parameters, as PyTorch draws them; returns the model itself."""
        check(lib.pl_dalle_init(self.pointer, seed))
        return self

    @property
    def parameters(self) -> int:
        """How many, as papers count them."""
        return self.pointer.contents.params.trainable

    @property
    def activations(self) -> str:
        """How the backward pass gets its inputs: "reversible", "recomputed" or "stored"."""
        return list(ACTIVATIONS)[self.pointer.contents.activations]

    @activations.setter
    def activations(self, name):
        self.pointer.contents.activations = choose(ACTIVATIONS, name, "activations")

    def names(self) -> list[str]:
        """Of the parameters, as DALLE-pytorch calls them."""
        params = self.pointer.contents.params
        return [params.list[i].name.decode() for i in range(params.count)]

    def gradient(self) -> NDArray[np.float32]:
        """A copy of all gradients, padding between tensors included."""
        params = self.pointer.contents.params
        if not params.grad:
            raise ValueError("this model was opened without gradients")
        return np.ctypeslib.as_array(params.grad, (params.total,)).copy()

    def clear_gradient(self) -> None:
        """Sets all gradients to zero: step() adds to them."""
        params = self.pointer.contents.params
        if not params.grad:
            raise ValueError("this model was opened without gradients")
        np.ctypeslib.as_array(params.grad, (params.total,))[:] = 0

    def _batch(self, text, codes):
        text = array(text, np.int32, (None, self.config.T), "text")
        return text, array(codes, np.int32, (len(text), self.config.F**2), "codes")

    def step(self, text: ArrayLike, codes: ArrayLike, scale: float = 1.0) -> tuple[float, float, float]:
        """Adds scale times the loss's gradient; the losses (total, text, image), nats a token."""
        if not self.gradients:
            raise ValueError("this model was opened without gradients")
        text, codes = self._batch(text, codes)
        loss = c.DalleLoss()
        call("pl_dalle_step", self.pointer, at(text), at(codes), len(text), scale, ctypes.byref(loss))
        return loss.total, loss.text, loss.image

    def evaluate(self, text: ArrayLike, codes: ArrayLike) -> tuple[tuple[float, float, float], NDArray[np.float32]]:
        """(losses, log-probability of each token (B, T + F*F))."""
        text, codes = self._batch(text, codes)
        logp, loss = np.zeros((len(text), self.config.T + self.config.F**2), np.float32), c.DalleLoss()
        call("pl_dalle_evaluate", self.pointer, at(text), at(codes), len(text), ctypes.byref(loss), at(logp))
        return (loss.total, loss.text, loss.image), logp

    def generate(self, text: ArrayLike, top_k: int = 0, top_p: float = 1.0, temperature: float = 1.0, seed: int = 1,
                 greedy: bool = False) -> NDArray[np.int32]:
        """Codes (n, F*F), drawn one after the other."""
        text = array(text, np.int32, (None, self.config.T), "text")
        how = lib.pl_generate_options()
        how.sampling.top_k, how.sampling.top_p = whole(top_k, 0, 1 << 24, "top_k"), top_p
        how.sampling.temperature, how.seed, how.greedy = temperature, seed, int(greedy)
        codes = np.zeros((len(text), self.config.F**2), np.int32)
        call("pl_generate", self.pointer, at(codes), at(text), len(text), ctypes.byref(how))
        return codes


class Trainer:
    """Gradients of batches, then a step of LAMB ("lamb8", "lamb32"), AdamW ("adamw8", "adamw32") or
    Muon ("muon")."""

    def __init__(self, model: Model, optimizer: str = "lamb8", peak: float = 0.01, warmup: int = 10, total: int = 100):
        ways = {"lamb8": lib.pl_lamb_options, "lamb32": lib.pl_lamb_options, "muon": lambda: lib.pl_muon_options(0.01),
                "adamw8": lambda: lib.pl_adam_options(0.01, 8), "adamw32": lambda: lib.pl_adam_options(0.01, 32)}
        if optimizer not in ways:
            raise ValueError(f"optimizer is {optimizer!r}, expected {', '.join(ways)}")
        how = ways[optimizer]()
        if optimizer == "lamb32":
            how.min_8bit = 0
        options = c.TrainOptions(optimizer=how, peak=peak, warmup=warmup, total=total)
        self.model, self.pointer = model, ctypes.POINTER(c.Trainer)()
        call("pl_trainer_open", ctypes.byref(self.pointer), model.pointer, ctypes.byref(options))

    def __del__(self):
        if getattr(self, "pointer", None):
            lib.pl_trainer_close(self.pointer)
            self.pointer = None

    def step(self, text: ArrayLike, codes: ArrayLike, parts: int = 1) -> c.TrainReport:
        """One step on a batch that is taken in `parts`; the report (lr, grad_norm, loss.total,
        ...)."""
        text, codes = self.model._batch(text, codes)
        report = c.TrainReport()
        for some in zip(np.array_split(text, parts), np.array_split(codes, parts)):
            call("pl_trainer_add", self.pointer, at(some[0]), at(some[1]), len(some[0]))
        check(lib.pl_trainer_mean(self.pointer))
        call("pl_trainer_step", self.pointer, ctypes.byref(report))
        return report


class Tokenizer:
    """T5's, from a spiece.model; the demo's if none is named.

    >>> tokenizer = Tokenizer()
    >>> "".join(tokenizer.pieces(tokenizer.ids("red apple")))
    'redapple'
    """

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self.pointer = ctypes.c_void_p()
        call("pl_unigram_open", ctypes.byref(self.pointer), str(path or demo_file("t5_2k.model")).encode())

    def __del__(self):
        if getattr(self, "pointer", None):
            lib.pl_unigram_close(self.pointer)
            self.pointer = None

    def ids(self, text: str) -> NDArray[np.int32]:
        """Token ids of a text, without an end token."""
        data, count = text.encode(), ctypes.c_size_t()
        out = np.zeros(2 * len(data) + 8, np.int32) # a character of normalized text is at most a piece
        check(lib.pl_unigram_encode(at(out), out.size, ctypes.byref(count), self.pointer, data, len(data), 0))
        return out[:min(count.value, out.size)].copy()

    def row(self, text: str, length: int, pad: int = 1) -> NDArray[np.int32]:
        """Cut or padded, as a model takes it."""
        ids = self.ids(text)[:length]
        return np.concatenate([ids, np.full(length - len(ids), pad)]).astype(np.int32)

    def pieces(self, ids: ArrayLike) -> list[str]:
        """The text of each id alone."""
        out = []
        for one in array(ids, np.int32, (None,), "ids"):
            text, size, id = ctypes.c_void_p(), ctypes.c_size_t(), np.array([one], np.int32)
            check(lib.pl_unigram_decode(ctypes.byref(text), ctypes.byref(size), self.pointer, at(id), 1))
            out.append(ctypes.string_at(text, size.value).decode("utf-8", "replace"))
            libc.free(text)
        return out


libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]


class Codec:
    """A VQGAN: pictures (B, side, side, 3), bytes, to codes (B, F*F) and back."""

    def __init__(self, path: str | os.PathLike[str] | None = None, backend: Backend | None = None):
        backend = backend or Backend("auto")
        self.backend, self.struct, self.open = backend, c.Vqgan(), False
        call("pl_vqgan_open", ctypes.byref(self.struct), str(path or demo_file("codec.safetensors")).encode(),
             backend.address, 0)
        self.open = True
        self.codes, self.factor = self.struct.config.n_embed, 2**(self.struct.config.levels - 1)

    def __del__(self):
        if getattr(self, "open", False):
            lib.pl_vqgan_clear(ctypes.byref(self.struct))
            self.open = False

    def decode(self, codes: ArrayLike) -> NDArray[np.uint8]:
        """Pictures (B, side, side, 3) of codes (B, F*F)."""
        codes = array(codes, np.int32, (None, None), "codes")
        F = int(round(codes.shape[1]**0.5))
        if F * F != codes.shape[1] or lib.pl_vqgan_count_invalid(ctypes.byref(self.struct), at(codes), codes.size):
            raise ValueError(f"codes: a square of them in 0 .. {self.codes - 1} a picture expected")
        x = np.zeros((len(codes), 3, F * self.factor, F * self.factor), np.float32)
        check(lib.pl_vqgan_decode(ctypes.byref(self.struct), at(x), at(codes), len(codes), F, F))
        return ((np.clip(x, -1, 1) + 1) / 2 * 255).astype(np.uint8).transpose(0, 2, 3, 1)

    def encode(self, pictures: ArrayLike) -> NDArray[np.int32]:
        """Codes (B, F*F) of pictures (B, height, width, 3)."""
        x = array(pictures, np.uint8, (None, None, None, 3), "pictures")
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2), np.float32) / 127.5 - 1
        B, _, H, W = x.shape
        if H % self.factor or W % self.factor or not H or not W:
            raise ValueError(f"pictures: {W} x {H} pixels, expected multiples of {self.factor}")
        codes = np.zeros((B, H // self.factor * (W // self.factor)), np.int32)
        check(lib.pl_vqgan_encode(ctypes.byref(self.struct), at(codes), None, at(x), None, B, H, W))
        return codes


def pairs(path: str | os.PathLike[str] | None = None, limit: int | None = None) -> tuple[list[str], NDArray[np.int32]]:
    """(captions, codes (n, F*F)) of a shard, or of the demo's first one.

    >>> captions, codes = pairs(limit=2)
    >>> len(captions), codes.shape
    (2, (2, 64))
    """
    shard, row = ctypes.c_void_p(), c.ShardRow()
    captions, codes = [], []
    call("pl_shard_open", ctypes.byref(shard), str(path or demo_file("emoji-00000.parquet")).encode())
    try:
        for _ in range(min(lib.pl_shard_rows(shard), limit or 1 << 30)):
            call("pl_shard_next", shard, ctypes.byref(row))
            if row.caption and row.code:
                captions.append(ctypes.string_at(row.caption, row.caption_bytes).decode("utf-8", "replace"))
                codes.append(np.frombuffer(ctypes.string_at(row.code, row.code_bytes), "<i2").astype(np.int32))
    finally:
        lib.pl_shard_close(shard)
    return captions, np.stack(codes)
