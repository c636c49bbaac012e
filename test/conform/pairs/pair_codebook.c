/* pair_codebook.c - nearest and Gumbel codes with their gradients, and the loss of pixels. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

static const struct {
    int B, D, P, N;
} shapes[] = {
    { 1, 1, 1, 1 },        { 2, 3, 5, 7 },
    { 2, 10, 65, 67 },  /* one more position than a strip */
    { 2, 3, 300, 300 }, /* several times the positions, and codes, of a thread block */
    { 1, 256, 130, 1000 }, { 4, 16, 64, 256 }, /* the demo's codec */
    { 1, 256, 1024, 512 },                     /* the reference run's image, fewer codes */
};

/* Codes must be equal unless the two best are close: the bound of the contract. */
static void nearest(struct pair *p, int B, int D, int P, int N)
{
    size_t positions = (size_t)B * (size_t)P;
    if (!pair_case(p, "nearest_code", "B%d D%d P%d N%d", B, D, P, N)) return;
    struct pair_f32 z = pair_normal(p, positions * (size_t)D, 1);
    struct pair_f32 table = pair_normal(p, (size_t)N * (size_t)D, 1);
    struct pair_i32 code = pair_ids(p, positions, -1, -1);
    pair_work(p, 3.0 * (double)positions * D * N, 0);
    PAIR(p, nearest_code, code.at[side], z.at[side], table.at[side], B, D, P, N);
    const int32_t *want = (const int32_t *)(const void *)pair_result(p, code.any, 0);
    const int32_t *got = (const int32_t *)(const void *)pair_result(p, code.any, 1);
    for (size_t i = 0; i < positions; i++) {
        size_t b = i / (size_t)P, at = i % (size_t)P;
        double distance[2] = { 0 }, size = 0;
        if (want[i] == got[i]) continue;
        pair_check(p, got[i] >= 0 && got[i] < N, "code %zu is %d", i, got[i]);
        if (got[i] < 0 || got[i] >= N) return;
        for (size_t d = 0; d < (size_t)D; d++) {
            double v = z.at[0][(b * (size_t)D + d) * (size_t)P + at];
            double e[2] = { table.at[0][(size_t)want[i] * (size_t)D + d],
                            table.at[0][(size_t)got[i] * (size_t)D + d] };
            for (int k = 0; k < 2; k++) distance[k] += (v - e[k]) * (v - e[k]);
            size += v * v + e[0] * e[0];
        }
        pair_check(p, distance[1] - distance[0] <= 1e-5 * size,
                   "code %zu is %d, at %g; %d is at %g", i, got[i], distance[1], want[i],
                   distance[0]);
    }
}

/* Small whole numbers, of which every product and sum is exact: rows that occur twice and points half
 * way between two rows go to the first on every backend. */
static void nearest_of_equals(struct pair *p, int B, int D, int P, int N)
{
    size_t positions = (size_t)B * (size_t)P;
    if (!pair_case(p, "nearest_code", "B%d D%d P%d N%d ties", B, D, P, N)) return;
    struct pair_f32 z = pair_poison(p, positions * (size_t)D);
    struct pair_f32 table = pair_poison(p, (size_t)N * (size_t)D);
    struct pair_i32 code = pair_ids(p, positions, -1, -1);
    for (size_t i = 0; i < positions * (size_t)D; i++) z.at[0][i] = (float)pair_int(p, -2, 2);
    for (size_t i = 0; i < (size_t)N * (size_t)D; i++) table.at[0][i] = (float)pair_int(p, -2, 2);
    pair_share(p, z.any);
    pair_share(p, table.any);
    pair_work(p, 3.0 * (double)positions * D * N, 0);
    PAIR(p, nearest_code, code.at[side], z.at[side], table.at[side], B, D, P, N);
    pair_exact(p, "code", code.any);
}

static void rows(struct pair *p, int B, int D, int P, int N)
{
    size_t positions = (size_t)B * (size_t)P;
    if (pair_case(p, "code_rows", "B%d D%d P%d N%d", B, D, P, N)) {
        struct pair_f32 z = pair_poison(p, positions * (size_t)D);
        struct pair_f32 table = pair_normal(p, (size_t)N * (size_t)D, 1);
        struct pair_i32 code = pair_ids(p, positions, 0, N - 1);
        pair_work(p, 0, 8.0 * (double)positions * D);
        PAIR(p, code_rows, z.at[side], table.at[side], code.at[side], B, D, P, N);
        pair_exact(p, "z", z.any);
    }
    if (pair_case(p, "code_rows_backward", "B%d D%d P%d N%d", B, D, P, N)) {
        struct pair_f32 dz = pair_normal(p, positions * (size_t)D, 1);
        struct pair_f32 table = pair_normal(p, (size_t)N * (size_t)D, 1);
        struct pair_i32 code = pair_ids(p, positions, 0, N - 1);
        pair_work(p, 0, 8.0 * (double)positions * D);
        PAIR(p, code_rows_backward, table.at[side], dz.at[side], 0.3f, code.at[side], B, D, P, N);
        pair_of_largest(p, "dtable", table.any, ((double)positions + 8) * 0x1p-24);
    }
}

