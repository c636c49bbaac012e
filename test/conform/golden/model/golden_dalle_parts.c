/* golden_dalle_parts.c - single layers and the pieces between them, forward and backward. */
#include "golden_dalle.h"

#include <stdio.h>
#include <string.h>

#define EPS 1e-5f

/* Text positions and the grid's side, for a configuration with n positions. */
static void grid(struct replay *r, int *P, int *F, int n)
{
    *P = replay_size(r, "T") + 1;
    *F = replay_size(r, "F");
    if (r->bad || (*F < 1000 && n <= *P + *F * *F)) return;
    golden_fail(r->g, "x", "%d positions, which do not fit %d of text and a grid of side %d", n, *P,
                *F);
    r->bad = 1;
}

/* One attention layer: sizes, weights, gradients, rotary tables; backend memory. */
struct layer {
    int B, n, D, H, d, R;
    struct pl_mask mask;
    float *Wqkv, *Wo, *bo, *dWqkv, *dWo, *dbo;
    float *cosine, *sine; /* NULL: no rotation */
    float *qkv, *o, *lse, *dqkv, *dout;
};

static void layer_open(struct layer *a, struct replay *r, const char *prefix, const char *kind,
                       int B, int n)
{
    size_t E, M = (size_t)B * (size_t)n;
    char name[200];
    struct pl_err err;
    *a = (struct layer){ .B = B,
                         .n = n,
                         .D = replay_size(r, "dim"),
                         .H = replay_size(r, "heads"),
                         .d = replay_size(r, "dim_head") };
    a->R = pl_rotary_channels(a->d);
    if (pl_mask_parse(&a->mask, kind, &err)) {
        golden_fail(r->g, "kind", "%s", err.text);
        r->bad = 1;
    }
    grid(r, &a->mask.P, &a->mask.F, n);
    E = (size_t)a->H * (size_t)a->d;
    snprintf(name, sizeof name, "%sto_qkv.weight", prefix);
    a->Wqkv = replay_in(r, name, 3 * E * (size_t)a->D);
    snprintf(name, sizeof name, "%sto_out.0.weight", prefix);
    a->Wo = replay_in(r, name, (size_t)a->D * E);
    snprintf(name, sizeof name, "%sto_out.0.bias", prefix);
    a->bo = replay_in(r, name, (size_t)a->D);
    a->dWqkv = replay_zeros(r, 3 * E * (size_t)a->D);
    a->dWo = replay_zeros(r, (size_t)a->D * E);
    a->dbo = replay_zeros(r, (size_t)a->D);
    a->qkv = replay_zeros(r, 3 * M * E);
    a->dqkv = replay_zeros(r, 3 * M * E);
    a->o = replay_zeros(r, M * E);
    a->dout = replay_zeros(r, M * E);
    a->lse = replay_zeros(r, M * (size_t)a->H);
}

/* The first rows of the file's table, which repeats every angle for both channels of a pair. */
static void layer_rotate(struct layer *a, struct replay *r)
{
    size_t F = (size_t)a->mask.F, R = (size_t)a->R;
    if (!R) return;
    replay_rotary(r, &a->cosine, &a->sine, "pos_emb", (size_t)a->mask.P + F * F, (size_t)a->n, R);
}

static void layer_forward(const struct layer *a, struct replay *r, float *y, const float *x,
                          const uint8_t *key_mask)
{
    const struct pl_backend *be = r->g->be;
    int M = a->B * a->n, E = a->H * a->d;
    if (r->bad) return;
    replay_did(r, be->linear(a->qkv, x, a->Wqkv, NULL, M, a->D, 3 * E));
    if (a->cosine)
        replay_did(r, be->rotary(a->qkv, a->cosine, a->sine, a->B, a->n, 3 * a->H, a->d, a->R, 0));
    replay_did(r, be->attention(a->o, a->lse, a->qkv, a->B, a->n, a->H, a->d, &a->mask, key_mask));
    replay_did(r, be->linear(y, a->o, a->Wo, a->bo, M, E, a->D));
}

