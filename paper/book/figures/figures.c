/* figures.c - what the book's figures call in WebAssembly: ref/ behind functions without structs.
 *
 * Functions without structs, such as ref_quantize, are exported under their own names
 * (WASM_EXPORTS in paper/book/book.mk). A function here fills a struct and calls the function that
 * its section names. test/page/golden.js replays golden values through all of them. */
#include "ref/average.h"
#include "ref/backend.h"
#include "ref/centered_clip.h"
#include "ref/lamb.h"
#include "ref/mask.h"
#include "ref/model/dalle.h"
#include "runtime/dalle_run.h"
#include "runtime/generate.h"
#include "runtime/models.h"
#include "runtime/workspace.h"

#include <string.h>
#include <sys/mman.h>

#define EXPORT(name) __attribute__((export_name(#name))) name

/* ref/base.c gives a hint about large pages. wasi-libc declares the function and has none. */
int madvise(void *at, size_t bytes, int advice)
{
    (void)at, (void)bytes, (void)advice;
    return 0;
}

static struct pl_err last_error;

/* The sentence of the last function that failed. */
const char *EXPORT(figure_error)(void);
const char *figure_error(void) { return last_error.text; }

static struct pl_backend *reference(void)
{
    static struct pl_backend be;
    if (!be.name) pl_backend_ref(&be);
    return &be;
}

/* --- masks: pl_mask_allowed ------------------------------------------------------------------- */

/* allowed (n,n), n = P + F F: a byte for each query and key. */
static void fill_mask(uint8_t *allowed, const struct pl_mask *mask)
{
    int n = mask->P + mask->F * mask->F;
    for (int q = 0; q < n; q++)
        for (int k = 0; k < n; k++) allowed[q * n + k] = (uint8_t)pl_mask_allowed(mask, q, k);
}

/* The mask called `name`, for instance "axial_row". */
int EXPORT(figure_mask)(uint8_t *allowed, const char *name, int P, int F);
int figure_mask(uint8_t *allowed, const char *name, int P, int F)
{
    struct pl_mask mask = { .P = P, .F = F };
    int rc = pl_mask_parse(&mask, name, &last_error);
    if (!rc) fill_mask(allowed, &mask);
    return rc;
}

/* The mask of block l of L in the reference run's pattern, a window of 5 at the end; returns its
 * enum pl_mask_kind. */
int EXPORT(figure_layer_mask)(uint8_t *allowed, int l, int L, int P, int F);
int figure_layer_mask(uint8_t *allowed, int l, int L, int P, int F)
{
    struct pl_dalle_config config = { .T = P - 1, .F = F, .L = L };
    struct pl_mask mask;
    pl_dalle_config_pattern(&config, 5, 1);
    pl_dalle_mask(&config, l, &mask);
    fill_mask(allowed, &mask);
    return (int)mask.kind;
}

/* --- LAMB: ref_lamb --------------------------------------------------------------------------- */

/* One step of a tensor of n values with moments m and v; norms (3): |p|, |u|, their quotient. */
int EXPORT(figure_lamb)(float *norms, float *p, float *u, const float *g, float *m, float *v, int n,
                        double lr, double beta1, double beta2, double eps, double decay,
                        float clip);
int figure_lamb(float *norms, float *p, float *u, const float *g, float *m, float *v, int n,
                double lr, double beta1, double beta2, double eps, double decay, float clip)
{
    struct pl_moments moments = { .value = { m, v } };
    struct pl_lamb step = { .lr = lr,
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .eps = eps,
                            .decay = decay,
                            .clamp = 1e4,
                            .clip = clip };
    struct pl_lamb_norms result;
    int rc = ref_lamb(&result, p, u, g, &moments, (size_t)n, &step);
    norms[0] = result.weight;
    norms[1] = result.step;
    norms[2] = result.trust;
    return rc;
}

/* --- averaging: pl_partition, ref_average_add, ref_average_delta, pl_average_group ------------ */

#define MEMBERS_MAX 16 /* a figure draws fewer */
#define TENSORS_MAX 8  /* the golden values have 3 */

