/* state_claim.c - compares the states of several donors by samples. A newcomer downloads one
 * donor's state and asks others for the values at k random places. Of two vectors a and b the
 * relative distance
 *
 *     ||a - b|| / max(||a||, ||b||)
 *
 * is estimated from the samples: tensor t with N elements and n samples contributes (N / n) *
 * sum of squares, an unbiased estimate of its full sum. Donors agree when the distance is small;
 * state_claim.h has the limits and what this does not prove. */
#include "state_claim.h"
#include "ref/rng.h"

#include <math.h>
#include <string.h>

/* Each tensor has the same number of samples, so that a small one (a norm's weights) is checked
 * as well as an embedding of millions of elements. */
static size_t samples_of(const size_t *elements, size_t tensors, size_t t)
{
    size_t each = tensors ? STATE_SAMPLES_MAX / tensors : 0;
    if (each > STATE_SAMPLES_EACH) each = STATE_SAMPLES_EACH;
    if (!each) each = t < STATE_SAMPLES_MAX; /* more tensors than samples: the first of them */
    return elements[t] < each ? elements[t] : each;
}

size_t state_samples_count(const size_t *elements, size_t tensors)
{
    size_t n = 0;
    for (size_t t = 0; t < tensors; t++) n += samples_of(elements, tensors, t);
    return n;
}

/* The places follow from the seed and the tensor's number through a counter-based generator: all
 * donors that get one seed take the same places, and none can know them before the newcomer
 * sends the seed. */
size_t state_samples_take(float *out, const float *values, const size_t *elements, size_t tensors,
                          size_t t, const uint8_t seed[STATE_SEED])
{
    size_t n = samples_of(elements, tensors, t);
    uint64_t number = 0;
    struct pl_rng rng;
    for (int i = 0; i < STATE_SEED; i++) number |= (uint64_t)seed[i] << 8 * i;
    pl_rng_init(&rng, number, t);
    for (size_t i = 0; i < n; i++) out[i] = values[pl_rng_below(&rng, elements[t])];
    return n;
}

/* Sums of squares of a tensor's samples, in double. With a NaN or an infinity among them the
 * size is 0, and then no distance is within `limit * size`. */
static double distance(double *size, const float *a, const float *b, size_t n)
{
    double apart = 0, of_a = 0, of_b = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        apart += d * d;
        of_a += (double)a[i] * (double)a[i];
        of_b += (double)b[i] * (double)b[i];
    }
    *size = isfinite(apart) ? fmax(of_a, of_b) : 0;
    return apart;
}

enum state_match state_claims_match(const struct state_claim *a, const struct state_claim *b,
                                    const size_t *elements, size_t tensors)
{
    const float *x = a->samples, *y = b->samples;
    double apart = 0, size = 0, far = 0, all = 0; /* far: elements in tensors that differ */
    int64_t epochs = a->epoch < 0 || b->epoch < 0 ? 0 : a->epoch - b->epoch;
    int near_time = -STATE_EPOCHS_APART <= epochs && epochs <= STATE_EPOCHS_APART;
    for (size_t t = 0; t < tensors; t++) {
        size_t n = samples_of(elements, tensors, t);
        /* Scales the samples' sums to the whole tensor. */
        double weight = n ? (double)elements[t] / (double)n : 0, of_t;
        double d = distance(&of_t, x, y, n);
        apart += weight * d;
        size += weight * of_t;
        all += (double)elements[t];
        /* Written as !(d <= limit) so that a NaN counts as far. */
        if (!(d <= STATE_TENSOR_APART * STATE_TENSOR_APART * of_t)) far += (double)elements[t];
        x += n;
        y += n;
    }
    /* Three conditions: about the same epoch, a small distance overall, and few elements in
     * tensors that differ. The last one catches a small tensor that was replaced: its share of
     * the overall norm may be nothing. */
    if (near_time && apart <= STATE_APART * STATE_APART * size && far <= STATE_PART_APART * all)
        return STATE_AGREES;
    /* Donors train on while they are asked, so different epochs explain a difference; equal
     * epochs do not. */
    return epochs && near_time ? STATE_OTHER_TIME : STATE_DIFFERS;
}

/* A vote among donors: `same` counts, for every donor that contradicts the first, how many agree
 * with it. */
enum state_verdict state_claims_judge(size_t *agree, size_t *other,
                                      const struct state_claim *claims, size_t count,
                                      const size_t *elements, size_t tensors)
{
    *agree = 1;
    *other = 0;
    for (size_t i = 1; i < count; i++) {
        enum state_match m = state_claims_match(&claims[0], &claims[i], elements, tensors);
        size_t same = 1;
        *agree += m == STATE_AGREES;
        if (m != STATE_DIFFERS) continue;
        for (size_t k = 1; k < count; k++)
            same += k != i &&
                    state_claims_match(&claims[i], &claims[k], elements, tensors) == STATE_AGREES;
        if (same > *other) *other = same;
    }
    /* A single donor confirms nothing, and a single contradiction refutes nothing: either may be
     * Byzantine. */
    if (*agree >= 2 && *agree >= *other) return STATE_CONFIRMED;
    return *other >= 2 && *other > *agree ? STATE_REFUTED : STATE_UNCONFIRMED;
}
