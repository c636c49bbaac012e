/* outer.c - any bytes as another peer's message, and as a saved state, for every algorithm of
 * training together: whatever comes, the peer goes on, and its own state stays readable. */
#include "ref/outer/outer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define VALUES 45
#define STEPS 9

static struct pl_backend be;
static const struct pl_outer_tensor tensors[2] = {
    { .offset = 0, .n = 40, .axes = 2, .shape = { 8, 5 } },
    { .offset = 40, .n = 5, .axes = 1, .shape = { 5 }, .fragment = 1 },
};

struct input {
    const uint8_t *at;
    size_t left;
};

/* Fills n bytes from the input, over and over; 0 if there is none. */
static void take(struct input *in, uint8_t *to, size_t n)
{
    size_t some = in->left < n ? in->left : n;
    memset(to, 0, n);
    memcpy(to, in->at, some);
    in->at += some;
    in->left -= some;
}

/* The peer's own message and a stranger's of the right length. */
static int exchange(struct pl_outer *o, int next, float *x, float *g, struct input *in,
                    struct pl_outer_message *own)
{
    struct pl_outer_message both[2];
    if (next == PL_OUTER_SEND) {
        uint8_t *kept = own->data;
        next = pl_outer_message(o, own, x, g);
        if (next < 0) abort();
        kept = realloc(kept, own->bytes + 1);
        memcpy(kept, own->data, own->bytes);
        own->data = kept;
        return next;
    }
    both[0] = both[1] = *own;
    both[1].rank = 1;
    both[1].weight = 1;
    both[1].data = malloc(own->bytes + 1);
    take(in, both[1].data, own->bytes);
    next = pl_outer_apply(o, x, g, both, own->bytes ? 2 : 0);
    free(both[1].data);
    if (next < 0) abort(); /* a stranger's message is no error of ours */
    return next;
}

static void train(struct pl_outer *o, struct input *in)
{
    struct pl_outer_message own = { NULL, 0, 0, 0 };
    float x[VALUES] = { 0 }, g[VALUES];
    for (int t = 0; t < STEPS; t++) {
        int next;
        for (int i = 0; i < VALUES; i++) g[i] = (float)(i - t);
        next = pl_outer_before_step(o, x, g, 0.1);
        for (int calls = 0; next != PL_OUTER_GRADIENT; calls++) {
            if (next < 0 || calls > 100) abort();
            if (next == PL_OUTER_STEP) next = pl_outer_after_step(o, x);
            else next = exchange(o, next, x, g, in, &own);
        }
    }
    free(own.data);
}

/* The input: algorithm, coding, whether a state comes first; then a state's bytes, then messages. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct input in = { data + 3, bytes - 3 };
    struct pl_outer_setup s;
    struct pl_outer *o;
    float x[VALUES] = { 0 };
    size_t size;
    uint8_t *state;
    if (bytes < 3 || !pl_outer_at(data[0])) return 0;
    if (!be.alloc) pl_backend_ref(&be);
    pl_outer_defaults(&s);
    s.be = &be;
    s.tensors = tensors;
    s.count = 2;
    s.peers = 2;
    s.coding = (enum pl_outer_coding)(data[1] % 3);
    s.H = 2;
    s.fragments = 2;
    s.share = 0.3;
    s.powersgd_rank = 1;
    s.warm_up = 2;
    s.topk = 4;
    if (pl_outer_open(&o, pl_outer_at(data[0]), &s, x, NULL)) abort();
    size = pl_outer_state_bytes(o);
    state = malloc(size);
    if (pl_outer_save(o, state)) abort();
    if (data[2] & 1) { /* behind the name and the sizes, which would be refused */
        take(&in, state + 48, size - 48);
        { /* the same as a stranger's: it is taken whole, or not at all, and is finite then */
            uint8_t *shared = malloc(pl_outer_shared_bytes(o) + 8);
            take(&in, shared, pl_outer_shared_bytes(o));
            if (!pl_outer_load_shared(o, shared, NULL) && pl_outer_check(o)) abort();
            free(shared);
        }
        if (pl_outer_load(o, state, size, NULL)) { /* counters, that is */
            free(state);
            pl_outer_close(o);
            return 0;
        }
    }
    train(o, &in);
    state = realloc(state, pl_outer_state_bytes(o));
    if (pl_outer_save(o, state)) abort();
    free(state);
    pl_outer_close(o);
    return 0;
}
