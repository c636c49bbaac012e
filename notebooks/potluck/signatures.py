"""What libpotluck.so offers and how it is called: every structure and function that the notebooks
use, as the C headers in ref/ and data/ declare them. Nothing here computes.

A structure that does not match its header would read garbage, so test/notebooks/module.py compares
the size of each one and the place of each member with what the C compiler says.
"""

import ctypes as c
import os
import pathlib

P = c.POINTER
f32, f64, u8, i32, u64 = c.c_float, c.c_double, c.c_uint8, c.c_int32, c.c_uint64
i64, size, text, void = c.c_int64, c.c_size_t, c.c_char_p, c.c_void_p
CODES = 256


def find():
    """The library: $POTLUCK_LIBRARY, the wheel's, the build folder of this source tree, or an installed one."""
    named = os.environ.get("POTLUCK_LIBRARY")
    here = pathlib.Path(__file__).resolve()
    places = [named] if named else [here.parent / "installed" / "lib" / "libpotluck.so",
                                    *(up / "build" / "libpotluck.so" for up in here.parents[1:3]),
                                    *(pathlib.Path(p, "lib/libpotluck.so") for p in ("/usr/local", "/usr"))]
    for place in places:
        if pathlib.Path(place).exists():
            return pathlib.Path(place)
    raise ImportError("no libpotluck.so: type 'make' in potluck's folder, or set POTLUCK_LIBRARY to one "
                      "(looked at " + ", ".join(map(str, places)) + ")")


# -- structures ------------------------------------------------------------------------------------


class Error(c.Structure):
    _fields_ = [("text", c.c_char * 512)]


class Rng(c.Structure):
    _fields_ = [("s", u64 * 4)]


class Mask(c.Structure):
    _fields_ = [("kind", c.c_int), ("P", c.c_int), ("F", c.c_int), ("kernel", c.c_int), ("dilation", c.c_int)]


class Moments(c.Structure):
    _fields_ = [("value", void * 2), ("code", void * 2), ("absmax", void * 2), ("block", size), ("rule", c.c_int)]


class Lamb(c.Structure):
    _fields_ = [("lr", f64), ("beta1", f64), ("beta2", f64), ("eps", f64), ("decay", f64), ("clamp", f64),
                ("clip", f32), ("chunk", size)]


class LambNorms(c.Structure):
    _fields_ = [("weight", f32), ("step", f32), ("trust", f32)]


class Adam(c.Structure):
    _fields_ = [("lr", f64), ("beta1", f64), ("beta2", f64), ("eps", f64), ("decay", f64), ("bias1", f64),
                ("bias2", f64), ("clip", f32)]


class Clip(c.Structure):
    _fields_ = [("tau", f64), ("taus", P(f64)), ("iterations", c.c_int), ("stop_norm", f64),
                ("stop_largest", f64), ("total", f64)]


class ClipResult(c.Structure):
    _fields_ = [("iterations", c.c_int), ("clipped", c.c_int), ("step", f64)]


class Part(c.Structure):
    _fields_ = [("tensor", size), ("index", size), ("start", size), ("length", size), ("reducer", c.c_int)]


class Member(c.Structure):
    _fields_ = [("role", c.c_int), ("weight", f64), ("fraction", f64), ("tensor", P(void))]


class Group(c.Structure):
    _fields_ = [("member", P(Member)), ("members", c.c_int), ("tensors", size), ("elements", P(size)),
                ("method", P(c.c_int)), ("part_bytes", size), ("order", P(c.c_int))]


