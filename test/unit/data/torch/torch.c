/* torch.c - PyTorch checkpoints: written and read back, and every way an archive can be wrong. The
 * golden values in test/golden/vqgan include real ones. */
#include "ref/byte_order.h"
#include "data/torch/zip_archive.h"
#include "data/files/file.h"
#include "data/torch/torch.h"
#include "data/models/weights.h"
#include "test/unit/data/exact_bytes.h"
#include "test/unit/unit.h"

#include <unistd.h>

static char folder[] = "/tmp/potluck-torch-XXXXXX", path[80], other[80];
static struct pl_err err;

static int setup(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/t.pt", folder);
    snprintf(other, sizeof other, "%s/t.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    unlink(other);
    return rmdir(folder);
}

/* --- files ------------------------------------------------------------------------------------ */

static void write_some(const char *to)
{
    static const float values[6] = { 1, -2, 0.5f, 4, 1e-45f, 3e38f };
    static const uint16_t halves[2] = { 0x3C00, 0x0001 };
    struct st_writer *w = pl_safetensors_writer_new();
    assert_int_equal(pl_safetensors_writer_meta(w, "config", "{\"a\": \"caf\xc3\xa9\"}"), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "w", PL_F32, 2, (int64_t[]){ 2, 3 }, values),
                     PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "caf\xc3\xa9", PL_F16, 1, (int64_t[]){ 2 },
                                               halves),
                     PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "scalar", PL_F32, 0, NULL, values), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "empty", PL_F64, 2, (int64_t[]){ 0, 5 }, values),
                     PL_OK);
    assert_int_equal(pl_safetensors_write(w, to, &err), PL_OK);
    pl_safetensors_writer_free(w);
}

static void what_is_converted_is_the_same(void **state)
{
    struct st_file *a, *b;
    write_some(other);
    assert_int_equal(pl_weights_open(&a, other, &err), PL_OK);
    assert_int_equal(pl_weights_save(a, path, &err), PL_OK);
    assert_int_equal(pl_weights_open(&b, path, &err), PL_OK);
    assert_string_equal(b->kind, "PyTorch zip");
    assert_int_equal(b->count, a->count);
    assert_string_equal(pl_safetensors_meta(b, "config"), pl_safetensors_meta(a, "config"));
    for (size_t i = 0; i < a->count; i++) {
        const struct st_tensor *x = &a->tensors[i], *y = pl_safetensors_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->dims, y->dims);
        assert_memory_equal(x->shape, y->shape, (size_t)x->dims * sizeof *x->shape);
        assert_memory_equal(x->data, y->data, x->bytes);
        /* the map begins on a page; where bytes are turned, a copy does not */
        if (y->bytes && !PL_BIG_ENDIAN) assert_int_equal((uintptr_t)y->data % 64, 0);
    }
    pl_safetensors_close(a);
    pl_safetensors_close(b);
    assert_int_equal(pl_weights_open(&a, other, &err), PL_OK);
    assert_int_equal(pl_weights_save(a, "/tmp/x.unknown", &err), PL_EUSE);
    assert_int_equal(pl_weights_save(a, "/nonexistent/x.pt", &err), PL_EIO);
    pl_safetensors_close(a);
}

/* A dimension above 2^31 is a LONG1; without elements it costs nothing. */
static void large_dimensions(void **state)
{
    struct st_writer *w = pl_safetensors_writer_new();
    struct st_file *a, *b;
    const int64_t shape[] = { 0, ((int64_t)1 << 40) + 3 };
    assert_int_equal(pl_safetensors_writer_add(w, "wide", PL_F32, 2, shape, ""), PL_OK);
    assert_int_equal(pl_safetensors_write(w, other, &err), PL_OK);
    pl_safetensors_writer_free(w);
    assert_int_equal(pl_weights_open(&a, other, &err), PL_OK);
    assert_int_equal(pl_weights_save(a, path, &err), PL_OK);
    pl_safetensors_close(a);
    assert_int_equal(pl_weights_open(&b, path, &err), PL_OK);
    assert_int_equal(b->tensors[0].dims, 2);
    assert_memory_equal(b->tensors[0].shape, shape, sizeof shape);
    pl_safetensors_close(b);
}

