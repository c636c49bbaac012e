/* columns.cu - sums over rows: how rows are cut, and what is left of their parts. See
 * launch.cuh. */
#include "launch.cuh"

#define CHUNK_ROWS 64   /* at least: eight a warp */
#define BLOCKS 1024u    /* enough for every device's multiprocessors several times over */

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

__global__ void add_chunks(float *sum, const double *part, int chunks, int columns)
{
    CUDA_EACH(c, (size_t)columns) {
        double s = sum[c];
        for (int k = 0; k < chunks; k++) s += part[(size_t)k * (size_t)columns + c];
        sum[c] = (float)s;
    }
}

int cuda_column_add(float *sum, const double *part, dim3 grid, int columns)
{
    return PL_LAUNCH(add_chunks, cuda_blocks((size_t)columns), CUDA_THREADS, sum, part, (int)grid.y,
                     columns);
}
