"""An OpenBLAS older than the processor takes it for one of twenty years ago: Debian's 0.3.21 gives
a processor of 2023 its Prescott kernels. A peer that is timed gets the best that it has for what
the processor can do; ours is not concerned, for its products are its own there."""

import os
import subprocess
import sys

ASK = """
import ctypes
blas = ctypes.CDLL("libopenblas.so.0")
blas.openblas_get_corename.restype = ctypes.c_char_p
print(blas.openblas_get_corename().decode())
"""


def best_kernels():
    """Before torch or numpy is imported: OpenBLAS reads the environment while it is loaded."""
    if "OPENBLAS_CORETYPE" in os.environ:
        return
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True)
    if asked.stdout.strip() != "Prescott":
        return
    with open("/proc/cpuinfo") as f:
        flags = next((line.split() for line in f if line.startswith("flags")), [])
    if "avx512bw" in flags and "avx512vl" in flags:
        os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    elif "avx2" in flags:
        os.environ["OPENBLAS_CORETYPE"] = "Haswell"
