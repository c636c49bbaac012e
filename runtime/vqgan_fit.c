/* vqgan_fit.c - a small codec, trained in three phases: without a table, with one from k-means, and
 * with unused rows of it moved. */
#include "vqgan_fit.h"
#include "../ref/kmeans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP 100 /* steps */
#define SAMPLE 512  /* pictures whose maps make or mend the table */
#define ROUNDS 12   /* of k-means */

struct pl_vqgan_fit {
    struct pl_vqgan *m;
    struct pl_vqgan_fit_options options;
    const uint8_t *pictures;
    size_t count, next; /* pictures; place in `order` */
    int side;
    struct pl_optimizer *optimizer;
    struct pl_rng rng;
    size_t *order;
    uint64_t *uses; /* of each code since the last moment of mending */
    float *x, *noise;
    int32_t *code;
    size_t places; /* codes a picture */
    int64_t step;
};

struct pl_vqgan_fit_options pl_vqgan_fit_defaults(int64_t steps)
{
    return (struct pl_vqgan_fit_options){
        .task = { .l1 = 1, .l2 = 2, .quantizer = 1, .beta = 0.25f, .temperature = 1 },
        .steps = steps,
        .batch = 8,
        .lr = 1e-3,
        .free_part = 0.1,
        .reseeds = 3,
        .temperature = { .start = 1, .max = 1, .min = 0.1, .decay = steps },
    };
}

void pl_pixels_in(float *x, const uint8_t *pixels, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)pixels[i] / 127.5f - 1;
}

void pl_pixels_out(uint8_t *pixels, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v = (x[i] + 1) * 127.5f + 0.5f;
        pixels[i] = v >= 255 ? 255 : v > 0 ? (uint8_t)v : 0; /* NaN: 0 */
    }
}

void pl_vqgan_fit_close(struct pl_vqgan_fit *f)
{
    if (!f) return;
    pl_optimizer_close(f->optimizer);
    pl_free(f->order);
    pl_free(f->uses);
    pl_free(f->x);
    pl_free(f->noise);
    pl_free(f->code);
    free(f);
}

int pl_vqgan_fit_open(struct pl_vqgan_fit **out, struct pl_vqgan *m,
                      const struct pl_vqgan_fit_options *options, const uint8_t *pictures,
                      size_t count, int side, struct pl_err *err)
{
    struct pl_optimizer_options adam = pl_adam_options(0, 32);
    int factor = pl_vqgan_factor(&m->config), rc;
    struct pl_vqgan_fit *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f) return pl_fail(err, PL_ENOMEM, "no memory to train in");
    f->m = m;
    f->options = *options;
    f->pictures = pictures;
    f->count = count;
    f->side = side;
    if (count < 1 || options->batch < 1 || (size_t)options->batch > count || side % factor) {
        free(f);
        return pl_fail(err, PL_EUSE,
                       "%zu pictures of side %d in batches of %d: expected at least a "
                       "batch, and a side that is a multiple of %d",
                       count, side, options->batch, factor);
    }
    f->next = count;
    f->places = (size_t)(side / factor) * (size_t)(side / factor);
    pl_rng_init(&f->rng, options->seed, 1);
    f->order = pl_alloc(count, sizeof *f->order);
    f->uses = pl_alloc((size_t)m->config.n_embed, sizeof *f->uses);
    f->x = pl_alloc((size_t)options->batch * 3 * (size_t)side * (size_t)side, sizeof *f->x);
    f->code = pl_alloc((size_t)options->batch * f->places, sizeof *f->code);
    if (m->config.gumbel)
        f->noise = pl_alloc((size_t)options->batch * f->places * (size_t)m->config.n_embed,
                            sizeof *f->noise);
    adam.beta2 = 0.99; /* short runs: squares must not remember the first steps */
    rc = pl_optimizer_open_params(&f->optimizer, &m->params, &adam, err);
    if (!rc && (!f->order || !f->uses || !f->x || !f->code || (m->config.gumbel && !f->noise)))
        rc = pl_fail(err, PL_ENOMEM, "no memory to train in");
    if (rc) {
        pl_vqgan_fit_close(f);
        return rc;
    }
    for (size_t i = 0; i < count; i++) f->order[i] = i;
    *out = f;
    return PL_OK;
}

int64_t pl_vqgan_fit_steps(const struct pl_vqgan_fit *f) { return f->step; }

static size_t draw(struct pl_vqgan_fit *f)
{
    if (f->next == f->count) {
        for (size_t i = f->count - 1; i > 0; i--) {
            size_t k = (size_t)pl_rng_below(&f->rng, i + 1), other = f->order[k];
            f->order[k] = f->order[i];
            f->order[i] = other;
        }
        f->next = 0;
    }
    return f->order[f->next++];
}

static void fill_batch(struct pl_vqgan_fit *f)
{
    size_t n = 3 * (size_t)f->side * (size_t)f->side;
    for (int b = 0; b < f->options.batch; b++)
        pl_pixels_in(f->x + (size_t)b * n, f->pictures + draw(f) * n, n);
}