static void gumbel(struct pair *p, int B, int N, int P, int with_noise)
{
    size_t positions = (size_t)B * (size_t)P, n = positions * (size_t)N;
    const float temperature = 0.7f, kl_weight = 5;
    float *none[2] = { NULL, NULL };
    const char *more = with_noise ? " noise" : "";
    if (pair_case(p, "gumbel_code", "B%d N%d P%d%s", B, N, P, more)) {
        struct pair_f32 x = pair_normal(p, n, 3), noise = pair_normal(p, n, 1);
        struct pair_i32 code = pair_ids(p, positions, -1, -1);
        float **with = with_noise ? noise.at : none;
        pair_work(p, 0, (with_noise ? 8.0 : 4.0) * (double)n);
        PAIR(p, gumbel_code, code.at[side], x.at[side], with[side], B, N, P);
        pair_exact(p, "code", code.any);
    }
    if (pair_case(p, "gumbel_soft", "B%d N%d P%d%s", B, N, P, more)) {
        struct pair_f32 x = pair_normal(p, n, 3), noise = pair_normal(p, n, 1),
                        y = pair_poison(p, n);
        float **with = with_noise ? noise.at : none;
        pair_work(p, 0, 12.0 * (double)n);
        PAIR(p, gumbel_soft, y.at[side], x.at[side], with[side], temperature, B, N, P);
        pair_within(p, "y", y.any, 2e-6, NULL);
    }
    if (with_noise) return;
    if (pair_case(p, "kl_uniform", "B%d N%d P%d", B, N, P)) {
        struct pair_f32 x = pair_normal(p, n, 3);
        struct pair_f64 kl = pair_host_f64(p, 1);
        pair_work(p, 0, 4.0 * (double)n);
        PAIR(p, kl_uniform, kl.at[side], x.at[side], B, N, P);
        pair_within(p, "kl", kl.any, 1e-6 * log(N + 1), NULL);
    }
    if (pair_case(p, "gumbel_backward", "B%d N%d P%d", B, N, P)) {
        struct pair_f32 x = pair_normal(p, n, 3), a = pair_normal(p, n, 1),
                        y = pair_normal(p, n, 0.1);
        struct pair_f32 dx = pair_poison(p, n);
        pair_work(p, 0, 16.0 * (double)n);
        PAIR(p, gumbel_backward, dx.at[side], a.at[side], y.at[side], x.at[side], temperature,
             kl_weight, B, N, P);
        pair_of_largest(p, "dlogits", dx.any, 1e-5);
    }
}

static void likeliest_of_equals(struct pair *p, int B, int N, int P)
{
    size_t n = (size_t)B * (size_t)N * (size_t)P;
    if (!pair_case(p, "gumbel_code", "B%d N%d P%d ties", B, N, P)) return;
    struct pair_f32 x = pair_poison(p, n), noise = pair_poison(p, n);
    struct pair_i32 code = pair_ids(p, (size_t)B * (size_t)P, -1, -1);
    for (size_t i = 0; i < n; i++) {
        x.at[0][i] = (float)pair_int(p, -2, 2);
        noise.at[0][i] = (float)pair_int(p, 0, 1);
    }
    pair_share(p, x.any);
    pair_share(p, noise.any);
    pair_work(p, 0, 8.0 * (double)n);
    PAIR(p, gumbel_code, code.at[side], x.at[side], noise.at[side], B, N, P);
    pair_exact(p, "code", code.any);
}

static void pixels(struct pair *p, size_t n)
{
    if (!pair_case(p, "pixel_loss", "n%zu", n)) return;
    struct pair_f32 y = pair_normal(p, n, 1), x = pair_normal(p, n, 1), dy = pair_poison(p, n);
    struct pair_f64 loss = pair_host_f64(p, 2);
    for (size_t i = 0; i < n; i += 3) y.at[0][i] = x.at[0][i];
    pair_share(p, y.any);
    pair_work(p, 0, 12.0 * (double)n);
    PAIR(p, pixel_loss, loss.at[side], dy.at[side], y.at[side], x.at[side], 0.7f, 2, n);
    pair_of_largest(p, "dy", dy.any, 4 * 0x1p-24);
    pair_of_largest(p, "loss", loss.any, 1e-6);
}

void pair_codebook(struct pair *p)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        int B = shapes[i].B, D = shapes[i].D, P = shapes[i].P, N = shapes[i].N;
        nearest(p, B, D, P, N);
        rows(p, B, D, P, N);
        gumbel(p, B, N, P, 0);
        gumbel(p, B, N, P, 1);
    }
    nearest_of_equals(p, 2, 2, 65, 70);
    nearest_of_equals(p, 1, 3, 40, 700);
    nearest_of_equals(p, 1, 1, 300, 33);
    likeliest_of_equals(p, 2, 70, 65);
    likeliest_of_equals(p, 1, 700, 40);
    pixels(p, 1);
    pixels(p, 4099);
    pixels(p, 1 << 20);
}
