/* quant.c - codebooks and the three rules, against definitions written another way. */
#include "ref/quant.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <float.h>
#include <math.h>

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void books(void **state)
{
    float s[PL_CODES], u[PL_CODES], run[PL_CODES];
    pl_codebook(s, PL_MAP_SIGNED, PL_RULE_LUT);
    pl_codebook(u, PL_MAP_UNSIGNED, PL_RULE_CUDA);
    for (int i = 1; i < PL_CODES; i++) assert_true(s[i] > s[i - 1] && u[i] > u[i - 1]);
    assert_true(s[0] == -0.99296875f && s[127] == 0 && s[255] == 1 && u[0] == 0 && u[255] == 1);
    assert_true(fabsf(s[128] - 5.5e-7f) < 1e-13f && s[126] == -s[128]);
    assert_true(fabsf(u[1] - 3.25e-7f) < 1e-13f && fabsf(u[2] - 7.75e-7f) < 1e-13f);
    for (int i = 1; i < 127; i++) assert_true(s[127 - i] == -s[127 + i]);
    pl_codebook(run, PL_MAP_SIGNED, PL_RULE_RUN);
    assert_true(run[0] == -1 && !memcmp(run + 1, s + 1, 255 * sizeof *s));
    pl_codebook(run, PL_MAP_UNSIGNED, PL_RULE_RUN);
    assert_true(run[0] == -1 && !memcmp(run + 1, u + 1, 255 * sizeof *u)); /* its zero is gone */
}

/* The run's rule by comparing every entry. */
static int run_by_scanning(const float *book, float z)
{
    int i = 0;
    if (isnan(z)) return 0;
    while (i < 255 && book[i + 1] <= z) i++;
    return i < 255 && fabsf(z - book[i + 1]) < fabsf(z - book[i]) ? i + 1 : i;
}

static void run_rule(void **state)
{
    struct pl_rng rng;
    pl_rng_init(&rng, 7, 0);
    for (int map = 0; map < 2; map++) {
        float book[PL_CODES];
        pl_codebook(book, (enum pl_map)map, PL_RULE_RUN);
        for (int i = 0; i < 200000; i++) {
            float z = of_bits((uint32_t)pl_rng_u64(&rng)), near;
            assert_int_equal(pl_code_run(book, z), run_by_scanning(book, z));
            near = book[pl_rng_below(&rng, 256)]; /* about the borders, where ties live */
            z = (near + book[pl_rng_below(&rng, 256)]) / 2;
            assert_int_equal(pl_code_run(book, z), run_by_scanning(book, z));
        }
        for (int i = 0; i < 255; i++) {
            float middle = 0.5f * (book[i] + book[i + 1]);
            for (int k = -4; k <= 4; k++, middle = nextafterf(middle, 2))
                assert_int_equal(pl_code_run(book, middle), run_by_scanning(book, middle));
        }
        assert_int_equal(pl_code_run(book, 1), 255);
        assert_int_equal(pl_code_run(book, -1), 0);
        assert_int_equal(pl_code_run(book, 0), map == PL_MAP_SIGNED ? 127 : 1);
    }
}

/* The table of 65536 entries that the library of today builds. */
static void lut_rule(void **state)
{
    static uint8_t table[65536];
    struct pl_rng rng;
    pl_rng_init(&rng, 8, 0);
    for (int map = 0; map < 2; map++) {
        float book[PL_CODES];
        int code = 0;
        pl_codebook(book, (enum pl_map)map, PL_RULE_LUT);
        for (int j = 0; j < 65536; j++) {
            float grid = -1 + (2 * (float)j) / 65535;
            while (code < 255 && 0.5f * (book[code] + book[code + 1]) < grid) code++;
            table[j] = (uint8_t)code;
        }
        for (int i = 0; i < 200000; i++) {
            float v = (float)(pl_rng_normal(&rng) * pow(10, -7 * pl_rng_uniform(&rng)));
            float c = v > 1 ? 1 : v < -1 ? -1 : v, h = (c + 1) * 0.5f;
            assert_int_equal(pl_code_lut(book, v), table[(int)(float)(h * 65535.0 + 0.5)]);
        }
        /* around each place where the table's code changes, every float nearby */
        for (int j = 1; j < 65536; j++) {
            if (table[j] == table[j - 1]) continue;
            float v = (float)(2 * (j - 0.5) / 65535 - 1);
            for (int k = 0; k < 200; k++) v = nextafterf(v, -2);
            for (int k = 0; k < 400; k++, v = nextafterf(v, 2)) {
                float h = (v + 1) * 0.5f;
                assert_int_equal(pl_code_lut(book, v), table[(int)(float)(h * 65535.0 + 0.5)]);
            }
        }
        /* The grid has no point at zero: the entry of zero is never written. */
        assert_true(book[pl_code_lut(book, 0)] > 1e-5f);
        assert_int_equal(pl_code_lut(book, NAN), 0);
    }
}