/* Points (count,D): the encoder's maps of a sample of pictures, place by place. */
static int sample(struct pl_vqgan_fit *f, float **points, size_t *count)
{
    size_t D = (size_t)f->m->config.embed_dim, B = (size_t)f->options.batch, P = f->places;
    size_t batches = ((f->count < SAMPLE ? f->count : SAMPLE) + B - 1) / B;
    float *z = pl_alloc(B * D * P, sizeof *z), *to = pl_alloc(batches * B * P * D, sizeof *to);
    int rc = z && to ? PL_OK : PL_ENOMEM;
    *points = to;
    *count = batches * B * P;
    for (size_t i = 0; !rc && i < batches; i++) {
        fill_batch(f);
        rc = pl_vqgan_encode(f->m, f->code, z, f->x, NULL, (int)B, f->side, f->side);
        for (size_t b = 0; !rc && b < B; b++)
            for (size_t p = 0; p < P; p++)
                for (size_t d = 0; d < D; d++) *to++ = z[(b * D + d) * P + p];
    }
    pl_free(z);
    if (rc) {
        pl_free(*points);
        *points = NULL;
    }
    return rc;
}

/* A new table (first), or new values for its unused rows. */
static int fix_table(struct pl_vqgan_fit *f, int first)
{
    int K = f->m->config.n_embed, D = f->m->config.embed_dim, any = first;
    float *points = NULL, *table = pl_alloc((size_t)K * (size_t)D, sizeof *table);
    uint8_t *idle = pl_alloc((size_t)K, 1);
    size_t count = 0;
    int rc = table && idle ? PL_OK : PL_ENOMEM;
    for (int k = 0; !rc && k < K; k++) any |= idle[k] = f->uses[k] == 0;
    if (!rc && any) rc = sample(f, &points, &count);
    if (!rc && any && !first) rc = pl_params_get(&f->m->params, f->m->table, table);
    if (!rc && any)
        rc = first ? pl_kmeans(table, K, points, count, D, ROUNDS, &f->rng)
                   : pl_reseed(table, idle, K, points, count, D);
    if (!rc && any) rc = pl_params_put(&f->m->params, f->m->table, table);
    memset(f->uses, 0, (size_t)K * sizeof *f->uses);
    pl_free(points);
    pl_free(table);
    pl_free(idle);
    return rc;
}

/* The work that the order of events prescribes before this step. */
static int prepare(struct pl_vqgan_fit *f, int *no_codes)
{
    const struct pl_vqgan_fit_options *o = &f->options;
    int64_t free_steps = (int64_t)((double)o->steps * o->free_part);
    int64_t interval = o->reseeds ? (o->steps - free_steps) / 2 / o->reseeds : 0;
    *no_codes = 0;
    if (f->m->config.gumbel) {
        f->options.task.temperature = (float)pl_temperature_at(&o->temperature, f->step);
        for (size_t i = 0; i < (size_t)o->batch * f->places * (size_t)f->m->config.n_embed; i++)
            f->noise[i] = (float)-log(-log(pl_rng_uniform(&f->rng) + 0x1p-54));
        return PL_OK;
    }
    *no_codes = f->step < free_steps;
    if (f->step == free_steps) return fix_table(f, 1);
    if (f->step > free_steps && interval > 0 && (f->step - free_steps) % interval == 0 &&
        (f->step - free_steps) / interval <= o->reseeds)
        return fix_table(f, 0);
    return PL_OK;
}

static double rate(const struct pl_vqgan_fit *f)
{
    double done = (double)f->step / (double)f->options.steps;
    double warm = fmin(1, (double)(f->step + 1) / WARM_UP);
    return f->options.lr * warm * (0.02 + 0.98 * (1 + cos(acos(-1) * fmin(1, done))) / 2);
}

int pl_vqgan_fit_step(struct pl_vqgan_fit *f, struct pl_vqgan_loss *loss)
{
    const struct pl_params *p = &f->m->params;
    double norm = 0;
    int no_codes, rc = prepare(f, &no_codes);
    if (!rc) rc = p->be->fill(p->grad, 0, p->total);
    if (rc) return rc;
    f->options.task.no_codes = no_codes;
    fill_batch(f);
    rc = pl_vqgan_gradient(f->m, loss, NULL, f->code, &f->options.task, f->x, f->noise,
                           f->options.batch, f->side, f->side);
    if (!rc) rc = p->be->sumsq(&norm, p->grad, p->total);
    if (!rc && !(isfinite(loss->total) && isfinite(norm))) rc = PL_ELIMIT;
    if (!rc) rc = pl_optimizer_step(f->optimizer, p->value, p->grad, rate(f));
    if (rc) return rc;
    for (size_t i = 0; !no_codes && i < (size_t)f->options.batch * f->places; i++)
        f->uses[f->code[i]]++;
    f->step++;
    return PL_OK;
}

/* --- stopped, and gone on --------------------------------------------------------------- */

struct pl_optimizer *pl_vqgan_fit_optimizer(struct pl_vqgan_fit *f) { return f->optimizer; }

struct pl_vqgan_fit_place pl_vqgan_fit_place(const struct pl_vqgan_fit *f)
{
    return (struct pl_vqgan_fit_place){ f->step, f->rng, f->next, f->order, f->uses };
}

int pl_vqgan_fit_set_place(struct pl_vqgan_fit *f, const struct pl_vqgan_fit_place *at)
{
    uint8_t *seen = pl_alloc(f->count, 1);
    int rc = seen ? PL_OK : PL_ENOMEM;
    if (!rc && (at->step < 0 || at->step > f->options.steps || at->next > f->count))
        rc = PL_EFORMAT;
    for (size_t i = 0; !rc && i < f->count; i++)
        if (at->order[i] >= f->count || seen[at->order[i]]++) rc = PL_EFORMAT;
    pl_free(seen);
    if (rc) return rc;
    f->step = at->step;
    f->rng = at->rng;
    f->next = at->next;
    memcpy(f->order, at->order, f->count * sizeof *f->order);
    memcpy(f->uses, at->uses, (size_t)f->m->config.n_embed * sizeof *f->uses);
    return PL_OK;
}
