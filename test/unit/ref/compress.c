/* compress.c - conversions, the six methods and their buffers: values, refusals, hostile input. */
#include "net/hivemind/messages/tensor_message.h"
#include "ref/byte_order.h"
#include "ref/backend.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

static struct pl_backend be;

static int open_ref(void **state)
{
    pl_backend_ref(&be);
    return 0;
}

/* --- halves ----------------------------------------------------------------------------------- */

static void halves_there_and_back(void **state)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = pl_half_to_float((uint16_t)h), y = pl_bf16_to_float((uint16_t)h);
        if (isnan(x)) assert_true(isnan(pl_half_to_float(pl_half_from_float(x))));
        else assert_int_equal(pl_half_from_float(x), h);
        if (isnan(y)) assert_true(isnan(pl_bf16_to_float(pl_bf16_from_float(y))));
        else assert_int_equal(pl_bf16_from_float(y), h);
    }
}

/* Between two neighbouring halves the nearer wins, half way the even one. */
static void halves_round(void **state)
{
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float a = pl_half_to_float((uint16_t)h), b = pl_half_to_float((uint16_t)(h + 1));
        float middle = (a + b) / 2; /* exact: halves have 11 bits */
        uint16_t even = (uint16_t)(h % 2 ? h + 1 : h);
        assert_int_equal(pl_half_from_float(middle), even);
        assert_int_equal(pl_half_from_float(-middle), even | 0x8000);
        assert_int_equal(pl_half_from_float(nextafterf(middle, 0)), h);
        assert_int_equal(pl_half_from_float(nextafterf(middle, 1e9f)), h + 1);
    }
    assert_int_equal(pl_half_from_float(65519.996f), 0x7bff);
    assert_int_equal(pl_half_from_float(65520), 0x7c00);
    assert_int_equal(pl_bf16_from_float(3.4e38f), 0x7f80);
}

static void integers_truncate(void **state)
{
    const float x[] = { -2.9f, 2.9f, 1e30f, -1e30f, NAN, 200.5f };
    int64_t l[6];
    int32_t w[6];
    int16_t s[6];
    uint8_t u[6], b[6];
    pl_from_float(l, PL_I64, x, 6);
    pl_from_float(w, PL_I32, x, 6);
    pl_from_float(s, PL_I16, x, 6);
    pl_from_float(u, PL_U8, x, 6);
    pl_from_float(b, PL_BOOL, x, 6);
    assert_true(l[0] == -2 && l[1] == 2 && l[2] == INT64_MAX && l[3] == INT64_MIN && l[4] == 0);
    assert_true(w[2] == INT32_MAX && w[3] == INT32_MIN && s[2] == INT16_MAX && s[5] == 200);
    assert_true(u[0] == 0 && u[1] == 2 && u[2] == 255 && u[3] == 0 && u[5] == 200 && b[0] && b[4]);
}

/* --- methods ---------------------------------------------------------------------------------- */

static void uniform_special(void **state)
{
    float x[300], table[PL_CODES], y[300];
    uint8_t codes[300];
    for (int i = 0; i < 300; i++) x[i] = 0.1f; /* constant */
    ref_uniform8_encode(codes, table, x, 300);
    for (int i = 0; i < 300; i++) assert_int_equal(codes[i], 0);
    assert_true(fabsf(table[0] - 0.1f) < 1e-6f && table[1] == 0);
    ref_uniform8_encode(codes, table, x, 1);
    assert_true(codes[0] == 0 && table[0] == 0.1f);
    x[7] = NAN;
    ref_uniform8_encode(codes, table, x, 300);
    for (int i = 0; i < 300; i++) assert_int_equal(codes[i], 0);
    assert_true(isnan(table[0]));
    x[7] = -INFINITY;
    ref_uniform8_encode(codes, table, x, 300);
    assert_true(codes[7] == 0 && codes[8] == 0 && isinf(table[0]));
    for (int i = 0; i < 300; i++) x[i] = (float)(i % 2); /* two values: both exact */
    ref_uniform8_encode(codes, table, x, 300);
    ref_table8_decode(y, codes, table, 300);
    for (int i = 0; i < 300; i++) assert_true(y[i] == x[i]);
}

/* Halves and bfloat16 with hivemind 1.1.12's codes (torch 2.15): the mean is rounded before
 * anything is subtracted, which moves every code of the first list by a third of a bin and more. */
