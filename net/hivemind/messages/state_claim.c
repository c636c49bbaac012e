/* state_claim.c - see state_claim.h. */
#include "state_claim.h"
#include "ref/rng.h"

#include <math.h>
#include <string.h>

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

/* Sums of squares over a tensor's samples; NaN and infinities make the distance one that no limit allows. */
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
    double apart = 0, size = 0, far = 0, all = 0;
    int64_t epochs = a->epoch < 0 || b->epoch < 0 ? 0 : a->epoch - b->epoch;
    int near_time = -STATE_EPOCHS_APART <= epochs && epochs <= STATE_EPOCHS_APART;
    for (size_t t = 0; t < tensors; t++) {
        size_t n = samples_of(elements, tensors, t);
        double weight = n ? (double)elements[t] / (double)n : 0, of_t;
        double d = distance(&of_t, x, y, n);
        apart += weight * d;
        size += weight * of_t;
        all += (double)elements[t];
        if (!(d <= STATE_TENSOR_APART * STATE_TENSOR_APART * of_t)) far += (double)elements[t];
        x += n;
        y += n;
    }
    if (near_time && apart <= STATE_APART * STATE_APART * size && far <= STATE_PART_APART * all)
        return STATE_AGREES;
    return epochs && near_time ? STATE_OTHER_TIME : STATE_DIFFERS;
}

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
    if (*agree >= 2 && *agree >= *other) return STATE_CONFIRMED;
    return *other >= 2 && *other > *agree ? STATE_REFUTED : STATE_UNCONFIRMED;
}
