/* vqgan_res.c - the residual block, where nearly all of a VQGAN's time goes. [VQGAN]
 * [spec images-and-text 1.1]
 *
 *   middle = conv1(swish(norm1(x)))                    (B,out,H,W)
 *   y      = x + conv2(swish(norm2(middle)))           x through a 1x1 convolution if out != in
 *
 * A block learns a change of its input: with zeros in conv2 it is the identity, so twenty of them
 * in a row still pass gradients on.
 *
 * Parts: 0 norm1, 1 conv1, 2 norm2, 3 conv2, 4 the shortcut. */
#include "vqgan_block_internal.h"

/* Saves x and middle alone: norms and swish are cheap to compute again, maps are not to store. */
int vq_res_forward(const struct vq_pass *s, struct pl_maps *y, const struct pl_maps *x,
                   struct pl_vq_saved *saved)
{
    struct pl_maps a = vq_take(s, x->B, x->C, x->H, x->W);
    struct pl_maps middle = vq_take(s, x->B, y->C, x->H, x->W), b;
    int rc;
    if (!a.at || !middle.at) return PL_ENOMEM;
    /* middle = conv1(swish(norm1(x))) */
    rc = vq_norm_swish(s, 0, &a, x);
    if (!rc) rc = vq_conv(s, 1, &middle, &a, 3);
    vq_give(s, &a);
    /* y = conv2(swish(norm2(middle))) */
    b = saved ? vq_take(s, x->B, y->C, x->H, x->W) : middle; /* forward only: in place */
    if (!b.at) return PL_ENOMEM;
    if (!rc) rc = vq_norm_swish(s, 2, &b, &middle);
    if (!rc) rc = vq_conv(s, 3, y, &b, 3);
    if (!rc && x->C != y->C) { /* y += shortcut(x), which sees x itself, not norm1(x) */
        rc = vq_conv(s, 4, &b, x, 1);
        if (!rc) rc = s->be->axpy(y->at, 1, b.at, pl_maps_floats(y));
    } else if (!rc) { /* y += x */
        rc = s->be->axpy(y->at, 1, x->at, pl_maps_floats(y));
    }
    if (saved) saved->middle = middle.at;
    vq_give(s, &b);
    return rc;
}

/* The same four layers from the last to the first, each with its norm and swish computed again.
 * The sum hands dy to both of its terms: to conv2, and to the shortcut at the end. */
int vq_res_backward(const struct vq_pass *s, struct pl_maps *dx, const struct pl_maps *dy,
                    struct pl_vq_saved *saved)
{
    const struct pl_maps *x = &saved->x;
    struct pl_maps middle = *dy, normed = vq_take(s, dy->B, dy->C, dy->H, dy->W);
    struct pl_maps active = vq_take(s, dy->B, dy->C, dy->H, dy->W), grad, spare;
    int rc;
    middle.at = saved->middle;
    if (!normed.at || !active.at) return PL_ENOMEM;
    /* active = swish(norm2(middle)), the input of conv2:  dW2 += dy active,  dactive = W2^T dy */
    rc = vq_norm(s, 2, &normed, &middle);
    if (!rc) rc = s->be->activation(active.at, normed.at, pl_maps_floats(&normed), PL_SWISH);
    if (!rc) rc = vq_conv_backward(s, 3, NULL, dy, &active, 3);
    if (!rc) {
        struct pl_conv c = vq_same_size(&active, dy->C, 3);
        rc = s->be->conv_dx(active.at, dy->at, vq_weight(s, 3), &c);
    }
    if (!rc) rc = vq_norm_swish_backward(s, 2, &active, &active, &normed, &middle);
    vq_give(s, &normed);
    vq_give(s, &middle);
    grad = active; /* dmiddle */
    normed = vq_take(s, x->B, x->C, x->H, x->W);
    spare = vq_take(s, x->B, x->C, x->H, x->W);
    if (!normed.at || !spare.at) return PL_ENOMEM;
    /* spare = swish(norm1(x)), the input of conv1:  dW1 += dmiddle spare,  dx = W1^T dmiddle */
    if (!rc) rc = vq_norm(s, 0, &normed, x);
    if (!rc) rc = s->be->activation(spare.at, normed.at, pl_maps_floats(x), PL_SWISH);
    if (!rc) rc = vq_conv_backward(s, 1, dx, &grad, &spare, 3);
    if (!rc) rc = vq_norm_swish_backward(s, 0, dx, dx, &normed, x);
    /* dx += the gradient through the shortcut */
    if (!rc && x->C != dy->C) {
        rc = vq_conv_backward(s, 4, &spare, dy, x, 1);
        if (!rc) rc = s->be->axpy(dx->at, 1, spare.at, pl_maps_floats(dx));
    } else if (!rc) {
        rc = s->be->axpy(dx->at, 1, dy->at, pl_maps_floats(dx));
    }
    vq_give(s, &normed);
    vq_give(s, &spare);
    vq_give(s, &grad);
    return rc;
}