# The operations of a backend, in the table's order: name -> types of its arguments (all return a
# status). `void` is the address of an array; core.py checks what lies there.
n_int = [c.c_int]
OPERATIONS = {
    "fill": [void, f32, size],
    "copy": [void, void, size],
    "axpy": [void, f32, void, size],
    "scale": [void, f32, size],
    "sumsq": [P(f64), void, size],
    "linear": [void] * 4 + n_int * 3,
    "linear_dx": [void] * 3 + n_int * 4,
    "linear_dw": [void] * 4 + n_int * 3,
    "layer_norm": [void] * 4 + n_int * 2 + [f32],
    "layer_norm_backward": None,
    "scale_add": None,
    "layer_scale_backward": None,
    "embed": None,
    "embed_backward": None,
    "shift": [void, void] + n_int * 5,
    "shift_backward": None,
    "activation": [void, void, size, c.c_int],
    "activation_backward": None,
    "geglu": [void, void] + n_int * 2,
    "geglu_backward": None,
    "ffn": None,
    "ffn_backward": None,
    "rotary": [void] * 3 + n_int * 6,
    "attention": [void] * 3 + n_int * 4 + [P(Mask), void],
    "attention_backward": None,
    "attention_step": None,
    "loss": None,
    "conv": None,
    "conv_dx": None,
    "conv_dw": None,
    "upsample": None,
    "upsample_backward": None,
    "group_norm": None,
    "group_norm_backward": None,
    "transpose": None,
    "nearest_code": [void] * 3 + n_int * 4,
    "code_rows": None,
    "code_rows_backward": None,
    "gumbel_code": [void] * 3 + n_int * 3,
    "gumbel_soft": [void] * 3 + [f32] + n_int * 3,
    "kl_uniform": None,
    "gumbel_backward": None,
    "pixel_loss": None,
    "quantize": [void] * 3 + [size, size] + n_int * 2,
    "dequantize": [void] * 3 + [size, size, void],
    "lamb": [P(LambNorms), void, void, void, P(Moments), size, P(Lamb)],
    "adam": [void, void, P(Moments), size, P(Adam)],
    "float16_encode": [void, void, size],
    "float16_decode": [void, void, size],
    "uniform8_encode": [void, void, void, size],
    "table8_decode": [void, void, void, size],
    "average_add": None,
    "average_delta": None,
    "centered_clip": [void, P(ClipResult), void, void, c.c_int, size, P(Clip)],
    "median": [void, void, c.c_int, size, c.c_int],
    "average_sum": None,
    "average_apply": None,
    "average_delta8": None,
}
# ref/backend.h again: optional functions of a backend that are not operations, then
# PL_OPERATIONS_LATER.
OPTIONAL = ("set_memory memory_error parallel_for host_alloc host_free get_begin put_begin copy_end copy_join set_devices "
          "device_count use_device peer_copy weights memory_peak").split()
LATER = {
    "meanstd16_encode": [void] * 4 + [size, size],
    "meanstd16_decode": [void, c.c_int] + [void] * 3 + [size, size],
    "quantile8_encode": [void, void, void, size],
    "average_reduce8": None,
}


class Backend(c.Structure):
    _fields_ = [("size", size), ("name", text), ("note", c.c_char * 256),
                ("alloc", c.CFUNCTYPE(void, size)), ("free", c.CFUNCTYPE(None, void)),
                ("put", c.CFUNCTYPE(c.c_int, void, void, size)), ("get", c.CFUNCTYPE(c.c_int, void, void, size)),
                ("sync", c.CFUNCTYPE(c.c_int)), ("set_threads", c.CFUNCTYPE(c.c_int, c.c_int)),
                ("set_precision", c.CFUNCTYPE(c.c_int, c.c_int)),
                *((name, c.CFUNCTYPE(c.c_int, *types) if types else void) for name, types in OPERATIONS.items()),
                *((name, void) for name in OPTIONAL), ("many_threads", c.c_int),
                *((name, c.CFUNCTYPE(c.c_int, *types) if types else void) for name, types in LATER.items()),
                ("later", void * 64)] # the table only grows at its end: reserved for newer operations


class DalleBlock(c.Structure):
    _fields_ = [("group", c.c_int), ("kind", c.c_int), ("kernel", c.c_int), ("dilation", c.c_int)]


class DalleConfig(c.Structure):
    _fields_ = [("name", c.c_char * 32), *((n, c.c_int) for n in "T F D H d L V Vi pad".split()),
                ("image_weight", f64), ("separate_embedding", c.c_int), ("block", DalleBlock * 256)]


class Param(c.Structure):
    _fields_ = [("name", c.c_char * 128), ("dims", c.c_int), ("shape", i64 * 8), ("n", size), ("offset", size),
                ("decay", c.c_int), ("is_block", c.c_int)]