/* And back to safetensors: metadata, and "format", which other readers expect. */
static void back_to_safetensors(void **state)
{
    struct st_file *a, *b;
    write_some(other);
    assert_int_equal(pl_weights_open(&a, other, &err), PL_OK);
    assert_int_equal(pl_weights_save(a, path, &err), PL_OK);
    pl_safetensors_close(a);
    assert_int_equal(pl_weights_open(&a, path, &err), PL_OK);
    assert_int_equal(pl_weights_save(a, other, &err), PL_OK);
    assert_int_equal(pl_weights_open(&b, other, &err), PL_OK);
    assert_string_equal(b->kind, "safetensors");
    assert_string_equal(pl_safetensors_meta(b, "format"), "pt");
    assert_string_equal(pl_safetensors_meta(b, "config"), "{\"a\": \"caf\xc3\xa9\"}");
    assert_int_equal(b->count, a->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct st_tensor *x = &a->tensors[i], *y = pl_safetensors_find(b, x->name);
        assert_true(y && x->dtype == y->dtype && x->bytes == y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    pl_safetensors_close(b);
    pl_safetensors_close(a);
}

/* The first bytes tell: a zip archive; a pickle of protocol 2 to 5 that begins with a long number,
 * in a frame or not; digits of PyTorch's magic number. */
static void first_bytes(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        int begins;
    } cases[] = {
        { "PK", 2, 1 },
        { "P", 1, 0 },
        { "PX", 2, 0 },
        { "\x80\x02\x8a\x0a", 4, 1 },
        { "\x80\x05\x8a\x0a", 4, 1 },
        { "\x80\x04\x95\x0b", 4, 1 },
        { "\x80\x02\x8a", 3, 0 },
        { "\x80\x01\x8a\x0a", 4, 0 },
        { "\x80\x06\x8a\x0a", 4, 0 },
        { "\x80\x02\x8a\x09", 4, 0 },
        { "\x80\x02\x8b\x0a", 4, 0 },
        { "\x80\x02}q", 4, 0 },
        { "L1195470", 8, 1 },
        { "L119547", 7, 0 },
        { "L1195471", 8, 0 },
        { "", 0, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        uint8_t *exact = exact_copy(cases[i].bytes, cases[i].n);
        assert_int_equal(pl_torch_begins(exact, cases[i].n), cases[i].begins);
        exact_free(exact, cases[i].n);
    }
}

/* Every file that is cut short, and many with a byte changed: an answer, never a crash. */
static void damaged_files_are_survived(void **state)
{
    static const char *const kinds[] = { "test/golden/vqgan/container_mixed.pt",
                                         "test/golden/vqgan/container_mixed_legacy.pt" };
    for (size_t k = 0; k < PL_COUNT(kinds); k++) {
        void *data;
        size_t n;
        struct st_file *f;
        assert_int_equal(pl_file_read(&data, &n, kinds[k], 1 << 20, &err), PL_OK);
        for (size_t cut = 0; cut < n; cut += 7) {
            assert_int_equal(pl_file_write(path, data, cut, &err), PL_OK);
            assert_int_not_equal(pl_weights_open(&f, path, &err), PL_OK);
        }
        for (size_t at = 0; at < n; at += 3) {
            ((uint8_t *)data)[at] ^= 0x41;
            assert_int_equal(pl_file_write(path, data, n, &err), PL_OK);
            if (!pl_weights_open(&f, path, &err)) pl_safetensors_close(f);
            ((uint8_t *)data)[at] ^= 0x41;
        }
        free(data);
    }
}

static char opened[4]; /* the first bytes of the first tensor */

/* An archive whose data.pkl is `text`, with a storage "0" of 8 bytes. */
static int open_with(const char *text, size_t n)
{
    struct archive_out *out;
    struct st_file *f = NULL;
    assert_int_equal(pl_zip_archive_create(&out, path, &err), PL_OK);
    assert_int_equal(pl_zip_archive_add(out, "t/data.pkl", text, n, &err), PL_OK);
    assert_int_equal(pl_zip_archive_add(out, "t/data/0", "12345678", 8, &err), PL_OK);
    assert_int_equal(pl_zip_archive_write(out, &err), PL_OK);
    pl_zip_archive_discard(out);
    int rc = pl_weights_open(&f, path, &err);
    if (!rc && f->count && f->tensors[0].bytes >= 4) memcpy(opened, f->tensors[0].data, 4);
    pl_safetensors_close(f);
    return rc;
}

#define TENSOR(key, offset, size, stride) \
    "}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" key \
    "X\x03\0\0\0cpuK\x02tQ" offset size stride "\x89}tRs."
#define OPEN(text) open_with(text, sizeof(text) - 1)

static void tensors_outside_their_storage_are_refused(void **state)
{
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "K\x02\x85", "K\x01\x85")), PL_OK);
    assert_int_equal(OPEN(TENSOR("1", "K\x00", "K\x02\x85", "K\x01\x85")), PL_EFORMAT);
    assert_int_equal(OPEN(TENSOR("0", "K\x01", "K\x02\x85", "K\x01\x85")), PL_EFORMAT);
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "K\x02\x85", "K\x02\x85")), PL_EFORMAT);
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "K\x03\x85", "K\x01\x85")), PL_EFORMAT);
    assert_int_equal(OPEN(TENSOR("0", "J\xff\xff\xff\xff", "K\x01\x85", "K\x01\x85")), PL_EFORMAT);
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "J\xff\xff\xff\xff\x85", "K\x01\x85")), PL_EFORMAT);
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "K\x02K\x02\x86", "K\x01\x85")), PL_EFORMAT);
    /* the last element is as far as all strides together: of 2 x 2 by rows it is the fourth */
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "K\x02K\x02\x86", "K\x02K\x01\x86")), PL_EFORMAT);
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "K\x02K\x02\x86", "K\x01K\x00\x86")), PL_OK);
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "K\x01K\x02\x86", "K\x09K\x01\x86")), PL_OK);
    /* a stride of 0 makes 2^40 elements of one */
    assert_int_equal(OPEN(TENSOR("0", "K\x00", "\x8a\x06\0\0\0\0\0\x01\x85", "K\x00\x85")),
                     PL_ELIMIT);
    assert_int_equal(OPEN("}X\x01\0\0\0wK\x01s."), PL_EFORMAT); /* no tensors at all */
    assert_int_equal(OPEN("}."), PL_OK);                        /* an empty state dict */
}

