"""potluck from Python: libpotluck.so by ctypes, for those who study the algorithms in a notebook.

    import potluck
    fast = potluck.Backend("fast")
    potluck.mask("axial_row", P=5, F=4)              # which token may attend to which, as a bool
                                                     array
    codes, absmax = fast.quantize(x, block=4096)
    model = potluck.Model.load("out/demo")           # a training's folder
    potluck.Optimizer(params, run="digits")          # your training loop in a swarm

In a source tree the library is build/libpotluck.so, elsewhere the installed one; the environment
variable POTLUCK_LIBRARY names another. Every function checks shapes and lengths before C sees them; what C refuses becomes an exception
with the sentence that the library wrote. signatures.py lists what is called; the C headers say what
it means.
"""

from .core import PotluckError, lib
from .operations import (Backend, angles, average_group, balance, codebook, mask, partition,
                         rotary_channels, schedule)
from .lab import lab
from .model import Codec, Config, Model, Tokenizer, Trainer, pairs
from .optimizer import Event, Optimizer, Status
from .program import Program, program

__all__ = ["Backend", "Codec", "Config", "Event", "Model", "Optimizer", "PotluckError", "Program", "Status", "Tokenizer", "Trainer", "angles",
           "average_group", "balance", "codebook", "lab", "lib", "mask", "pairs", "partition",
           "program", "rotary_channels", "schedule"]