class Params(c.Structure):
    _fields_ = [("be", P(Backend)), ("list", P(Param)), ("count", size), ("capacity", size), ("total", size),
                ("trainable", size), ("value", P(f32)), ("grad", P(f32))]


class Blocks(c.Structure):
    _fields_ = [("config", P(DalleConfig)), ("params", P(Params)), ("be", P(Backend)), ("list", void),
                *((n, c.c_int) for n in "PSER"), ("angle", P(f32)), ("cosine", void), ("sine", void)]


class BranchScratch(c.Structure):
    _fields_ = [("norm", void), ("dy", void), ("wide", void)]


class Stack(c.Structure):
    _fields_ = [("blocks", Blocks), ("mode", c.c_int), ("training", c.c_int), ("capacity", c.c_int), ("arena", void),
                ("arena_floats", size), ("a", void), ("b", void), ("attn", void), ("ffn", void),
                ("scratch", BranchScratch), ("da", void), ("db", void)]


class TokenNoise(c.Structure):
    _fields_ = [("share", f64), ("seed", u64), ("first", u64)]


class Dalle(c.Structure):
    _fields_ = [("config", DalleConfig), ("be", P(Backend)), ("params", Params), ("stack", Stack),
                *((n, size) for n in "norm_weight norm_bias embedding output_bias text_embedding image_embedding".split()),
                ("activations", c.c_int), ("samples", c.c_int), ("shards", c.c_int), ("noise", TokenNoise),
                ("buffers", void)]


class DalleLoss(c.Structure):
    _fields_ = [("total", f64), ("text", f64), ("image", f64)]


class OptimizerOptions(c.Structure):
    _fields_ = [("kind", c.c_int), *((n, f64) for n in "beta1 beta2 eps decay max_grad_norm clamp momentum".split()),
                ("bias_correction", c.c_int), ("min_8bit", size), ("block", size), ("rule", c.c_int),
                ("chunk", size), ("keep_grad", c.c_int), ("host", P(Backend))]


class TrainOptions(c.Structure):
    _fields_ = [("optimizer", OptimizerOptions), ("peak", f64), ("warmup", u64), ("total", u64), ("devices", c.c_int),
                ("noise", f64), ("noise_seed", u64)]


class Trainer(c.Structure):
    _fields_ = [("model", P(Dalle)), ("optimizer", void), ("options", TrainOptions), ("step", u64),
                ("samples", u64), ("sum", DalleLoss), ("delayed_value", void), ("delayed_grad", void),
                ("delayed_samples", u64), ("delayed_sum", DalleLoss), ("delayed_lost", c.c_int),
                ("delayed_ruined", c.c_int), ("replicas", void), ("good_value", void), ("good_state", void),
                ("good_step", u64), ("good_steps", u64)]


class TrainReport(c.Structure):
    _fields_ = [("lr", f64), ("grad_norm", f64), ("loss", DalleLoss), ("samples", u64)]


class Sampling(c.Structure):
    _fields_ = [("top_k", c.c_int), ("top_p", f64), ("temperature", f64)]


class GenerateOptions(c.Structure):
    _fields_ = [("sampling", Sampling), ("greedy", c.c_int), ("guidance", f64), ("seed", u64),
                ("first_image", u64), ("batch", c.c_int), ("uncached", c.c_int),
                ("progress", c.CFUNCTYPE(c.c_int, void, i64, i64)), ("context", void)]


class VqganConfig(c.Structure):
    _fields_ = [("ch", c.c_int), ("ch_mult", c.c_int * 8), ("levels", c.c_int), ("num_res_blocks", c.c_int),
                ("attn_resolutions", c.c_int * 8), ("attns", c.c_int), ("resolution", c.c_int),
                ("z_channels", c.c_int), ("embed_dim", c.c_int), ("n_embed", c.c_int), ("gumbel", c.c_int),
                ("kl_weight", f32), ("norm_groups", c.c_int)]


class VqBlock(c.Structure):
    _fields_ = [("kind", c.c_int), ("in", c.c_int), ("out", c.c_int), ("K", c.c_int), ("groups", c.c_int),
                ("name", c.c_char * 64), ("param", size * 5)]