static void uniform_narrow(void **state)
{
    static const uint16_t in[2][24] = {
        { 0x41f6, 0x420d, 0x41fe, 0x4202, 0x4201, 0x41fd, 0x41e5, 0x4206,
          0x41f9, 0x4204, 0x4211, 0x4203, 0x41f8, 0x4205, 0x4213, 0x41f2,
          0x4216, 0x41f4, 0x41fc, 0x420f, 0x4217, 0x41f9, 0x41f3, 0x41f1 },
        { 0xbecf, 0x4014, 0x3f9b, 0x3f14, 0x3f02, 0x4022, 0x4001, 0xbdc4,
          0x3ea4, 0x3e0a, 0x3f03, 0x3f51, 0x3f0b, 0xbd56, 0xbeef, 0x3f19,
          0x3fc9, 0x4007, 0x3fea, 0x3d23, 0xbf5c, 0xbf70, 0x3fad, 0x3f00 }
    };
    static const uint8_t want[2][24] = {
        { 95,  171, 121, 135, 131, 118, 40,  148, 105, 141, 184, 138,
          102, 144, 190, 82,  200, 89,  115, 177, 203, 105, 85,  79 },
        { 80,  198, 150, 123, 120, 207, 185, 94,  112, 104, 120, 133,
          121, 96,  78,  124, 166, 189, 177, 100, 61,  57,  156, 120 }
    };
    static const enum pl_dtype dtype[2] = { PL_F16, PL_BF16_T };
    int64_t size = 24;
    for (int i = 0; i < 2; i++) {
        struct pl_wire_type type = { .dtype = dtype[i], .dims = 1, .size = { size } };
        uint8_t buffer[8 + PL_CODES * sizeof(float) + 24];
        assert_int_equal(pl_wire_encode(buffer, &be, PL_COMPRESS_UNIFORM8, &type, in[i], NULL), 0);
        assert_memory_equal(buffer + sizeof buffer - 24, want[i], 24);
    }
}

static void quantiles_even_out(void **state)
{
    size_t n = 256 * 40, count[PL_CODES] = { 0 };
    float *x = pl_alloc(n, sizeof *x), table[PL_CODES];
    uint8_t *codes = pl_alloc(n, 1);
    for (size_t i = 0; i < n; i++) x[i] = (float)(i * 7919 % n);
    assert_int_equal(ref_quantile8_encode(codes, table, x, n), PL_OK);
    for (size_t i = 0; i < n; i++) count[codes[i]]++;
    for (int k = 0; k < PL_CODES; k++) {
        assert_true(count[k] >= 39 && count[k] <= 41);
        assert_true(fabsf(table[k] - 40 * ((float)k + 0.5f)) < 2);
    }
    x[0] = NAN; /* no order: anything but a crash */
    assert_int_equal(ref_quantile8_encode(codes, table, x, n), PL_OK);
    assert_int_equal(ref_quantile8_encode(codes, table, x, 1), PL_OK);
    pl_free(x);
    pl_free(codes);
}

static void adaptive(void **state)
{
    assert_int_equal(pl_wire_adaptive(65536), PL_COMPRESS_FLOAT16);
    assert_int_equal(pl_wire_adaptive(65537), PL_COMPRESS_UNIFORM8);
}

/* --- buffers ---------------------------------------------------------------------------------- */

/* Every method, type and a few shapes: decoded values are as exact as the method promises, and a
 * buffer of another length is refused. */