/* After layer_forward of the same x. */
static void layer_backward(const struct layer *a, struct replay *r, float *dx, const float *dy,
                           const float *x, const uint8_t *key_mask)
{
    const struct pl_backend *be = r->g->be;
    int M = a->B * a->n, E = a->H * a->d;
    if (r->bad) return;
    replay_did(r, be->linear_dw(a->dWo, a->dbo, dy, a->o, M, E, a->D));
    replay_did(r, be->linear_dx(a->dout, dy, a->Wo, M, E, a->D, 0));
    replay_did(r, be->attention_backward(a->dqkv, a->dout, a->qkv, a->o, a->lse, a->B, a->n, a->H,
                                         a->d, &a->mask, key_mask));
    if (a->cosine)
        replay_did(r, be->rotary(a->dqkv, a->cosine, a->sine, a->B, a->n, 3 * a->H, a->d, a->R, 1));
    replay_did(r, be->linear_dw(a->dWqkv, NULL, a->dqkv, x, M, a->D, 3 * E));
    replay_did(r, be->linear_dx(dx, a->dqkv, a->Wqkv, M, a->D, 3 * E, 0));
}

static void layer_gradients(const struct layer *a, struct replay *r, const char *prefix,
                            double allowed)
{
    size_t D = (size_t)a->D, E = (size_t)a->H * (size_t)a->d;
    char name[200];
    snprintf(name, sizeof name, "%sto_qkv.weight", prefix);
    replay_same(r, name, a->dWqkv, 3 * E * D, allowed);
    snprintf(name, sizeof name, "%sto_out.0.weight", prefix);
    replay_same(r, name, a->dWo, D * E, allowed);
    snprintf(name, sizeof name, "%sto_out.0.bias", prefix);
    replay_same(r, name, a->dbo, D, allowed);
}

/* ------------------------------------------------------------------ attn_*: one attention layer */

/* Output and gradients on the whole input, with a key mask or without. */
static void whole(struct replay *r, const char *kind, const char *tag, double allowed)
{
    int B = replay_dim(r, "x", 0), n = replay_dim(r, "x", 1), masked = !strcmp(tag, "masked");
    struct layer a;
    size_t floats, width;
    float *x, *dy, *y, *dx;
    const struct st_tensor *bits = pl_safetensors_find(r->f, "key_mask");
    uint8_t *key_mask = NULL;
    char name[64];
    layer_open(&a, r, "param.", kind, B, n);
    layer_rotate(&a, r);
    floats = (size_t)B * (size_t)n * (size_t)a.D;
    width = a.mask.kind == PL_MASK_FULL ? (size_t)n : (size_t)a.mask.P;
    x = replay_in(r, "x", floats);
    dy = replay_in(r, "dy", floats);
    y = replay_zeros(r, floats);
    dx = replay_zeros(r, floats);
    if (masked && bits && bits->bytes == (size_t)B * width)
        key_mask = replay_bytes(r, bits->data, bits->bytes);
    else if (masked && !r->bad) {
        golden_fail(r->g, "key_mask", "expected %d times %zu bytes", B, width);
        r->bad = 1;
    }
    layer_forward(&a, r, y, x, key_mask);
    layer_backward(&a, r, dx, dy, x, key_mask);
    snprintf(name, sizeof name, "%s.y", tag);
    replay_same(r, name, y, floats, allowed);
    snprintf(name, sizeof name, "%s.dx", tag);
    replay_same(r, name, dx, floats, allowed);
    snprintf(name, sizeof name, "%s.grad.", tag);
    layer_gradients(&a, r, name, allowed);
}

/* Output only: without rotation, or of a prefix. */
static void forward_only(struct replay *r, const char *kind, const char *in, const char *out,
                         int rotate, double allowed)
{
    int B = replay_dim(r, in, 0), n = replay_dim(r, in, 1);
    struct layer a;
    size_t floats;
    float *x, *y;
    layer_open(&a, r, "param.", kind, B, n);
    if (rotate) layer_rotate(&a, r);
    floats = (size_t)B * (size_t)n * (size_t)a.D;
    x = replay_in(r, in, floats);
    y = replay_zeros(r, floats);
    layer_forward(&a, r, y, x, NULL);
    replay_same(r, out, y, floats, allowed);
}

