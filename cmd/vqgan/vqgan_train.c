/* vqgan_train.c - `potluck vqgan train`: a small codec from nothing, or on from given weights. */
#include "vqgan.h"
#include "cmd/common/interrupt.h"
#include "cmd/common/plural.h"
#include "data/models/vqgan_file.h"
#include "../../runtime/models.h"

#include <stdio.h>
#include <string.h>

#define SAVE_EVERY_S 120

static int read_config(struct pl_vqgan_config *config, const char *name, struct pl_err *err)
{
    return strpbrk(name, "./") ? pl_vqgan_config_read(config, name, err)
                               : pl_vqgan_named(config, name, err);
}

/* 0, or 1 after a line. */
static int start_model(struct pl_vqgan *m, const struct vqgan_options *o,
                       const struct pl_backend *be)
{
    struct pl_vqgan_config config;
    struct pl_err err;
    int rc = o->init ? pl_vqgan_open(m, o->init, be, 1, &err)
                     : read_config(&config, o->config, &err);
    if (!rc && !o->init) {
        rc = pl_vqgan_init(m, &config, be, 1);
        if (!rc && (rc = pl_vqgan_reset(m, (uint64_t)o->seed))) pl_vqgan_clear(m);
        if (rc) pl_fail(&err, rc, "%s: %s for the model", o->config, pl_status_name(rc));
    }
    if (!rc) return 0;
    compute_explain(&err, rc, be, 0, NULL);
    return vqgan_fail(&err);
}

/* One line every few seconds, means over what it covers. */
struct progress {
    double start, last;
    struct pl_vqgan_loss sum;
    int64_t steps, began; /* steps since the last line; step at the start */
};

static void show_progress(struct progress *p, int64_t step, const struct vqgan_options *o,
                          const struct pl_vqgan_loss *loss)
{
    double now = pl_seconds(), n;
    p->sum.l1 += loss->l1;
    p->sum.l2 += loss->l2;
    p->sum.quantizer += loss->quantizer;
    p->steps++;
    if (now - p->last < 10 && step < o->steps) return;
    n = (double)p->steps;
    printf("step %lld of %lld  L1 %.4f  PSNR %.2f dB  quantizer %.4f  %.1f pictures/s  %.0f s "
           "left\n",
           (long long)step, (long long)o->steps, p->sum.l1 / n, vqgan_psnr(p->sum.l2 / n / 4),
           p->sum.quantizer / n, n * (double)o->batch / (now - p->last),
           (now - p->start) / (double)(step - p->began) * (double)(o->steps - step));
    fflush(stdout);
    *p = (struct progress){ .start = p->start, .last = now, .began = p->began };
}

/* Saves the codec as it is, for users who want to look at it, and the training. */
static int save(const struct pl_vqgan *m, struct pl_vqgan_fit *f, const struct vqgan_options *o,
                const struct pl_pictures *p, struct pl_err *err)
{
    const int rc = pl_vqgan_save(m, o->out, !o->float32, err);
    return rc ? rc : vqgan_resume_save(m, f, o, p, err);
}

static int train_on(struct pl_vqgan *m, const struct vqgan_options *o, const struct pl_pictures *p)
{
    struct pl_vqgan_fit_options options = pl_vqgan_fit_defaults(o->steps);
    struct progress progress = { .start = pl_seconds() };
    struct pl_vqgan_loss loss;
    struct pl_vqgan_fit *f;
    struct pl_err err;
    double saved = pl_seconds();
    int rc, unsaved = 0;
    options.batch = (int)o->batch;
    options.lr = o->lr;
    options.seed = (uint64_t)o->seed;
    if (o->init) options.free_part = 0;
    rc = pl_vqgan_fit_open(&f, m, &options, p->pixels, p->count, p->side, &err);
    if (rc) {
        compute_explain(&err, rc, m->params.be, 0, NULL);
        return vqgan_fail(&err);
    }
    if (o->resume && vqgan_resume_load(m, f, o, p, &err)) {
        pl_vqgan_fit_close(f);
        return vqgan_fail(&err);
    }
    printf("%zu parameters, %zu picture%s of %dx%d\n", m->params.trainable, p->count,
           PLURAL(p->count), p->side, p->side);
    if (o->resume)
        printf("continues after step %lld of %lld\n", (long long)pl_vqgan_fit_steps(f),
               (long long)o->steps);
    fflush(stdout);
    progress.last = progress.start;
    progress.began = pl_vqgan_fit_steps(f);
    interrupt_catch(NULL);
    rc = PL_OK;
    while (!rc && !interrupted() && pl_vqgan_fit_steps(f) < o->steps) {
        rc = pl_vqgan_fit_step(f, &loss);
        if (rc) break;
        show_progress(&progress, pl_vqgan_fit_steps(f), o, &loss);
        /* a machine that dies costs minutes, not the run */
        if (pl_seconds() - saved > SAVE_EVERY_S) {
            if ((unsaved = save(m, f, o, p, &err))) break;
            saved = pl_seconds();
        }
    }
    if (rc == PL_ELIMIT)
        command_failed("vqgan", "step %lld: the loss is not finite; a smaller --lr may help",
                       (long long)pl_vqgan_fit_steps(f));
    else if (rc) vqgan_fail_status("training", rc, m->params.be, o->batch);
    else if (unsaved || pl_vqgan_save(m, o->out, !o->float32, &err)) rc = vqgan_fail(&err);
    else if (pl_vqgan_fit_steps(f) < o->steps && vqgan_resume_save(m, f, o, p, &err))
        rc = vqgan_fail(&err);
    else if (pl_vqgan_fit_steps(f) < o->steps)
        printf("stopped at step %lld of %lld; everything is saved, continue with --resume\n",
               (long long)pl_vqgan_fit_steps(f), (long long)o->steps);
    else {
        vqgan_resume_remove(o);
        printf("%s after %lld steps, %.0f s\n", o->out, (long long)pl_vqgan_fit_steps(f),
               pl_seconds() - progress.start);
    }
    pl_vqgan_fit_close(f);
    return rc;
}

int vqgan_train(struct vqgan_options *o)
{
    struct pl_backend be;
    struct pl_vqgan m;
    struct pl_pictures p = { 0 };
    struct pl_err err;
    int rc = vqgan_backend(&be, o);
    if (rc) return rc;
    if (start_model(&m, o, &be)) return 1;
    if (pl_pictures_read(&p, o->data, vqgan_side(o, &m.config), &err)) rc = vqgan_fail(&err);
    else rc = train_on(&m, o, &p);
    pl_vqgan_clear(&m);
    /* reopened as a reader of the file will see it: float16 is part of the codec */
    if (!rc && !(rc = vqgan_open(&m, o->out, &be))) {
        rc = vqgan_report(&m, &p, o->sheet);
        pl_vqgan_clear(&m);
    }
    pl_pictures_clear(&p);
    return rc != 0;
}