static void buffers(void **state)
{
    static const struct {
        int dims;
        int64_t size[3];
    } shapes[] = {
        { 0, { 0 } }, { 1, { 1 } }, { 1, { 4097 } }, { 3, { 3, 5, 7 } }, { 2, { 0, 9 } },
    };
    struct pl_rng rng;
    pl_rng_init(&rng, 3, 0);
    for (int method = 0; method < PL_COMPRESSIONS; method++)
        for (int dtype = 0; dtype < PL_DTYPES; dtype++)
            for (size_t k = 0; k < PL_COUNT(shapes); k++) {
                struct pl_wire_type type = { .dtype = (enum pl_dtype)dtype,
                                             .dims = shapes[k].dims };
                size_t n, bytes, size = pl_dtype_size(type.dtype), again;
                float *x, *y;
                uint8_t *data, *back, *buffer;
                memcpy(type.size, shapes[k].size, sizeof shapes[k].size);
                assert_int_equal(pl_wire_elements(&n, &type, NULL), PL_OK);
                if (pl_wire_bytes(&bytes, (enum pl_compression)method, &type, NULL))
                    continue; /* refused */
                x = pl_alloc(n, sizeof *x), y = pl_alloc(n, sizeof *y);
                data = pl_alloc(n, size), back = pl_alloc(n, size);
                buffer = malloc(bytes + 1);
                for (size_t i = 0; i < n; i++) x[i] = (float)(3 * pl_rng_normal(&rng));
                pl_from_float(data, type.dtype, x, n);
                pl_to_float(x, type.dtype, data, n);
                assert_int_equal(pl_wire_encode(buffer + 1, &be, (enum pl_compression)method, &type,
                                                data, NULL),
                                 PL_OK);
                assert_int_equal(pl_wire_check(&again, (enum pl_compression)method, &type,
                                               buffer + 1, bytes, NULL),
                                 PL_OK);
                assert_int_equal(again, n);
                assert_int_equal(pl_wire_decode(back, &be, (enum pl_compression)method, &type,
                                                buffer + 1, bytes, NULL),
                                 PL_OK);
                if (method == PL_COMPRESS_NONE) assert_memory_equal(back, data, n * size);
                pl_to_float(y, type.dtype, back, n);
                for (size_t i = 0; i < n; i++) {
                    double step = method == PL_COMPRESS_FLOAT16     ? 0.004
                                  : method == PL_COMPRESS_MEANSTD16 ? 0.02
                                  : method == PL_COMPRESS_BLOCKWISE8
                                      ? 0.1
                                      : 9;          /* 8 bits: outliers share a bin */
                    if (dtype >= PL_I64) step += 1; /* truncated on the way back */
                    assert_true(fabs((double)x[i] - y[i]) <= step);
                }
                for (size_t cut = 1; cut <= bytes && cut < 3;
                     cut += 2) /* not 2: that may be raw bfloat16 */
                    assert_int_equal(pl_wire_check(&again, (enum pl_compression)method, &type,
                                                   buffer + 1, bytes - cut, NULL),
                                     PL_EFORMAT);
                pl_free(x), pl_free(y), pl_free(data), pl_free(back);
                free(buffer);
            }
}

static void refusals(void **state)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 2, .size = { 1ll << 40, 1ll << 40 } };
    uint8_t buffer[16 + 4 + 1024 + 4] = { 1 };
    struct pl_err err;
    size_t n;
    assert_int_equal(pl_wire_elements(&n, &type, &err), PL_ELIMIT);
    assert_non_null(strstr(err.text, "memory"));
    type.size[0] = -1;
    assert_int_equal(pl_wire_elements(&n, &type, NULL), PL_EFORMAT);
    type.size[0] = 0; /* empty, whatever the other axis says */
    assert_int_equal(pl_wire_elements(&n, &type, NULL), PL_OK);
    assert_int_equal(n, 0);
    type = (struct pl_wire_type){ .dims = 3, .size = { 1ll << 62, 1ll << 62, 0 } };
    assert_int_equal(pl_wire_elements(&n, &type, NULL), PL_OK);
    assert_int_equal(n, 0);
    type.size[2] = -1;
    assert_int_equal(pl_wire_elements(&n, &type, NULL), PL_EFORMAT);
    type.dims = PL_WIRE_DIMS_MAX + 1;
    assert_int_equal(pl_wire_elements(&n, &type, NULL), PL_EFORMAT);
    type = (struct pl_wire_type){ .dtype = PL_DTYPES, .dims = 1, .size = { 4 } };
    assert_int_equal(pl_wire_elements(&n, &type, NULL), PL_EFORMAT);
    type = (struct pl_wire_type){ .dtype = PL_F32, .dims = 1, .size = { 4 } };
    assert_int_equal(pl_wire_check(&n, PL_COMPRESS_UNIFORM8, &type, buffer, 8 + 1024 + 4, &err),
                     PL_EFORMAT);
    assert_non_null(strstr(err.text, "table entries 1, expected 256"));
    buffer[0] = 2; /* blocks */
    assert_int_equal(pl_wire_check(&n, PL_COMPRESS_BLOCKWISE8, &type, buffer, sizeof buffer, &err),
                     PL_EFORMAT);
    assert_non_null(strstr(err.text, "blocks 2, expected 1"));
    type.size[0] = 1ll << 32; /* claims much, brings little */
    assert_int_equal(pl_wire_check(&n, PL_COMPRESS_FLOAT16, &type, buffer, 8, &err), PL_EFORMAT);
    assert_int_equal(pl_wire_check(&n, (enum pl_compression)77, &type, buffer, 8, &err),
                     PL_EFORMAT);
    type.dtype = PL_BF16_T;
    type.size[0] = 2;
    assert_int_equal(pl_wire_check(&n, PL_COMPRESS_NONE, &type, buffer, 4, NULL), PL_OK); /* raw */
    assert_int_equal(pl_wire_check(&n, PL_COMPRESS_NONE, &type, buffer, 8, NULL),
                     PL_OK); /* widened */
    assert_int_equal(pl_wire_check(&n, PL_COMPRESS_FLOAT16, &type, buffer, 4, NULL), PL_EFORMAT);
}

