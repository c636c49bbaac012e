/* column_sums.cu - sums over rows in two steps: chunks of rows, then the chunks in order. See
 * launch.cuh. */
#include "launch.cuh"

#define CHUNK_ROWS 64 /* rows, at least: eight per warp */
#define BLOCKS 1024u  /* several times as many as any device has multiprocessors */

dim3 cuda_column_grid(int rows, int columns)
{
    unsigned across = ((unsigned)columns + 31) / 32, most = BLOCKS / across + 1;
    unsigned chunks = ((unsigned)rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    return dim3(across, chunks < 1 ? 1 : chunks < most ? chunks : most);
}

double *cuda_column_scratch(int *rc, int sums, dim3 grid, int columns)
{
    size_t n = (size_t)sums * grid.y * (size_t)columns;
    return (double *)cuda_scratch(rc, CUDA_SLOT_COLUMNS, n * sizeof(double));
}

/* Eight columns per block; its threads share the chunks. With one thread per column, the many
 * chunks of a narrow matrix would take longer than the sums themselves. */
#define ACROSS 8
#define TURNS (CUDA_THREADS / ACROSS)

__global__ void add_chunks(float *sum, const double *part, int chunks, int columns)
{
    PL_SHARED(double, own, CUDA_THREADS);
    int c = (int)blockIdx.x * ACROSS + (int)threadIdx.x % ACROSS;
    double s = 0;
    for (int k = (int)threadIdx.x / ACROSS; c < columns && k < chunks; k += TURNS)
        s += part[(size_t)k * (size_t)columns + (size_t)c];
    own[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x >= ACROSS || c >= columns) return;
    s = sum[c];
    for (int k = 0; k < TURNS; k++) s += own[k * ACROSS + (int)threadIdx.x];
    sum[c] = (float)s;
}

int cuda_column_add(float *sum, const double *part, dim3 grid, int columns)
{
    return PL_LAUNCH(add_chunks, ((unsigned)columns + ACROSS - 1) / ACROSS, CUDA_THREADS, sum, part,
                     (int)grid.y, columns);
}
