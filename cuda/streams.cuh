/* streams.cuh - operations on the host's memory (compress.h, average.h, robust.h): what a round's
 * threads bring to the device, have computed there, and take back at once.
 *
 * A lane has streams of its own. So a part of a round waits for nothing but its own values,
 * whatever lies on the device's stream of operations; and while a piece of it is computed, the next
 * is on its way up and the one before on its way down. */
#ifndef PL_CUDA_LANES_CUH
#define PL_CUDA_LANES_CUH

#include "launch.cuh"

struct cuda_lane;

/* A free lane of the thread's device, held by the thread until it gives it back; each of its
 * `sides` (1 or 2), a stream and a buffer, has room for `bytes`, or for cuda_lane_room() if that is
 * less. NULL: PL_ENOMEM or PL_EDEVICE; nothing has been read or written then. */
struct cuda_lane *cuda_lane_take(int *rc, int sides, size_t bytes);
/* The most that a side offers: what --gpu-memory allows does not change between calls. */
size_t cuda_lane_room(void);
/* From now on what the thread launches and copies goes to this side's stream. Its buffer. */
char *cuda_lane_side(struct cuda_lane *lane, int side);
/* Waits for all sides, and says what went wrong: before that (rc), or with them. */
int cuda_lane_give(struct cuda_lane *lane, int rc);

/* Copies on the side's stream. The host's bytes stay as they are until the lane is given back, or
 * synced. Rows: w columns of n rows, which lie `step` values apart in host memory. */
int cuda_lane_put(void *device, const void *host, size_t bytes);
int cuda_lane_get(void *host, const void *device, size_t bytes);
int cuda_lane_put_rows(float *device, const float *host, size_t step, size_t w, size_t n);
int cuda_lane_sync(void);

/* Elementwise: piece after piece of n values goes through launch(at, count), at[k] being operand
 * k's part of the piece on the device. An operand of no bytes a value isn't there. */
enum cuda_way { CUDA_IN = 1, CUDA_OUT = 2 };
struct cuda_operand {
    const void *host;
    size_t size; /* bytes of a value */
    int way;     /* in, out, or both */
};
#define CUDA_OPERANDS 3
#define CUDA_PIECE_BYTES \
    ((size_t)4 << 20) /* of all operands: the bus has enough, and begins soon */
#define CUDA_ALIGNED(bytes) (((bytes) + 255) / 256 * 256)

template <class F>
static int cuda_through_lane(const struct cuda_operand o[CUDA_OPERANDS], size_t n, F launch)
{
    size_t each = o[0].size + o[1].size + o[2].size, slack = CUDA_OPERANDS * 256;
    size_t room = cuda_lane_room() < CUDA_PIECE_BYTES ? cuda_lane_room() : CUDA_PIECE_BYTES;
    size_t most = room > slack ? (room - slack) / each : 0, piece = n < most ? n : most;
    struct cuda_lane *lane;
    int rc = PL_ENOMEM, side = 0;
    if (!n) return PL_OK;
    lane = piece ? cuda_lane_take(&rc, n > piece ? 2 : 1, piece * each + slack) : NULL;
    if (!lane) return rc;
    for (size_t at = 0; at < n && rc == PL_OK; at += piece, side = !side) {
        size_t some = n - at < piece ? n - at : piece;
        char *p = cuda_lane_side(lane, side), *device[CUDA_OPERANDS];
        for (int k = 0; k < CUDA_OPERANDS; p += CUDA_ALIGNED(some * o[k].size), k++) {
            device[k] = p;
            if (rc == PL_OK && o[k].way & CUDA_IN)
                rc = cuda_lane_put(p, (const char *)o[k].host + at * o[k].size, some * o[k].size);
        }
        if (rc == PL_OK) rc = launch(device, some);
        for (int k = 0; k < CUDA_OPERANDS; k++)
            if (rc == PL_OK && o[k].way & CUDA_OUT)
                rc = cuda_lane_get((char *)(size_t)o[k].host + at * o[k].size, device[k],
                                   some * o[k].size);
    }
    return cuda_lane_give(lane, rc);
}

#endif
