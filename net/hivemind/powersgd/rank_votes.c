/* rank_votes.c - a state's rank by its shapes, and the votes of several states. [spec
 * wire-extensions A.4]
 *
 * A state of PowerSGD is one Q (b,r) for each compressed matrix, in the order of the tensors. So r
 * is the first shape's last size, and it is right if exactly the matrices that are compressed at
 * this r are there, each with its own b. */
#include "rank_votes.h"

#include <math.h>
#include <string.h>

int rank_of_state(int *rank, const struct state_load *state, const struct schema_tensor *schema,
                  size_t tensors, struct pl_err *err)
{
    size_t at = 0, a, b;
    int64_t r;
    *rank = 0;
    /* No Q at all: this peer compresses nothing, which is a vote for rank 0. */
    if (!state->count) return PL_OK;
    /* A false rank compresses another number of matrices, or makes other shapes. */
    r = state->tensors[0].type.dims == 2 ? state->tensors[0].type.size[1] : 0;
    if (r < 1 || r > FACTORS_RANK_MAX || factors_count(schema, tensors, (int)r) != state->count)
        return pl_fail(err, PL_EUSE, "PowerSGD: %zu factors of rank %lld are not of our model",
                       state->count, (long long)r);
    /* Q_t (b,r) of each matrix (a,b) that is compressed; factors_shape passes over the others. */
    for (size_t t = 0; t < tensors; t++) {
        const struct pl_wire_type *type = &state->tensors[at].type;
        if (!factors_shape(&a, &b, &schema[t], (int)r)) continue;
        if (type->dtype != PL_F32 || type->dims != 2 || type->size[0] != (int64_t)b ||
            type->size[1] != r)
            return pl_fail(err, PL_EUSE, "PowerSGD: factor %zu is not of our model", at);
        at++;
    }
    *rank = (int)r;
    return PL_OK;
}

/* Q of all matrices, one after the other. Values beyond FACTORS_VALUE_MAX, and NaN, are refused:
 * they would make P = W Q larger than groupmates accept. */
int factors_of_state(float **Q, size_t *n, const struct state_load *state,
                     const struct pl_backend *be, struct pl_err *err)
{
    size_t at = 0;
    int rc = PL_OK;
    *n = 0;
    for (size_t i = 0; i < state->count; i++) *n += tensor_elements(&state->tensors[i]);
    if (!(*Q = pl_alloc(*n, sizeof **Q))) return pl_fail(err, PL_ENOMEM, "PowerSGD: no memory");
    for (size_t i = 0; !rc && i < state->count; i++) {
        const struct tensor_message *m = &state->tensors[i];
        rc = pl_wire_decode(*Q + at, be, m->method, &m->type, m->buffer, m->bytes, err);
        at += tensor_elements(m);
    }
    for (size_t k = 0; !rc && k < *n; k++)
        if (!(fabsf((*Q)[k]) <= FACTORS_VALUE_MAX))
            rc = pl_fail(err, PL_EFORMAT, "PowerSGD: a factor is not finite or too large");
    if (!rc) return PL_OK;
    pl_free(*Q);
    *Q = NULL;
    return rc;
}

/* One vote a peer. A vote owns its Q, whether it is counted or not. */
void rank_votes_add(struct rank_votes *v, int rank, float *Q, size_t n)
{
    if (v->count == RANK_VOTES_MAX) {
        pl_free(Q);
        return;
    }
    v->rank[v->count] = rank;
    v->Q[v->count] = Q;
    v->n[v->count++] = n;
}

void rank_votes_clear(struct rank_votes *v)
{
    for (size_t i = 0; i < v->count; i++) pl_free(v->Q[i]);
    memset(v, 0, sizeof *v);
}

/* At most RANK_VOTES_MAX ranks, so counting again and again costs nothing. */
static size_t votes_of(const struct rank_votes *v, int rank)
{
    size_t votes = 0;
    for (size_t i = 0; i < v->count; i++) votes += v->rank[i] == rank;
    return votes;
}

/* The most frequent rank; of two that are equally frequent, the one that came first. */
int rank_votes_most(const struct rank_votes *v, size_t *votes)
{
    int rank = 0;
    *votes = 0;
    for (size_t i = 0; i < v->count; i++)
        if (votes_of(v, v->rank[i]) > *votes) {
            rank = v->rank[i];
            *votes = votes_of(v, rank);
        }
    return rank;
}

int rank_votes_decided(const struct rank_votes *v)
{
    size_t votes;
    /* More than half of all possible votes: no other rank can get as many. */
    rank_votes_most(v, &votes);
    return 2 * votes > RANK_VOTES_MAX || v->count == RANK_VOTES_MAX;
}

/* |x - y|, the Euclidean distance of two peers' Q. Equal ranks have equal lengths n. */
static double distance(const struct rank_votes *v, size_t x, size_t y)
{
    double sum = 0;
    for (size_t k = 0; k < v->n[x]; k++) sum += pow((double)v->Q[x][k] - (double)v->Q[y][k], 2);
    return sqrt(sum);
}

/* argmin_i sum_k |Q_i - Q_k|, over the votes for this rank: the medoid. Q of honest peers differ by
 * rounding alone, so a false one among three is far from both others and is not taken. A mean would
 * follow it any distance. */
const float *rank_votes_factors(const struct rank_votes *v, int rank, size_t *n)
{
    const float *nearest = NULL;
    double least = INFINITY;
    for (size_t i = 0; i < v->count; i++) {
        double sum = 0;
        if (v->rank[i] != rank || !v->Q[i]) continue;
        for (size_t k = 0; k < v->count; k++)
            if (v->rank[k] == rank && v->Q[k]) sum += distance(v, i, k);
        if (nearest && sum >= least) continue;
        nearest = v->Q[i];
        least = sum;
        *n = v->n[i];
    }
    return nearest;
}
