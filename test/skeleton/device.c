/* device.c - a starting point for a backend whose device has its own memory. Every operation on
 * that memory is here; each copies its arguments to the host, calls the reference, and copies the
 * results back: slow and correct. First replace the four device_ functions by your device's, then
 * one operation after the other by a kernel. One long file, so that a new backend begins as a copy.
 *
 *     cc -std=c11 -O2 -fPIC -shared -I. -o mine.so test/skeleton/device.c
 *     build/potluck conform --backend ./mine.so */
#include "ref/backend.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device: replace these ---- */

/* Zeroed, aligned to 64 bytes: the contract of alloc in ref/backend.h. */
static void *device_new(size_t bytes)
{
    size_t size = (bytes / 64 + 1) * 64;
    void *p = aligned_alloc(64, size);
    return p ? memset(p, 0, size) : NULL;
}
static void device_delete(void *p) { free(p); }
static int device_write(void *device, const void *host, size_t bytes)
{
    if (bytes) memcpy(device, host, bytes);
    return PL_OK;
}
static int device_read(void *host, const void *device, size_t bytes)
{
    if (bytes) memcpy(host, device, bytes);
    return PL_OK;
}

/* ---- memory: each allocation has a mirror on the host, for operations not written yet -------- */

struct piece {
    struct piece *next;
    char *device, *mirror;
    size_t bytes;
    int is_here; /* the mirror is up to date, during the current operation */
};
static struct piece *pieces;
static struct pl_backend host; /* the table as it arrived: the reference */

static void *my_alloc(size_t bytes)
{
    struct piece *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->device = device_new(bytes);
    p->mirror = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!p->device || !p->mirror) {
        if (p->device) device_delete(p->device);
        free(p->mirror);
        free(p);
        return NULL;
    }
    p->bytes = bytes;
    p->next = pieces;
    pieces = p;
    return p->device;
}

static void my_free(void *device)
{
    for (struct piece **at = &pieces; device && *at; at = &(*at)->next)
        if ((*at)->device == device) {
            struct piece *p = *at;
            *at = p->next;
            device_delete(p->device);
            free(p->mirror);
            free(p);
            return;
        }
}

static int my_sync(void) { return PL_OK; /* wait here for your device's pending work */ }

/* The allocation that a pointer points into, or to the end of, as an empty array may, unless
 * another allocation begins there. */
static struct piece *piece_at(const char *at)
{
    struct piece *ends = NULL;
    for (struct piece *p = pieces; p; p = p->next) {
        if (at >= p->device && at < p->device + p->bytes) return p;
        if (at == p->device + p->bytes) ends = p;
    }
    return ends;
}

/* The host's copy of a device pointer. The whole allocation is copied, because a pointer does not
 * say how much an operation reads. Two arguments in one allocation share the copy. */
static void *here(const void *pointer)
{
    struct piece *p = pointer ? piece_at(pointer) : NULL;
    assert(p || !pointer); /* must come from alloc */
    if (!p || (!p->is_here && device_read(p->mirror, p->device, p->bytes))) return NULL;
    p->is_here = 1;
    return p->mirror + ((const char *)pointer - p->device);
}

/* Copies everything back to the device. */
static int there(int rc)
{
    for (struct piece *p = pieces; p; p = p->next) {
        if (p->is_here && device_write(p->device, p->mirror, p->bytes) && rc == PL_OK)
            rc = PL_EDEVICE;
        p->is_here = 0;
    }
    return rc;
}

static struct pl_ffn ffn_here(const struct pl_ffn *w)
{
    return (struct pl_ffn){ here(w->W1), here(w->b1), here(w->W2), here(w->b2) };
}

static struct pl_moments moments_here(const struct pl_moments *m)
{
    struct pl_moments h = *m;
    for (int i = 0; i < 2; i++) {
        h.value[i] = here(m->value[i]);
        h.code[i] = here(m->code[i]);
        h.absmax[i] = here(m->absmax[i]);
    }
    return h;
}

/* ---- the operations ---- */

static int my_fill(float *x, float value, size_t n) { return there(host.fill(here(x), value, n)); }

static int my_copy(float *y, const float *x, size_t n)
{
    return there(host.copy(here(y), here(x), n));
}

static int my_axpy(float *y, float a, const float *x, size_t n)
{
    return there(host.axpy(here(y), a, here(x), n));
}

static int my_scale(float *x, float a, size_t n) { return there(host.scale(here(x), a, n)); }

static int my_sumsq(double *sum, const float *x, size_t n)
{
    return there(host.sumsq(sum, here(x), n));
}

