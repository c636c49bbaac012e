/* checkpoint.c - what a checkpoint holds besides parameters: the optimizer's arrays, the bytes of
 * rounds; which values and shapes are refused; and which file of a folder is the newest. */
#include "data/files/file.h"
#include "data/models/checkpoint.h"
#include "data/models/weights.h"
#include "runtime/models.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

#include <math.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-checkpoint-XXXXXX", path[80];
static struct pl_backend be;
static struct pl_err err;
static struct pl_gpt2 m;

static const struct pl_gpt2_config small = {
    .layers = 1, .heads = 2, .width = 8, .positions = 6, .vocab = 10, .inner = 12
};

static struct st_file *saved(const struct pl_checkpoint *c)
{
    struct st_file *f;
    assert_int_equal(pl_checkpoint_save(c, path, &err), PL_OK);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    return f;
}

/* A file of one tensor. */
static struct st_file *file_of(const char *name, enum pl_dtype dtype, int dims,
                               const int64_t *shape, const void *data)
{
    struct st_writer *w = pl_safetensors_writer_new();
    struct st_file *f;
    assert_int_equal(pl_safetensors_writer_meta(w, "training", "{'step'"), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, name, dtype, dims, shape, data), PL_OK);
    assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
    pl_safetensors_writer_free(w);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    return f;
}

static void bytes_of_rounds(void **state)
{
    static const uint8_t bytes[] = { 0, 255, 7, 0, 1 };
    const int64_t n = 3;
    struct pl_checkpoint c = { .params = &m.params };
    struct st_file *f = saved(&c);
    void *rounds = &c;
    size_t count = 1;
    assert_null(pl_safetensors_find(f, "rounds.state")); /* nothing was kept: no tensor */
    assert_int_equal(pl_checkpoint_load_rounds(&rounds, &count, f, &err), PL_OK);
    assert_null(rounds);
    assert_int_equal(count, 0);
    pl_safetensors_close(f);

    c.rounds = bytes;
    c.rounds_n = sizeof bytes;
    f = saved(&c);
    assert_int_equal(pl_checkpoint_load_rounds(&rounds, &count, f, &err), PL_OK);
    assert_int_equal(count, sizeof bytes);
    assert_memory_equal(rounds, bytes, sizeof bytes);
    free(rounds);
    pl_safetensors_close(f);

    f = file_of("rounds.state", PL_F32, 1, &n, (const float[]){ 1, 2, 3 });
    assert_int_equal(pl_checkpoint_load_rounds(&rounds, &count, f, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "rounds.state holds F32, expected U8"));
    assert_null(rounds);
    pl_safetensors_close(f);
}

/* Element k of the optimizer's array i; codes of 8 bits take any value. */
static void fill(const struct pl_optimizer_state *s, size_t i, void *to)
{
    for (size_t k = 0; k < s->n; k++) {
        if (s->element_size == 1) ((uint8_t *)to)[k] = (uint8_t)(31 * i + k);
        else ((float *)to)[k] = (float)i + 0.25f * (float)k;
    }
}

static void the_optimizer_comes_back(void **state)
{
    struct pl_optimizer_options adam = pl_adam_options(0, 8), other = adam;
    struct pl_optimizer *from, *to;
    struct pl_checkpoint c = { .params = &m.params };
    size_t kinds[5] = { 0 };
    struct st_file *f;
    char want[4096], got[4096];
    adam.min_8bit = other.min_8bit = 64; /* matrices have codes, vectors floats */
    adam.block = 16;
    other.block = 8;
    assert_int_equal(pl_optimizer_open_params(&from, &m.params, &adam, &err), PL_OK);
    for (size_t i = 0; i < pl_optimizer_state_count(from); i++) {
        const struct pl_optimizer_state s = pl_optimizer_state_at(from, i);
        assert_true(s.n * s.element_size <= sizeof want);
        kinds[s.element_size]++;
        fill(&s, i, want);
        assert_int_equal(pl_optimizer_state_put(from, i, want), PL_OK);
    }
    assert_true(kinds[1] && kinds[4]);
    c.optimizer = from;
    f = saved(&c);
    assert_int_equal(pl_optimizer_open_params(&to, &m.params, &adam, &err), PL_OK);
    assert_int_equal(pl_checkpoint_load_optimizer(&m.params, to, f, &err), PL_OK);
    for (size_t i = 0; i < pl_optimizer_state_count(to); i++) {
        const struct pl_optimizer_state s = pl_optimizer_state_at(to, i);
        fill(&s, i, want);
        assert_int_equal(pl_optimizer_state_get(to, i, got), PL_OK);
        assert_memory_equal(got, want, s.n * s.element_size);
    }
    pl_optimizer_close(to);

    /* Half as large blocks have twice as many scales. */
    assert_int_equal(pl_optimizer_open_params(&to, &m.params, &other, &err), PL_OK);
    assert_int_equal(pl_checkpoint_load_optimizer(&m.params, to, f, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "absmax1 holds 5 of F32, expected 10 of F32"));
    pl_optimizer_close(to);
    pl_safetensors_close(f);

    /* An infinite moment means a damaged file. */
    for (size_t i = 0; i < pl_optimizer_state_count(from); i++) {
        const struct pl_optimizer_state s = pl_optimizer_state_at(from, i);
        if (s.element_size != 4 || strcmp(s.name, "state2")) continue;
        assert_int_equal(pl_optimizer_state_get(from, i, want), PL_OK);
        ((float *)want)[2] = INFINITY;
        assert_int_equal(pl_optimizer_state_put(from, i, want), PL_OK);
        break;
    }
    f = saved(&c);
    assert_int_equal(pl_optimizer_open_params(&to, &m.params, &adam, &err), PL_OK);
    assert_int_equal(pl_checkpoint_load_optimizer(&m.params, to, f, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, ".state2: value 2 is not finite"));
    pl_optimizer_close(to);
    pl_optimizer_close(from);
    pl_safetensors_close(f);
}

