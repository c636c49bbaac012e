/* streams.cuh - operations on the host's memory (compress.h, average.h, robust.h): what a round's
 * threads bring to the device, have computed there, and take back at once.
 *
 * A lane has streams of its own. So a part of a round waits for nothing but its own values,
 * whatever lies on the device's stream of operations; and while a piece of it is computed, the next
 * is on its way up and the one before on its way down. */
#ifndef PL_CUDA_STREAMS_CUH
#define PL_CUDA_STREAMS_CUH

#include "launch.cuh"

struct cuda_pipeline;

/* A free lane of the thread's device, held by the thread until it gives it back; each of its
 * `sides` (1 or 2), a stream and a buffer, has room for `bytes`, or for cuda_lane_room() if that is
 * less. NULL: PL_ENOMEM or PL_EDEVICE; nothing has been read or written then. */
struct cuda_pipeline *cuda_pipeline_acquire(int *rc, int stages, size_t bytes);
/* The most that a side offers: what --gpu-memory allows does not change between calls. */
size_t cuda_pipeline_capacity(void);
/* From now on what the thread launches and copies goes to this side's stream. Its buffer. */
char *cuda_pipeline_stage(struct cuda_pipeline *pipeline, int stage);
/* Waits for all sides, and says what went wrong: before that (rc), or with them. */
int cuda_pipeline_release(struct cuda_pipeline *pipeline, int rc);

/* Copies on the side's stream. The host's bytes stay as they are until the lane is given back, or
 * synced. Rows: w columns of n rows, which lie `step` values apart in host memory. */
int cuda_pipeline_upload(void *device, const void *host, size_t bytes);
int cuda_pipeline_download(void *host, const void *device, size_t bytes);
int cuda_pipeline_upload_rows(float *device, const float *host, size_t step, size_t w, size_t n);
int cuda_pipeline_sync(void);

/* Elementwise: piece after piece of n values goes through launch(at, count), at[k] being operand
 * k's part of the piece on the device. An operand of no bytes a value isn't there. */
enum cuda_way { CUDA_IN = 1, CUDA_OUT = 2 };
struct cuda_operand {
    const void *host;
    size_t size; /* bytes of a value */
    int way;     /* in, out, or both */
};
#define CUDA_OPERANDS 3
#define CUDA_CHUNK_BYTES \
    ((size_t)4 << 20) /* of all operands: the bus has enough, and begins soon */
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
