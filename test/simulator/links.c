/* links.c - uplinks and downlinks of the simulated peers, drawn from a distribution. */
#include "links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MBIT 125000.0 /* bytes a second */

/* The part of a swarm that has them, and their uplinks and downlinks in Mbit/s: spread evenly in
 * the logarithm between the two ends. */
static const struct kind {
    double part, up[2], down[2], client;
} kinds[] = {
    { 0.25, { 300, 1000 }, { 300, 1000 }, 0.1 }, /* rented machines */
    { 0.40,
      { 100, 500 },
      { 100, 500 },
      0.4 }, /* fibre, half of it behind a router without port mapping */
    { 0.35, { 25, 50 }, { 100, 500 }, 0.5 }, /* cable and VDSL: slow uplinks */
};

static double between(const double ends[2], double x)
{
    return ends[0] * pow(ends[1] / ends[0], x);
}

void link_draw(struct link *l, struct pl_rng *rng)
{
    double x = pl_rng_uniform(rng);
    const struct kind *k = kinds;
    while (k < kinds + PL_COUNT(kinds) - 1 && x >= k->part) x -= (k++)->part;
    x = pl_rng_uniform(rng);
    l->up = MBIT * between(k->up, x);
    l->down = MBIT * between(k->down, x);
    l->delay = LINK_DELAY * exp(0.6 * pl_rng_normal(rng));
    l->client = pl_rng_uniform(rng) < k->client;
}

double link_draw_public(struct pl_rng *rng)
{
    struct link l;
    do link_draw(&l, rng);
    while (l.client);
    return l.up;
}

/* A scattered number in front, so that the order of ids says nothing; then the number itself. */
void link_name(struct peer_id *id, size_t number, uint32_t life)
{
    uint64_t scattered = ((uint64_t)number * 0x9e3779b97f4a7c15u) ^ ((uint64_t)life << 17),
             plain = number;
    memset(id, 0, sizeof *id);
    id->length = 34;
    id->bytes[0] = 0x12;
    id->bytes[1] = 0x20;
    memcpy(id->bytes + 2, &scattered, sizeof scattered);
    memcpy(id->bytes + 10, &plain, sizeof plain);
    memcpy(id->bytes + 18, &life, sizeof life);
}

size_t link_peer_of(const struct peer_id *id)
{
    uint64_t plain;
    memcpy(&plain, id->bytes + 10, sizeof plain);
    return (size_t)plain;
}

uint32_t link_life_of(const struct peer_id *id)
{
    uint32_t life;
    memcpy(&life, id->bytes + 18, sizeof life);
    return life;
}

int link_hops(size_t peers) { return 1 + (int)ceil(log((double)peers) / log(20)); }

/* As a transformer's: nine tenths in matrices of 4 M, the rest in tensors that are just too small for
 * 8 bits, so many behind each matrix. */
void link_tensors(size_t **elements, enum pl_compression **method, size_t *count, size_t values)
{
    const size_t matrix = 4u << 20, vector = PL_WIRE_ADAPTIVE - 1;
    size_t matrices = values / 10 * 9 / matrix, rest = values - matrices * matrix,
           vectors = (rest + vector - 1) / vector;
    *count = matrices + vectors;
    *elements = calloc(*count + 1, sizeof **elements);
    *method = calloc(*count + 1, sizeof **method);
    if (!*elements || !*method) return;
    for (size_t i = 0, placed = 0; i < *count; i++) {
        const int is_matrix = placed * *count <= i * matrices && placed < matrices;
        (*elements)[i] = is_matrix ? matrix : rest < vector ? rest : vector;
        (*method)[i] = is_matrix ? PL_COMPRESS_UNIFORM8 : PL_COMPRESS_FLOAT16;
        if (is_matrix) placed++;
        else rest -= (*elements)[i];
    }
}

void link_small_tensors(size_t **elements, enum pl_compression **method, const size_t *sizes,
                        size_t count)
{
    *elements = calloc(count, sizeof **elements);
    *method = calloc(count, sizeof **method);
    for (size_t i = 0; *elements && *method && i < count; i++) {
        (*elements)[i] = sizes[i];
        (*method)[i] = PL_COMPRESS_FLOAT16;
    }
}

double link_bytes(const size_t *elements, const enum pl_compression *method, size_t count)
{
    double bytes = 0;
    for (size_t t = 0; t < count; t++)
        bytes += (double)elements[t] * (method[t] == PL_COMPRESS_UNIFORM8 ? 1 : 2);
    return bytes;
}
