/* backend.cu - the plug-in's entry point: opens the devices and fills the backend's table with the
 * operations of this folder. */
#include "../ref/backend.h"

#include "bf16.cuh"
#include "device.cuh"
#include "launch.cuh"
#include "bf16_weights.cuh"

/* Two threads on one device, such as an offloaded optimizer step that overlaps the next samples,
 * share its stream and scratch memory: so one thread at a time calls an operation. Waiting for a
 * copy (upload, download, copy_end) holds no lock. */
template <auto operation> struct one_at_a_time;
template <class... P, int (*operation)(P...)> struct one_at_a_time<operation> {
    static int call(P... args)
    {
        cuda_lock(1);
        cuda_rounded_forget();
        int rc = operation(args...);
        cuda_lock(0);
        return rc;
    }
};

/* For GEMMs, which reuse operands already rounded to bfloat16 and report what they overwrite. */
template <auto operation> struct gemm_chunk;
template <class... P, int (*operation)(P...)> struct gemm_chunk<operation> {
    static int call(P... args)
    {
        cuda_lock(1);
        int rc = operation(args...);
        cuda_lock(0);
        return rc;
    }
};

/* Operations on host memory: several threads at once, each with a pipeline of its own
 * (streams.cuh). A full device does not abort a round: then, before anything has been written, the
 * reference takes over. */
static struct pl_backend arrived;
template <auto operation, auto on_host> struct set_pipelined_operations;
template <class... P, int (*operation)(P...), int (*pl_backend::*on_host)(P...)>
struct set_pipelined_operations<operation, on_host> {
    static int call(P... args)
    {
        int rc = operation(args...);
        return rc == PL_ENOMEM ? (arrived.*on_host)(args...) : rc;
    }
};

static int set_threads(int threads)
{
    (void)threads; /* host threads: unused here */
    return PL_OK;
}

static int set_precision(enum pl_precision precision)
{
    if (precision == PL_BF16 && !cuda_has_bf16()) return PL_EUSE;
    cuda_set_bf16(precision == PL_BF16);
    return PL_OK;
}