/* Every method's buffer at its own length, one byte shorter, one longer, and with another number of
 * table entries. */
static void lengths_and_tables(void **state)
{
    static const float x[6] = { 1, -2, 3, 4, -5, 6 };
    const struct pl_wire_type type = { .dtype = PL_F32, .dims = 2, .size = { 2, 3 } };
    for (int method = 0; method < PL_COMPRESSIONS; method++) {
        enum pl_compression how = (enum pl_compression)method;
        uint8_t buffer[2048] = { 0 };
        size_t bytes, n;
        assert_int_equal(pl_wire_bytes(&bytes, how, &type, NULL), PL_OK);
        assert_int_equal(pl_wire_encode(buffer, &be, how, &type, x, NULL), PL_OK);
        assert_int_equal(pl_wire_check(&n, how, &type, buffer, bytes, NULL), PL_OK);
        assert_int_equal(n, 6);
        assert_int_equal(pl_wire_check(&n, how, &type, buffer, bytes - 1, NULL), PL_EFORMAT);
        assert_int_equal(pl_wire_check(&n, how, &type, buffer, bytes + 1, NULL), PL_EFORMAT);
        for (size_t at = 0; at < 16; at++) { /* of the counts in front, every byte */
            int counts = how == PL_COMPRESS_BLOCKWISE8                                 ? 16
                         : how == PL_COMPRESS_UNIFORM8 || how == PL_COMPRESS_QUANTILE8 ? 8
                                                                                       : 0;
            buffer[at] ^= 3;
            assert_int_equal(pl_wire_check(&n, how, &type, buffer, bytes, NULL),
                             (int)at < counts ? PL_EFORMAT : PL_OK);
            buffer[at] ^= 3;
        }
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static struct tensor_message sample(size_t n)
{
    struct tensor_message m = { .type = { .dtype = PL_F32, .dims = 2, .size = { 1, (int64_t)n } },
                                .method = PL_COMPRESS_FLOAT16,
                                .requires_grad = 1 };
    float *x = pl_alloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)i;
    assert_int_equal(tensor_fill(&m, &be, x, NULL), PL_OK);
    pl_free(x);
    return m;
}

static void messages(void **state)
{
    struct tensor_message m = sample(100), got;
    uint8_t *packed;
    size_t bytes;
    struct pl_err err;
    assert_int_equal(tensor_pack(&packed, &bytes, &m), PL_OK);
    assert_int_equal(tensor_unpack(&got, packed, bytes, NULL), PL_OK);
    assert_true(got.bytes == m.bytes && !memcmp(got.buffer, m.buffer, m.bytes));
    assert_true(got.type.dims == 2 && got.type.size[1] == 100 && got.requires_grad &&
                got.chunks == 0);
    assert_int_equal(tensor_elements(&got), 100);
    tensor_clear(&got);
    for (size_t cut = 0; cut < bytes; cut++) { /* every truncation */
        int rc = tensor_unpack(&got, packed, cut, &err);
        assert_int_equal(rc, PL_EFORMAT);
        assert_null(got.buffer);
    }
    for (size_t i = 0; i < bytes; i++) { /* every byte wrong: refused, or still a whole tensor */
        packed[i] ^= 0x5a;
        if (!tensor_unpack(&got, packed, bytes, &err)) {
            void *y = pl_alloc(tensor_elements(&got), 8);
            assert_int_equal(pl_wire_decode(y, &be, got.method, &got.type, got.buffer, got.bytes,
                                            NULL),
                             PL_OK);
            pl_free(y);
        }
        tensor_clear(&got);
        packed[i] ^= 0x5a;
    }
    free(packed);
    tensor_clear(&m);
}

static void streams(void **state)
{
    struct tensor_message m = sample(100000), got;
    struct tensor_join join = { 0 };
    size_t pieces = tensor_pieces(m.bytes), bytes;
    uint8_t *piece[4];
    struct pl_err err;
    assert_int_equal(pieces, 4);              /* 200000 bytes */
    for (int round = 0; round < 3; round++) { /* a join serves any number of tensors */
        for (size_t i = 0; i < pieces; i++) {
            assert_int_equal(tensor_pack_piece(&piece[i], &bytes, &m, i), PL_OK);
            assert_int_equal(tensor_join_add(&join, piece[i], bytes, &err),
                             i + 1 < pieces ? PL_EAGAIN : PL_OK);
            free(piece[i]);
        }
        tensor_join_take(&got, &join);
        assert_true(got.bytes == m.bytes && !memcmp(got.buffer, m.buffer, m.bytes));
        tensor_clear(&got);
    }
    /* Too large for the caller; a new tensor in the middle; a piece too many; a piece missing. */
    assert_int_equal(tensor_pack_piece(&piece[0], &bytes, &m, 0), PL_OK);
    join.limit = 1000;
    assert_int_equal(tensor_join_add(&join, piece[0], bytes, &err), PL_ELIMIT);
    join.limit = 0;
    assert_int_equal(tensor_join_add(&join, piece[0], bytes, &err), PL_EAGAIN);
    assert_int_equal(tensor_join_add(&join, piece[0], bytes, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "a new one begins after 1 of 4"));
    free(piece[0]);
    m.chunks = 2; /* one message that holds all, but says there are two */
    assert_int_equal(tensor_pack(&piece[0], &bytes, &m), PL_OK);
    assert_int_equal(tensor_join_add(&join, piece[0], bytes, &err), PL_EAGAIN);
    assert_int_equal(tensor_pack_piece(&piece[1], &bytes, &m, 1), PL_OK);
    assert_int_equal(tensor_join_add(&join, piece[1], bytes, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "more than the 200000 bytes"));
    free(piece[0]), free(piece[1]);
    assert_int_equal(tensor_pack_piece(&piece[0], &bytes, &m, 0), PL_OK);
    piece[0][bytes - 1] = 1; /* the last field: it is the only message */
    assert_int_equal(tensor_join_add(&join, piece[0], bytes, &err), PL_EFORMAT);
    free(piece[0]);
    tensor_join_clear(&join);
    tensor_clear(&m);
}

static void empty_and_scalar(void **state)
{
    struct tensor_message e = { .type = { .dtype = PL_F32, .dims = 2, .size = { 0, 3 } } };
    struct tensor_message s = { .type = { .dtype = PL_F32 } }, got;
    struct tensor_join join = { 0 };
    const float one = 1.25f;
    uint8_t *packed, wire[sizeof one];
    size_t bytes;
    pl_copy_little(wire, &one, sizeof one, 1);
    assert_int_equal(tensor_fill(&e, &be, &one, NULL), PL_OK);
    assert_int_equal(tensor_pieces(e.bytes), 1);
    assert_int_equal(tensor_pack_piece(&packed, &bytes, &e, 0), PL_OK);
    assert_int_equal(tensor_join_add(&join, packed, bytes, NULL), PL_OK);
    tensor_join_take(&got, &join);
    assert_true(got.bytes == 0 && got.chunks == 0 && got.type.dims == 2);
    tensor_clear(&got);
    free(packed);
    assert_int_equal(tensor_fill(&s, &be, &one, NULL), PL_OK);
    assert_int_equal(tensor_pack(&packed, &bytes, &s), PL_OK);
    assert_int_equal(tensor_unpack(&got, packed, bytes, NULL), PL_OK);
    assert_true(got.type.dims == 0 && got.bytes == 4 && !memcmp(got.buffer, wire, 4));
    tensor_clear(&got);
    free(packed);
    tensor_clear(&s);
    tensor_clear(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_there_and_back),
        cmocka_unit_test(halves_round),
        cmocka_unit_test(integers_truncate),
        cmocka_unit_test(uniform_special),
        cmocka_unit_test(uniform_narrow),
        cmocka_unit_test(quantiles_even_out),
        cmocka_unit_test(adaptive),
        cmocka_unit_test(buffers),
        cmocka_unit_test(refusals),
        cmocka_unit_test(lengths_and_tables),
        cmocka_unit_test(messages),
        cmocka_unit_test(streams),
        cmocka_unit_test(empty_and_scalar),
    };
    return cmocka_run_group_tests(tests, open_ref, NULL);
}
