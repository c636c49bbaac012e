/* random.c - random numbers from a seed: SplitMix64 [Steele, Lea, Flood 2014], and OpenSSL's by
 * its method table. A peer's numbers depend on its own draws alone. */
#define OPENSSL_SUPPRESS_DEPRECATED /* RAND_METHOD has no successor that is as small */
#include "simulation.h"

#include <math.h>
#include <openssl/rand.h>

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

/* Before and between the computers: keys that are made in advance. */
static struct sim_random nobody = { 1 };

static int draw_bytes(unsigned char *bytes, int n)
{
    struct sim_peer *p = sim_peer_here();
    struct sim_random *r = p ? &p->random : &nobody;
    for (int i = 0; i < n; i++) bytes[i] = (unsigned char)sim_random_next(r);
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