/* The same values once more, token by token through the cache. */
static void stepwise(struct replay *r, const char *kind, double allowed)
{
    const struct pl_backend *be = r->g->be;
    int B = replay_dim(r, "x", 0), n = replay_dim(r, "x", 1);
    struct layer a;
    size_t token, E, floats, cache;
    float *x, *want, *got, *row, *one, *y, *k_cache, *v_cache;
    layer_open(&a, r, "param.", kind, B, n);
    layer_rotate(&a, r);
    token = (size_t)a.D;
    E = (size_t)a.H * (size_t)a.d;
    floats = (size_t)B * (size_t)n * token;
    cache = (size_t)B * (size_t)n * E;
    x = replay_host(r, "x", floats);
    want = replay_host(r, "plain.y", floats);
    got = replay_host_zeros(r, floats);
    row = replay_host_zeros(r, (size_t)B * token);
    one = replay_zeros(r, (size_t)B * token);
    y = replay_zeros(r, (size_t)B * token);
    k_cache = replay_zeros(r, cache);
    v_cache = replay_zeros(r, cache);
    for (int p = 0; p < n && !r->bad; p++) {
        size_t turn = (size_t)p * (size_t)a.R / 2;
        for (size_t b = 0; b < (size_t)B; b++)
            memcpy(row + b * token, x + (b * (size_t)n + (size_t)p) * token, token * sizeof *row);
        replay_did(r, be->put(one, row, (size_t)B * token * sizeof *row));
        replay_did(r, be->linear(a.qkv, one, a.Wqkv, NULL, B, a.D, 3 * (int)E));
        replay_did(r,
                   be->rotary(a.qkv, a.cosine + turn, a.sine + turn, B, 1, 3 * a.H, a.d, a.R, 0));
        replay_did(r, be->attention_step(a.o, k_cache, v_cache, a.qkv, B, n, a.H, a.d, p, &a.mask));
        replay_did(r, be->linear(y, a.o, a.Wo, a.bo, B, (int)E, a.D));
        replay_did(r, golden_down(r->g, row, y, (size_t)B * token));
        for (size_t b = 0; b < (size_t)B; b++)
            memcpy(got + (b * (size_t)n + (size_t)p) * token, row + b * token, token * sizeof *row);
    }
    if (!r->bad)
        golden_case(r->g, "plain.y, step by step", golden_relative(got, want, floats), allowed);
    pl_free(x);
    pl_free(want);
    pl_free(got);
    pl_free(row);
}

void golden_dalle_attention(struct golden *g, const struct st_file *f)
{
    static const char *const cases[] = { "plain", "masked", "norotary", "short", "step" };
    double allowed = golden_tolerance(g, 5e-6, 2e-5);
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct replay r;
        const char *kind;
        replay_open(&r, g, f);
        kind = replay_text(&r, "kind");
        switch (i) {
        case 0:
        case 1: whole(&r, kind, cases[i], allowed); break;
        case 2: forward_only(&r, kind, "x", "norotary.y", 0, allowed); break;
        case 3: forward_only(&r, kind, "x_short", "short.y", 1, allowed); break;
        default: stepwise(&r, kind, allowed);
        }
        replay_close(&r);
    }
}

/* ------------------------------------------------------------- part*_*: pieces, whole branches */

/* One piece at work: x, dy (B,n,width) in; y, dx out. */
struct piece {
    int B, n, D;
    float *x, *dy, *y, *dx;
    size_t floats;
};

static void piece_open(struct piece *p, struct replay *r)
{
    *p = (struct piece){ .B = replay_dim(r, "x", 0),
                         .n = replay_dim(r, "x", 1),
                         .D = replay_dim(r, "y", 2) };
    p->floats = (size_t)p->B * (size_t)p->n * (size_t)p->D;
    p->dy = replay_in(r, "dy", p->floats);
    p->y = replay_zeros(r, p->floats);
}

static void piece_same(const struct piece *p, struct replay *r, size_t dx_floats, double allowed)
{
    replay_same(r, "y", p->y, p->floats, allowed);
    replay_same(r, "dx", p->dx, dx_floats, allowed);
}

static void geglu(struct piece *p, struct replay *r, double allowed)
{
    const struct pl_backend *be = r->g->be;
    p->x = replay_in(r, "x", 2 * p->floats);
    p->dx = replay_zeros(r, 2 * p->floats);
    if (r->bad) return;
    replay_did(r, be->geglu(p->y, p->x, p->B * p->n, p->D));
    replay_did(r, be->geglu_backward(p->dx, p->dy, p->x, p->B * p->n, p->D));
    piece_same(p, r, 2 * p->floats, allowed);
}

