/* random.c - random numbers from a seed: SplitMix64 [Steele, Lea, Flood 2014], and OpenSSL's by
 * its method table. A peer's numbers depend on its own draws alone. */
#define OPENSSL_SUPPRESS_DEPRECATED /* RAND_METHOD has no successor that is as small */
#include "simulation.h"

#include <math.h>
#include <openssl/rand.h>
#include <string.h>

uint64_t sim_random_next(struct sim_random *r)
{
    uint64_t x = r->state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The bias is below 2^-32 for all numbers that are drawn here. */
uint64_t sim_random_below(struct sim_random *r, uint64_t n) { return sim_random_next(r) % n; }

double sim_random_uniform(struct sim_random *r)
{
    return (double)(sim_random_next(r) >> 11) * 0x1p-53;
}

double sim_random_between(struct sim_random *r, double least, double most)
{
    return least + (most - least) * sim_random_uniform(r);
}

double sim_random_normal(struct sim_random *r)
{
    double u = 1 - sim_random_uniform(r), v = sim_random_uniform(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

int sim_random_happens(struct sim_random *r, double probability)
{
    return sim_random_uniform(r) < probability;
}

static uint64_t word_at(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

/* 16 bytes a step: two products of words that the other half of the state has mixed. */
uint64_t sim_digest(uint64_t h, const void *data, size_t n)
{
    static const uint64_t a = 0x9fb21c651e98df25u, b = 0xa0761d6478bd642fu;
    const uint8_t *p = data;
    uint64_t even = h ^ n, odd = ~h;
    uint8_t last[16] = { 0 };
    size_t left = n;
    for (; left >= 16; left -= 16, p += 16) {
        even = ((even ^ word_at(p)) * a) ^ (even >> 29);
        odd = ((odd ^ word_at(p + 8)) * b) ^ (odd >> 31);
    }
    if (left) memcpy(last, p, left);
    even = ((even ^ word_at(last)) * a) ^ (even >> 29);
    odd = ((odd ^ word_at(last + 8)) * b) ^ (odd >> 31);
    even ^= odd >> 32 ^ odd << 32;
    even = (even ^ even >> 30) * a;
    return even ^ even >> 32;
}

/* Before and between the computers: keys that are made in advance. */
static struct sim_random nobody = { 1 };

static int draw_bytes(unsigned char *bytes, int n)
{
    struct sim_peer *p = sim_peer_here();
    struct sim_random *r = p ? &p->random : &nobody;
    for (int i = 0; i < n; i += 8) {
        uint64_t x = sim_random_next(r);
        memcpy(bytes + i, &x, n - i < 8 ? (size_t)(n - i) : 8);
    }
    return 1;
}

static int is_ready(void) { return 1; }

void sim_random_install(void)
{
    static const RAND_METHOD method = { .bytes = draw_bytes,
                                        .pseudorand = draw_bytes,
                                        .status = is_ready };
    RAND_set_rand_method(&method);
}
