/* pairs_shards.c - several threads open shards at a time, and the results are taken in the order of
 * the list. */
#include "data/pairs/pairs_internal.h"
#include "test/unit/unit.h"

#include <pthread.h>

enum { OPENERS = 4, SHARDS = 60, TEXT = 8, CELLS = 64 };

static const char shard_file[] = "data/demo/emoji-00000.parquet";

/* Which opener is busy, and the events. */
static struct opening {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int busy[OPENERS];
    int here; /* openers that have begun */
    int opened, is_overlapped;
    int bad; /* this shard and those after it cannot be opened; -1: none */
} opening;

/* The first calls wait for each other: none continues unless all openers run at the same time. */
static int open_at_once(void *context, int opener, struct pl_source **source, const char *name,
                        struct pl_err *err)
{
    struct opening *o = context;
    int index = atoi(name);
    pthread_mutex_lock(&o->lock);
    if (o->busy[opener]++) o->is_overlapped = 1;
    if (o->here < OPENERS) {
        o->here++;
        pthread_cond_broadcast(&o->changed);
        while (o->here < OPENERS) pthread_cond_wait(&o->changed, &o->lock);
    }
    o->opened++;
    o->busy[opener]--;
    pthread_mutex_unlock(&o->lock);
    if (o->bad >= 0 && index >= o->bad)
        return pl_fail(err, PL_EIO, "shard %d cannot be opened", index);
    return pl_source_file(source, shard_file, err);
}

static char names[SHARDS][8];
static const char *list[SHARDS];
static struct unigram *tokenizer;

static int setup(void **state)
{
    struct pl_err err;
    for (int i = 0; i < SHARDS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        list[i] = names[i];
    }
    return pl_unigram_open(&tokenizer, "test/golden/tokenizer/t5_2k/spiece.model", &err);
}

static int teardown(void **state)
{
    pl_unigram_close(tokenizer);
    return 0;
}

static struct pairs_options options_with(int openers, int bad)
{
    opening = (struct opening){ .lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER,
                                .bad = bad };
    return (struct pairs_options){ .path = list,
                                   .paths = SHARDS,
                                   .tokenizer = tokenizer,
                                   .text = TEXT,
                                   .pad = 1,
                                   .cells = CELLS,
                                   .codes = 8192,
                                   .buffer = 16,
                                   .open = open_at_once,
                                   .open_context = &opening,
                                   .openers = openers };
}

static void several_openers_count_every_shard(void **state)
{
    struct pairs_options o = options_with(OPENERS, -1);
    struct pl_err err;
    struct pairs *p;
    assert_int_equal(pl_pairs_open(&p, &o, &err), PL_OK);
    assert_int_equal(opening.opened, SHARDS);
    assert_false(opening.is_overlapped);
    assert_true(p->rows[0] > 0);
    for (int i = 0; i < SHARDS; i++) {
        assert_int_equal(p->rows[i], p->rows[0]);
        assert_int_equal(p->first[i], (uint64_t)i * p->rows[0]);
    }
    assert_int_equal(p->total, SHARDS * p->rows[0]);
    assert_true(*pl_pairs_codec(p));
    pl_pairs_close(p);
}

static void the_first_bad_shard_of_the_list_is_named(void **state)
{
    for (int bad = 0; bad < SHARDS; bad += 19) {
        struct pairs_options o = options_with(OPENERS, bad);
        char sentence[64];
        struct pl_err err;
        struct pairs *p;
        snprintf(sentence, sizeof sentence, "shard %d cannot be opened", bad);
        assert_int_equal(pl_pairs_open(&p, &o, &err), PL_EIO);
        assert_null(p);
        assert_string_equal(err.text, sentence);
        assert_true(opening.opened <= bad + OPENERS); /* none is begun after it */
    }
}

static void the_number_of_openers_is_checked(void **state)
{
    static const int wrong[] = { 0, -1, PAIRS_OPENERS_MAX + 1 };
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        struct pairs_options o = options_with(wrong[i], -1);
        struct pl_err err;
        struct pairs *p;
        assert_int_equal(pl_pairs_open(&p, &o, &err), PL_EUSE);
        assert_int_equal(opening.opened, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_openers_count_every_shard),
        cmocka_unit_test(the_first_bad_shard_of_the_list_is_named),
        cmocka_unit_test(the_number_of_openers_is_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