class Vqgan(c.Structure):
    _fields_ = [("config", VqganConfig), ("params", Params), ("scratch", void), ("encoder", VqBlock * 158),
                ("decoder", VqBlock * 158), ("encoders", c.c_int), ("decoders", c.c_int), ("quant_conv", VqBlock),
                ("post_quant_conv", VqBlock), ("proj", VqBlock), ("table", size), ("watch", void),
                ("context", void)]


class ShardRow(c.Structure):
    _fields_ = [("caption", void), ("caption_bytes", size), ("nsfw", void), ("nsfw_bytes", size), ("width", f64),
                ("height", f64), ("code", void), ("code_bytes", size), ("key", text)]


# net/hivemind/optimizer.h, optimizer_options.h, optimizer_events.h

class CollaborativeTensor(c.Structure):
    _fields_ = [("name", text), ("dims", c.c_int), ("shape", i64 * 8), ("value", void), ("no_decay", c.c_int)]


class CollaborativeRun(c.Structure):
    _fields_ = [("name", text), ("initial_peers", P(text)), ("initial_peer_count", size), ("listen", P(text)),
                ("listen_count", size), ("announce", P(text)), ("announce_count", size), ("identity", text),
                ("client_mode", c.c_int), ("no_port_mapping", c.c_int), ("authority", text), ("token_file", text),
                ("authority_ca", text), ("node", void)]


class CollaborativeStatus(c.Structure):
    _fields_ = [("epoch", i64), ("global_epoch", i64), ("samples", i64), ("global_samples", i64), ("peers", size),
                ("eta_s", f64), ("samples_per_second", f64)]


class CollaborativeRound(c.Structure):
    _fields_ = [("status", c.c_int), ("peers", size), ("verified", c.c_int), ("banned", c.c_int), ("seconds", f64),
                ("group", u8 * 20), ("why", text), ("caught", text)]


class CollaborativeEvent(c.Structure):
    _fields_ = [("kind", c.c_int), ("status", CollaborativeStatus), ("round", CollaborativeRound), ("loss", f64),
                ("samples", i64), ("global_samples", i64), ("due", c.c_int), ("seconds", f64), ("text", text)]


RateFunction = c.CFUNCTYPE(f64, void, i64)
StepFunction = c.CFUNCTYPE(c.c_int, void, P(P(f32)), i64, P(Error))
ReportFunction = c.CFUNCTYPE(None, void, P(CollaborativeEvent))


class CollaborativeOptions(c.Structure):
    _fields_ = [("target_batch", i64), ("min_peers", size), ("min_peers_timeout", f64), ("optimizer", P(OptimizerOptions)), ("lr", f64), ("schedule", RateFunction),
                ("step", StepFunction), ("report", ReportFunction), ("context", void), ("algorithm", text), ("algorithm_settings", text), ("powersgd_rank", c.c_int),
                ("inner_steps", i64), ("outer_lr", f64), ("outer_momentum", f64), ("delay", c.c_int),
                ("compression", text), ("matchmaking_time", f64), ("averaging_timeout", f64), ("allreduce_timeout", f64),
                ("average_state_every", i64), ("group_size", size), ("group_bits", text), ("bandwidth", f64),
                ("clip", f64), ("verify", c.c_int), ("epoch", i64), ("epochs", i64), ("fresh", c.c_int),
                ("device", text), ("own_name", text), ("trainer", void)]


