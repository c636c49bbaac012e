/* pair_buffers.c - arguments of a case: the same values on both sides, with guards around them. */
#include "pair_run.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pair_bring(struct pair *p, uint8_t *to, const struct buffer *b, int side)
{
    size_t whole = b->bytes + 2 * GUARD;
    if (side == 0 || b->host_only) {
        memcpy(to, b->raw[side], whole);
        return PL_OK;
    }
    return p->side[1]->get(to, b->raw[1], whole);
}

int pair_push(struct pair *p, struct buffer *b, int side, const uint8_t *from)
{
    size_t whole = b->bytes + 2 * GUARD;
    if (side == 0 || b->host_only) {
        memcpy(b->raw[side], from, whole);
        return PL_OK;
    }
    return p->side[1]->put(b->raw[1], from, whole);
}

void *pair_must(void *memory)
{
    if (memory) return memory;
    fputs("potluck conform: no memory\n", stderr);
    exit(1);
}

/* In turns, so that among a few cases there is one where a certain argument alone, or with those a
 * turn further on, is aligned to nothing but its element. Not an even number: of an operation's
 * cases every other one is often of the same kind. */
#define TURNS 3
static size_t misalignment_of(const struct pair_run *r, const struct buffer *b)
{
    if (!r->misaligned || b->host_only) return 0;
    return (r->op->cases + r->count) % TURNS ? 0 : b->size;
}

static struct buffer *new_buffer(struct pair *p, struct pair_any *any, size_t n, size_t size,
                                 int host_only)
{
    struct pair_run *r = p->run;
    struct buffer *b = &r->buffers[r->count];
    size_t bytes = n * size;
    assert(r->count < BUFFERS_MAX);
    *b = (struct buffer){ .n = n, .size = size, .bytes = bytes, .host_only = host_only };
    b->misaligned = misalignment_of(r, b);
    *any = (struct pair_any){ .id = r->count++, .n = n };
    b->raw[0] = pair_must(pl_alloc(bytes + 2 * GUARD, 1));
    b->raw[1] = pair_must(host_only ? pl_alloc(bytes + 2 * GUARD, 1)
                                    : p->side[1]->alloc(bytes + 2 * GUARD + b->misaligned));
    b->raw[1] += b->misaligned;
    for (size_t i = 0; i < bytes + 2 * GUARD; i++) b->raw[0][i] = POISON(i);
    return b;
}

static void share(struct pair *p, struct buffer *b)
{
    if (pair_push(p, b, 1, b->raw[0])) pair_fail(p->run, "put failed");
}

void pair_share(struct pair *p, struct pair_any any) { share(p, &p->run->buffers[any.id]); }

void pair_take(struct pair *p, struct pair_any any)
{
    struct buffer *b = &p->run->buffers[any.id];
    if (pair_bring(p, b->raw[0], b, 1)) pair_fail(p->run, "get failed");
}

#define DEFINE_BUFFER(name, type, host_only) \
    static struct pair_##name new_##name(struct pair *p, size_t n, int host) \
    { \
        struct pair_##name x; \
        struct buffer *b = new_buffer(p, &x.any, n, sizeof(type), host); \
        for (int s = 0; s < 2; s++) x.at[s] = (type *)(void *)(b->raw[s] + GUARD); \
        share(p, b); /* poison, until values come */ \
        return x; \
    }
DEFINE_BUFFER(f32, float, 0)
DEFINE_BUFFER(f64, double, 1)
DEFINE_BUFFER(i32, int32_t, 0)
DEFINE_BUFFER(u8, uint8_t, 0)

struct pair_f32 pair_poison(struct pair *p, size_t n) { return new_f32(p, n, 0); }
struct pair_u8 pair_u8_poison(struct pair *p, size_t n) { return new_u8(p, n, 0); }
struct pair_f32 pair_host_f32(struct pair *p, size_t n) { return new_f32(p, n, 1); }
struct pair_f64 pair_host_f64(struct pair *p, size_t n) { return new_f64(p, n, 1); }
struct pair_u8 pair_host_u8(struct pair *p, size_t n) { return new_u8(p, n, 1); }

struct pair_f32 pair_normal(struct pair *p, size_t n, double deviation)
{
    struct pair_f32 x = new_f32(p, n, 0);
    for (size_t i = 0; i < n; i++) x.at[0][i] = (float)(deviation * pl_rng_normal(&p->rng));
    pair_share(p, x.any);
    return x;
}

