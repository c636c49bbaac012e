/* vqgan_attn.c - the attention block: at the smallest resolution every place looks at every other,
 * which convolutions cannot. [VQGAN] [Vaswani et al. 2017, eq. 1] [spec images-and-text 1.1]
 *
 *   q, k, v = 1x1 convolutions of norm(x)              (B,C,H,W) each
 *   o       = softmax(q^T k / sqrt(C)) v               one head over the H W places
 *   y       = x + proj_out(o)
 *
 * Attention wants a row of channels for each place, maps have a plane of places for each channel:
 * hence the transposes.
 *
 * Parts: 0 norm, 1 q, 2 k, 3 v, 4 proj_out. */
#include "vqgan_block_internal.h"

/* Every place attends to every other. */
static const struct pl_mask everyone = { .kind = PL_MASK_NONE };

int vq_attn_forward(const struct vq_pass *s, struct pl_maps *y, const struct pl_maps *x,
                    struct pl_vq_saved *saved)
{
    int places = x->H * x->W, C = x->C;
    struct pl_maps normed = vq_take(s, x->B, C, x->H, x->W), part = vq_take(s, x->B, C, x->H, x->W);
    float *qkv = pl_scratch_take(s->scratch, 3 * pl_maps_floats(x));
    float *attended = pl_scratch_take(s->scratch, pl_maps_floats(x));
    float *lse = pl_scratch_take(s->scratch, (size_t)x->B * (size_t)places);
    int rc;
    if (!normed.at || !part.at || !qkv || !attended || !lse) return PL_ENOMEM;
    rc = vq_norm(s, 0, &normed, x);
    /* q, k, v side by side in rows of 3 C, as attention.h has them */
    for (int i = 0; !rc && i < 3; i++) {
        rc = vq_conv(s, i + 1, &part, &normed, 1);
        if (!rc) rc = s->be->transpose(qkv + i * C, 3 * C, part.at, places, x->B, C, places);
    }
    if (!rc) rc = s->be->attention(attended, lse, qkv, x->B, places, 1, C, &everyone, NULL);
    /* y = proj_out(o) + x, o as maps again */
    if (!rc) rc = s->be->transpose(part.at, places, attended, C, x->B, places, C);
    if (!rc) rc = vq_conv(s, 4, y, &part, 1);
    if (!rc) rc = s->be->axpy(y->at, 1, x->at, pl_maps_floats(y));
    vq_give(s, &normed);
    vq_give(s, &part);
    if (saved) {
        saved->qkv = qkv;
        saved->attended = attended;
        saved->lse = lse;
    } else {
        pl_scratch_give(s->scratch, qkv);
        pl_scratch_give(s->scratch, attended);
        pl_scratch_give(s->scratch, lse);
    }
    return rc;
}

/* The same in reverse. norm(x) is computed once more; q, k, v, o and lse were saved. */
int vq_attn_backward(const struct vq_pass *s, struct pl_maps *dx, const struct pl_maps *dy,
                     struct pl_vq_saved *saved)
{
    const struct pl_maps *x = &saved->x;
    int places = x->H * x->W, C = x->C;
    struct pl_maps part = vq_take(s, x->B, C, x->H, x->W), spare = vq_take(s, x->B, C, x->H, x->W);
    struct pl_maps sum = vq_take(s, x->B, C, x->H, x->W);
    float *dattended = pl_scratch_take(s->scratch, pl_maps_floats(x));
    float *dqkv = pl_scratch_take(s->scratch, 3 * pl_maps_floats(x));
    int rc;
    if (!part.at || !spare.at || !sum.at || !dattended || !dqkv) return PL_ENOMEM;
    /* proj_out: its weights from o, and do as rows of places */
    rc = s->be->transpose(part.at, places, saved->attended, C, x->B, places, C);
    if (!rc) rc = vq_conv_backward(s, 4, &spare, dy, &part, 1);
    if (!rc) rc = s->be->transpose(dattended, C, spare.at, places, x->B, C, places);
    /* dq, dk, dv in one buffer */
    if (!rc)
        rc = s->be->attention_backward(dqkv, dattended, saved->qkv, saved->attended, saved->lse,
                                       x->B, places, 1, C, &everyone, NULL);
    /* each through its convolution to norm(x), whose gradient is the sum of the three */
    if (!rc) rc = vq_norm(s, 0, &spare, x);
    if (!rc) rc = s->be->fill(sum.at, 0, pl_maps_floats(x));
    for (int i = 0; !rc && i < 3; i++) {
        rc = s->be->transpose(part.at, places, dqkv + i * C, 3 * C, x->B, places, C);
        if (!rc) rc = vq_conv_backward(s, i + 1, dx, &part, &spare, 1);
        if (!rc) rc = s->be->axpy(sum.at, 1, dx->at, pl_maps_floats(x));
    }
    if (!rc) rc = vq_norm_backward(s, 0, dx, &sum, x);
    if (!rc) rc = s->be->axpy(dx->at, 1, dy->at, pl_maps_floats(x)); /* x + ... */
    vq_give(s, &part);
    vq_give(s, &spare);
    vq_give(s, &sum);
    pl_scratch_give(s->scratch, dattended);
    pl_scratch_give(s->scratch, dqkv);
    pl_scratch_give(s->scratch, saved->qkv);
    pl_scratch_give(s->scratch, saved->attended);
    pl_scratch_give(s->scratch, saved->lse);
    return rc;
}