/* The parts of tensors of elements (tensors) values, uncompressed: rows (count,4) of tensor, start,
 * length, reducer. rows may be NULL. Returns how many, or a negative status. */
int EXPORT(figure_partition)(int32_t *rows, const int32_t *elements, int tensors,
                             const double *fraction, int members, int part_bytes);
int figure_partition(int32_t *rows, const int32_t *elements, int tensors, const double *fraction,
                     int members, int part_bytes)
{
    enum pl_compression method[TENSORS_MAX];
    size_t sizes[TENSORS_MAX], count;
    struct pl_part *parts;
    int rc;
    if (tensors > TENSORS_MAX) return PL_EUSE;
    for (int t = 0; t < tensors; t++) {
        sizes[t] = (size_t)elements[t];
        method[t] = PL_COMPRESS_NONE;
    }
    rc = pl_partition(&parts, &count, sizes, method, (size_t)tensors, fraction, members,
                      (size_t)part_bytes, &last_error);
    if (rc) return rc;
    for (size_t i = 0; rows && i < count; i++) {
        rows[4 * i] = (int32_t)parts[i].tensor;
        rows[4 * i + 1] = (int32_t)parts[i].start;
        rows[4 * i + 2] = (int32_t)parts[i].length;
        rows[4 * i + 3] = parts[i].reducer;
    }
    pl_free(parts);
    return (int)count;
}

/* sum (n) += weight x (n), as a reducer adds; delta (n) = sum / weight - x. */
int EXPORT(figure_add)(float *sum, const float *x, float weight, int n);
int figure_add(float *sum, const float *x, float weight, int n)
{
    struct pl_coded coded = { .method = PL_COMPRESS_NONE, .data = x };
    return ref_average_add(sum, &coded, weight, (size_t)n);
}
int EXPORT(figure_delta)(float *delta, const float *sum, float weight, const float *x, int n);
int figure_delta(float *delta, const float *sum, float weight, const float *x, int n)
{
    struct pl_coded coded = { .method = PL_COMPRESS_NONE, .data = x };
    return ref_average_delta(delta, sum, weight, &coded, (size_t)n);
}

/* A whole round. x: each member's tensors one after the other, members likewise; replaced by the
 * mean. A member of weight < 0 is auxiliary, one of fraction 0 a client; x has no place for the
 * auxiliary ones, who come last. */
int EXPORT(figure_average)(float *x, const int32_t *elements, int tensors, const double *weight,
                           const double *fraction, int members, int part_bytes);
int figure_average(float *x, const int32_t *elements, int tensors, const double *weight,
                   const double *fraction, int members, int part_bytes)
{
    enum pl_compression method[TENSORS_MAX];
    size_t sizes[TENSORS_MAX];
    float *tensor[MEMBERS_MAX][TENSORS_MAX];
    struct pl_member member[MEMBERS_MAX];
    struct pl_group group = { .member = member,
                              .members = members,
                              .tensors = (size_t)tensors,
                              .elements = sizes,
                              .method = method,
                              .part_bytes = (size_t)part_bytes };
    if (tensors > TENSORS_MAX || members > MEMBERS_MAX) return PL_EUSE;
    for (int t = 0; t < tensors; t++) {
        sizes[t] = (size_t)elements[t];
        method[t] = PL_COMPRESS_NONE;
    }
    for (int k = 0; k < members; k++) {
        enum pl_role role = weight[k] < 0 ? PL_AUXILIARY : fraction[k] == 0 ? PL_CLIENT : PL_NODE;
        for (int t = 0; role != PL_AUXILIARY && t < tensors; t++) {
            tensor[k][t] = x;
            x += elements[t];
        }
        member[k] = (struct pl_member){ .role = role,
                                        .weight = role == PL_AUXILIARY ? 0 : weight[k],
                                        .fraction = fraction[k],
                                        .tensor = role == PL_AUXILIARY ? NULL : tensor[k] };
    }
    return pl_average_group(&group, reference(), &last_error);
}

