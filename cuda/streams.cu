/* streams.cu - a fixed set of pipelines per device, handed out to threads under one lock. */
#include "streams.cuh"

#include "device.cuh"

#include <pthread.h>

#define PIPELINES 4 /* as many as an averaging round has threads */
#define STAGES 2
/* holds a group's values of one part: 512 KiB from each of 64 peers */
#define STAGE_BYTES ((size_t)32 << 20)

struct cuda_pipeline {
    int in_use;
    cudaStream_t stream[STAGES];
    void *buffer[STAGES];
    size_t bytes[STAGES];
};
static struct cuda_pipeline pipelines[CUDA_DEVICES_MAX][PIPELINES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of every `in_use` */
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

size_t cuda_pipeline_capacity(void)
{
    return cuda_scratch_share(PIPELINES * STAGES * STAGE_BYTES) / (PIPELINES * STAGES);
}

static struct cuda_pipeline *wait_for_free(void)
{
    struct cuda_pipeline *own = pipelines[cuda_number()], *pipeline = NULL;
    pthread_mutex_lock(&lock);
    while (!pipeline) {
        for (int i = 0; i < PIPELINES && !pipeline; i++)
            if (!own[i].in_use) pipeline = &own[i];
        if (!pipeline) pthread_cond_wait(&released, &lock);
    }
    pipeline->in_use = 1;
    pthread_mutex_unlock(&lock);
    return pipeline;
}

static int prepare(struct cuda_pipeline *pipeline, int stage, size_t bytes)
{
    int rc = PL_OK;
    if (!pipeline->stream[stage]) rc = cuda_status(cudaStreamCreate(&pipeline->stream[stage]));
    if (rc != PL_OK || bytes <= pipeline->bytes[stage]) return rc;
    cuda_free(pipeline->buffer[stage]);
    pipeline->bytes[stage] = 0;
    pipeline->buffer[stage] = cuda_alloc_uncounted(bytes);
    if (!pipeline->buffer[stage]) return PL_ENOMEM;
    pipeline->bytes[stage] = bytes;
    return PL_OK;
}

struct cuda_pipeline *cuda_pipeline_acquire(int *rc, int stages, size_t bytes)
{
    struct cuda_pipeline *pipeline = wait_for_free();
    if (bytes > cuda_pipeline_capacity()) bytes = cuda_pipeline_capacity();
    *rc = PL_OK;
    for (int i = 0; i < stages && *rc == PL_OK; i++) *rc = prepare(pipeline, i, bytes);
    if (*rc == PL_OK) return pipeline;
    cuda_pipeline_release(pipeline, *rc);
    return NULL;
}

char *cuda_pipeline_stage(struct cuda_pipeline *pipeline, int stage)
{
    cuda_set_stream(pipeline->stream[stage]);
    return (char *)pipeline->buffer[stage];
}

int cuda_pipeline_release(struct cuda_pipeline *pipeline, int rc)
{
    for (int i = 0; i < STAGES; i++) {
        int end = pipeline->stream[i] ? cuda_status(cudaStreamSynchronize(pipeline->stream[i]))
                                      : PL_OK;
        if (rc == PL_OK) rc = end;
    }
    cuda_set_stream(NULL);
    pthread_mutex_lock(&lock);
    pipeline->in_use = 0;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
    return rc;
}

int cuda_pipeline_upload(void *device, const void *host, size_t bytes)
{
    return cuda_status(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda_stream()));
}

int cuda_pipeline_download(void *host, const void *device, size_t bytes)
{
    return cuda_status(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda_stream()));
}

int cuda_pipeline_upload_rows(float *device, const float *host, size_t step, size_t w, size_t n)
{
    return cuda_status(cudaMemcpy2DAsync(device, w * sizeof *device, host, step * sizeof *host,
                                         w * sizeof *device, n, cudaMemcpyHostToDevice,
                                         cuda_stream()));
}

int cuda_pipeline_sync(void) { return cuda_status(cudaStreamSynchronize(cuda_stream())); }