/* The older stream, of an object without storages: its list of them must be empty. */
static void a_stream_without_storages(void **state)
{
    static const char head[] =
        "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.}.";
    static const char none[] = "].", nameless[] = "](X\0\0\0\0e.\0\0\0\0\0\0\0\0";
    char text[100];
    struct st_file *f;
    memcpy(text, head, sizeof head - 1);
    memcpy(text + sizeof head - 1, none, sizeof none - 1);
    assert_int_equal(pl_file_write(path, text, sizeof head + sizeof none - 2, &err), PL_OK);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    assert_int_equal(f->count, 0);
    pl_safetensors_close(f);
    memcpy(text + sizeof head - 1, nameless, sizeof nameless - 1);
    assert_int_equal(pl_file_write(path, text, sizeof head + sizeof nameless - 2, &err), PL_OK);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "storage 0 of the list"));
}

/* Before version 0.4 of PyTorch a storage could be a view of another: (key, offset, count). */
#define VIEWED(view, offset) \
    "}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" \
    "0" \
    "X\x03\0\0\0cpuK\x02" view "tQ" offset "K\x01\x85K\x01\x85\x89}tRs."

/* Which tensor a name means must be clear. */
static void names_are_unique(void **state)
{
#define REST \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" \
    "0" \
    "X\x03\0\0\0cpuK\x02tQK\x00K\x01\x85K\x01\x85\x89}tRs"
    assert_int_equal(OPEN("}X\x01\0\0\0v" REST "X\x01\0\0\0w" REST "."), PL_OK);
    assert_int_equal(OPEN("}X\x01\0\0\0w" REST "X\x01\0\0\0w" REST "."), PL_EFORMAT);
    assert_non_null(strstr(err.text, "two tensors of the name w"));
}