/* Rows of the file are columns of the model; names that are not listed stay as they are. */
static int is_first(const char *name) { return strstr(name, "c_attn.weight") != NULL; }

static void transposed_matrices(void **state)
{
    struct pl_checkpoint c = { .params = &m.params, .transposed = is_first };
    struct st_file *f = saved(&c);
    int seen = 0;
    for (size_t i = 0; i < m.params.count; i++) {
        const struct pl_param *p = &m.params.list[i];
        const struct st_tensor *t = pl_safetensors_find(f, p->name);
        const float *x = m.params.value + p->offset;
        float y[512];
        assert_true(t && t->n == p->n && p->n <= PL_COUNT(y));
        pl_safetensors_to_float(y, t);
        if (p->dims == 2 && is_first(p->name)) {
            seen++;
            assert_int_equal(t->shape[0], p->shape[1]);
            assert_int_equal(t->shape[1], p->shape[0]);
            for (int64_t r = 0; r < p->shape[0]; r++)
                for (int64_t k = 0; k < p->shape[1]; k++)
                    assert_true(y[k * p->shape[0] + r] == x[r * p->shape[1] + k]);
        } else {
            assert_int_equal(t->shape[0], p->shape[0]);
            assert_memory_equal(y, x, p->n * sizeof *x);
        }
    }
    assert_int_equal(seen, 1);
    pl_safetensors_close(f);
}

static long only_bias(const struct pl_params *params, const char *name)
{
    return strncmp(name, "bias", 4) ? -1 : 0;
}

/* Dimensions of 1 may be more or fewer, others not; of several tensors of one parameter the first
 * counts; every value must be finite. */
static void shapes_and_values(void **state)
{
    static const struct {
        int dims;
        int64_t shape[3];
        const char *got; /* NULL: fits */
    } cases[] = {
        { 1, { 6 }, NULL },
        { 2, { 1, 6 }, NULL },
        { 3, { 1, 6, 1 }, NULL },
        { 2, { 2, 3 }, "[2,3]" },
        { 2, { 6, 2 }, "[6,2]" },
        { 1, { 5 }, "[5]" },
        { 3, { 1, 3, 2 }, "[1,3,2]" },
    };
    float data[12] = { 1, 2, 3, 4, 5, 6 }, value[6];
    struct pl_param one = { .name = "x", .dims = 2, .shape = { 6, 1 }, .n = 6 };
    struct pl_params params = { .be = &be, .list = &one, .count = 1, .total = 6, .value = value };
    struct st_writer *w = pl_safetensors_writer_new();
    const int64_t six = 6;
    struct st_file *f;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        memset(value, 0, sizeof value);
        f = file_of("bias", PL_F32, cases[i].dims, cases[i].shape, data);
        if (cases[i].got) {
            char why[80];
            snprintf(why, sizeof why, "bias has shape %s, expected [6,1]", cases[i].got);
            assert_int_equal(pl_checkpoint_load_params(&params, f, only_bias, &err), PL_EFORMAT);
            assert_non_null(strstr(err.text, why));
        } else {
            assert_int_equal(pl_checkpoint_load_params(&params, f, only_bias, &err), PL_OK);
            assert_memory_equal(value, data, sizeof value);
        }
        assert_null(pl_checkpoint_json(f, "training", &err));
        assert_non_null(strstr(err.text, "metadata 'training' is not JSON"));
        pl_safetensors_close(f);
    }
    f = file_of("other", PL_F32, 1, &six, data);
    assert_int_equal(pl_checkpoint_load_params(&params, f, only_bias, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "no tensor x"));
    pl_safetensors_close(f);

    assert_int_equal(pl_safetensors_writer_add(w, "bias", PL_F32, 1, &six, data), PL_OK);
    assert_int_equal(pl_safetensors_writer_add(w, "bias again", PL_F32, 1, &six, data + 6), PL_OK);
    assert_int_equal(pl_safetensors_write(w, path, &err), PL_OK);
    pl_safetensors_writer_free(w);
    assert_int_equal(pl_weights_open(&f, path, &err), PL_OK);
    assert_int_equal(pl_checkpoint_load_params(&params, f, only_bias, &err), PL_OK);
    assert_memory_equal(value, data, sizeof value);
    pl_safetensors_close(f);

    data[5] = NAN;
    f = file_of("bias", PL_F32, 1, &six, data);
    assert_int_equal(pl_checkpoint_load_params(&params, f, only_bias, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "bias: value 5 is not finite"));
    assert_true(value[5] == 6); /* what was there before */
    pl_safetensors_close(f);
}

