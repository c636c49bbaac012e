/* params.h - a model's parameters: named tensors in one flat buffer, values and gradients, so
 * that optimizers and averaging walk one array and checkpoints walk names. */
#ifndef PL_PARAMS_H
#define PL_PARAMS_H

#include "../backend.h"
#include "../rng.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_NAME_MAX 128
#define PL_DIMS_MAX 8

struct pl_param {
    char name[PL_NAME_MAX];
    int dims;
    int64_t shape[PL_DIMS_MAX];
    size_t n;      /* elements */
    size_t offset; /* of the first element in the flat buffers; a multiple of 16 (64 bytes) */
    int decay;     /* 1: weight decay applies */
    int is_block;  /* 1: a matrix of a block, not of an embedding or the output layer: for Muon */
};

struct pl_params {
    const struct pl_backend *be; /* borrowed */
    struct pl_param *list;
    size_t count, capacity;
    size_t total;     /* floats in a flat buffer, padding between tensors included (always zero) */
    size_t trainable; /* elements without the padding: the number of parameters that papers state */
    float *value, *grad; /* backend memory, NULL before pl_params_allocate; grad may stay NULL */
};

/* Declares a tensor (names are unique); shape has `dims` entries, 0 for a scalar. */
int pl_params_add(struct pl_params *p, const char *name, int dims, const int64_t *shape, int decay);
/* Zeroed buffers; gradients only if asked for. */
int pl_params_allocate(struct pl_params *p, const struct pl_backend *be, int with_grad);
void pl_params_clear(struct pl_params *p);

/* Index of a name, or -1. */
long pl_params_find(const struct pl_params *p, const char *name);
float *pl_params_value(const struct pl_params *p, size_t index);
float *pl_params_grad(const struct pl_params *p, size_t index);

/* Moves one tensor between host memory (n elements, no padding) and the model. */
int pl_params_put(const struct pl_params *p, size_t index, const float *host);
int pl_params_get(const struct pl_params *p, size_t index, float *host);

/* PL_EUSE with a sentence if a size of a configuration is out of its range: "CLIP configuration:
 * vocab_size is 0, expected 1 to 16777216". */
struct pl_range {
    const char *name;
    int value, least, most;
};
int pl_check_ranges(const char *what, const struct pl_range *range, size_t count,
                    struct pl_err *err);

/* Uniform in [-bound, bound) and normal around 0, drawn in order on the host; one constant. */
int pl_params_uniform(const struct pl_params *p, size_t index, float bound, struct pl_rng *rng);
int pl_params_normal(const struct pl_params *p, size_t index, double deviation, struct pl_rng *rng);
int pl_params_constant(const struct pl_params *p, size_t index, float value);

#ifdef __cplusplus
}
#endif
#endif
