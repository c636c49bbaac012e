/* pairs_shards.c - opens shards. Each is opened once before the first pair: how many rows it has,
 * and which codec made its image tokens. On a web server that takes a round trip each, or two, so
 * several are opened at a time. */
#include "pairs_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

int pl_pairs_open_shard(struct shard **out, const struct pairs *p, int opener, size_t index,
                        struct pl_err *err)
{
    struct pl_source *source;
    int rc;
    if (!p->o.open) return pl_shard_open(out, p->name[index], err);
    *out = NULL;
    rc = p->o.open(p->o.open_context, opener, &source, p->name[index], err);
    return rc ? rc : pl_shard_open_source(out, source, err);
}

struct count {
    struct pairs *p;
    char (*codec)[SHARD_CODEC_MAX + 1]; /* by shard */
    atomic_size_t next;                 /* shards are taken in order */
    atomic_size_t failed;               /* the first shard that failed: none after it is taken */
    pthread_mutex_t lock;               /* of the next two */
    int rc;
    struct pl_err err; /* of that shard */
};

struct counter {
    struct count *count;
    int opener;
    pthread_t thread;
};

static void *count_shards(void *context)
{
    struct counter *c = context;
    struct count *all = c->count;
    for (;;) {
        size_t i = atomic_fetch_add(&all->next, 1);
        struct pl_err err = { .text = "" };
        struct shard *s;
        int rc;
        if (i >= all->p->o.paths || i > atomic_load(&all->failed)) return NULL;
        rc = pl_pairs_open_shard(&s, all->p, c->opener, i, &err);
        if (!rc) {
            all->p->rows[i] = pl_shard_rows(s);
            rc = pl_shard_codec(all->codec[i], s);
            if (rc) pl_fail(&err, rc, "%s: no memory", all->p->name[i]);
            pl_shard_close(s);
        }
        if (rc) {
            pthread_mutex_lock(&all->lock);
            if (i < atomic_load(&all->failed)) {
                atomic_store(&all->failed, i);
                all->rc = rc;
                all->err = err;
            }
            pthread_mutex_unlock(&all->lock);
            return NULL;
        }
    }
}

/* The calling thread is opener 0. If a thread cannot be started, the others take its share. */
static void count_at_once(struct count *all, int openers)
{
    struct counter counter[PAIRS_OPENERS_MAX];
    int started = 1;
    for (int i = 0; i < openers; i++) counter[i] = (struct counter){ .count = all, .opener = i };
    while (started < openers &&
           !pthread_create(&counter[started].thread, NULL, count_shards, &counter[started]))
        started++;
    count_shards(&counter[0]);
    for (int i = 1; i < started; i++) pthread_join(counter[i].thread, NULL);
}

/* Image tokens of two codecs are two alphabets: a model of both draws with neither. *first: the
 * shard that has named p->codec. */
static int check_codec(struct pairs *p, size_t *first, size_t index, const char *codec,
                       struct pl_err *err)
{
    if (!*codec || !strcmp(p->codec, codec)) return PL_OK;
    if (*p->codec)
        return pl_fail(err, PL_EUSE, "shards of two codecs: %.120s is of codec %s, %.120s of %s",
                       p->name[*first], p->codec, p->name[index], codec);
    strcpy(p->codec, codec);
    *first = index;
    return PL_OK;
}

static int sum_up(struct pairs *p, const struct count *all, struct pl_err *err)
{
    size_t first = 0;
    for (size_t i = 0; i < p->o.paths; i++) {
        int rc = check_codec(p, &first, i, all->codec[i], err);
        if (rc) return rc;
        p->first[i] = p->total;
        p->total += p->rows[i];
    }
    if (p->o.limit >= p->total) p->o.limit = 0;
    if (p->o.limit && p->total > UINT32_MAX) /* pl_pairs_within_limit multiplies the two */
        return pl_fail(err, PL_ELIMIT,
                       "a limit of rows works for at most %lu, the shards hold %llu",
                       (unsigned long)UINT32_MAX, (unsigned long long)p->total);
    return PL_OK;
}

int pl_pairs_count_rows(struct pairs *p, struct pl_err *err)
{
    struct count all = { .p = p, .failed = p->o.paths, .lock = PTHREAD_MUTEX_INITIALIZER };
    int openers = p->o.open ? p->o.openers : 1, rc;
    if (!(all.codec = calloc(p->o.paths, sizeof *all.codec)))
        return pl_fail(err, PL_ENOMEM, "no memory for %zu shards", p->o.paths);
    count_at_once(&all, openers);
    rc = all.rc ? pl_fail(err, all.rc, "%s", all.err.text) : sum_up(p, &all, err);
    free(all.codec);
    return rc;
}
