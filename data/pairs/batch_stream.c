/* batch_stream.c - reads batches ahead in a thread of its own. A ring of batches between two
 * threads: the reader fills slot `head`, the user holds slot `tail`. Each slot carries the stream's
 * position after its batch, so a checkpoint does not depend on what was read ahead. */
#include "batch_stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slot {
    int32_t *tokens, *codes;
    struct pairs_position behind; /* where the next batch begins */
    int rc;                       /* not PL_OK: why there is no batch */
};

struct stream {
    struct pairs *pairs;
    struct pairs_options options;
    int batch, slots;
    struct slot *slot;
    struct pairs_position start; /* before the first batch */
    struct pl_err err;           /* the message for a slot's rc */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int running, stop;
    /* batches filled and batches given; they differ by at most slots - 1, because the user still
     * holds the last one given */
    uint64_t head, tail;
};

static void fill(struct stream *s, struct slot *slot)
{
    size_t text = (size_t)s->options.text, cells = (size_t)s->options.cells;
    slot->rc = PL_OK;
    for (int i = 0; !slot->rc && i < s->batch; i++)
        slot->rc = pl_pairs_next(s->pairs, slot->tokens + (size_t)i * text,
                                 slot->codes + (size_t)i * cells, &s->err);
    if (!slot->rc && pl_pairs_position(s->pairs, &slot->behind))
        slot->rc = pl_fail(&s->err, PL_ENOMEM, "no memory to note the data's position");
}

static void *read_ahead(void *argument)
{
    struct stream *s = argument;
    int rc = PL_OK;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && !rc) {
        struct slot *slot = &s->slot[s->head % (uint64_t)s->slots];
        if (s->head - s->tail + 1 >= (uint64_t)s->slots) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        fill(s, slot);
        rc = slot->rc;
        pthread_mutex_lock(&s->lock);
        s->head++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int pl_batch_stream_open(struct stream **out, const struct pairs_options *options, int batch,
                         int ahead, struct pl_err *err)
{
    struct stream *s = NULL;
    int rc;
    *out = NULL;
    if (!ahead) ahead = STREAM_AHEAD;
    if (batch < 1 || ahead < 1 || ahead > STREAM_AHEAD_MAX)
        return pl_fail(err, PL_EUSE, "batches of %d, %d ahead: not usable", batch, ahead);
    if (!(s = calloc(1, sizeof *s)))
        return pl_fail(err, PL_ENOMEM, "no memory for the data stream");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->options = *options;
    s->batch = batch;
    s->slots = ahead + 1;
    rc = pl_pairs_open(&s->pairs, options, err);
    if (rc) goto fail;
    rc = PL_ENOMEM;
    s->slot = calloc((size_t)s->slots, sizeof *s->slot);
    for (int i = 0; s->slot && i < s->slots; i++) {
        s->slot[i].tokens = pl_alloc((size_t)batch, sizeof(int32_t) * (size_t)options->text);
        s->slot[i].codes = pl_alloc((size_t)batch, sizeof(int32_t) * (size_t)options->cells);
        if (!s->slot[i].tokens || !s->slot[i].codes) goto no_memory;
    }
    if (!s->slot || pl_pairs_position(s->pairs, &s->start)) goto no_memory;
    *out = s;
    return PL_OK;
no_memory:
    pl_fail(err, rc, "no memory for %d batches of %d pairs", s->slots, batch);
fail:
    pl_batch_stream_close(s);
    return rc;
}

int pl_batch_stream_restore(struct stream *s, const char *position, struct pl_err *err)
{
    int rc;
    if (s->running) return pl_fail(err, PL_EUSE, "the data stream has begun already");
    rc = pl_pairs_restore(s->pairs, position, err);
    if (!rc && pl_pairs_position(s->pairs, &s->start)) rc = pl_fail(err, PL_ENOMEM, "no memory");
    return rc;
}

int pl_batch_stream_next(struct stream *s, struct stream_batch *batch, struct pl_err *err)
{
    const struct slot *slot;
    memset(batch, 0, sizeof *batch);
    if (!s->running) {
        if (pthread_create(&s->thread, NULL, read_ahead, s))
            return pl_fail(err, PL_ENOMEM, "cannot start a thread to read data");
        s->running = 1;
    }
    pthread_mutex_lock(&s->lock);
    while (s->head == s->tail) pthread_cond_wait(&s->changed, &s->lock);
    slot = &s->slot[s->tail % (uint64_t)s->slots];
    if (!slot->rc) {
        s->tail++; /* the previous slot is free again */
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    if (slot->rc) return pl_fail(err, slot->rc, "%s", s->err.text); /* the reader has stopped */
    *batch = (struct stream_batch){ s->batch, slot->tokens, slot->codes, slot->behind.given,
                                    slot->behind.epoch };
    return PL_OK;
}

/* Only the user's thread changes `tail`, and the reader does not touch the slot before it. */
static const struct pairs_position *position(const struct stream *s)
{
    return s->tail ? &s->slot[(s->tail - 1) % (uint64_t)s->slots].behind : &s->start;
}

char *pl_batch_stream_position(struct stream *s) { return pl_pairs_save(s->pairs, position(s)); }

const char *pl_batch_stream_codec(const struct stream *s) { return pl_pairs_codec(s->pairs); }

int pl_batch_stream_counts(const struct stream *s, struct pairs_counts *counts)
{
    const struct pairs_position *p = position(s);
    int whole = p->epoch > 0;
    *counts = whole ? p->last : p->now;
    return whole;
}

void pl_batch_stream_counts_text(char *text, size_t capacity, const struct pairs_counts *c)
{
    snprintf(text, capacity,
             "%llu pairs read: %llu used; dropped: %llu captions under %d characters, "
             "%llu not marked UNLIKELY, %llu sides over 1:%d, %llu without code, %llu held out",
             (unsigned long long)c->rows, (unsigned long long)c->used,
             (unsigned long long)c->caption, PAIRS_CAPTION_CHARACTERS, (unsigned long long)c->nsfw,
             (unsigned long long)c->aspect, PAIRS_ASPECT_MAX, (unsigned long long)c->no_code,
             (unsigned long long)c->held_out);
}

void pl_batch_stream_close(struct stream *s)
{
    if (!s) return;
    if (s->running) {
        pthread_mutex_lock(&s->lock);
        s->stop = 1;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (int i = 0; s->slot && i < s->slots; i++) {
        pl_free(s->slot[i].tokens);
        pl_free(s->slot[i].codes);
        pl_pairs_position_clear(&s->slot[i].behind);
    }
    free(s->slot);
    pl_pairs_position_clear(&s->start);
    pl_pairs_close(s->pairs);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
