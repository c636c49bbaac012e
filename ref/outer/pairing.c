/* pairing.c - NumPy's permutation of a seed, because NoLoCo's published code draws its groups with
 * it: a swarm needs no message about its groups if all peers draw the same. [spec outer-steps 11]
 *
 * numpy.random.default_rng(seed): the seed is mixed into 256 bits (SeedSequence, after M. E.
 * O'Neill's seed_seq_fe), which set a PCG64 generator, whose draws shuffle. [PCG: O'Neill 2014] */
#include "pairing.h"

/* 128-bit numbers as two halves: ISO C has none. */
struct wide {
    uint64_t high, low;
};

/* a + b modulo 2^128: the low half carries if its sum wraps around */
static struct wide add(struct wide a, struct wide b)
{
    struct wide sum = { a.high + b.high, a.low + b.low };
    sum.high += sum.low < a.low;
    return sum;
}

/* modulo 2^128: the four products of halves of the low words, and two of the high ones */
static struct wide multiply(struct wide a, struct wide b)
{
    uint64_t a0 = (uint32_t)a.low, a1 = a.low >> 32, b0 = (uint32_t)b.low, b1 = b.low >> 32;
    uint64_t low = a0 * b0, m1 = a1 * b0 + (low >> 32), m2 = a0 * b1 + (uint32_t)m1;
    struct wide product = { a1 * b1 + (m1 >> 32) + (m2 >> 32), m2 << 32 | (uint32_t)low };
    product.high += a.high * b.low + a.low * b.high;
    return product;
}

/* PCG64: state <- factor state + increment modulo 2^128. An odd increment gives the full period of
 * 2^128, and each increment is a stream of its own. */
struct pcg64 {
    struct wide state, increment;
    uint32_t second; /* upper half of a draw whose lower half was taken */
    int has_second;
};

/* A linear congruential step; the output is the state's halves, folded and rotated by its top six
 * bits (XSL-RR). */
static uint64_t draw64(struct pcg64 *p)
{
    const struct wide factor = { 0x2360ed051fc65da4u, 0x4385df649fccf645u };
    uint64_t folded;
    unsigned turn;
    p->state = add(multiply(p->state, factor), p->increment);
    folded = p->state.high ^ p->state.low;
    turn = (unsigned)(p->state.high >> 58);
    return folded >> turn | folded << (64 - turn) % 64;
}

/* NumPy takes 32 bits as the lower, then the upper half of one draw of 64. */
static uint32_t draw32(struct pcg64 *p)
{
    uint64_t both;
    if (p->has_second) {
        p->has_second = 0;
        return p->second;
    }
    both = draw64(p);
    p->second = (uint32_t)(both >> 32);
    p->has_second = 1;
    return (uint32_t)both;
}

/* Uniform in 0..most: as many low bits as most has, drawn until they are not above it. */
static uint32_t draw_at_most(struct pcg64 *p, uint32_t most)
{
    uint32_t mask = most, value;
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    while ((value = draw32(p) & mask) > most) {}
    return value;
}

/* SeedSequence's hash of one word: xor, multiply, and the upper half folded into the lower one,
 * since multiplication carries upwards only. Each use changes the constant, so equal words become
 * different ones. */
static uint32_t hash(uint32_t value, uint32_t *constant, uint32_t factor)
{
    value ^= *constant;
    *constant *= factor;
    value *= *constant;
    return value ^ value >> 16;
}

/* SeedSequence(seed).generate_state: a pool of four words, mixed, then spread over eight. */
static void spread(uint32_t out[8], uint64_t seed)
{
    uint32_t pool[4], constant = 0x43b0d7e5u;
    uint32_t words[4] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    for (int i = 0; i < 4; i++) pool[i] = hash(words[i], &constant, 0x931e8875u);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            uint32_t mixed;
            if (from == to) continue;
            /* every word changes every other one, so one bit of the seed reaches all 256 bits */
            mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from], &constant, 0x931e8875u);
            pool[to] = mixed ^ mixed >> 16;
        }
    constant = 0x8b51f9ddu;
    for (int i = 0; i < 8; i++) out[i] = hash(pool[i % 4], &constant, 0x58f38dedu);
}

static uint64_t joined(const uint32_t *two) { return two[0] | (uint64_t)two[1] << 32; }

/* order (n) = numpy.random.default_rng(seed).permutation(n), as NumPy 1.17 and later draw it. */
static void numpy_permutation(int *order, int n, uint64_t seed)
{
    struct pcg64 p = { .has_second = 0 };
    uint32_t w[8];
    struct wide start;
    spread(w, seed);
    start = (struct wide){ joined(w), joined(w + 2) };
    p.increment = (struct wide){ joined(w + 4), joined(w + 6) };
    /* 2 w + 1: an increment has to be odd */
    p.increment.high = p.increment.high << 1 | p.increment.low >> 63;
    p.increment.low = p.increment.low << 1 | 1;
    draw64(&p); /* from state 0, then the seed is added, as PCG's srandom does */
    p.state = add(p.state, start);
    draw64(&p);
    /* Fisher and Yates: place i gets one of the entries that are still at 0..i, each with the same
     * probability, so all n! orders are equally likely */
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)draw_at_most(&p, (uint32_t)i), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* The permutation of step t has the seed t + 1. Its places i, i + groups, i + 2 groups, ... are one
 * group, so with peers mod groups left over the first groups have one peer more. */
int pl_noloco_group(int *member, int rank, int peers, int group, uint64_t steps)
{
    int *order = pl_alloc((size_t)peers, sizeof *order), groups = peers / group, own = 0, count = 0;
    if (!order) return PL_ENOMEM;
    numpy_permutation(order, peers, steps + 1);
    for (int i = 0; i < peers; i++)
        if (order[i] == rank) own = i % groups;
    for (int i = own; i < peers; i += groups) member[count++] = order[i];
    pl_free(order);
    return count;
}
