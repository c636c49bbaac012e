/* powersgd_parts.c - PowerSGD's factors of all tensors, in two buffers, so that each
 * round sends one array.
 *
 *   M (a,b)  ~  P (a,r) Q^T (r,b)      sent are r (a + b) values in place of a b */
#include "powersgd_parts.h"

#include "../rng.h"

#define LEAST_GAIN 0.5 /* hivemind's min_compression_ratio: less is not worth two exchanges */

/* at_i = sum of the sizes before i. A tensor travels as factors if r (a + b) values are few enough
 * compared with a b; otherwise r = 0. */
struct pl_powersgd_part pl_powersgd_part(const struct pl_outer *o, int i, float *g)
{
    struct pl_powersgd_part part = { .n_p = 0 };
    /* the factors lie in the tensors' order: P_0 | P_1 | ..., and Q_0 | Q_1 | ... in a second
     * array, because P and Q travel in different rounds of one step */
    for (int k = 0; k <= i; k++) {
        const struct pl_outer_tensor *t = &o->setup.tensors[k];
        size_t a, b;
        pl_powersgd_dims(&a, &b, t->shape, t->axes);
        part.p_at += part.n_p;
        part.q_at += part.n_q;
        /* a tensor of more than two axes is read as a matrix; vectors have r = 0 */
        part.s = (struct pl_powersgd){ .be = o->setup.be, .a = (int)a, .b = (int)b };
        if (pl_powersgd_pays(a, b, t->axes, o->setup.powersgd_rank, LEAST_GAIN))
            part.s.r = o->setup.powersgd_rank;
        part.n_p = a * (size_t)part.s.r;
        part.n_q = part.s.r ? b * (size_t)part.s.r : 0;
    }
    /* M holds the error that the factors left out, e = M - P Q^T, until it is added to the next
     * gradient (error feedback) */
    part.s.M = pl_outer_get(o, "memory");
    part.s.P = pl_outer_get(o, "p");
    part.s.Q = pl_outer_get(o, "q");
    if (part.s.M) part.s.M += o->setup.tensors[i].offset;
    if (part.s.P) part.s.P += part.p_at;
    if (part.s.Q) part.s.Q += part.q_at;
    part.g = g ? g + o->setup.tensors[i].offset : NULL;
    return part;
}

/* Rank r of an a x b matrix takes r (a + b) values: 1024 x 1024 at rank 4 is 128 times smaller.
 * n_p = sum a r,  n_q = sum b r over the tensors with factors;  whole = sum n over the others */
void pl_powersgd_sizes(const struct pl_outer *o, size_t *n_p, size_t *n_q, size_t *whole)
{
    *n_p = *n_q = *whole = 0;
    for (int i = 0; i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, NULL);
        *n_p += part.n_p;
        *n_q += part.n_q;
        if (!part.s.r) *whole += o->setup.tensors[i].n;
    }
}

/* The first Q is random and the same on all peers: P = mean_r M_r Q is then (mean M) Q, an
 * iteration of subspace iteration on the mean gradient. Different ones would do no harm, but the
 * first round's approximation would be worse. Later rounds begin with the last Q, which converges
 * to the leading singular vectors while gradients change slowly. */
int pl_powersgd_draw(const struct pl_outer *o, const struct pl_powersgd_part *part, uint64_t stream)
{
    float *Q = pl_alloc(part->n_q, sizeof *Q);
    struct pl_rng rng;
    int rc = PL_ENOMEM;
    pl_rng_init(&rng, o->setup.seed, stream);
    for (size_t k = 0; Q && k < part->n_q; k++) Q[k] = (float)pl_rng_uniform(&rng);
    if (Q) rc = o->setup.be->put(part->s.Q, Q, part->n_q * sizeof *Q);
    pl_free(Q);
    return rc;
}

/* The tensors without factors. They are averaged with the factors Q, in the second exchange: a
 * third one would cost a round trip more, for biases and norms. */
int pl_powersgd_copy_whole(struct pl_outer *o, float *packed, float *g, int unpack)
{
    int rc = PL_OK;
    for (int i = 0; !rc && i < o->setup.count; i++) {
        struct pl_powersgd_part part = pl_powersgd_part(o, i, g);
        size_t n = o->setup.tensors[i].n;
        if (part.s.r) continue;
        rc = unpack ? o->setup.be->copy(part.g, packed, n) : o->setup.be->copy(packed, part.g, n);
        packed += n;
    }
    return rc;
}
