/* linear.cl - GEMM C (M,N) = A (M,K) B (K,N) in tiles of 32 x 32, which a work-group of 8 x 8 keeps
 * in local memory. Each work-item has 4 x 4 sums, 8 apart, so that adjacent work-items read
 * adjacent memory. */
enum { SIDE = 32, DEEP = 16, EDGE = 8, EACH_SIDE = SIDE / EDGE };

/* transposed: the operand is stored as (K,M), or (N,K). Rows of C are c_step apart. */
kernel void gemm(global float *C, int c_step, global const float *A, int a_transposed, global const float *B,
                    int b_transposed, int M, int N, int K, int add)
{
    local float a[DEEP][SIDE + 1], b[DEEP][SIDE + 1];
    float sum[EACH_SIDE][EACH_SIDE];
    int x = get_local_id(0), y = get_local_id(1), me = y * EDGE + x;
    int column = get_group_id(0) * SIDE, row = get_group_id(1) * SIDE;
    for (int r = 0; r < EACH_SIDE; r++)
        for (int c = 0; c < EACH_SIDE; c++) sum[r][c] = 0;
    for (int k = 0; k < K; k += DEEP) {
        for (int i = me; i < SIDE * DEEP; i += EDGE * EDGE) {
            int ka = a_transposed ? i / SIDE : i % DEEP, ra = a_transposed ? i % SIDE : i / DEEP;
            int kb = b_transposed ? i % DEEP : i / SIDE, cb = b_transposed ? i / DEEP : i % SIDE;
            a[ka][ra] = k + ka < K && row + ra < M
                ? A[a_transposed ? (ulong)(k + ka) * M + row + ra : (ulong)(row + ra) * K + k + ka] : 0;
            b[kb][cb] = k + kb < K && column + cb < N
                ? B[b_transposed ? (ulong)(column + cb) * K + k + kb : (ulong)(k + kb) * N + column + cb] : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < DEEP; i++)
            for (int r = 0; r < EACH_SIDE; r++)
                for (int c = 0; c < EACH_SIDE; c++)
                    sum[r][c] = fma(a[i][y + EDGE * r], b[i][x + EDGE * c], sum[r][c]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int r = 0; r < EACH_SIDE; r++)
        for (int c = 0; c < EACH_SIDE; c++) {
            int i = row + y + EDGE * r, j = column + x + EDGE * c;
            if (i < M && j < N)
                C[(ulong)i * c_step + j] = add ? C[(ulong)i * c_step + j] + sum[r][c] : sum[r][c];
        }
}

kernel void spread_bias(ulong n, global float *y, global const float *b, int N)
{
    EACH(i, n);
    y[i] = b[i % N];
}

/* sum[c] += column c of x (M,n) */
kernel void column_sums(ulong n, global float *sum, global const float *x, int M)
{
    EACH(c, n);
    double s = sum[c];
    for (int r = 0; r < M; r++) s += x[r * n + c];
    sum[c] = (float)s;
}
