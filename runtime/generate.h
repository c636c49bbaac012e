/* generate.h - from captions to image codes: the loop over cells, its draws, and guidance.
 * [TTT 3.4] [spec dalle 11] */
#ifndef PL_GENERATE_H
#define PL_GENERATE_H

#include "../ref/sample.h"
#include "kv_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_generate_options {
    struct pl_sampling sampling;
    int greedy;      /* 1: always the likeliest code, nothing is drawn */
    double guidance; /* classifier-free guidance's scale; 1: none (the reference run) */
    uint64_t seed;   /* image i of the call samples from stream first_image + i of this seed, */
    uint64_t first_image; /* so neither the batch size nor a split into calls changes the result */
    int batch;            /* images at a time; guidance takes twice the memory */
    int uncached;         /* 1: everything again for each code: slow, the same codes to rounding */
    /* Called after each code of a batch with the codes drawn so far over all images, and their
     * final number; nonzero stops with PL_EAGAIN. NULL: not called. */
    int (*progress)(void *context, int64_t done, int64_t total);
    void *context;
};
/* As in the reference run: every token may be sampled, no guidance; 16 images at a time. */
struct pl_generate_options pl_generate_options(void);

/* codes (n,I) from text (n,T), padded as in training; host memory. Equal captions side by side are
 * read once a batch. */
int pl_generate(struct pl_dalle *m, int32_t *codes, const int32_t *text, int n,
                const struct pl_generate_options *options, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
