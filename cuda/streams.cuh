/* streams.cuh - pipelined operations on host memory (compress.h, average.h, centered_clip.h):
 * upload, compute, download, for the threads of an averaging round.
 *
 * A pipeline has two stages, each a stream and a buffer (double buffering): while one chunk is
 * computed, the next is uploaded and the previous one downloaded. Its streams are its own, so a
 * part of a round waits only for its own values, not for the device's stream of operations. */
#ifndef PL_CUDA_STREAMS_CUH
#define PL_CUDA_STREAMS_CUH

#include "launch.cuh"

struct cuda_pipeline;

/* Acquires a free pipeline of the thread's device, waiting for one if need be; the thread owns it
 * until it releases it. Each of its `stages` (1 or 2) has a buffer of `bytes`, or of
 * cuda_pipeline_capacity() if that is less. NULL: PL_ENOMEM or PL_EDEVICE; nothing has been read or
 * written then. */
struct cuda_pipeline *cuda_pipeline_acquire(int *rc, int stages, size_t bytes);
/* The largest buffer of a stage; depends on --gpu-memory alone. */
size_t cuda_pipeline_capacity(void);
/* Directs the thread's launches and copies to this stage's stream. Returns the stage's buffer. */
char *cuda_pipeline_stage(struct cuda_pipeline *pipeline, int stage);
/* Waits for all stages and releases the pipeline. Returns rc, or the first error of the stages if
 * rc is PL_OK. */
int cuda_pipeline_release(struct cuda_pipeline *pipeline, int rc);

/* Asynchronous copies on the stage's stream. Host memory must stay unchanged until the pipeline is
 * released or synced. Rows: w columns of n rows, `step` values apart in host memory. */
int cuda_pipeline_upload(void *device, const void *host, size_t bytes);
int cuda_pipeline_download(void *host, const void *device, size_t bytes);
int cuda_pipeline_upload_rows(float *device, const float *host, size_t step, size_t w, size_t n);
int cuda_pipeline_sync(void);

/* Element-wise operation: n values pass in chunks through launch(at, count), where at[k] is operand
 * k's part of the chunk on the device. An operand of size 0 does not exist. */
enum cuda_way { CUDA_IN = 1, CUDA_OUT = 2 };
struct cuda_operand {
    const void *host;
    size_t size; /* bytes per value */
    int way;     /* in, out, or both */
};
#define CUDA_OPERANDS 3
#define CUDA_CHUNK_BYTES \
    ((size_t)4 << 20) /* of all operands: enough to saturate the bus, small enough to start soon */
#define CUDA_ALIGNED(bytes) (((bytes) + 255) / 256 * 256)

template <class F>
static int cuda_run_pipelined(const struct cuda_operand o[CUDA_OPERANDS], size_t n, F launch)
{
    size_t each = o[0].size + o[1].size + o[2].size, slack = CUDA_OPERANDS * 256;
    size_t capacity = cuda_pipeline_capacity() < CUDA_CHUNK_BYTES ? cuda_pipeline_capacity()
                                                                  : CUDA_CHUNK_BYTES;
    size_t most = capacity > slack ? (capacity - slack) / each : 0, chunk = n < most ? n : most;
    struct cuda_pipeline *pipeline;
    int rc = PL_ENOMEM, stage = 0;
    if (!n) return PL_OK;
    pipeline = chunk ? cuda_pipeline_acquire(&rc, n > chunk ? 2 : 1, chunk * each + slack) : NULL;
    if (!pipeline) return rc;
    for (size_t at = 0; at < n && rc == PL_OK; at += chunk, stage = !stage) {
        size_t some = n - at < chunk ? n - at : chunk;
        char *p = cuda_pipeline_stage(pipeline, stage), *device[CUDA_OPERANDS];
        for (int k = 0; k < CUDA_OPERANDS; p += CUDA_ALIGNED(some * o[k].size), k++) {
            device[k] = p;
            if (rc == PL_OK && o[k].way & CUDA_IN)
                rc = cuda_pipeline_upload(p, (const char *)o[k].host + at * o[k].size,
                                          some * o[k].size);
        }
        if (rc == PL_OK) rc = launch(device, some);
        for (int k = 0; k < CUDA_OPERANDS; k++)
            if (rc == PL_OK && o[k].way & CUDA_OUT)
                rc = cuda_pipeline_download((char *)(size_t)o[k].host + at * o[k].size, device[k],
                                            some * o[k].size);
    }
    return cuda_pipeline_release(pipeline, rc);
}

#endif