static int my_linear(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    return there(host.linear(here(y), here(x), here(W), here(b), M, K, N));
}

static int my_linear_dx(float *dx, const float *dy, const float *W, int M, int K, int N, int add)
{
    return there(host.linear_dx(here(dx), here(dy), here(W), M, K, N, add));
}

static int my_linear_dw(float *dW, float *db, const float *dy, const float *x, int M, int K, int N)
{
    return there(host.linear_dw(here(dW), here(db), here(dy), here(x), M, K, N));
}

static int my_layer_norm(float *y, const float *x, const float *weight, const float *bias, int M,
                         int D, float eps)
{
    return there(host.layer_norm(here(y), here(x), here(weight), here(bias), M, D, eps));
}

static int my_layer_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                                  const float *x, const float *weight, int M, int D, float eps,
                                  int add)
{
    return there(host.layer_norm_backward(here(dx), here(dweight), here(dbias), here(dy), here(x),
                                          here(weight), M, D, eps, add));
}

static int my_scale_add(float *y, const float *x, const float *s, int M, int D, float sign)
{
    return there(host.scale_add(here(y), here(x), here(s), M, D, sign));
}

static int my_layer_scale_backward(float *dx, float *ds, const float *dy, const float *x,
                                   const float *s, int M, int D)
{
    return there(host.layer_scale_backward(here(dx), here(ds), here(dy), here(x), here(s), M, D));
}

static int my_embed(float *y, const float *table, const int32_t *ids, int M, int D, int rows)
{
    return there(host.embed(here(y), here(table), here(ids), M, D, rows));
}

static int my_embed_backward(float *dtable, const float *dy, const int32_t *ids, int M, int D,
                             int rows)
{
    return there(host.embed_backward(here(dtable), here(dy), here(ids), M, D, rows));
}

static int my_shift(float *y, const float *x, int B, int n, int D, int P, int F)
{
    return there(host.shift(here(y), here(x), B, n, D, P, F));
}

static int my_shift_backward(float *y, const float *x, int B, int n, int D, int P, int F)
{
    return there(host.shift_backward(here(y), here(x), B, n, D, P, F));
}

static int my_activation(float *y, const float *x, size_t n, enum pl_activation kind)
{
    return there(host.activation(here(y), here(x), n, kind));
}

static int my_activation_backward(float *dx, const float *dy, const float *x, size_t n,
                                  enum pl_activation kind)
{
    return there(host.activation_backward(here(dx), here(dy), here(x), n, kind));
}

static int my_geglu(float *y, const float *z, int M, int C)
{
    return there(host.geglu(here(y), here(z), M, C));
}

static int my_geglu_backward(float *dz, const float *dy, const float *z, int M, int C)
{
    return there(host.geglu_backward(here(dz), here(dy), here(z), M, C));
}

static int my_ffn(float *y, float *z, const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    struct pl_ffn w_here = ffn_here(w);
    return there(host.ffn(here(y), here(z), here(x), &w_here, M, D, C));
}

static int my_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy, float *z,
                           const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    struct pl_ffn dw_here = ffn_here(dw);
    struct pl_ffn w_here = ffn_here(w);
    return there(host.ffn_backward(here(y), here(dx), &dw_here, here(dy), here(z), here(x), &w_here,
                                   M, D, C));
}

static int my_rotary(float *x, const float *cosine, const float *sine, int B, int n, int G, int d,
                     int R, int inverse)
{
    return there(host.rotary(here(x), here(cosine), here(sine), B, n, G, d, R, inverse));
}

static int my_attention(float *o, float *lse, const float *qkv, int B, int n, int H, int d,
                        const struct pl_mask *mask, const uint8_t *key_mask)
{
    return there(host.attention(here(o), here(lse), here(qkv), B, n, H, d, mask, here(key_mask)));
}

static int my_attention_backward(float *dqkv, const float *do_, const float *qkv, const float *o,
                                 const float *lse, int B, int n, int H, int d,
                                 const struct pl_mask *mask, const uint8_t *key_mask)
{
    return there(host.attention_backward(here(dqkv), here(do_), here(qkv), here(o), here(lse), B, n,
                                         H, d, mask, here(key_mask)));
}

static int my_attention_step(float *o, float *k_cache, float *v_cache, const float *qkv, int B,
                             int S, int H, int d, int p, const struct pl_mask *mask)
{
    return there(
        host.attention_step(here(o), here(k_cache), here(v_cache), here(qkv), B, S, H, d, p, mask));
}

