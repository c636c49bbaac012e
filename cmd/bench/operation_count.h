/* operation_count.h - a backend that counts the floating-point operations of the matrix products
 * and attention that a model asks it for. A multiply-add counts two. Norms, gates and other passes
 * are left out, as in published counts. */
#ifndef PL_CMD_BENCH_OPERATION_COUNT_H
#define PL_CMD_BENCH_OPERATION_COUNT_H

#include "ref/backend.h"

/* *counting: be, whose products are counted from 0. One at a time; be must outlive it. */
void operation_count_begin(struct pl_backend *counting, const struct pl_backend *be);

/* Operations since then. What a kernel adds (masked keys in a tile, rows of zeros) is not known
 * here. */
double operation_count(void);

#endif
