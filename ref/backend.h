/* backend.h - the table of operations. It arrives filled with the reference; a backend overwrites
 * the operations that it does better. Models call the table and run on every backend.
 *
 * Pointers to floats and ids in an operation's arguments are the backend's memory (for ref and
 * fast that is the host's); structs, and what a comment calls host memory, are the caller's. */
#ifndef PL_BACKEND_H
#define PL_BACKEND_H

#include "adam.h"
#include "attention.h"
#include "codebook.h"
#include "compress.h"
#include "conv.h"
#include "embed.h"
#include "feedforward.h"
#include "lamb.h"
#include "linear.h"
#include "loss.h"
#include "norm.h"
#include "quant.h"
#include "reduce.h"
#include "centered_clip.h"
#include "outer/chunks.h"
#include "outer/e3m0.h"
#include "outer/outer_steps.h"
#include "rotary.h"
#include "shift.h"
#include "vector.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every operation once: name, function type. From this list come the table's members, the
 * reference's entries and the rows of `potluck conform`. Those of the first table, which plug-ins
 * know by their place: no changes here. */
#define PL_OPERATIONS_FIRST(X) \
    /* whole buffers */ \
    X(fill, pl_fill_fn) \
    X(copy, pl_copy_fn) \
    X(axpy, pl_axpy_fn) \
    X(scale, pl_scale_fn) \
    X(sumsq, pl_sumsq_fn) \
    /* transformer */ \
    X(linear, pl_linear_fn) \
    X(linear_dx, pl_linear_dx_fn) \
    X(linear_dw, pl_linear_dw_fn) \
    X(layer_norm, pl_layer_norm_fn) \
    X(layer_norm_backward, pl_layer_norm_backward_fn) \
    X(scale_add, pl_scale_add_fn) \
    X(layer_scale_backward, pl_layer_scale_backward_fn) \
    X(embed, pl_embed_fn) \
    X(embed_backward, pl_embed_backward_fn) \
    X(shift, pl_shift_fn) \
    X(shift_backward, pl_shift_backward_fn) \
    X(activation, pl_activation_fn) \
    X(activation_backward, pl_activation_backward_fn) \
    X(geglu, pl_geglu_fn) \
    X(geglu_backward, pl_geglu_backward_fn) \
    X(ffn, pl_ffn_fn) \
    X(ffn_backward, pl_ffn_backward_fn) \
    X(rotary, pl_rotary_fn) \
    X(attention, pl_attention_fn) \
    X(attention_backward, pl_attention_backward_fn) \
    X(attention_step, pl_attention_step_fn) \
    X(loss, pl_loss_fn) \
    /* images */ \
    X(conv, pl_conv_fn) \
    X(conv_dx, pl_conv_dx_fn) \
    X(conv_dw, pl_conv_dw_fn) \
    X(upsample, pl_upsample_fn) \
    X(upsample_backward, pl_upsample_backward_fn) \
    X(group_norm, pl_group_norm_fn) \
    X(group_norm_backward, pl_group_norm_backward_fn) \
    X(transpose, pl_transpose_fn) \
    X(nearest_code, pl_nearest_code_fn) \
    X(code_rows, pl_code_rows_fn) \
    X(code_rows_backward, pl_code_rows_backward_fn) \
    X(gumbel_code, pl_gumbel_code_fn) \
    X(gumbel_soft, pl_gumbel_soft_fn) \
    X(kl_uniform, pl_kl_uniform_fn) \
    X(gumbel_backward, pl_gumbel_backward_fn) \
    X(pixel_loss, pl_pixel_loss_fn) \
    /* codes and optimizers */ \
    X(quantize, pl_quantize_fn) \
    X(dequantize, pl_dequantize_fn) \
    X(lamb, pl_lamb_fn) \
    X(adam, pl_adam_fn) \
    X(float16_encode, pl_float16_encode_fn) \
    X(float16_decode, pl_float16_decode_fn) \
    X(uniform8_encode, pl_uniform8_encode_fn) \
    X(table8_decode, pl_table8_decode_fn) \
    /* averaging */ \
    X(average_add, pl_average_add_fn) \
    X(average_delta, pl_average_delta_fn) \
    X(centered_clip, pl_centered_clip_fn) \
    X(median, pl_median_fn) \
    X(average_sum, pl_average_sum_fn) \
    X(average_apply, pl_average_apply_fn) \
    X(average_delta8, pl_average_delta8_fn)

/* Later ones, at the table's end. Append only. */
#define PL_OPERATIONS_LATER(X) \
    X(meanstd16_encode, pl_meanstd16_encode_fn) \
    X(meanstd16_decode, pl_meanstd16_decode_fn) \
    X(quantile8_encode, pl_quantile8_encode_fn) \
    X(average_reduce8, pl_average_reduce8_fn) \
    /* outer steps */ \
    X(outer_nesterov, pl_outer_nesterov_fn) \
    X(outer_mix, pl_outer_mix_fn) \
    X(outer_gossip, pl_outer_gossip_fn) \
    X(sign_step, pl_sign_step_fn) \
    X(e3m0_encode, pl_e3m0_encode_fn) \
    X(e3m0_decode, pl_e3m0_decode_fn) \
    X(chunk_cut, pl_chunk_cut_fn) \
    X(chunk_paste, pl_chunk_paste_fn) \
    X(chunk_topk, pl_chunk_topk_fn)