struct pair_f32 pair_uniform(struct pair *p, size_t n, double low, double high)
{
    struct pair_f32 x = new_f32(p, n, 0);
    for (size_t i = 0; i < n; i++)
        x.at[0][i] = (float)(low + (high - low) * pl_rng_uniform(&p->rng));
    pair_share(p, x.any);
    return x;
}

struct pair_f32 pair_values(struct pair *p, const float *values, size_t n)
{
    struct pair_f32 x = new_f32(p, n, 0);
    if (n) memcpy(x.at[0], values, n * sizeof *values);
    pair_share(p, x.any);
    return x;
}

struct pair_i32 pair_ids(struct pair *p, size_t n, int32_t low, int32_t high)
{
    struct pair_i32 x = new_i32(p, n, 0);
    for (size_t i = 0; i < n; i++) x.at[0][i] = pair_int(p, low, high);
    pair_share(p, x.any);
    return x;
}

struct pair_i32 pair_i32_values(struct pair *p, const int32_t *values, size_t n)
{
    struct pair_i32 x = new_i32(p, n, 0);
    if (n) memcpy(x.at[0], values, n * sizeof *values);
    pair_share(p, x.any);
    return x;
}

struct pair_u8 pair_u8_values(struct pair *p, const uint8_t *values, size_t n)
{
    struct pair_u8 x = new_u8(p, n, 0);
    if (n) memcpy(x.at[0], values, n);
    pair_share(p, x.any);
    return x;
}

int pair_int(struct pair *p, int low, int high)
{
    return low + (int)pl_rng_below(&p->rng, (uint64_t)((int64_t)high - low + 1));
}

float *pair_scratch(struct pair *p, size_t n)
{
    struct pair_run *r = p->run;
    assert(r->scratches < BUFFERS_MAX);
    return r->scratch[r->scratches++] = pair_must(pl_alloc(n, sizeof(float)));
}

void pair_forget(struct pair *p)
{
    struct pair_run *r = p->run;
    for (int i = 0; i < r->count; i++) {
        struct buffer *b = &r->buffers[i];
        if (b->host_only) pl_free(b->raw[1]);
        else p->side[1]->free(b->raw[1] - b->misaligned);
        if (b->before != b->raw[0]) pl_free(b->before);
        pl_free(b->raw[0]);
        pl_free(b->after[0]);
        pl_free(b->after[1]);
    }
    for (int i = 0; i < r->scratches; i++) pl_free(r->scratch[i]);
    r->count = r->scratches = 0;
}

/* Allocates blocks, fills and frees them, and allocates again: freed memory comes back dirty. */
static const char *allocation_fault(void *(*alloc)(size_t), void (*release)(void *),
                                    int (*put)(void *, const void *, size_t),
                                    int (*get)(void *, const void *, size_t))
{
    static const size_t sizes[] = { 1, 64, 100, 4097, 1 << 20 };
    const char *why = NULL;
    uint8_t *host = pair_must(pl_alloc(sizes[PL_COUNT(sizes) - 1], 1));
    for (size_t i = 0; !why && i < 2 * PL_COUNT(sizes); i++) {
        size_t n = sizes[i % PL_COUNT(sizes)];
        void *p = alloc(n);
        if (!p) {
            why = "gave no memory";
            break;
        }
        if ((uintptr_t)p % 64) why = "gave memory that is not aligned to 64 bytes";
        else if (get(host, p, n)) why = "gave memory that cannot be read";
        for (size_t k = 0; !why && k < n; k++)
            if (host[k]) why = "gave memory that is not zeroed";
        memset(host, 0xA5, n);
        if (!why && put(p, host, n)) why = "gave memory that cannot be written";
        release(p);
    }
    pl_free(host);
    return why;
}

static int copy_in_host_memory(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return PL_OK;
}

const char *pair_memory_fault(const struct pl_backend *be, const char **name)
{
    const char *why = allocation_fault(be->alloc, be->free, be->put, be->get);
    *name = "alloc";
    if (why || !be->host_alloc) return why;
    *name = "host_alloc";
    return allocation_fault(be->host_alloc, be->host_free, copy_in_host_memory,
                            copy_in_host_memory);
}