static void touch(const char *name)
{
    char *at = pl_path_join(folder, name);
    assert_int_equal(pl_file_write(at, "", 0, &err), PL_OK);
    free(at);
}

static int is_there(const char *name)
{
    char *at = pl_path_join(folder, name);
    int there = !access(at, F_OK);
    free(at);
    return there;
}

/* By number, not by the alphabet; other files of the folder are neither found nor deleted. */
static void the_newest_of_a_folder(void **state)
{
    static const char *const others[] = {
        "checkpoint-12.safetensors.part",
        "checkpoint-.safetensors",
        "checkpoint-+13.safetensors",
        "checkpoint- 14.safetensors",
        "checkpoint-15.safetensor",
        "Checkpoint-16.safetensors",
        "checkpoint-99999999999999999999.safetensors",
    };
    char *newest;
    assert_int_equal(pl_checkpoint_newest(&newest, folder, &err), PL_OK);
    assert_null(newest);
    for (size_t i = 0; i < PL_COUNT(others); i++) touch(others[i]);
    touch("checkpoint-0.safetensors");
    touch("checkpoint-9.safetensors");
    touch("checkpoint-10.safetensors");
    touch("checkpoint-2.safetensors");
    assert_int_equal(pl_checkpoint_newest(&newest, folder, &err), PL_OK);
    assert_string_equal(strrchr(newest, '/'), "/checkpoint-10.safetensors");
    assert_memory_equal(newest, folder, strlen(folder));
    free(newest);
    assert_int_equal(pl_checkpoint_prune(folder, 0, &err), PL_OK);
    assert_int_equal(pl_checkpoint_prune(folder, 4, &err), PL_OK);
    assert_true(is_there("checkpoint-0.safetensors") && is_there("checkpoint-2.safetensors"));
    assert_int_equal(pl_checkpoint_prune(folder, 2, &err), PL_OK);
    assert_false(is_there("checkpoint-0.safetensors"));
    assert_false(is_there("checkpoint-2.safetensors"));
    assert_true(is_there("checkpoint-9.safetensors") && is_there("checkpoint-10.safetensors"));
    for (size_t i = 0; i < PL_COUNT(others); i++) {
        char *at = pl_path_join(folder, others[i]);
        assert_int_equal(unlink(at), 0);
        free(at);
    }
    assert_int_equal(pl_checkpoint_prune(folder, 1, &err), PL_OK);
    assert_int_equal(pl_checkpoint_newest(&newest, folder, &err), PL_OK);
    assert_int_equal(unlink(newest), 0);
    free(newest);
    assert_int_equal(pl_checkpoint_newest(&newest, "/no/such/folder", &err), PL_EIO);
    assert_null(newest);
    assert_int_equal(pl_checkpoint_prune("/no/such/folder", 1, &err), PL_EIO);
}

static int setup(void **state)
{
    pl_backend_ref(&be);
    if (!mkdtemp(folder) || pl_gpt2_init(&m, &small, &be, 1)) return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return pl_gpt2_reset(&m, 1);
}

static int teardown(void **state)
{
    pl_gpt2_clear(&m);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_rounds),        cmocka_unit_test(the_optimizer_comes_back),
        cmocka_unit_test(transposed_matrices),    cmocka_unit_test(shapes_and_values),
        cmocka_unit_test(the_newest_of_a_folder),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