/* --- CenteredClip: ref_centered_clip ---------------------------------------------------------- */

/* Moves v (d) by this many iterations; weight (n) or NULL; total: the divisor (0: their sum).
 * Returns how many inputs were beyond the radius, or a negative status. */
int EXPORT(figure_clip)(double *v, const float *x, const double *weight, int n, int d, double tau,
                        int iterations, double total);
int figure_clip(double *v, const float *x, const double *weight, int n, int d, double tau,
                int iterations, double total)
{
    struct pl_clip clip = {
        .tau = tau, .total = total, .iterations = iterations, .stop_norm = -1, .stop_largest = -1
    };
    struct pl_clip_result result;
    int rc = ref_centered_clip(v, &result, x, weight, n, (size_t)d, &clip);
    return rc ? rc : result.clipped;
}

/* --- a model of the reader's own: pl_dalle_open, pl_params_put, pl_generate ------------------- */

static struct pl_dalle *model;

static int put(const struct pl_params *params, const char *name, const float *values, int n)
{
    long index = pl_params_find(params, name);
    if (index < 0 || params->list[index].n != (size_t)n)
        return pl_fail(&last_error, PL_ENOTFOUND, "no tensor %.100s of %d elements", name, n);
    return pl_params_put(params, (size_t)index, values);
}

/* A model in the reference run's pattern, a window of 5 at the end; its parameters are zero. The
 * model before it is closed. Returns how many tensors it wants. */
int EXPORT(figure_model_open)(int T, int F, int D, int H, int d, int L, int V, int Vi);
int figure_model_open(int T, int F, int D, int H, int d, int L, int V, int Vi)
{
    struct pl_dalle_config config = { .name = "figure",
                                      .T = T,
                                      .F = F,
                                      .D = D,
                                      .H = H,
                                      .d = d,
                                      .L = L,
                                      .V = V,
                                      .Vi = Vi,
                                      .pad = 1,
                                      .image_weight = 7 };
    int rc;
    pl_dalle_close(model);
    pl_dalle_config_pattern(&config, 5, 1);
    rc = pl_dalle_open(&model, &config, reference(), 0, &last_error);
    return rc ? rc : (int)model->params.count;
}

/* Parameter `name`, as DALLE-pytorch calls it, from n values. */
int EXPORT(figure_model_put)(const char *name, const float *values, int n);
int figure_model_put(const char *name, const float *values, int n)
{
    return put(&model->params, name, values, n);
}

/* codes (F F) of a caption's tokens (T); temperature 0: always the likeliest. */
int EXPORT(figure_generate)(int32_t *codes, const int32_t *text, int top_k, double temperature,
                            int seed);
int figure_generate(int32_t *codes, const int32_t *text, int top_k, double temperature, int seed)
{
    struct pl_generate_options options = pl_generate_options();
    options.greedy = temperature == 0;
    options.sampling.top_k = top_k;
    if (temperature > 0) options.sampling.temperature = temperature;
    options.seed = (uint64_t)seed;
    return pl_generate(model, codes, text, 1, &options, &last_error);
}

/* --- its codec: pl_vqgan_decode --------------------------------------------------------------- */

static struct pl_vqgan codec;

/* A codec with a multiple of ch channels for each of its levels. Returns how many tensors it
 * wants. */
int EXPORT(figure_codec_open)(int ch, const int32_t *multiples, int levels, int blocks,
                              int resolution, int z_channels, int embed_dim, int n_embed,
                              int norm_groups);
int figure_codec_open(int ch, const int32_t *multiples, int levels, int blocks, int resolution,
                      int z_channels, int embed_dim, int n_embed, int norm_groups)
{
    struct pl_vqgan_config config = { .ch = ch,
                                      .levels = levels,
                                      .num_res_blocks = blocks,
                                      .resolution = resolution,
                                      .z_channels = z_channels,
                                      .embed_dim = embed_dim,
                                      .n_embed = n_embed,
                                      .norm_groups = norm_groups };
    int rc;
    if (levels > PL_VQ_LEVELS_MAX) return PL_EUSE;
    for (int l = 0; l < levels; l++) config.ch_mult[l] = multiples[l];
    if ((rc = pl_vqgan_check(&config, &last_error))) return rc;
    if (codec.params.list) pl_vqgan_clear(&codec);
    rc = pl_vqgan_init(&codec, &config, reference(), 0);
    return rc ? rc : (int)codec.params.count;
}