# Which C type a structure is, and where it is declared: what the test looks up.
STRUCTURES = {
    "pl_err": (Error, "ref/base.h"), "pl_rng": (Rng, "ref/rng.h"), "pl_mask": (Mask, "ref/mask.h"),
    "pl_moments": (Moments, "ref/moments.h"), "pl_lamb": (Lamb, "ref/lamb.h"),
    "pl_lamb_norms": (LambNorms, "ref/lamb.h"), "pl_adam": (Adam, "ref/adam.h"), "pl_clip": (Clip, "ref/centered_clip.h"),
    "pl_clip_result": (ClipResult, "ref/centered_clip.h"), "pl_part": (Part, "ref/partition.h"),
    "pl_member": (Member, "ref/average.h"), "pl_group": (Group, "ref/average.h"),
    "pl_backend": (Backend, "ref/backend.h"), "pl_dalle_config": (DalleConfig, "ref/model/dalle_config.h"),
    "pl_param": (Param, "ref/model/params.h"), "pl_params": (Params, "ref/model/params.h"),
    "pl_stack": (Stack, "ref/model/reversible.h"), "pl_dalle": (Dalle, "ref/model/dalle.h"),
    "pl_token_noise": (TokenNoise, "ref/model/dalle.h"),
    "pl_dalle_loss": (DalleLoss, "runtime/dalle_run.h"),
    "pl_optimizer_options": (OptimizerOptions, "runtime/optimizer.h"),
    "pl_train_options": (TrainOptions, "runtime/trainer.h"), "pl_trainer": (Trainer, "runtime/trainer.h"),
    "pl_train_report": (TrainReport, "runtime/trainer.h"), "pl_sampling": (Sampling, "ref/sample.h"),
    "pl_generate_options": (GenerateOptions, "runtime/generate.h"),
    "pl_vqgan_config": (VqganConfig, "ref/model/vqgan.h"), "pl_vqgan": (Vqgan, "ref/model/vqgan.h"),
    "shard_row": (ShardRow, "data/pairs/shard.h"),
    "pl_collaborative_tensor": (CollaborativeTensor, "net/hivemind/optimizer.h"),
    **{f"pl_collaborative_{name}": (structure, "net/hivemind/optimizer_options.h") for name, structure in (
        ("run", CollaborativeRun), ("options", CollaborativeOptions))},
    **{f"pl_collaborative_{name}": (structure, "net/hivemind/optimizer_events.h") for name, structure in (
        ("status", CollaborativeStatus), ("round", CollaborativeRound), ("event", CollaborativeEvent))},
}

# -- functions -------------------------------------------------------------------------------------

