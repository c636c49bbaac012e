/* generate.c - image tokens one after the other, a batch of pictures at a time. [TTT 3.4] */
#include "generate.h"

#include <string.h>

/* One batch under way. With guidance its sequences stand twice: with their captions, then
 * without. */
struct drawing {
    struct pl_dalle *m;
    const struct pl_generate_options *options;
    struct pl_kv_cache *cache; /* NULL: uncached */
    int images, rows;          /* rows = images, or twice that */
    int guided;
    int32_t *text;      /* (rows,T) */
    int32_t *prefix;    /* uncached: (rows,i) tokens so far; else (rows) the last ones */
    float *logits;      /* (rows,Vi) */
    struct pl_rng *rng; /* (images) */
};

struct pl_generate_options pl_generate_options(void)
{
    return (struct pl_generate_options){
        .sampling = { .top_k = 0, .top_p = 1, .temperature = 1 },
        .guidance = 1,
        .batch = 16,
    };
}

static int cells(const struct drawing *d) { return d->m->config.F * d->m->config.F; }

static int open_drawing(struct drawing *d, struct pl_dalle *m, int batch,
                        const struct pl_generate_options *o, struct pl_err *err)
{
    size_t images = (size_t)batch, rows;
    int guided = o->guidance != 1;
    *d = (struct drawing){ .m = m, .options = o, .guided = guided };
    rows = images << guided;
    d->text = pl_alloc(rows * (size_t)m->config.T, sizeof *d->text);
    d->prefix = pl_alloc(rows * (size_t)cells(d), sizeof *d->prefix);
    d->logits = pl_alloc(rows * (size_t)m->config.Vi, sizeof *d->logits);
    d->rng = pl_alloc(images, sizeof *d->rng);
    if (!d->text || !d->prefix || !d->logits || !d->rng)
        return pl_fail(err, PL_ENOMEM, "drawing %d images at a time: out of memory", batch);
    return o->uncached ? PL_OK : pl_kv_cache_open(&d->cache, m, (int)rows, err);
}

static void close_drawing(struct drawing *d)
{
    pl_kv_cache_close(d->cache);
    pl_free(d->text);
    pl_free(d->prefix);
    pl_free(d->logits);
    pl_free(d->rng);
}

/* Without a caption: all ids 0, which the model turns into the padding ids [spec dalle 11]. */
static void start(struct drawing *d, const int32_t *text, int images, uint64_t first)
{
    size_t T = (size_t)d->m->config.T;
    d->images = images;
    d->rows = images << d->guided;
    memcpy(d->text, text, (size_t)images * T * sizeof *text);
    if (d->guided) memset(d->text + (size_t)images * T, 0, (size_t)images * T * sizeof *text);
    for (int i = 0; i < images; i++) pl_rng_init(&d->rng[i], d->options->seed, first + (uint64_t)i);
}

/* Logits of code i from those before it, codes (images,I). */
static int predict(struct drawing *d, const int32_t *codes, int i, struct pl_err *err)
{
    size_t I = (size_t)cells(d), n = d->cache ? (i > 0) : (size_t)i; /* codes handed on, a row */
    for (int row = 0; row < d->rows; row++)
        memcpy(d->prefix + (size_t)row * n, codes + (size_t)(row % d->images) * I + ((size_t)i - n),
               n * sizeof *codes);
    if (!d->cache) return pl_dalle_next(d->m, d->logits, d->text, d->prefix, i, d->rows, err);
    if (i == 0) return pl_kv_cache_begin(d->cache, d->logits, d->text, d->rows, err);
    return pl_kv_cache_step(d->cache, d->logits, d->prefix, err);
}

/* Code i of every image. */
static int choose(struct drawing *d, int32_t *codes, int i, struct pl_err *err)
{
    const struct pl_generate_options *o = d->options;
    int Vi = d->m->config.Vi, rc = PL_OK;
    if (d->guided)
        pl_sample_guide(d->logits, d->logits, d->logits + (size_t)d->images * (size_t)Vi,
                        (size_t)d->images * (size_t)Vi, o->guidance);
    for (int image = 0; image < d->images && rc == PL_OK; image++) {
        const float *z = d->logits + (size_t)image * (size_t)Vi;
        int id = 0;
        if (o->greedy) id = pl_sample_greedy(z, Vi);
        else rc = pl_sample(&id, z, Vi, &o->sampling, &d->rng[image]);
        codes[(size_t)image * (size_t)cells(d) + (size_t)i] = id;
    }
    return rc ? pl_fail(err, rc, "sampling: %s", pl_status_name(rc)) : PL_OK;
}

static int check(const struct pl_generate_options *o, struct pl_err *err)
{
    const struct pl_sampling *s = &o->sampling;
    if (o->batch < 1 || o->batch > 1 << 16)
        return pl_fail(err, PL_EUSE, "%d images at a time, expected 1 to 65536", o->batch);
    if (!(o->guidance >= -1e6 && o->guidance <= 1e6))
        return pl_fail(err, PL_EUSE, "guidance is %g, expected a number of at most 1e6",
                       o->guidance);
    if (s->top_k < 0 || !(s->top_p >= 0 && s->top_p <= 1) ||
        !(s->temperature > 0 && s->temperature <= 1e6))
        return pl_fail(err, PL_EUSE,
                       "top-k %d, top-p %g, temperature %g: expected at least 0, 0 to 1, above 0",
                       s->top_k, s->top_p, s->temperature);
    return PL_OK;
}

int pl_generate(struct pl_dalle *m, int32_t *codes, const int32_t *text, int n,
                const struct pl_generate_options *o, struct pl_err *err)
{
    int I = m->config.F * m->config.F, T = m->config.T, rc = check(o, err);
    struct drawing d;
    if (rc || n == 0) return rc;
    rc = open_drawing(&d, m, o->batch < n ? o->batch : n, o, err);
    for (int at = 0; at < n && rc == PL_OK; at += d.images) {
        int32_t *own = codes + (size_t)at * (size_t)I;
        start(&d, text + (size_t)at * (size_t)T, n - at < o->batch ? n - at : o->batch,
              o->first_image + (uint64_t)at);
        for (int i = 0; i < I && rc == PL_OK; i++) {
            int64_t done = (int64_t)at * I + (int64_t)d.images * (i + 1);
            rc = predict(&d, own, i, err);
            if (rc == PL_OK) rc = choose(&d, own, i, err);
            if (rc == PL_OK && o->progress && o->progress(o->context, done, (int64_t)n * I))
                rc = pl_fail(err, PL_EAGAIN, "drawing was stopped");
        }
    }
    close_drawing(&d);
    return rc;
}
