/* centered_clip.cu - CenteredClip. The inputs stay on the device between iterations; only the
 * distances are downloaded, from which the host computes the next clipping factors. If the inputs
 * do not fit in a pipeline stage, they pass through it in chunks of coordinates, once per
 * iteration: each pass applies the step and then computes the new distances, which the next
 * iteration needs. */
#include "../ref/centered_clip.h"

#include "streams.cuh"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PULL_BLOCKS 1024 /* thread blocks per chunk, at most */
#define FAR_BLOCKS 64    /* thread blocks per distance */

struct clip_work {
    double *v;      /* (w) */
    double *factor; /* (n): weight times clipping over the total weight */
    double *found;  /* (n + 2): squared distances; then the step's sum of squares and its maximum */
    double *pulled; /* (2, PULL_BLOCKS) */
    double *part;   /* (n, FAR_BLOCKS) */
    float *x;       /* (n, w) */
};

/* Applies the inputs in order, one thread per coordinate. */
__global__ void pull(double *v, double *pulled, const float *x, const double *factor, int n,
                     size_t w)
{
    double squares = 0, largest = 0;
    CUDA_EACH (k, w) {
        double step = 0, vk = v[k];
        for (int i = 0; i < n; i++)
            if (factor[i] != 0) step += factor[i] * (x[(size_t)i * w + k] - vk);
        v[k] = vk + step;
        squares += step * step;
        largest = fmax(largest, fabs(step));
    }
    squares = cuda_block_sum(squares);
    largest = cuda_block_max(largest);
    if (threadIdx.x == 0) {
        pulled[blockIdx.x] = squares;
        pulled[gridDim.x + blockIdx.x] = largest;
    }
}

/* Blocks (j, i) compute parts of input i's distance. */
__global__ void measure(double *part, const float *x, const double *v, int n, size_t w)
{
    for (int i = (int)blockIdx.y; i < n; i += (int)gridDim.y) {
        double s = 0;
        CUDA_EACH (k, w) {
            double c = x[(size_t)i * w + k] - v[k];
            s += c * c;
        }
        s = cuda_block_sum(s);
        if (threadIdx.x == 0) part[(size_t)i * gridDim.x + blockIdx.x] = s;
    }
}

/* Adds a chunk's sums to those of the previous chunks. */
__global__ void gather(double *found, const double *part, int far_blocks, const double *pulled,
                       int pull_blocks, int n)
{
    CUDA_EACH (i, (size_t)n + 2) {
        double s = found[i];
        if (i < (size_t)n)
            for (int b = 0; b < far_blocks; b++) s += part[i * (size_t)far_blocks + (size_t)b];
        else if (i == (size_t)n)
            for (int b = 0; b < pull_blocks; b++) s += pulled[b];
        else
            for (int b = 0; b < pull_blocks; b++) s = fmax(s, pulled[pull_blocks + b]);
        found[i] = s;
    }
}

/* ---- chunks of the coordinates ---- */

struct clip_call {
    struct clip_work on; /* in device memory */
    double *v;
    const float *x;
    int n;
    size_t d, piece;
    double *far, *factor; /* (n + 2), (n) in host memory */
};

static size_t fixed_for(int n)
{
    return CUDA_ALIGNED(((size_t)n * (2 + FAR_BLOCKS) + 2 + 2 * PULL_BLOCKS) * sizeof(double));
}

static size_t piece_of(int n, size_t d)
{
    size_t capacity = cuda_pipeline_capacity(), fixed = fixed_for(n) + 256;
    size_t most = capacity > fixed
                      ? (capacity - fixed) / ((size_t)n * sizeof(float) + sizeof(double))
                      : 0;
    return d < most ? d : most;
}

static size_t bytes_for(int n, size_t piece)
{
    return fixed_for(n) + CUDA_ALIGNED(piece * sizeof(double)) + (size_t)n * piece * sizeof(float);
}

static struct clip_work work_in(char *p, int n, size_t piece)
{
    struct clip_work w;
    w.factor = (double *)p;
    w.found = w.factor + n;
    w.pulled = w.found + n + 2;
    w.part = w.pulled + 2 * PULL_BLOCKS;
    w.v = (double *)(p + fixed_for(n));
    w.x = (float *)((char *)w.v + CUDA_ALIGNED(piece * sizeof(double)));
    return w;
}