static void cuda_rule(void **state)
{
    float book[PL_CODES];
    int ties = 0;
    pl_codebook(book, PL_MAP_SIGNED, PL_RULE_CUDA);
    for (int i = 0; i < 255; i++) {
        float middle = 0.5f * (book[i] + book[i + 1]);
        if (i % 2) continue; /* a tie goes to the even index of the two */
        if ((double)middle != 0.5 * ((double)book[i] + book[i + 1])) continue;
        assert_int_equal(pl_code_cuda(book, middle), i);
        assert_int_equal(pl_code_cuda(book, nextafterf(middle, 2)), i + 1);
        ties++;
    }
    assert_true(ties > 20);
    for (int i = 0; i < 256; i++) assert_int_equal(pl_code_cuda(book, book[i]), i);
    assert_int_equal(pl_code_cuda(book, -1), 0);
}

/* Values in a block that are not finite numbers. [spec numerics 2.1] */
static void strange_blocks(void **state)
{
    float x[8] = { 0 }, absmax[2], y[8], book[PL_CODES];
    uint8_t codes[8];
    pl_codebook(book, PL_MAP_SIGNED, PL_RULE_RUN);
    ref_quantize(codes, absmax, x, 8, 4, PL_MAP_SIGNED, PL_RULE_RUN); /* zeros */
    for (int i = 0; i < 8; i++) assert_int_equal(codes[i], 0);
    assert_true(absmax[0] == 0 && absmax[1] == 0);
    ref_dequantize(y, codes, absmax, 8, 4, book);
    for (int i = 0; i < 8; i++) assert_true(y[i] == 0);

    x[0] = INFINITY, x[1] = -INFINITY, x[2] = 3, x[3] = 0, x[4] = NAN, x[5] = -2, x[6] = 2,
    x[7] = 1;
    ref_quantize(codes, absmax, x, 8, 4, PL_MAP_SIGNED, PL_RULE_RUN);
    assert_true(isinf(absmax[0]) && absmax[1] == 2);
    assert_true(codes[0] == 0 && codes[1] == 0 && codes[2] == 127 && codes[3] == 127);
    assert_true(codes[4] == 0 && codes[5] == 0 && codes[6] == 255);
    assert_true(fabsf(book[codes[7]] - 0.5f) < 0.008f);

    for (int i = 0; i < 8; i++) x[i] = NAN;
    ref_quantize(codes, absmax, x, 8, 8, PL_MAP_SIGNED, PL_RULE_RUN);
    assert_true(absmax[0] == -FLT_MAX && codes[0] == 0);

    for (int i = 0; i < 8; i++) x[i] = (float)(i - 3) * 0x1p-149f; /* denormals count */
    ref_quantize(codes, absmax, x, 8, 8, PL_MAP_SIGNED, PL_RULE_RUN);
    assert_true(absmax[0] == 4 * 0x1p-149f && codes[7] == 255 && codes[3] == 127 && codes[4] > 200);
}

/* Every entry survives the way there and back, in any block size, last block short. */
static void idempotent(void **state)
{
    static const size_t blocks[] = { 1, 3, 64, 255, 256, 4096 };
    float book[PL_CODES], x[PL_CODES], y[PL_CODES], absmax[PL_CODES];
    uint8_t codes[PL_CODES];
    pl_codebook(book, PL_MAP_SIGNED, PL_RULE_RUN);
    for (size_t b = 0; b < PL_COUNT(blocks); b++) {
        for (int i = 0; i < PL_CODES; i++) x[i] = book[i] * 0.37f;
        ref_quantize(codes, absmax, x, PL_CODES, blocks[b], PL_MAP_SIGNED, PL_RULE_RUN);
        ref_dequantize(y, codes, absmax, PL_CODES, blocks[b], book);
        assert_int_equal(pl_blocks(PL_CODES, blocks[b]), (255 + blocks[b]) / blocks[b]);
        if (blocks[b] < 256) { /* a block's largest value is exact whatever else it holds */
            for (size_t k = 0; k < PL_CODES; k += blocks[b]) {
                float largest = 0;
                for (size_t i = k; i < PL_CODES && i < k + blocks[b]; i++)
                    largest = fmaxf(largest, fabsf(y[i]));
                assert_true(largest == absmax[k / blocks[b]]);
            }
        } else
            for (int i = 0; i < PL_CODES; i++) assert_true(codes[i] == i && y[i] == x[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(books),     cmocka_unit_test(run_rule),       cmocka_unit_test(lut_rule),
        cmocka_unit_test(cuda_rule), cmocka_unit_test(strange_blocks), cmocka_unit_test(idempotent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
