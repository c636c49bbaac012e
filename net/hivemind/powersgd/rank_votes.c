/* rank_votes.c - a state's rank by its shapes, and the votes of several states. [spec
 * wire-extensions A.4]
 *
 * A state of PowerSGD is one Q (b,r) for each compressed matrix, in the order of the tensors. So r
 * is the first shape's last size, and it is right if exactly the matrices that are compressed at
 * this r are there, each with its own b. */
#include "rank_votes.h"

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
    for (size_t t = 0; t < tensors; t++) {
        const struct pl_wire_type *type = &state->tensors[at].type;
        if (!factors_shape(&a, &b, &schema[t], (int)r)) continue;
        if (type->dims != 2 || type->size[0] != (int64_t)b || type->size[1] != r)
            return pl_fail(err, PL_EUSE, "PowerSGD: factor %zu is not of our model", at);
        at++;
    }
    *rank = (int)r;
    return PL_OK;
}

void rank_votes_add(struct rank_votes *v, int rank)
{
    if (v->count < RANK_VOTES_MAX) v->rank[v->count++] = rank;
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
    /* More than half of all votes that can come: the others cannot outnumber them. */
    rank_votes_most(v, &votes);
    return 2 * votes > RANK_VOTES_MAX || v->count == RANK_VOTES_MAX;
}