static int run_piece(const struct clip_call *c, size_t w)
{
    unsigned pulls = cuda_blocks(w) < PULL_BLOCKS ? cuda_blocks(w) : PULL_BLOCKS;
    unsigned fars = cuda_blocks(w) < FAR_BLOCKS ? cuda_blocks(w) : FAR_BLOCKS;
    const struct clip_work *on = &c->on;
    int rc = PL_LAUNCH(pull, pulls, CUDA_THREADS, on->v, on->pulled, on->x, on->factor, c->n, w);
    if (rc == PL_OK)
        rc = PL_LAUNCH(measure, dim3(fars, (unsigned)(c->n < 65535 ? c->n : 65535)), CUDA_THREADS,
                       on->part, on->x, on->v, c->n, w);
    if (rc == PL_OK)
        rc = PL_LAUNCH(gather, cuda_blocks((size_t)c->n + 2), CUDA_THREADS, on->found, on->part,
                       (int)fars, on->pulled, (int)pulls, c->n);
    return rc;
}

/* One pass over all coordinates: applies the step of c->factor, then computes the distances
 * c->far. */
static int pass(const struct clip_call *c, int first)
{
    size_t found = (size_t)c->n + 2;
    int rc = cuda_status(cudaMemsetAsync(c->on.found, 0, found * sizeof(double), cuda_stream()));
    if (rc == PL_OK)
        rc = cuda_pipeline_upload(c->on.factor, c->factor, (size_t)c->n * sizeof(double));
    for (size_t at = 0; at < c->d && rc == PL_OK; at += c->piece) {
        size_t w = c->d - at < c->piece ? c->d - at : c->piece;
        if (first || c->piece < c->d) {
            rc = cuda_pipeline_upload(c->on.v, c->v + at, w * sizeof *c->v);
            if (rc == PL_OK)
                rc = cuda_pipeline_upload_rows(c->on.x, c->x + at, c->d, w, (size_t)c->n);
        }
        if (rc == PL_OK) rc = run_piece(c, w);
        if (rc == PL_OK && c->piece < c->d)
            rc = cuda_pipeline_download(c->v + at, c->on.v, w * sizeof *c->v);
    }
    if (rc == PL_OK) rc = cuda_pipeline_download(c->far, c->on.found, found * sizeof(double));
    return rc == PL_OK ? cuda_pipeline_sync() : rc;
}

static int iterate(const struct clip_call *c, struct pl_clip_result *result, const double *weight,
                   const struct pl_clip *clip, double total)
{
    int rc = pass(c, 1); /* factors of 0: only the distances */
    while (rc == PL_OK && result->iterations < clip->iterations) {
        double tau = clip->taus ? clip->taus[result->iterations] : clip->tau;
        result->clipped = 0;
        for (int i = 0; i < c->n; i++) {
            double far = sqrt(c->far[i]), factor = far > tau ? tau / far : 1;
            result->clipped += !(far <= tau);
            c->factor[i] = isfinite(far) ? factor * (weight ? weight[i] : 1) / total : 0;
        }
        rc = pass(c, 0);
        result->iterations++;
        result->step = sqrt(c->far[c->n]);
        if (result->step <= clip->stop_norm || c->far[c->n + 1] <= clip->stop_largest) break;
    }
    if (rc == PL_OK && c->piece >= c->d)
        rc = cuda_pipeline_download(c->v, c->on.v, c->d * sizeof *c->v);
    return rc;
}

int cuda_centered_clip(double *v, struct pl_clip_result *result, const float *x,
                       const double *weight, int n, size_t d, const struct pl_clip *clip)
{
    double total = clip->total;
    size_t piece = piece_of(n, d), own = 2 * (size_t)n + 2;
    struct cuda_pipeline *pipeline;
    struct clip_call c = { {}, v, x, n, d, piece, NULL, NULL };
    int rc = PL_ENOMEM;
    for (int i = 0; i < n && clip->total == 0; i++) total += weight ? weight[i] : 1;
    memset(result, 0, sizeof *result);
    if (!(total > 0)) return PL_OK;
    if (d && !piece) return PL_ENOMEM;
    if (!(c.far = (double *)calloc(own, sizeof *c.far))) return PL_ENOMEM;
    c.factor = c.far + n + 2;
    if ((pipeline = cuda_pipeline_acquire(&rc, 1, bytes_for(n, piece)))) {
        c.on = work_in(cuda_pipeline_stage(pipeline, 0), n, piece);
        rc = cuda_pipeline_release(pipeline, iterate(&c, result, weight, clip, total));
    }
    free(c.far);
    return rc;
}
