/* pickle_globals.c - see pickle_globals.h. Nothing of these is ever called: a tensor is built by
 * our code from the arguments of _rebuild_tensor*, all others are passed over. What is not here is
 * refused all the same, because a checkpoint that mentions os.system was not made to be loaded. */
#include "pickle_globals.h"

#include <string.h>

/* An entry that ends in '.' or ' ' stands for everything that begins so. */
static const char *const known[] = {
    /* tensors and their storages */
    "torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state",
    "torch FloatStorage", "torch DoubleStorage", "torch HalfStorage", "torch BFloat16Storage",
    "torch LongStorage", "torch IntStorage", "torch ShortStorage", "torch CharStorage",
    "torch ByteStorage", "torch BoolStorage", "torch UntypedStorage",
    "torch.storage UntypedStorage",
    "torch.storage TypedStorage", "torch.storage _TypedStorage",
    "torch.nn.parameter Parameter", "torch Tensor", "torch Size", "torch device",
    "torch float32", "torch float64", "torch float16", "torch bfloat16", "torch int64",
    "torch int32",
    "torch int16", "torch int8", "torch uint8", "torch bool", "torch strided",
    "torch.serialization _get_layout",
    /* modules as TorchScript stores them */
    "__torch__ ", "__torch__.",
    /* plain data of Python and numpy */
    "collections OrderedDict", "collections defaultdict", "collections Counter",
    "collections deque",
    "_codecs encode", "argparse Namespace", "types SimpleNamespace", "pathlib PosixPath",
    "pathlib Path",
    "pathlib PurePosixPath", "datetime datetime", "datetime timedelta", "enum ",
    "builtins set", "builtins frozenset", "builtins bytearray", "builtins complex",
    "builtins slice",
    "builtins range", "builtins int", "builtins float", "builtins dict", "builtins list",
    "builtins tuple",
    "builtins str", "builtins bytes", "builtins bool", "builtins object",
    "__builtin__ set", "__builtin__ frozenset", "__builtin__ bytearray", "__builtin__ complex",
    "__builtin__ slice", "__builtin__ xrange", "__builtin__ long", "__builtin__ int",
    "__builtin__ float",
    "__builtin__ dict", "__builtin__ list", "__builtin__ object", "__builtin__ bytes",
    "__builtin__ unicode",
    "copyreg _reconstructor", "copy_reg _reconstructor",
    "numpy dtype", "numpy ndarray", "numpy.core.multiarray scalar", "numpy._core.multiarray scalar",
    "numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct",
    "numpy.dtypes ", "numpy.random._pickle __randomstate_ctor",
    "numpy.random._pickle __generator_ctor",
    /* settings, callbacks and states of the programs that train such models */
    "pytorch_lightning.", "lightning.", "lightning_fabric.", "lightning_utilities.", "omegaconf.",
    "transformers.", "torch.optim.", "torch.cuda.amp.", "torch.amp.", "dalle_pytorch.", "taming.",
    "__main__ ", "main ", "hivemind.", "bitsandbytes.", "torch_optimizer.",
};

int pl_pickle_global_known(const char *global, size_t bytes)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i]);
        int front = known[i][n - 1] == '.' || known[i][n - 1] == ' ';
        if ((front ? bytes > n : bytes == n) && !memcmp(global, known[i], n)) return 1;
    }
    return 0;
}
