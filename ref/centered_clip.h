/* centered_clip.h - an average that a minority of Byzantine peers cannot drag away.
 * [TTT 2.1, security] [Karimireddy et al. 2021, arXiv 2012.10333, alg. 2] */
#ifndef PL_CENTERED_CLIP_H
#define PL_CENTERED_CLIP_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How far the iteration goes. */
struct pl_clip {
    double tau;          /* the radius beyond which an input pulls no harder */
    const double *taus;  /* one radius an iteration instead; NULL: tau for all. Host memory */
    int iterations;      /* >= 1 */
    double stop_norm;    /* end after a step whose Euclidean norm is at most this; < 0: never */
    double stop_largest; /* the same for the step's largest element */
    double total;        /* divisor of the sum of pulls; 0: the sum of the weights */
};

/* The result. */
struct pl_clip_result {
    int iterations; /* done */
    int clipped;    /* inputs beyond the radius in the last iteration */
    double step;    /* Euclidean norm of the last step */
};

/* CenteredClip: x (n,d) float32, v (d) in double, in and out; both host memory.
 *
 *   v += sum_i w_i (x_i - v) min(1, tau / |x_i - v|) / sum_i w_i
 *
 * weight (n) >= 0, or NULL for equal ones. An input at v itself has factor 1. An input that is
 * infinitely far or not a number has factor 0: it pulls nothing, but its weight counts. Weights
 * whose total is 0 leave v as it is. tau of infinity gives the weighted mean in one iteration.
 *
 * Tolerance against the reference: relative 1e-12 * sqrt(d) of the largest |x| that counts.
 * Returns PL_OK or PL_ENOMEM. */
typedef int pl_centered_clip_fn(double *v, struct pl_clip_result *result, const float *x,
                                const double *weight, int n, size_t d, const struct pl_clip *clip);

/* m (d) = the element (n - 1) / 2 of every coordinate's sorted values (upper 0), or n / 2 (upper
 * 1); -0 sorts before 0, NaN last. Equal, bit for bit but for the bits of a NaN. */
typedef int pl_median_fn(float *m, const float *x, int n, size_t d, int upper);

pl_centered_clip_fn ref_centered_clip, fast_centered_clip, cuda_centered_clip;
pl_median_fn ref_median, fast_median, cuda_median;

/* The mean that a group takes where some of its peers may be Byzantine: a few iterations of
 * CenteredClip from the median of each coordinate.
 *
 *   v (d)         out
 *   x (n,d)       the peers' values; n >= 1
 *   weight (n)    in: as the peers claim them, > 0; out: those that count. A claim cannot be
 *                 checked, so one above the median counts as the median. Of n peers one then has at
 *                 most 2 / n of the weight
 *   radius        tau; PL_CLIP_USUAL: pl_usual_distance from the median
 *
 * clip and median: a backend's, or ref_centered_clip, which gives the same bits on all hardware.
 * Returns PL_OK, PL_ENOMEM or their error. */
#define PL_CLIP_USUAL (-1.0)
int pl_clipped_mean(double *v, double *weight, const float *x, int n, size_t d, double radius,
                    pl_centered_clip_fn *clip, pl_median_fn *median);

/* The distance from v (d) that at least half of the rows of x (n,d) are within: the upper median of
 * all. far (n): overwritten, with all of them. */
double pl_usual_distance(double *far, const float *x, const double *v, int n, size_t d);

/* The radii of the theory: `bound2` is B_l^2, a bound on the squared distance to the true mean,
 * advanced to the next iteration's; `share` that of Byzantine peers (0 < share <= 0.1), `noise`
 * the honest ones' deviation. Practice in both papers: a constant.
 *
 *   tau_l = 4 sqrt((1 - share) (B_l^2 / 3 + noise^2) / (sqrt(3) share))
 *   B_l+1^2 = 6.45 share B_l^2 + 5 noise^2 */
double pl_clip_radius(double *bound2, double share, double noise);

#ifdef __cplusplus
}
#endif
#endif