/* Tensor `name`, as taming-transformers calls it, from n values. */
int EXPORT(figure_codec_put)(const char *name, const float *values, int n);
int figure_codec_put(const char *name, const float *values, int n)
{
    return put(&codec.params, name, values, n);
}

/* The picture x (3,side,side) of codes (F,F). */
int EXPORT(figure_decode)(float *x, const int32_t *codes, int F);
int figure_decode(float *x, const int32_t *codes, int F)
{
    return pl_vqgan_decode(&codec, x, codes, 1, F, F);
}

/* --- reversible blocks: pl_stack_block, and the way back -------------------------------------- */

static int batch; /* sequences in the streams */

/* A stack of L blocks with random parameters; S = T + F F positions, B sequences. */
int EXPORT(figure_stack_open)(int L, int T, int F, int D, int H, int d, int B, int seed);
int figure_stack_open(int L, int T, int F, int D, int H, int d, int B, int seed)
{
    int rc = figure_model_open(T, F, D, H, d, L, 2, 2);
    batch = B;
    if (rc >= 0) rc = pl_dalle_init(model, (uint64_t)seed);
    return rc ? rc
              : pl_stack_reserve(&model->stack, B * pl_dalle_positions(&model->config),
                                 PL_REVERSIBLE, 0);
}

/* The rotary angles (S+1,R/2), and the input (B,S,D), with which both streams begin. */
int EXPORT(figure_stack_angles)(const float *angle);
int figure_stack_angles(const float *angle)
{
    return pl_blocks_set_angles(&model->stack.blocks, angle);
}
int EXPORT(figure_stack_begin)(const float *x, int n);
int figure_stack_begin(const float *x, int n)
{
    memcpy(pl_stack_input(&model->stack), x, (size_t)n * sizeof *x);
    return pl_stack_begin(&model->stack, batch, pl_dalle_positions(&model->config), 0);
}

/* Where the streams are, (B,S,D) each. */
const float *EXPORT(figure_stack_a)(void);
const float *figure_stack_a(void) { return model->stack.a[0]; }
const float *EXPORT(figure_stack_b)(void);
const float *figure_stack_b(void) { return model->stack.b[model->config.L]; }

/* Block l forward. */
int EXPORT(figure_stack_block)(int l);
int figure_stack_block(int l)
{
    return pl_stack_block(&model->stack, l, batch, pl_dalle_positions(&model->config), 0);
}

/* Block l undone, which is block_backward of ref/model/reversible.c without the gradients:
 * b -= s_g FFN(a), then a -= s_f Attn(b). */
int EXPORT(figure_stack_undo)(int l);
int figure_stack_undo(int l)
{
    struct pl_stack *s = &model->stack;
    const struct pl_block *block = &s->blocks.list[l];
    const struct pl_backend *be = reference();
    struct pl_ffn_saved ffn = s->ffn[0];
    float *a = s->a[0], *b = s->b[model->config.L];
    int S = pl_dalle_positions(&model->config), D = model->config.D, rc;
    ffn.z = NULL;
    if ((rc = pl_ffn_branch(&s->blocks, l, &ffn, &s->scratch, a, batch, S)) ||
        (rc = be->scale_add(b, ffn.y, pl_params_value(s->blocks.params, block->g_scale), batch * S,
                            D, -1)) ||
        (rc = pl_attention_branch(&s->blocks, l, &s->attn[0], &s->scratch, b, batch, S)))
        return rc;
    return be->scale_add(a, s->attn[0].y, pl_params_value(s->blocks.params, block->f_scale),
                         batch * S, D, -1);
}
