/* bf16_weights.cu - the working copy of the parameters in bfloat16, next to the float32 master
 * weights. All are converted at once by the first GEMM after they have changed: once per optimizer
 * step. */
#include "bf16_weights.cuh"

#include "bf16.cuh"
#include "device.cuh"
#include "launch.cuh"

#include <stdlib.h>

struct region {
    const float *master;
    size_t n;
    uint16_t *working; /* NULL: not needed yet, or no memory for it */
    int current;       /* equal to the rounded master */
    int refused;
};
static struct regions {
    struct region *list;
    size_t count, capacity;
} regions[CUDA_DEVICES_MAX];

static struct region *find(const void *p)
{
    struct regions *r = &regions[cuda_number()];
    for (size_t i = 0; i < r->count; i++) {
        struct region *w = &r->list[i];
        if ((const float *)p >= w->master && (const float *)p < w->master + w->n) return w;
    }
    return NULL;
}

int cuda_weights(const float *master, size_t n)
{
    struct regions *r = &regions[cuda_number()];
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 8;
        struct region *list = (struct region *)realloc(r->list, capacity * sizeof *list);
        if (!list) return PL_ENOMEM;
        r->list = list;
        r->capacity = capacity;
    }
    r->list[r->count++] = { master, n, NULL, 0, 0 };
    return PL_OK;
}

void cuda_weights_freed(const void *p)
{
    struct regions *r = &regions[cuda_number()];
    struct region *at = find(p), gone;
    cuda_rounded_forget();
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
    cuda_rounded_written(p, bytes);
}

const uint16_t *cuda_weights_bf16(int *rc, const float *W)
{
    struct region *w = find(W);
    *rc = PL_OK;
    if (!w || w->refused) return NULL;
    if (!w->working && !(w->working = (uint16_t *)cuda_alloc(w->n * sizeof *w->working))) {
        w->refused = 1; /* each GEMM then rounds its own operand */
        return NULL;
    }
    /* the tensor to be written belongs to it, and nothing else reports the write */
    if (!w->current) {
        *rc = cuda_copy_join();
        if (*rc == PL_OK) *rc = cuda_to_bf16(w->working, w->master, w->n);
        w->current = *rc == PL_OK;
    }
    return w->working + (W - w->master);
}
