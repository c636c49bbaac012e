/* prenorm_params.c - the tensors of a pre-norm transformer's blocks, in their model's order and
 * under their model's names. [spec images-and-text 2.1, 6]
 *
 *   LN_1 (D) (D)    W_qkv (3D,D)      W_out (D,D)           a W has a b, (rows)
 *   LN_2 (D) (D)    W_fc (hidden,D)   W_proj (D,hidden)
 *
 * Matrices decay, vectors don't. With groups, blocks share matrices as the paper's model does, and
 * keep norms of their own. [TTT 3.1] */
#include "prenorm.h"

#include <assert.h>
#include <stdio.h>

/* Rows and columns of a tensor; columns 0: a vector. */
static void shape_of(int64_t shape[2], const struct pl_prenorm *s, enum pl_prenorm_part part)
{
    int is_matrix = part == PL_QKV_W || part == PL_OUT_W || part == PL_FC_W || part == PL_PROJ_W;
    shape[0] = part == PL_QKV_W || part == PL_QKV_B ? 3 * s->D
               : part == PL_FC_W || part == PL_FC_B ? s->hidden
                                                    : s->D;
    shape[1] = part == PL_PROJ_W ? s->hidden : is_matrix ? s->D : 0;
}

static int is_norm(enum pl_prenorm_part part)
{
    return part == PL_LN1_WEIGHT || part == PL_LN1_BIAS || part == PL_LN2_WEIGHT ||
           part == PL_LN2_BIAS;
}

int pl_prenorm_declare(struct pl_prenorm *s, const char *prefix,
                       const struct pl_prenorm_name names[PL_PRENORM_TENSORS])
{
    assert(s->layers <= PL_PRENORM_LAYERS_MAX && s->D % s->H == 0);
    for (int l = 0; l < s->layers; l++)
        for (int i = 0; i < PL_PRENORM_TENSORS; i++) {
            enum pl_prenorm_part part = names[i].part;
            int first = s->groups ? l % s->groups : l, dims, rc;
            char name[PL_NAME_MAX];
            int64_t shape[2];
            /* A block of a group has its first block's tensors, but norms of its own. */
            if (first != l && !is_norm(part)) {
                s->part[l][part] = s->part[first][part];
                continue;
            }
            shape_of(shape, s, part);
            dims = shape[1] ? 2 : 1;
            snprintf(name, sizeof name, "%s%d.%s", prefix, l, names[i].name);
            s->part[l][part] = s->params->count;
            if ((rc = pl_params_add(s->params, name, dims, shape, dims > 1))) return rc;
            s->params->list[s->part[l][part]].is_block = dims == 2;
        }
    return PL_OK;
}