extern "C" __attribute__((visibility("default"))) int pl_backend_v1(struct pl_backend *be)
{
    int rc = cuda_open(be->note, sizeof be->note);
    if (rc == PL_OK) rc = cuda_linear_open();
    if (rc != PL_OK) return rc;
    cuda_on_free(cuda_weights_freed);
    cuda_set_bf16(0);
    arrived = *be;
    be->name = "cuda";
    be->alloc = cuda_alloc;
    be->free = cuda_free;
    be->put = cuda_upload;
    be->get = cuda_download;
    be->sync = cuda_sync;
    be->set_memory = cuda_set_memory;
    be->memory_error = cuda_memory_error;
    be->memory_peak = cuda_memory_most;
    be->set_threads = set_threads;
    be->set_precision = set_precision;
    be->weights = one_at_a_time<cuda_weights>::call;
    be->host_alloc = cuda_host_alloc;
    be->host_free = cuda_host_free;
    be->get_begin = cuda_download_begin;
    be->put_begin = cuda_upload_begin;
    be->copy_end = cuda_copy_end;
    be->copy_join = cuda_copy_join;
    be->set_devices = cuda_set_devices;
    be->device_count = cuda_device_count;
    be->use_device = cuda_use_device;
    be->peer_copy = one_at_a_time<cuda_peer_copy>::call;
    be->many_threads = 1;

    /* Every operation on device memory must be set here. */
    be->fill = one_at_a_time<cuda_fill>::call;
    be->copy = one_at_a_time<cuda_copy>::call;
    be->axpy = one_at_a_time<cuda_axpy>::call;
    be->scale = one_at_a_time<cuda_scale>::call;
    be->sumsq = one_at_a_time<cuda_sumsq>::call;
    be->transpose = one_at_a_time<cuda_transpose>::call;
    be->linear = gemm_chunk<cuda_linear>::call;
    be->linear_dx = gemm_chunk<cuda_linear_dx>::call;
    be->linear_dw = gemm_chunk<cuda_linear_dw>::call;
    be->layer_norm = one_at_a_time<cuda_layer_norm>::call;
    be->layer_norm_backward = one_at_a_time<cuda_layer_norm_backward>::call;
    be->scale_add = one_at_a_time<cuda_scale_add>::call;
    be->layer_scale_backward = one_at_a_time<cuda_layer_scale_backward>::call;
    be->embed = one_at_a_time<cuda_embed>::call;
    be->embed_backward = one_at_a_time<cuda_embed_backward>::call;
    be->shift = one_at_a_time<cuda_shift>::call;
    be->shift_backward = one_at_a_time<cuda_shift_backward>::call;
    be->activation = one_at_a_time<cuda_activation>::call;
    be->activation_backward = one_at_a_time<cuda_activation_backward>::call;
    be->geglu = one_at_a_time<cuda_geglu>::call;
    be->geglu_backward = one_at_a_time<cuda_geglu_backward>::call;
    be->ffn = gemm_chunk<cuda_ffn>::call;
    be->ffn_backward = gemm_chunk<cuda_ffn_backward>::call;
    be->rotary = one_at_a_time<cuda_rotary>::call;
    be->attention = one_at_a_time<cuda_attention>::call;
    be->attention_backward = one_at_a_time<cuda_attention_backward>::call;
    be->attention_step = one_at_a_time<cuda_attention_step>::call;
    be->loss = one_at_a_time<cuda_loss>::call;

    be->conv = one_at_a_time<cuda_conv>::call;
    be->conv_dx = one_at_a_time<cuda_conv_dx>::call;
    be->conv_dw = one_at_a_time<cuda_conv_dw>::call;
    be->upsample = one_at_a_time<cuda_upsample>::call;
    be->upsample_backward = one_at_a_time<cuda_upsample_backward>::call;
    be->group_norm = one_at_a_time<cuda_group_norm>::call;
    be->group_norm_backward = one_at_a_time<cuda_group_norm_backward>::call;
    be->nearest_code = one_at_a_time<cuda_nearest_code>::call;
    be->code_rows = one_at_a_time<cuda_code_rows>::call;
    be->code_rows_backward = one_at_a_time<cuda_code_rows_backward>::call;
    be->gumbel_code = one_at_a_time<cuda_gumbel_code>::call;
    be->gumbel_soft = one_at_a_time<cuda_gumbel_soft>::call;
    be->kl_uniform = one_at_a_time<cuda_kl_uniform>::call;
    be->gumbel_backward = one_at_a_time<cuda_gumbel_backward>::call;
    be->pixel_loss = one_at_a_time<cuda_pixel_loss>::call;
    be->quantize = one_at_a_time<cuda_quantize>::call;
    be->dequantize = one_at_a_time<cuda_dequantize>::call;
    be->lamb = one_at_a_time<cuda_lamb>::call;
    be->adam = one_at_a_time<cuda_adam>::call;
    be->outer_nesterov = one_at_a_time<cuda_outer_nesterov>::call;
    be->outer_mix = one_at_a_time<cuda_outer_mix>::call;
    be->outer_gossip = one_at_a_time<cuda_outer_gossip>::call;
    be->sign_step = one_at_a_time<cuda_sign_step>::call;
    be->e3m0_encode = one_at_a_time<cuda_e3m0_encode>::call;
    be->e3m0_decode = one_at_a_time<cuda_e3m0_decode>::call;
    be->chunk_cut = one_at_a_time<cuda_chunk_cut>::call;
    be->chunk_paste = one_at_a_time<cuda_chunk_paste>::call;
    be->chunk_topk = one_at_a_time<cuda_chunk_topk>::call;

#define PIPELINED_OPERATIONS(op) be->op = set_pipelined_operations<cuda_##op, &pl_backend::op>::call
    PIPELINED_OPERATIONS(float16_encode);
    PIPELINED_OPERATIONS(float16_decode);
    PIPELINED_OPERATIONS(uniform8_encode);
    PIPELINED_OPERATIONS(table8_decode);
    PIPELINED_OPERATIONS(meanstd16_encode);
    PIPELINED_OPERATIONS(meanstd16_decode);
    PIPELINED_OPERATIONS(quantile8_encode);
    PIPELINED_OPERATIONS(average_add);
    PIPELINED_OPERATIONS(average_delta);
    PIPELINED_OPERATIONS(centered_clip);
    PIPELINED_OPERATIONS(median);
#undef PIPELINED_OPERATIONS
    return PL_OK;
}