#define PL_OPERATIONS(X) PL_OPERATIONS_FIRST(X) PL_OPERATIONS_LATER(X)

enum pl_precision { PL_FLOAT32, PL_BF16 };

struct pl_backend {
    size_t size; /* sizeof of the caller's table: entries past it don't exist */
    const char *name;
    char note[256]; /* chosen at run time: CPU kernels, BLAS core, device; one line */

    /* Memory of the backend; alloc gives zeroed, 64-byte aligned bytes or NULL; operations'
     * arguments may lie anywhere in them, aligned to their element. put and get move bytes from and
     * to the host; sync waits for everything under way and reports its status. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *p);
    int (*put)(void *device, const void *host, size_t bytes);
    int (*get)(void *host, const void *device, size_t bytes);
    int (*sync)(void);

    /* Threads to compute with; results never depend on it. 0: one a core. */
    int (*set_threads)(int threads);
    /* PL_BF16 lets matrix products round their operands to bfloat16. PL_EUSE: not offered. */
    int (*set_precision)(enum pl_precision precision);

#define PL_MEMBER(name, type) type *name;
    PL_OPERATIONS_FIRST(PL_MEMBER)

    /* Limits the device memory of alloc and of the operations' own buffers to this many bytes; 0:
     * no limit. PL_EUSE: the backend has no memory of its own. */
    int (*set_memory)(size_t bytes);
    /* Why the latest allocation failed, for the user: bytes requested, held and allowed; or the
     * message of a device that failed. "" if nothing failed, or the reason is unknown. For the
     * calling thread; valid until its next call. */
    const char *(*memory_error)(void);

    /* Runs task(context, i) for i = 0 to n-1, at the same time where there are threads for it, and
     * returns the first status that is not PL_OK, by i. Tasks call any operations, which then keep
     * to their task's thread. NULL, as in the reference: not offered; nothing would be faster. */
    int (*parallel_for)(int n, int (*task)(void *context, int i), void *context);

    /* Optional functions besides the operations. Entries may be NULL: call them through
     * runtime/transfer.h, which falls back.
     *
     * Asynchronous copies overlap with operations: one begins when everything called before has
     * ended, and until copy_end neither side may be touched. *ticket names the copy on the thread's
     * device. copy_join: operations called after it begin when all copies begun before it have
     * ended. host_alloc: zeroed, 64-byte aligned page-locked memory of the host. */
    void *(*host_alloc)(size_t bytes);
    void (*host_free)(void *p);
    int (*get_begin)(uint64_t *ticket, void *host, const void *device, size_t bytes);
    int (*put_begin)(uint64_t *ticket, void *device, const void *host, size_t bytes);
    int (*copy_end)(uint64_t ticket);
    int (*copy_join)(void);
    /* Several devices in one machine: how many of them and which, by the machine's own numbers
     * (count 0: the machine's first). All that a thread calls is about its device, number 0 of the
     * list until it says use_device. PL_EUSE: there is no such device, and memory_error says so. */
    int (*set_devices)(const int *numbers, int count);
    int (*device_count)(void); /* in the machine */
    int (*use_device)(int index);
    /* y (n), the thread's, = x (n), or += x, of the index-th device, whose thread has synced. */
    int (*peer_copy)(float *y, const float *x, int index, size_t n, int add);
    /* Until it is freed, value (n) holds parameters: the backend may keep a second copy
     * in the form that matrix products prefer. */
    int (*weights)(const float *value, size_t n);
    /* Bytes: the most that alloc and operations held of the thread's device at once. */
    size_t (*memory_peak)(void);

    /* 1: everything above may be called from several threads at once, which may serialize them; a
     * plug-in's table arrives with 0. Then a swarm's step overlaps with the next samples. copy_end
     * may always be called from another thread. */
    int many_threads;

    PL_OPERATIONS_LATER(PL_MEMBER)
#undef PL_MEMBER
};

/* The function that a plug-in exports. `be` arrives filled with the reference. PL_EDEVICE: not on
 * this machine, with the reason in be->note. */
typedef int pl_backend_v1_fn(struct pl_backend *be);
pl_backend_v1_fn pl_backend_v1;

/* Fills the table with the reference. */
void pl_backend_ref(struct pl_backend *be);

/* The backend's own message about an operation's failure, for the user: memory_error of
 * PL_ENOMEM and PL_EDEVICE, "" of all else. Of the calling thread; valid until it calls something
 * else. */
const char *pl_backend_error(const struct pl_backend *be, int status);

#ifdef __cplusplus
}
#endif
#endif