static void shift(struct piece *p, struct replay *r)
{
    const struct pl_backend *be = r->g->be;
    int P, F;
    grid(r, &P, &F, p->n);
    if (r->bad) return;
    replay_did(r, be->shift(p->y, p->x, p->B, p->n, p->D, P, F));
    replay_did(r, be->shift_backward(p->dx, p->dy, p->B, p->n, p->D, P, F));
    piece_same(p, r, p->floats, 0);
}

static void prenorm(struct piece *p, struct replay *r, double allowed)
{
    const struct pl_backend *be = r->g->be;
    size_t D = (size_t)p->D;
    float *weight = replay_in(r, "param.norm.weight", D),
          *bias = replay_in(r, "param.norm.bias", D);
    float *dweight = replay_zeros(r, D), *dbias = replay_zeros(r, D);
    int M = p->B * p->n;
    if (r->bad) return;
    replay_did(r, be->layer_norm(p->y, p->x, weight, bias, M, p->D, EPS));
    replay_did(r, be->layer_norm_backward(p->dx, dweight, dbias, p->dy, p->x, weight, M, p->D, EPS,
                                          0));
    piece_same(p, r, p->floats, allowed);
    replay_same(r, "grad.norm.weight", dweight, D, allowed);
    replay_same(r, "grad.norm.bias", dbias, D, allowed);
}

static void layer_scale(struct piece *p, struct replay *r, double allowed)
{
    const struct pl_backend *be = r->g->be;
    size_t D = (size_t)p->D;
    float *s = replay_in(r, "param.scale", D), *ds = replay_zeros(r, D);
    int M = p->B * p->n;
    if (r->bad) return;
    replay_did(r, be->scale_add(p->y, p->x, s, M, p->D, 1));
    replay_did(r, be->layer_scale_backward(p->dx, ds, p->dy, p->x, s, M, p->D));
    piece_same(p, r, p->floats, allowed);
    replay_same(r, "grad.scale", ds, D, allowed);
}

/* A feed-forward layer's weights and gradients under a prefix. */
static void ffn_open(struct pl_ffn *w, struct pl_ffn *dw, struct replay *r, const char *prefix,
                     size_t D, int *C)
{
    static const char *const names[] = { "net.0.weight", "net.0.bias", "net.3.weight",
                                         "net.3.bias" };
    float **value[] = { &w->W1, &w->b1, &w->W2, &w->b2 };
    float **gradient[] = { &dw->W1, &dw->b1, &dw->W2, &dw->b2 };
    char name[200];
    snprintf(name, sizeof name, "param.%snet.3.weight", prefix);
    *C = replay_dim(r, name, 1);
    for (int i = 0; i < 4; i++) {
        size_t c = (size_t)*C, n[] = { 2 * c * D, 2 * c, D * c, D };
        snprintf(name, sizeof name, "param.%s%s", prefix, names[i]);
        *value[i] = replay_in(r, name, n[i]);
        *gradient[i] = replay_zeros(r, n[i]);
    }
}

static void ffn_gradients(const struct pl_ffn *dw, struct replay *r, const char *prefix, size_t D,
                          int C, double allowed)
{
    char name[200];
    snprintf(name, sizeof name, "grad.%snet.0.weight", prefix);
    replay_same(r, name, dw->W1, 2 * (size_t)C * D, allowed);
    snprintf(name, sizeof name, "grad.%snet.0.bias", prefix);
    replay_same(r, name, dw->b1, 2 * (size_t)C, allowed);
    snprintf(name, sizeof name, "grad.%snet.3.weight", prefix);
    replay_same(r, name, dw->W2, (size_t)C * D, allowed);
    snprintf(name, sizeof name, "grad.%snet.3.bias", prefix);
    replay_same(r, name, dw->b2, D, allowed);
}

static void feedforward(struct piece *p, struct replay *r, double allowed)
{
    const struct pl_backend *be = r->g->be;
    float *again = replay_zeros(r, p->floats);
    struct pl_ffn w, dw;
    int C, M = p->B * p->n;
    ffn_open(&w, &dw, r, "", (size_t)p->D, &C);
    if (r->bad) return;
    replay_did(r, be->ffn(p->y, NULL, p->x, &w, M, p->D, C));
    replay_did(r, be->ffn_backward(again, p->dx, &dw, p->dy, NULL, p->x, &w, M, p->D, C));
    piece_same(p, r, p->floats, allowed);
    replay_same_as(r, "y, from the backward pass", "y", again, p->floats, allowed);
    ffn_gradients(&dw, r, "", (size_t)p->D, C, allowed);
}

