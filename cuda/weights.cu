/* weights.cu - parameters in bfloat16 beside their float32 master: converted all at once, by the
 * first product after they have changed, so once a step however often they are multiplied with. */
#include "weights.cuh"

#include "bf16.cuh"
#include "device.cuh"
#include "packs.cuh"

#include <stdlib.h>

struct region {
    const float *master;
    size_t n;
    uint16_t *working; /* NULL: not needed yet, or no memory for it */
    int current;       /* the same values, rounded */
    int refused;
};
static struct regions {
    struct region *list;
    size_t count, room;
} regions[CUDA_DEVICES_MAX];

static struct region *find(const void *p)
{
    struct regions *r = &regions[cuda_number()];
    for (size_t i = 0; i < r->count; i++)
    {
        struct region *w = &r->list[i];
        if ((const float *)p >= w->master && (const float *)p < w->master + w->n) return w;
    }
    return NULL;
}

int cuda_weights(const float *master, size_t n)
{
    struct regions *r = &regions[cuda_number()];
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 8;
        struct region *list = (struct region *)realloc(r->list, room * sizeof *list);
        if (!list) return PL_ENOMEM;
        r->list = list;
        r->room = room;
    }
    r->list[r->count++] = { master, n, NULL, 0, 0 };
    return PL_OK;
}

void cuda_weights_forget(const void *p)
{
    struct regions *r = &regions[cuda_number()];
    struct region *at = find(p), gone;
    if (!at || at->master != (const float *)p) return;
    gone = *at;
    *at = r->list[--r->count];
    cuda_free(gone.working);
}

void cuda_written(const void *p, size_t bytes)
{
    struct regions *r = &regions[cuda_number()];
    const char *begin = (const char *)p, *end = begin + bytes;
    for (size_t i = 0; i < r->count; i++) {
        const struct region *w = &r->list[i];
        if (begin < (const char *)(w->master + w->n) && end > (const char *)w->master)
            r->list[i].current = 0;
    }
}

template <int WIDTH> __global__ void to_bf16(uint16_t *y, const float *x, size_t n)
{
    cuda_each_pack<WIDTH>(n, [=](size_t i, auto width) {
        auto from = cuda_load<width.is>(x + i);
        cuda_pack<uint16_t, width.is> to;
        PL_UNROLL for (int k = 0; k < width.is; k++) to.at[k] = bf16_of_float(from.at[k]);
        cuda_store(y + i, to);
    });
}

int cuda_to_bf16(uint16_t *y, const float *x, size_t n)
{
    int packed = cuda_packs(y) && cuda_packs(x);
    return CUDA_LAUNCH_PACKS(packed, to_bf16, cuda_pack_blocks(packed, n), CUDA_THREADS, y, x, n);
}

const uint16_t *cuda_weights_bf16(int *rc, const float *W)
{
    struct region *w = find(W);
    *rc = PL_OK;
    if (!w || w->refused) return NULL;
    if (!w->working && !(w->working = (uint16_t *)cuda_alloc(w->n * sizeof *w->working))) {
        w->refused = 1; /* each product then rounds its own operand */
        return NULL;
    }
    if (!w->current) { /* values that are on their way belong to it: there is no second occasion */
        *rc = cuda_copy_join();
        if (*rc == PL_OK) *rc = cuda_to_bf16(w->working, w->master, w->n);
        w->current = *rc == PL_OK;
    }
    return w->working + (W - w->master);
}
