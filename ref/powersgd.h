/* powersgd.h - PowerSGD as in hivemind: a gradient matrix is sent as two thin factors, and their
 * error is added to the next gradient. [Vogels et al. 2019, arXiv 1905.13727, alg. 1 and 2] [spec
 * numerics 10]
 *
 * A round of tensor t, the averages being the group's:
 *
 *   M += G;  P = M Q       -> average P ->   P orthonormal;  Q = M^T P
 *                          -> average Q ->   G = P Q^T;  M -= G
 */
#ifndef PL_POWERSGD_H
#define PL_POWERSGD_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_POWERSGD_AXES_MAX 16

/* The matrix (rows, columns) that a row-major tensor is seen as: the adjacent pair of axes with the
 * smallest product is merged until two are left, the first such pair on a tie. One axis: one
 * column. */
void pl_powersgd_dims(size_t *rows, size_t *columns, const int64_t *shape, int axes);

/* Whether it is worth it: two axes or more, and 1 - rank (rows + columns) / (rows columns) is at
 * least `least` (the peers': 0.5). */
int pl_powersgd_pays(size_t rows, size_t columns, int axes, int rank, double least);

/* M (a,b) zeros at first, Q (b,r) uniform in [0, 1) and the same on all peers, P (a,r): memory of
 * the backend, owned here. */
struct pl_powersgd {
    const struct pl_backend *be;
    int a, b, r;
    float *M, *Q, *P;
};
/* Takes Q's first values from host memory (b r). PL_OK, PL_ENOMEM or PL_EDEVICE. */
int pl_powersgd_init(struct pl_powersgd *s, const struct pl_backend *be, int a, int b, int r,
                     const float *Q);
void pl_powersgd_clear(struct pl_powersgd *s);

/* M += G, P = M Q: then P is averaged over the group. G (a,b) is the backend's memory. */
int pl_powersgd_p(struct pl_powersgd *s, const float *G);
/* P's columns made orthonormal, Q = M^T P: then Q is averaged. */
int pl_powersgd_q(struct pl_powersgd *s);
/* G = P Q^T, M -= G. */
int pl_powersgd_restore(float *G, struct pl_powersgd *s);

/* Modified Gram-Schmidt on the columns of P (a,r), host memory: a column shorter than 1e-8 is
 * divided by that, so zero stays zero. Of columns that depend on each other rounding noise is left
 * and is normalised, too, as in hivemind: P^T P is then not quite 1, and the error stays in M for
 * the next round. */
void pl_orthogonalize(float *P, int a, int r);

#ifdef __cplusplus
}
#endif
#endif