static int my_loss(double *loss, float *logp, float *dx, float *dW, float *db, const float *x,
                   const float *W, const float *b, const int32_t *label,
                   const struct pl_loss_segment *segment, int segments, int B, int S, int D, int V)
{
    return there(host.loss(loss, here(logp), here(dx), here(dW), here(db), here(x), here(W),
                           here(b), here(label), segment, segments, B, S, D, V));
}

static int my_conv(float *y, const float *x, const float *w, const float *b,
                   const struct pl_conv *c)
{
    return there(host.conv(here(y), here(x), here(w), here(b), c));
}

static int my_conv_dx(float *dx, const float *dy, const float *w, const struct pl_conv *c)
{
    return there(host.conv_dx(here(dx), here(dy), here(w), c));
}

static int my_conv_dw(float *dw, float *db, const float *dy, const float *x,
                      const struct pl_conv *c)
{
    return there(host.conv_dw(here(dw), here(db), here(dy), here(x), c));
}

static int my_upsample(float *y, const float *x, int N, int H, int W)
{
    return there(host.upsample(here(y), here(x), N, H, W));
}

static int my_upsample_backward(float *dx, const float *dy, int N, int H, int W)
{
    return there(host.upsample_backward(here(dx), here(dy), N, H, W));
}

static int my_group_norm(float *y, const float *x, const float *weight, const float *bias, int B,
                         int C, int P, int G, float eps)
{
    return there(host.group_norm(here(y), here(x), here(weight), here(bias), B, C, P, G, eps));
}

static int my_group_norm_backward(float *dx, float *dweight, float *dbias, const float *dy,
                                  const float *x, const float *weight, int B, int C, int P, int G,
                                  float eps)
{
    return there(host.group_norm_backward(here(dx), here(dweight), here(dbias), here(dy), here(x),
                                          here(weight), B, C, P, G, eps));
}

static int my_transpose(float *y, int y_step, const float *x, int x_step, int B, int R, int C)
{
    return there(host.transpose(here(y), y_step, here(x), x_step, B, R, C));
}

static int my_nearest_code(int32_t *code, const float *z, const float *table, int B, int D, int P,
                           int N)
{
    return there(host.nearest_code(here(code), here(z), here(table), B, D, P, N));
}

static int my_code_rows(float *z, const float *table, const int32_t *code, int B, int D, int P,
                        int N)
{
    return there(host.code_rows(here(z), here(table), here(code), B, D, P, N));
}

static int my_code_rows_backward(float *dtable, const float *dz, float scale, const int32_t *code,
                                 int B, int D, int P, int N)
{
    return there(host.code_rows_backward(here(dtable), here(dz), scale, here(code), B, D, P, N));
}

static int my_gumbel_code(int32_t *code, const float *logits, const float *noise, int B, int N,
                          int P)
{
    return there(host.gumbel_code(here(code), here(logits), here(noise), B, N, P));
}

static int my_gumbel_soft(float *y, const float *logits, const float *noise, float temperature,
                          int B, int N, int P)
{
    return there(host.gumbel_soft(here(y), here(logits), here(noise), temperature, B, N, P));
}

static int my_kl_uniform(double *kl, const float *logits, int B, int N, int P)
{
    return there(host.kl_uniform(kl, here(logits), B, N, P));
}

static int my_gumbel_backward(float *dlogits, const float *a, const float *y, const float *logits,
                              float temperature, float kl_weight, int B, int N, int P)
{
    return there(host.gumbel_backward(here(dlogits), here(a), here(y), here(logits), temperature,
                                      kl_weight, B, N, P));
}

static int my_pixel_loss(double loss[2], float *dy, const float *y, const float *x, float l1,
                         float l2, size_t n)
{
    return there(host.pixel_loss(loss, here(dy), here(y), here(x), l1, l2, n));
}

static int my_quantize(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                       enum pl_map map, enum pl_rule rule)
{
    return there(host.quantize(here(codes), here(absmax), here(x), n, block, map, rule));
}

static int my_dequantize(float *y, const uint8_t *codes, const float *absmax, size_t n,
                         size_t block, const float book[PL_CODES])
{
    return there(host.dequantize(here(y), here(codes), here(absmax), n, block, book));
}

static int my_lamb(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
                   const struct pl_moments *moments, size_t n, const struct pl_lamb *step)
{
    struct pl_moments m = moments_here(moments);
    return there(host.lamb(norms, here(p), here(u), here(g), &m, n, step));
}

