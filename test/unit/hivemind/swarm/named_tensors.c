/* named_tensors.c - tensors of a file in the order that a swarm averages them in: the file's own, or
 * that of their names; each tensor once. [spec hivemind-protocol 4.2] */
#include "net/hivemind/swarm/averaging.h"
#include "data/files/safetensors.h"
#include "test/unit/unit.h"

#include <unistd.h>

static char path[] = "/tmp/named_tensors.XXXXXX";

static int begin(void **state)
{
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int end(void **state) { return unlink(path); }

/* A file with three tensors, of other sizes and types each, and this order; NULL: none. */
static void write_file(const char *order)
{
    static const int64_t one[] = { 3 }, two[] = { 2, 2 };
    static const float b[] = { 1, 2, 3 }, a[] = { 4, 5, 6, 7 };
    static const uint16_t c[] = { 0x3c00, 0xc000, 0x3800 }; /* halves: 1, -2, 0.5 */
    struct st_writer *w = pl_safetensors_writer_new();
    assert_int_equal(pl_safetensors_writer_add(w, "b", PL_F32, 1, one, b), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "a", PL_F32, 2, two, a), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "c", PL_F16, 1, one, c), PL_OK);
    if (order) assert_int_equal(pl_safetensors_writer_meta(w, "param_order", order), PL_OK);
    assert_int_equal(pl_safetensors_write(w, path, NULL), PL_OK);
    pl_safetensors_writer_free(w);
}

static void expect_order(const struct named_tensors *t, const char *names)
{
    assert_int_equal(t->count, 3);
    for (size_t i = 0; i < 3; i++) {
        static const float first[] = { 4, 1, 1 }, last[] = { 7, 3, 0.5 };
        const int which = names[i] - 'a', is_matrix = which == 0;
        assert_int_equal(t->name[i][0], names[i]);
        assert_int_equal(t->elements[i], is_matrix ? 4 : 3);
        assert_int_equal(t->schema[i].type.dtype, PL_F32);
        assert_int_equal(t->schema[i].type.dims, is_matrix ? 2 : 1);
        assert_int_equal(t->schema[i].type.size[0], is_matrix ? 2 : 3);
        if (is_matrix) assert_int_equal(t->schema[i].type.size[1], 2);
        assert_true(t->tensor[i][0] == first[which]);
        assert_true(t->tensor[i][t->elements[i] - 1] == last[which]);
    }
}

static void order_of_the_file_or_of_the_names(void **state)
{
    static const char *const orders[] = { NULL, "[\"c\",\"b\",\"a\"]", "[\"b\",\"a\",\"c\"]" };
    static const char *const names[] = { "abc", "cba", "bac" };
    for (size_t i = 0; i < PL_COUNT(orders); i++) {
        struct named_tensors t;
        write_file(orders[i]);
        assert_int_equal(named_tensors_read(&t, path, NULL), PL_OK);
        expect_order(&t, names[i]);
        /* What is written has the same order. */
        assert_int_equal(named_tensors_write(&t, path, NULL), PL_OK);
        named_tensors_clear(&t);
        assert_int_equal(named_tensors_read(&t, path, NULL), PL_OK);
        expect_order(&t, names[i]);
        named_tensors_clear(&t);
    }
}

/* The order is a stranger's text. One that leaves a tensor out, or names one twice, would average
 * other tensors than its peers do. */
static void orders_name_each_tensor_once(void **state)
{
    static const char *const orders[] = { "[\"a\",\"b\"]",
                                          "[\"a\",\"b\",\"c\",\"a\"]",
                                          "[\"a\",\"b\",\"d\"]",
                                          "[\"a\",\"b\",\"a\"]",
                                          "[\"a\",\"b\",3]",
                                          "[]",
                                          "{\"a\":1}" };
    for (size_t i = 0; i < PL_COUNT(orders); i++) {
        struct named_tensors t;
        struct pl_err err = { { 0 } };
        write_file(orders[i]);
        if (named_tensors_read(&t, path, &err) != PL_EFORMAT) fail_msg("%s", orders[i]);
        assert_non_null(strstr(err.text, "param_order"));
        assert_int_equal(t.count, 0);
        assert_null(t.name);
    }
}

/* 2^16 + 1 values are the first that "run" sends as 8 bits. [spec hivemind-protocol 10] */
static void compression_by_name(void **state)
{
    static const struct {
        const char *name;
        size_t elements;
        enum pl_compression method;
    } cases[] = {
        { "none", 1, PL_COMPRESS_NONE },           { "float16", 1, PL_COMPRESS_FLOAT16 },
        { "meanstd16", 1, PL_COMPRESS_MEANSTD16 }, { "uniform8", 1, PL_COMPRESS_UNIFORM8 },
        { "quantile8", 1, PL_COMPRESS_QUANTILE8 }, { "blockwise8", 1, PL_COMPRESS_BLOCKWISE8 },
        { "run", 65536, PL_COMPRESS_FLOAT16 },     { "run", 65537, PL_COMPRESS_UNIFORM8 }
    };
    enum pl_compression method;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        assert_int_equal(compression_named(&method, cases[i].name, cases[i].elements, 65537),
                         PL_OK);
        assert_int_equal(method, cases[i].method);
    }
    assert_int_equal(compression_named(&method, "float", 1, 65537), PL_EUSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_the_file_or_of_the_names),
        cmocka_unit_test(orders_name_each_tensor_once),
        cmocka_unit_test(compression_by_name),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