/* y = scale * layer(shift(norm(x))), layer: "ff" or a kind of attention. */
static void branch(struct piece *p, struct replay *r, const char *kind, double allowed)
{
    static const char at[] = "fn.fn.fn.";
    const struct pl_backend *be = r->g->be;
    int P, F, M = p->B * p->n, C = 1;
    int feeds = !strcmp(kind, "ff");
    size_t D = (size_t)p->D;
    float *weight = replay_in(r, "param.fn.norm.weight", D), *s = replay_in(r, "param.scale", D);
    float *bias = replay_in(r, "param.fn.norm.bias", D), *ds = replay_zeros(r, D);
    float *dweight = replay_zeros(r, D), *dbias = replay_zeros(r, D);
    float *norm = replay_zeros(r, p->floats), *h = replay_zeros(r, p->floats);
    float *out = replay_zeros(r, p->floats), *dh = replay_zeros(r, p->floats);
    struct pl_ffn w, dw;
    struct layer a;
    grid(r, &P, &F, p->n);
    if (feeds) ffn_open(&w, &dw, r, at, D, &C);
    else {
        layer_open(&a, r, "param.fn.fn.fn.", kind, p->B, p->n);
        layer_rotate(&a, r);
    }
    if (r->bad) return;
    replay_did(r, be->layer_norm(norm, p->x, weight, bias, M, p->D, EPS));
    replay_did(r, be->shift(h, norm, p->B, p->n, p->D, P, F));
    if (feeds) replay_did(r, be->ffn(out, NULL, h, &w, M, p->D, C));
    else layer_forward(&a, r, out, h, NULL);
    replay_did(r, be->scale_add(p->y, out, s, M, p->D, 1));

    replay_did(r, be->layer_scale_backward(dh, ds, p->dy, out, s, M, p->D));
    if (feeds) replay_did(r, be->ffn_backward(NULL, norm, &dw, dh, NULL, h, &w, M, p->D, C));
    else layer_backward(&a, r, norm, dh, h, NULL); /* norm is free by now: its gradient */
    replay_did(r, be->shift_backward(dh, norm, p->B, p->n, p->D, P, F));
    replay_did(r,
               be->layer_norm_backward(p->dx, dweight, dbias, dh, p->x, weight, M, p->D, EPS, 0));

    piece_same(p, r, p->floats, allowed);
    replay_same(r, "grad.scale", ds, D, allowed);
    replay_same(r, "grad.fn.norm.weight", dweight, D, allowed);
    replay_same(r, "grad.fn.norm.bias", dbias, D, allowed);
    if (feeds) ffn_gradients(&dw, r, at, D, C, allowed);
    else layer_gradients(&a, r, "grad.fn.fn.fn.", allowed);
}

void golden_dalle_part(struct golden *g, const struct st_file *f)
{
    double piece_bound = golden_tolerance(g, 4e-6, 2e-5),
           branch_bound = golden_tolerance(g, 5e-6, 2e-5);
    const char *name;
    struct replay r;
    struct piece p;
    replay_open(&r, g, f);
    name = replay_text(&r, "case");
    piece_open(&p, &r);
    if (!r.bad && !strcmp(name, "geglu")) geglu(&p, &r, piece_bound);
    else {
        p.x = replay_in(&r, "x", p.floats);
        p.dx = replay_zeros(&r, p.floats);
        if (r.bad)
            ;
        else if (!strncmp(name, "shift", 5)) shift(&p, &r);
        else if (!strcmp(name, "prenorm")) prenorm(&p, &r, piece_bound);
        else if (!strcmp(name, "layerscale")) layer_scale(&p, &r, piece_bound);
        else if (!strcmp(name, "feedforward")) feedforward(&p, &r, piece_bound);
        else if (!strncmp(name, "branch_", 7)) branch(&p, &r, name + 7, branch_bound);
        else golden_fail(g, "case", "\"%.40s\" is no piece that this suite knows", name);
    }
    replay_close(&r);
}
