/* streams.cu - see streams.cuh. */
#include "streams.cuh"

#include "device.cuh"

#include <pthread.h>

#define LANES 4 /* as many as a round has threads */
#define SIDES 2
#define SIDE_BYTES ((size_t)32 << 20) /* a group's values of a part stay: 64 peers' of 512 KiB */

struct cuda_lane {
    int taken;
    cudaStream_t stream[SIDES];
    void *buffer[SIDES];
    size_t bytes[SIDES];
};
static struct cuda_lane lanes[CUDA_DEVICES_MAX][LANES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of every `taken` */
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;

size_t cuda_lane_room(void)
{
    return cuda_scratch_share(LANES * SIDES * SIDE_BYTES) / (LANES * SIDES);
}

static struct cuda_lane *wait_for_one(void)
{
    struct cuda_lane *own = lanes[cuda_number()], *lane = NULL;
    pthread_mutex_lock(&lock);
    while (!lane) {
        for (int i = 0; i < LANES && !lane; i++)
            if (!own[i].taken) lane = &own[i];
        if (!lane) pthread_cond_wait(&given, &lock);
    }
    lane->taken = 1;
    pthread_mutex_unlock(&lock);
    return lane;
}

static int prepare(struct cuda_lane *lane, int side, size_t bytes)
{
    int rc = PL_OK;
    if (!lane->stream[side]) rc = cuda_status(cudaStreamCreate(&lane->stream[side]));
    if (rc != PL_OK || bytes <= lane->bytes[side]) return rc;
    cuda_free(lane->buffer[side]);
    lane->bytes[side] = 0;
    lane->buffer[side] = cuda_piece(bytes);
    if (!lane->buffer[side]) return PL_ENOMEM;
    lane->bytes[side] = bytes;
    return PL_OK;
}

struct cuda_lane *cuda_lane_take(int *rc, int sides, size_t bytes)
{
    struct cuda_lane *lane = wait_for_one();
    if (bytes > cuda_lane_room()) bytes = cuda_lane_room();
    *rc = PL_OK;
    for (int i = 0; i < sides && *rc == PL_OK; i++) *rc = prepare(lane, i, bytes);
    if (*rc == PL_OK) return lane;
    cuda_lane_give(lane, *rc);
    return NULL;
}

char *cuda_lane_side(struct cuda_lane *lane, int side)
{
    cuda_divert(lane->stream[side]);
    return (char *)lane->buffer[side];
}

int cuda_lane_give(struct cuda_lane *lane, int rc)
{
    for (int i = 0; i < SIDES; i++) {
        int end = lane->stream[i] ? cuda_status(cudaStreamSynchronize(lane->stream[i])) : PL_OK;
        if (rc == PL_OK) rc = end;
    }
    cuda_divert(NULL);
    pthread_mutex_lock(&lock);
    lane->taken = 0;
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
    return rc;
}

int cuda_lane_put(void *device, const void *host, size_t bytes)
{
    return cuda_status(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda_stream()));
}

int cuda_lane_get(void *host, const void *device, size_t bytes)
{
    return cuda_status(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda_stream()));
}

int cuda_lane_put_rows(float *device, const float *host, size_t step, size_t w, size_t n)
{
    return cuda_status(cudaMemcpy2DAsync(device, w * sizeof *device, host, step * sizeof *host,
                                         w * sizeof *device, n, cudaMemcpyHostToDevice,
                                         cuda_stream()));
}

int cuda_lane_sync(void) { return cuda_status(cudaStreamSynchronize(cuda_stream())); }
