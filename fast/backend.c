/* backend.c - the plug-in's entry point: fills the backend's table with the kernels of this folder.
 * Operations that are not set stay the reference's. */
#include "fast.h"
#include "isa.h"
#include "packed_weights.h"

#include <cblas.h>
#include <stdio.h>

#if defined(__x86_64__)
#define BF16_NAME (isa_has_amx() ? "AMX" : "AVX512-BF16")
#elif defined(__aarch64__)
#define BF16_NAME "BFMMLA"
#else
#define BF16_NAME "instructions for it"
#endif

int pl_backend_v1(struct pl_backend *be)
{
    if (!isa_env_is_valid()) {
        snprintf(be->note, sizeof be->note,
                 "PL_FAST_ISA: expected plain, avx2, avx512, neon or rvv");
        return PL_EUSE;
    }
    /* OpenBLAS has threads of its own, which would compete with OpenMP's for the cores. */
    openblas_set_num_threads(1);
    fast_set_threads(0);
    fast_set_precision(PL_FLOAT32);
    be->name = "fast";
    snprintf(be->note, sizeof be->note, "fast: %s kernels%s%s, bf16 %s%s, %d threads by default",
             isa_name(isa_chosen()), isa_chosen() == ISA_PLAIN ? ", products by OpenBLAS " : "",
             isa_chosen() == ISA_PLAIN ? openblas_get_corename() : "",
             fast_has_bf16() ? "by " : "rounds operands only, no fast ", BF16_NAME, fast_threads());
    be->set_threads = fast_set_threads;
    be->set_precision = fast_set_precision;
    be->parallel_for = fast_parallel_for;
    be->many_threads = 1;
    be->weights = fast_weights;
    be->free = fast_free;
    be->put = fast_put;

    be->linear = fast_linear;
    be->linear_dx = fast_linear_dx;
    be->linear_dw = fast_linear_dw;
    be->activation = fast_activation;
    be->activation_backward = fast_activation_backward;
    be->geglu = fast_geglu;
    be->geglu_backward = fast_geglu_backward;
    be->ffn = fast_ffn;
    be->ffn_backward = fast_ffn_backward;
    be->loss = fast_loss;
    be->average_add = fast_average_add;
    be->average_delta = fast_average_delta;
    be->average_sum = fast_average_sum;
    be->average_apply = fast_average_apply;
    be->average_delta8 = fast_average_delta8;
    be->average_reduce8 = fast_average_reduce8;
    be->centered_clip = fast_centered_clip;
    be->median = fast_median;
    be->fill = fast_fill;
    be->copy = fast_copy;
    be->axpy = fast_axpy;
    be->scale = fast_scale;
    be->sumsq = fast_sumsq;
    be->layer_norm = fast_layer_norm;
    be->layer_norm_backward = fast_layer_norm_backward;
    be->scale_add = fast_scale_add;
    be->layer_scale_backward = fast_layer_scale_backward;
    be->embed = fast_embed;
    be->embed_backward = fast_embed_backward;
    be->shift = fast_shift;
    be->shift_backward = fast_shift_backward;
    be->rotary = fast_rotary;
    be->attention = fast_attention;
    be->attention_backward = fast_attention_backward;
    be->attention_step = fast_attention_step;

    be->quantize = fast_quantize;
    be->dequantize = fast_dequantize;
    be->lamb = fast_lamb;
    be->adam = fast_adam;
    be->float16_encode = fast_float16_encode;
    be->float16_decode = fast_float16_decode;
    be->uniform8_encode = fast_uniform8_encode;
    be->table8_decode = fast_table8_decode;
    be->meanstd16_encode = fast_meanstd16_encode;
    be->meanstd16_decode = fast_meanstd16_decode;
    be->quantile8_encode = fast_quantile8_encode;

    be->outer_nesterov = fast_outer_nesterov;
    be->outer_mix = fast_outer_mix;
    be->outer_gossip = fast_outer_gossip;
    be->sign_step = fast_sign_step;
    be->e3m0_encode = fast_e3m0_encode;
    be->e3m0_decode = fast_e3m0_decode;
    be->chunk_cut = fast_chunk_cut;
    be->chunk_paste = fast_chunk_paste;
    be->chunk_topk = fast_chunk_topk;

    be->conv = fast_conv;
    be->conv_dx = fast_conv_dx;
    be->conv_dw = fast_conv_dw;
    be->upsample = fast_upsample;
    be->upsample_backward = fast_upsample_backward;
    be->group_norm = fast_group_norm;
    be->group_norm_backward = fast_group_norm_backward;
    be->transpose = fast_transpose;
    be->nearest_code = fast_nearest_code;
    be->gumbel_code = fast_gumbel_code;
    be->gumbel_soft = fast_gumbel_soft;
    be->kl_uniform = fast_kl_uniform;
    be->gumbel_backward = fast_gumbel_backward;
    return PL_OK;
}
