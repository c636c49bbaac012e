"""Between Python and C: arrays with a checked shape, and statuses that become exceptions."""

import ctypes

import numpy as np

from . import signatures

lib = signatures.load()


class PotluckError(Exception):
    """What the library refused; `status` is the number of ref/base.h."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


def check(status, error=None):
    """Raises unless status is PL_OK; `error` is the signatures.Error that the call could fill."""
    if status < 0:
        sentence = error.text.decode("utf-8", "replace") if error and error.text else ""
        raise PotluckError(status, sentence or lib.pl_status_name(status).decode())


def call(name, *arguments):
    """A function whose last argument is a struct pl_err *."""
    error = signatures.Error()
    check(getattr(lib, name)(*arguments, ctypes.byref(error)), error)


def array(x, dtype=np.float32, shape=None, what="array"):
    """x as C reads it: contiguous, of this type. `shape` may hold None for any length. Copies only
    if it must."""
    x = np.asarray(x)
    if np.dtype(dtype).kind in "iu" and x.dtype.kind not in "iub":
        raise TypeError(f"{what}: whole numbers expected, these are {x.dtype}")
    if shape is not None and (x.ndim != len(shape) or any(s not in (None, n) for s, n in zip(shape, x.shape))):
        wanted = tuple("any" if s is None else s for s in shape)
        raise ValueError(f"{what}: shape {x.shape}, expected {wanted}")
    if np.dtype(dtype).kind in "iu" and x.size:
        info = np.iinfo(dtype)
        if x.min() < info.min or x.max() > info.max:
            raise ValueError(f"{what}: values from {x.min()} to {x.max()} do not fit into {np.dtype(dtype)}")
    return np.ascontiguousarray(x, dtype=dtype)


def at(x):
    """The address of an array that `array` or numpy made; None stays NULL."""
    return None if x is None else x.ctypes.data


def whole(x, least, most, what):
    """A whole number in a range, for C's int and size_t."""
    if int(x) != x or not least <= x <= most:
        raise ValueError(f"{what} is {x}, expected a whole number from {least} to {most}")
    return int(x)
