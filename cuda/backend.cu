/* backend.cu - the plug-in's door: the device, and which operations are done on it. */
#include "../ref/backend.h"

#include "device.cuh"
#include "launch.cuh"

static int set_threads(int threads)
{
    (void)threads; /* of the host: it computes nothing here */
    return PL_OK;
}

static int set_precision(enum pl_precision precision)
{
    cuda_set_bf16(precision == PL_BF16);
    return PL_OK;
}

extern "C" __attribute__((visibility("default"))) int pl_backend_v1(struct pl_backend *be)
{
    int rc = cuda_open(be->note, sizeof be->note);
    if (rc == PL_OK) rc = cuda_linear_open();
    if (rc != PL_OK) return rc;
    cuda_set_bf16(0);
    be->name = "cuda";
    be->alloc = cuda_alloc;
    be->free = cuda_free;
    be->put = cuda_put;
    be->get = cuda_get;
    be->sync = cuda_sync;
    be->set_memory = cuda_set_memory;
    be->memory_trouble = cuda_memory_trouble;
    be->set_threads = set_threads;
    be->set_precision = set_precision;

    /* Everything that reads or writes the table's memory has to be here. What works on host memory
     * (compress.h, average.h, robust.h) would spend its time on the way to the device and back, and
     * stays the reference's. */
    be->fill = cuda_fill;
    be->copy = cuda_copy;
    be->axpy = cuda_axpy;
    be->scale = cuda_scale;
    be->sumsq = cuda_sumsq;
    be->transpose = cuda_transpose;
    be->linear = cuda_linear;
    be->linear_dx = cuda_linear_dx;
    be->linear_dw = cuda_linear_dw;
    be->layer_norm = cuda_layer_norm;
    be->layer_norm_backward = cuda_layer_norm_backward;
    be->scale_add = cuda_scale_add;
    be->layer_scale_backward = cuda_layer_scale_backward;
    be->embed = cuda_embed;
    be->embed_backward = cuda_embed_backward;
    be->shift = cuda_shift;
    be->shift_backward = cuda_shift_backward;
    be->activation = cuda_activation;
    be->activation_backward = cuda_activation_backward;
    be->geglu = cuda_geglu;
    be->geglu_backward = cuda_geglu_backward;
    be->feed = cuda_feed;
    be->feed_backward = cuda_feed_backward;
    be->rotary = cuda_rotary;
    be->attention = cuda_attention;
    be->attention_backward = cuda_attention_backward;
    be->attention_step = cuda_attention_step;
    be->loss = cuda_loss;

    be->conv = cuda_conv;
    be->conv_dx = cuda_conv_dx;
    be->conv_dw = cuda_conv_dw;
    be->upsample = cuda_upsample;
    be->upsample_backward = cuda_upsample_backward;
    be->group_norm = cuda_group_norm;
    be->group_norm_backward = cuda_group_norm_backward;
    be->nearest_code = cuda_nearest_code;
    be->code_rows = cuda_code_rows;
    be->code_rows_backward = cuda_code_rows_backward;
    be->gumbel_code = cuda_gumbel_code;
    be->gumbel_soft = cuda_gumbel_soft;
    be->kl_uniform = cuda_kl_uniform;
    be->gumbel_backward = cuda_gumbel_backward;
    be->pixel_loss = cuda_pixel_loss;
    be->quantize = cuda_quantize;
    be->dequantize = cuda_dequantize;
    be->lamb = cuda_lamb;
    be->adam = cuda_adam;
    return PL_OK;
}
