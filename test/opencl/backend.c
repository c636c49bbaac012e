/* backend.c - a third backend, written from paper/porting.md alone: the proof that a port is
 * possible. It runs on any OpenCL 2.0 device; where there is no other, PoCL uses the CPU. Every
 * operation on device memory is here; none is tuned. */
#include "device.h"

/* Threads of the host compute nothing here. */
static int set_threads(int threads)
{
    (void)threads;
    return PL_OK;
}

static int set_precision(enum pl_precision precision)
{
    return precision == PL_FLOAT32 ? PL_OK : PL_EUSE;
}

__attribute__((visibility("default"))) int pl_backend_v1(struct pl_backend *be)
{
    int rc = ocl_open(be->note, sizeof be->note);
    if (rc != PL_OK) return rc;
    be->name = "opencl";
    be->alloc = ocl_alloc;
    be->free = ocl_free;
    be->put = ocl_put;
    be->get = ocl_get;
    be->sync = ocl_sync;
    be->set_threads = set_threads;
    be->set_precision = set_precision;
#define OWN(operation) be->operation = ocl_##operation
    OWN(fill), OWN(copy), OWN(axpy), OWN(scale), OWN(sumsq), OWN(transpose);
    OWN(linear), OWN(linear_dx), OWN(linear_dw);
    OWN(layer_norm), OWN(layer_norm_backward), OWN(scale_add), OWN(layer_scale_backward);
    OWN(embed), OWN(embed_backward), OWN(shift), OWN(shift_backward), OWN(rotary);
    OWN(activation), OWN(activation_backward), OWN(geglu), OWN(geglu_backward), OWN(ffn),
        OWN(ffn_backward);
    OWN(attention), OWN(attention_backward), OWN(attention_step), OWN(loss);
    OWN(conv), OWN(conv_dx), OWN(conv_dw), OWN(upsample), OWN(upsample_backward);
    OWN(group_norm), OWN(group_norm_backward);
    OWN(nearest_code), OWN(code_rows), OWN(code_rows_backward), OWN(gumbel_code), OWN(gumbel_soft);
    OWN(kl_uniform), OWN(gumbel_backward), OWN(pixel_loss);
    OWN(quantize), OWN(dequantize), OWN(lamb), OWN(adam);
#undef OWN
    return PL_OK;
}