static void storages_that_are_views(void **state)
{
    assert_int_equal(OPEN(VIEWED("N", "K\x01")), PL_OK);
    assert_memory_equal(opened, PL_BIG_ENDIAN ? "8765" : "5678", 4);
    assert_int_equal(OPEN(VIEWED("(X\x01\0\0\0vK\x01K\x01t", "K\x00")), PL_OK);
    assert_memory_equal(opened, PL_BIG_ENDIAN ? "8765" : "5678", 4);
    assert_int_equal(OPEN(VIEWED("(X\x01\0\0\0vK\x00K\x02t", "K\x00")), PL_OK);
    assert_memory_equal(opened, PL_BIG_ENDIAN ? "4321" : "1234", 4);
    assert_int_equal(OPEN(VIEWED("(X\x01\0\0\0vK\x01K\x01t", "K\x01")), PL_EFORMAT);
    assert_int_equal(OPEN(VIEWED("(X\x01\0\0\0vK\x02K\x01t", "K\x00")), PL_EFORMAT);
    assert_int_equal(OPEN(VIEWED("(X\x01\0\0\0vJ\xff\xff\xff\xffK\x01t", "K\x01")), PL_EFORMAT);
    assert_int_equal(OPEN(VIEWED("(X\x01\0\0\0vK\x01t", "K\x00")), PL_EFORMAT);
}

/* Each copy of a view is within the limit, all of them together are not. */
static void copies_have_a_limit_together(void **state)
{
    static const char tensor[] = "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\n"
                                 "FloatStorage\nX\x01\0\0\0"
                                 "0"
                                 "X\x03\0\0\0cpuK\x02tQK\x00J\0\0\x80\0\x85K\x00\x85\x89}tRs";
    char text[4096] = "}";
    size_t n = 1;
    for (int copies = 1; copies <= 3; copies++) { /* of 2^23 elements: 32 MiB each */
        n += (size_t)snprintf(text + n, 8, "X");
        memcpy(text + n, "\x01\0\0\0", 4);
        text[n + 4] = (char)('a' + copies);
        memcpy(text + n + 5, tensor, sizeof tensor - 1);
        n += 5 + sizeof tensor - 1;
        text[n] = '.';
        assert_int_equal(open_with(text, n + 1), copies < 3 ? PL_OK : PL_ELIMIT);
    }
}

static void members_are_read_up_to_a_limit(void **state)
{
    void *data;
    size_t n;
    struct archive *a;
    struct archive_out *out;
    static const char content[] = "some text";
    assert_int_equal(pl_zip_archive_create(&out, path, &err), PL_OK);
    assert_int_equal(pl_zip_archive_add(out, "a", content, sizeof content, &err), PL_OK);
    assert_int_equal(pl_zip_archive_write(out, &err), PL_OK);
    pl_zip_archive_discard(out);
    assert_int_equal(pl_file_read(&data, &n, path, 1 << 20, &err), PL_OK);
    assert_int_equal(pl_zip_archive_open(&a, path, data, n, &err), PL_OK);
    void *copy;
    size_t bytes;
    assert_int_equal(pl_zip_archive_read(a, 0, &copy, &bytes, sizeof content - 1, &err), PL_ELIMIT);
    assert_int_equal(pl_zip_archive_read(a, 0, &copy, &bytes, sizeof content, &err), PL_OK);
    assert_string_equal(copy, content);
    free(copy);
    assert_int_equal(pl_zip_archive_find(a, "b"), -1);
    pl_zip_archive_close(a);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_dimensions),
        cmocka_unit_test(back_to_safetensors),
        cmocka_unit_test(first_bytes),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(what_is_converted_is_the_same),
        cmocka_unit_test(damaged_files_are_survived),
        cmocka_unit_test(tensors_outside_their_storage_are_refused),
        cmocka_unit_test(storages_that_are_views),
        cmocka_unit_test(a_stream_without_storages),
        cmocka_unit_test(copies_have_a_limit_together),
        cmocka_unit_test(members_are_read_up_to_a_limit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