# name -> (result, arguments). A result of `status` becomes an exception when it is negative.
status = c.c_int
FUNCTIONS = {
    # ref/base.h, rng.h
    "pl_status_name": (text, [c.c_int]),
    "pl_rng_init": (None, [P(Rng), u64, u64]),
    "pl_rng_uniform": (f64, [P(Rng)]),
    # ref/backend.h
    "pl_backend_open": (status, [P(Backend), text, P(Error)]),
    # ref/mask.h, rotary.h
    "pl_mask_parse": (status, [P(Mask), text, P(Error)]),
    "pl_mask_bits": (None, [void, P(Mask), c.c_int]),
    "pl_mask_count": (u64, [P(Mask), c.c_int]),
    "pl_rotary_channels": (c.c_int, [c.c_int]),
    "pl_rotary_angles": (None, [void, c.c_int, c.c_int, c.c_int]),
    "pl_rotary_tables": (None, [void, void, void, size]),
    # ref/quant.h, schedule.h
    "pl_codebook": (None, [void, c.c_int, c.c_int]),
    "pl_schedule_linear": (f64, [f64, u64, u64, u64]),
    # ref/average.h, balance.h, partition.h, centered_clip.h
    "pl_average_group": (status, [P(Group), P(Backend), P(Error)]),
    "pl_balance": (status, [void, void, c.c_int, size, size, P(Error)]),
    "pl_balance_fractions": (status, [void, void, c.c_int, size, size, P(Error)]),
    "pl_partition": (status, [P(P(Part)), P(size), void, void, size, void, c.c_int, size, P(Error)]),
    "pl_free": (None, [void]),
    "pl_orthogonalize": (None, [void, c.c_int, c.c_int]),
    # ref/model/dalle_config.h, dalle.h, params.h; runtime/dalle_run.h; data/models/dalle_config.h
    "pl_dalle_config_named": (status, [P(DalleConfig), text, P(Error)]),
    "pl_dalle_config_read": (status, [P(DalleConfig), text, P(Error)]),
    "pl_dalle_config_pattern": (None, [P(DalleConfig), c.c_int, c.c_int]),
    "pl_dalle_config_untie": (None, [P(DalleConfig)]),
    "pl_dalle_config_check": (status, [P(DalleConfig), P(Error)]),
    "pl_dalle_mask": (None, [P(DalleConfig), c.c_int, P(Mask)]),
    "pl_dalle_open": (status, [P(P(Dalle)), P(DalleConfig), P(Backend), c.c_int, P(Error)]),
    "pl_dalle_close": (None, [P(Dalle)]),
    "pl_dalle_init": (status, [P(Dalle), u64]),
    "pl_dalle_step": (status, [P(Dalle), void, void, c.c_int, f64, P(DalleLoss), P(Error)]),
    "pl_dalle_evaluate": (status, [P(Dalle), void, void, c.c_int, P(DalleLoss), void, P(Error)]),
    "pl_dalle_logits": (status, [P(Dalle), void, void, void, c.c_int, c.c_int, P(Error)]),
    "pl_dalle_find_param": (c.c_long, [P(Params), text]),
    "pl_params_get": (status, [P(Params), size, void]),
    "pl_params_put": (status, [P(Params), size, void]),
    # runtime/optimizer.h, trainer.h, generate.h
    "pl_lamb_options": (OptimizerOptions, []),
    "pl_adam_options": (OptimizerOptions, [f64, c.c_int]),
    "pl_muon_options": (OptimizerOptions, [f64]),
    "pl_trainer_open": (status, [P(P(Trainer)), P(Dalle), P(TrainOptions), P(Error)]),
    "pl_trainer_close": (None, [P(Trainer)]),
    "pl_trainer_add": (status, [P(Trainer), void, void, c.c_int, P(Error)]),
    "pl_trainer_mean": (status, [P(Trainer)]),
    "pl_trainer_step": (status, [P(Trainer), P(TrainReport), P(Error)]),
    "pl_generate_options": (GenerateOptions, []),
    "pl_generate": (status, [P(Dalle), void, void, c.c_int, P(GenerateOptions), P(Error)]),
    # data/text/unigram.h, shard.h, weights.h, checkpoint.h, vqgan_file.h; ref/model/vqgan.h
    "pl_unigram_open": (status, [P(void), text, P(Error)]),
    "pl_unigram_close": (None, [void]),
    "pl_unigram_size": (c.c_int, [void]),
    "pl_unigram_encode": (status, [void, size, P(size), void, text, size, c.c_int]),
    "pl_unigram_decode": (status, [P(void), P(size), void, void, size]),
    "pl_shard_open": (status, [P(void), text, P(Error)]),
    "pl_shard_rows": (u64, [void]),
    "pl_shard_next": (status, [void, P(ShardRow), P(Error)]),
    "pl_shard_close": (None, [void]),
    "pl_weights_open": (status, [P(void), text, P(Error)]),
    "pl_safetensors_meta": (text, [void, text]),
    "pl_safetensors_close": (None, [void]),
    "pl_checkpoint_load_params": (status, [P(Params), void, void, P(Error)]),
    "pl_vqgan_open": (status, [P(Vqgan), text, P(Backend), c.c_int, P(Error)]),
    "pl_vqgan_clear": (None, [P(Vqgan)]),
    "pl_vqgan_encode": (status, [P(Vqgan), void, void, void, void, c.c_int, c.c_int, c.c_int]),
    "pl_vqgan_decode": (status, [P(Vqgan), void, void, c.c_int, c.c_int, c.c_int]),
    "pl_vqgan_count_invalid": (size, [P(Vqgan), void, size]),
    # net/hivemind/optimizer.h
    "pl_collaborative_open": (status, [P(void), P(CollaborativeRun), P(CollaborativeTensor), size,
                                       P(CollaborativeOptions), P(Error)]),
    "pl_collaborative_step": (status, [void, void, i64, f64, P(Error)]),
    "pl_collaborative_finish": (status, [void, P(Error)]),
    "pl_collaborative_close": (None, [void]),
    "pl_collaborative_epoch": (i64, [void]),
    "pl_collaborative_status": (None, [void, P(CollaborativeStatus)]),
    "pl_collaborative_address": (text, [void]),
}


def load():
    """The library with every function's types set."""
    lib = c.CDLL(str(find()))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib
