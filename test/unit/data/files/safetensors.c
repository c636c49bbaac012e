/* safetensors.c - written and read back; every way a header can be wrong. */
#include "ref/byte_order.h"
#include "data/files/file.h"
#include "data/files/safetensors.h"
#include "test/unit/unit.h"

#include <math.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-st-XXXXXX", path[80];
static struct pl_err err;

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(folder);
}

/* Pages of mapped files; those of a file system in memory, as /tmp may be, count as shared. */
static double resident_file_kb(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[128];
    double kb, sum = 0;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "RssFile: %lf", &kb) == 1 || sscanf(line, "RssShmem: %lf", &kb) == 1)
            sum += kb;
    if (status) fclose(status);
    return sum;
}

/* After loading, the file's pages must not stay in memory in addition to the model. */
static void what_was_read_is_let_go(void **state)
{
    enum { N = 4 << 20 }; /* 16 MiB */
    struct st_writer *w = pl_safetensors_writer_new();
    float *values = malloc(N * sizeof *values), *back = malloc(N * sizeof *back);
    struct st_tensor elsewhere = { .data = values, .bytes = N * sizeof *values };
    struct st_file *f;
    double full;
    for (int i = 0; i < N; i++) values[i] = (float)i;
    assert_int_equal(pl_safetensors_writer_add(w, "odd", PL_F32, 1, (int64_t[]){ 3 }, values),
                     PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "large", PL_F32, 1, (int64_t[]){ N }, values),
                     PL_OK);
    assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
    pl_safetensors_writer_free(w);
    assert_int_equal(pl_safetensors_open(&f, path, &err), PL_OK);
    pl_safetensors_to_float(back, pl_safetensors_find(f, "large"));
    full = resident_file_kb();
    pl_safetensors_release(f, pl_safetensors_find(f, "large"));
    /* where bytes are turned, back came from a copy */
    if (full > 0 && !PL_BIG_ENDIAN) assert_true(full - resident_file_kb() > 15 << 10);
    memset(back, 0, N * sizeof *back);
    pl_safetensors_to_float(back, pl_safetensors_find(f, "large")); /* read again */
    assert_memory_equal(back, values, N * sizeof *back);
    pl_safetensors_release(f, &elsewhere); /* memory outside the mapping is not affected */
    assert_true(values[N - 1] == N - 1);
    pl_safetensors_close(f);
    free(values);
    free(back);
}

static void what_was_written_is_read(void **state)
{
    static const float values[6] = { 1, -2, 0.5f, INFINITY, 1e-45f, 3e38f };
    static const int16_t shorts[3] = { -32768, 0, 32767 };
    struct st_writer *w = pl_safetensors_writer_new();
    struct st_file *f;
    const struct st_tensor *t;
    float back[6];
    assert_int_equal(pl_safetensors_writer_meta(w, "config", "{\"a\": 1}"), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "z.weight", PL_F32, 2, (int64_t[]){ 2, 3 },
                                               values),
                     PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "caf\xc3\xa9", PL_I16, 1, (int64_t[]){ 3 },
                                               shorts),
                     PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "scalar", PL_F32, 0, NULL, values), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "empty", PL_F64, 2, (int64_t[]){ 0, 5 }, values),
                     PL_OK);
    assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
    pl_safetensors_writer_free(w);
    assert_int_equal(pl_safetensors_open(&f, path, &err), PL_OK);
    assert_int_equal(f->count, 4);
    assert_string_equal(pl_safetensors_meta(f, "config"), "{\"a\": 1}");
    assert_null(pl_safetensors_meta(f, "nothing"));
    t = pl_safetensors_find(f, "z.weight");
    assert_int_equal(t->n, 6);
    pl_safetensors_to_float(back, t);
    assert_memory_equal(back, values, sizeof back);
    t = pl_safetensors_find(f, "caf\xc3\xa9");
    pl_safetensors_to_float(back, t);
    assert_true(back[0] == -32768 && back[2] == 32767);
    assert_int_equal(pl_safetensors_find(f, "scalar")->n, 1);
    assert_int_equal(pl_safetensors_find(f, "empty")->n, 0);
    assert_null(pl_safetensors_find(f, "nothing"));
    pl_safetensors_close(f);
}

/* Every half and bfloat16 there is, against the rule spelt out. */
static void halves_widen_exactly(void **state)
{
    uint16_t *all = malloc(65536 * sizeof *all);
    float *got = malloc(65536 * sizeof *got);
    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int type = PL_F16; type <= PL_BF16_T; type++) {
        const struct st_tensor t = { .dtype = (enum pl_dtype)type, .n = 65536, .data = all };
        int fraction = type == PL_F16 ? 10 : 7, top = type == PL_F16 ? 31 : 255;
        pl_safetensors_to_float(got, &t);
        for (int i = 0; i < 65536; i++) {
            int e = (i & 0x7fff) >> fraction, m = i & ((1 << fraction) - 1);
            double want = e ? ldexp((1 << fraction) + m, e - top / 2 - fraction)
                            : ldexp(m, 1 - top / 2 - fraction);
            if (i >> 15) want = -want;
            if (e < top) assert_true((double)got[i] == want && !signbit(got[i]) == !(i >> 15));
            else if (m) assert_true(isnan(got[i]));
            else assert_true(isinf(got[i]) && !signbit(got[i]) == !(i >> 15));
        }
    }
    free(all);
    free(got);
}

/* Names of rising length make headers of every length: padded to a multiple of 8, and no further. */
static void headers_are_padded(void **state)
{
    static const float one = 1;
    int exact = 0;
    for (int length = 1; length <= 16; length++) {
        struct st_writer *w = pl_safetensors_writer_new();
        char name[17] = "";
        uint8_t *data;
        size_t bytes, spaces = 0;
        memset(name, 'x', (size_t)length);
        assert_int_equal(pl_safetensors_writer_add(w, name, PL_F32, 1, (int64_t[]){ 1 }, &one),
                         PL_OK);
        assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
        pl_safetensors_writer_free(w);
        assert_int_equal(pl_file_read((void **)&data, &bytes, path, 1 << 20, &err), PL_OK);
        assert_int_equal(data[0] % 8, 0);
        assert_int_equal(bytes, 8 + data[0] + 4);
        while (data[8 + data[0] - 1 - spaces] == ' ') spaces++;
        assert_true(spaces < 8);
        exact += !spaces;
        free(data);
    }
    assert_int_equal(exact, 2);
}

/* --- bad input ----------------------------------------------------------------------------- */

static int open_bytes(const void *data, size_t bytes)
{
    struct st_file *f;
    FILE *file = fopen(path, "wb");
    int rc;
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
    err.text[0] = 0;
    rc = pl_safetensors_open(&f, path, &err);
    if (!rc) pl_safetensors_close(f);
    else {
        assert_null(f);
        assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
    }
    return rc;
}

static int open_header(const char *json, size_t data_bytes)
{
    uint8_t file[1024] = { 0 };
    size_t n = strlen(json);
    file[0] = (uint8_t)n;
    file[1] = (uint8_t)(n >> 8);
    memcpy(file + 8, json, n);
    return open_bytes(file, 8 + n + data_bytes);
}

static void invalid_headers_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{",
        "{\"a\": 1}",
        "nonsense",
        "{\"a\": {}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [8, 12]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [-4, 0]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [-1], \"data_offsets\": [0, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 0]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 8]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [-1, 0], \"data_offsets\": [0, 0]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [0, -1], \"data_offsets\": [0, 0]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [-4, -4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [9, 9]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4.0]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0]}}",
        "{\"a\": {\"dtype\": \"F99\", \"shape\": [1], \"data_offsets\": [0, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1.5], \"data_offsets\": [0, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": \"1\", \"data_offsets\": [0, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296, 4294967296], \"data_offsets\": [0, 0]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [9223372036854775807], \"data_offsets\": [0, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,1], \"data_offsets\": [0, 4]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]},"
        " \"b\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [2, 6]}}",
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]},"
        " \"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 8]}}",
        "{\"__metadata__\": []}",
        "{\"__metadata__\": {\"a\": 1}}",
    };
    for (size_t i = 0; i < PL_COUNT(bad); i++) assert_int_not_equal(open_header(bad[i], 8), PL_OK);
    assert_int_equal(open_header("{}   ", 0), PL_OK);
    assert_int_equal(open_header("{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": "
                                 "[0, 8]},"
                                 " \"b\": {\"dtype\": \"I64\", \"shape\": [0], \"data_offsets\": "
                                 "[8, 8]}}",
                                 8),
                     PL_OK);
}

static void truncation_at_every_byte(void **state)
{
    static const float values[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    struct st_writer *w = pl_safetensors_writer_new();
    void *data;
    size_t bytes;
    pl_safetensors_writer_meta(w, "a", "b");
    pl_safetensors_writer_add(w, "x", PL_F32, 1, (int64_t[]){ 8 }, values);
    pl_safetensors_writer_add(w, "y", PL_F32, 2, (int64_t[]){ 2, 2 }, values);
    assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
    pl_safetensors_writer_free(w);
    assert_int_equal(pl_file_read(&data, &bytes, path, 1 << 20, &err), PL_OK);
    size_t header = ((uint8_t *)data)[0] + 256u * ((uint8_t *)data)[1];
    for (size_t n = 0; n < bytes; n++)
        assert_int_equal(open_bytes(data, n), n < 8 || n >= 8 + header ? PL_EFORMAT : PL_ELIMIT);
    for (size_t i = 0; i < bytes; i++) { /* flipped: refused or not, no crash */
        ((uint8_t *)data)[i] ^= 0x10;
        open_bytes(data, bytes);
        ((uint8_t *)data)[i] ^= 0x10;
    }
    memset(data, 0xff, 8); /* a header of 2^64 - 1 bytes */
    assert_int_equal(open_bytes(data, bytes), PL_ELIMIT);
    free(data);
}

/* Tensors are written in the order of their names, so the same tensors give the same file. */
static void the_order_of_adding_does_not_show(void **state)
{
    static const char *const names[] = { "b.weight", "a.weight", "c", "b.bias" };
    static const float values[4] = { 1, 2, 3, 4 };
    void *first = NULL, *data;
    size_t bytes, n;
    for (int turn = 0; turn < 4; turn++) {
        struct st_writer *w = pl_safetensors_writer_new();
        for (int i = 0; i < 4; i++) {
            int k = (i + turn) % 4;
            assert_int_equal(pl_safetensors_writer_add(w, names[k], PL_F32, 1, (int64_t[]){ 1 },
                                                       &values[k]),
                             PL_OK);
        }
        assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
        pl_safetensors_writer_free(w);
        assert_int_equal(pl_file_read(&data, &n, path, 1 << 20, &err), PL_OK);
        if (!turn) first = data, bytes = n;
        assert_int_equal(n, bytes);
        assert_memory_equal(data, first, n);
        if (turn) free(data);
    }
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_padded),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(what_was_read_is_let_go),
        cmocka_unit_test(halves_widen_exactly),
        cmocka_unit_test(invalid_headers_are_refused),
        cmocka_unit_test(truncation_at_every_byte),
        cmocka_unit_test(the_order_of_adding_does_not_show),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