static int my_adam(float *p, const float *g, const struct pl_moments *moments, size_t n,
                   const struct pl_adam *step)
{
    struct pl_moments m = moments_here(moments);
    return there(host.adam(here(p), here(g), &m, n, step));
}

static int my_outer_nesterov(float *phi, float *b, const float *g, size_t n, float mu, float nu)
{
    return there(host.outer_nesterov(here(phi), here(b), here(g), n, mu, nu));
}

static int my_outer_mix(float *theta, const float *phi, size_t n, float alpha)
{
    return there(host.outer_mix(here(theta), here(phi), n, alpha));
}

static int my_outer_gossip(float *phi, float *b, const float *change, const float *mean, size_t n,
                           float mu, float nu, float gamma)
{
    return there(host.outer_gossip(here(phi), here(b), here(change), here(mean), n, mu, nu, gamma));
}

static int my_sign_step(float *x, const float *u, size_t n, float rate)
{
    return there(host.sign_step(here(x), here(u), n, rate));
}

static int my_e3m0_encode(uint8_t *out, const float *x, size_t n, size_t block)
{
    return there(host.e3m0_encode(here(out), here(x), n, block));
}

static int my_e3m0_decode(float *x, const uint8_t *in, size_t n, size_t block)
{
    return there(host.e3m0_decode(here(x), here(in), n, block));
}

static int my_chunk_cut(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    return there(host.chunk_cut(here(y), here(x), c, dct));
}

static int my_chunk_paste(float *y, const float *x, const struct pl_chunks *c, int dct)
{
    return there(host.chunk_paste(here(y), here(x), c, dct));
}

static int my_chunk_topk(int32_t *index, float *value, const float *x, size_t chunks, int m, int k)
{
    return there(host.chunk_topk(here(index), here(value), here(x), chunks, m, k));
}

int pl_backend_v1(struct pl_backend *be)
{
    host = *be;
    be->name = "mine";
    snprintf(be->note, sizeof be->note, "mine: the skeleton with device memory");
    be->alloc = my_alloc;
    be->free = my_free;
    be->put = device_write;
    be->get = device_read;
    be->sync = my_sync;
    be->fill = my_fill;
    be->copy = my_copy;
    be->axpy = my_axpy;
    be->scale = my_scale;
    be->sumsq = my_sumsq;
    be->linear = my_linear;
    be->linear_dx = my_linear_dx;
    be->linear_dw = my_linear_dw;
    be->layer_norm = my_layer_norm;
    be->layer_norm_backward = my_layer_norm_backward;
    be->scale_add = my_scale_add;
    be->layer_scale_backward = my_layer_scale_backward;
    be->embed = my_embed;
    be->embed_backward = my_embed_backward;
    be->shift = my_shift;
    be->shift_backward = my_shift_backward;
    be->activation = my_activation;
    be->activation_backward = my_activation_backward;
    be->geglu = my_geglu;
    be->geglu_backward = my_geglu_backward;
    be->ffn = my_ffn;
    be->ffn_backward = my_ffn_backward;
    be->rotary = my_rotary;
    be->attention = my_attention;
    be->attention_backward = my_attention_backward;
    be->attention_step = my_attention_step;
    be->loss = my_loss;
    be->conv = my_conv;
    be->conv_dx = my_conv_dx;
    be->conv_dw = my_conv_dw;
    be->upsample = my_upsample;
    be->upsample_backward = my_upsample_backward;
    be->group_norm = my_group_norm;
    be->group_norm_backward = my_group_norm_backward;
    be->transpose = my_transpose;
    be->nearest_code = my_nearest_code;
    be->code_rows = my_code_rows;
    be->code_rows_backward = my_code_rows_backward;
    be->gumbel_code = my_gumbel_code;
    be->gumbel_soft = my_gumbel_soft;
    be->kl_uniform = my_kl_uniform;
    be->gumbel_backward = my_gumbel_backward;
    be->pixel_loss = my_pixel_loss;
    be->quantize = my_quantize;
    be->dequantize = my_dequantize;
    be->lamb = my_lamb;
    be->adam = my_adam;
    be->outer_nesterov = my_outer_nesterov;
    be->outer_mix = my_outer_mix;
    be->outer_gossip = my_outer_gossip;
    be->sign_step = my_sign_step;
    be->e3m0_encode = my_e3m0_encode;
    be->e3m0_decode = my_e3m0_decode;
    be->chunk_cut = my_chunk_cut;
    be->chunk_paste = my_chunk_paste;
    be->chunk_topk = my_chunk_topk;
    return PL_OK;
}
