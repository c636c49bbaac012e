/* optimizer.c - clips the global norm, then calls one operation for each tensor (ref/lamb.c,
 * ref/adam.c or ref/muon.c). The rest is storage: moments in floats or codes, on the device or in
 * host memory, and their names for checkpoints. */
#include "optimizer.h"

#include "offload.h"
#include "../ref/muon.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct slot {
    struct pl_optimizer_tensor tensor;
    struct pl_moments moments;
    struct pl_lamb_norms norms;
    size_t first_state; /* index of its first array in the list of state arrays */
};

struct pl_optimizer {
    const struct pl_backend *be;
    struct pl_optimizer_options options;
    struct slot *slots;
    size_t count, states;
    float *scratch; /* keep_grad: LAMB's update of the largest tensor */
    uint64_t steps;
    const struct pl_backend *home; /* of the moments: the host's table, or be */
    struct pl_offload *offload;    /* NULL: home is be */
    const float *value, *grad;     /* of the last step */
};

struct pl_optimizer_options pl_lamb_options(void)
{
    return (struct pl_optimizer_options){
        .kind = PL_LAMB,
        .beta1 = 0.9,
        .beta2 = 0.96,
        .eps = 1e-6,
        .decay = 0.045,
        .max_grad_norm = 4,
        .clamp = 1e4,
        .min_8bit = 65536,
        .block = 4096,
        .rule = PL_RULE_RUN,
        .chunk = 1 << 24,
    };
}

struct pl_optimizer_options pl_adam_options(double decay, int bits)
{
    return (struct pl_optimizer_options){
        .kind = PL_ADAM,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .decay = decay,
        .bias_correction = 1,
        .min_8bit = bits == 8 ? 4096 : 0,
        .block = 256,
        .rule = PL_RULE_LUT,
    };
}

struct pl_optimizer_options pl_muon_options(double decay)
{
    return (struct pl_optimizer_options){
        .kind = PL_MUON,
        .momentum = 0.95,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-10,
        .decay = decay,
        .bias_correction = 1,
    };
}

/* Is this a matrix that Muon steps, and not a tensor that AdamW does? */
static int is_muons(const struct pl_optimizer_options *o, const struct pl_optimizer_tensor *t)
{
    return o->kind == PL_MUON && t->rows > 0;
}

static int check(const struct pl_optimizer_options *o, const struct pl_optimizer_tensor *tensors,
                 size_t count, struct pl_err *err)
{
    size_t matrices = 0;
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        return pl_fail(err, PL_EUSE, "optimizer: beta1 %g and beta2 %g, expected 0 <= beta < 1",
                       o->beta1, o->beta2);
    if (!(o->eps > 0) || !(o->decay >= 0) || !(o->max_grad_norm >= 0))
        return pl_fail(err, PL_EUSE,
                       "optimizer: eps %g, decay %g, max_grad_norm %g: expected a "
                       "positive eps and no negative",
                       o->eps, o->decay, o->max_grad_norm);
    if (o->kind == PL_LAMB && !(o->clamp > 0))
        return pl_fail(err, PL_EUSE, "optimizer: trust clamp %g, expected a positive one",
                       o->clamp);
    for (size_t i = 0; i < count; i++) matrices += is_muons(o, &tensors[i]);
    if (o->kind == PL_MUON && (!(o->momentum >= 0 && o->momentum < 1) || o->max_grad_norm > 0 ||
                               o->min_8bit || !matrices))
        return pl_fail(err, PL_EUSE,
                       "optimizer: Muon with momentum %g, max_grad_norm %g, %zu matrices of "
                       "blocks%s: expected 0 <= momentum < 1, no clipping, a matrix, and 32 bits",
                       o->momentum, o->max_grad_norm, matrices,
                       o->min_8bit ? ", 8-bit moments" : "");
    if (o->min_8bit && (!o->block || o->chunk % o->block))
        return pl_fail(err, PL_EUSE,
                       "optimizer: chunks of %zu elements in blocks of %zu, expected "
                       "a multiple",
                       o->chunk, o->block);
    return PL_OK;
}

static int allocate(struct pl_optimizer *o, struct slot *s)
{
    const struct pl_backend *be = o->home;
    size_t n = s->tensor.n, block = o->options.block;
    int moments = is_muons(&o->options, &s->tensor) ? 1 : 2;
    int coded = o->options.min_8bit && n >= o->options.min_8bit && n >= block;
    s->moments.block = block;
    s->moments.rule = o->options.rule;
    s->first_state = o->states;
    o->states += coded ? 4 : (size_t)moments;
    for (int k = 0; k < moments; k++) {
        if (coded) {
            s->moments.code[k] = be->alloc(n);
            s->moments.absmax[k] = be->alloc(pl_blocks(n, block) * sizeof(float));
            if (!s->moments.code[k] || !s->moments.absmax[k]) return PL_ENOMEM;
        } else {
            size_t bytes;
            if (pl_size_mul(&bytes, n, sizeof(float))) return PL_ENOMEM;
            s->moments.value[k] = be->alloc(bytes);
            if (!s->moments.value[k]) return PL_ENOMEM;
        }
    }
    return PL_OK;
}

int pl_optimizer_open(struct pl_optimizer **out, const struct pl_backend *be,
                      const struct pl_optimizer_options *options,
                      const struct pl_optimizer_tensor *tensors, size_t count, struct pl_err *err)
{
    const char *what = NULL, *name = "scratch";
    struct pl_optimizer *o;
    size_t largest = 0, done = 0;
    int rc = check(options, tensors, count, err);
    *out = NULL;
    if (rc) return rc;
    o = calloc(1, sizeof *o);
    if (!o) return pl_fail(err, PL_ENOMEM, "optimizer: out of memory");
    o->be = be;
    o->home = options->host ? options->host : be;
    o->options = *options;
    o->slots = calloc(count ? count : 1, sizeof *o->slots);
    if (!o->slots) rc = PL_ENOMEM;
    for (size_t i = 0; i < count && !rc; i++) {
        o->slots[i].tensor = tensors[i];
        o->count = i + 1;
        done = i;
        name = tensors[i].name ? tensors[i].name : "a tensor";
        if (tensors[i].n > largest) largest = tensors[i].n;
        rc = allocate(o, &o->slots[i]);
    }
    if (!rc && options->host) {
        what = "the master copy and two groups of gradients";
        rc = pl_offload_open(&o->offload, be, tensors, count);
    } else if (!rc && options->kind == PL_LAMB && options->keep_grad) {
        what = "the largest tensor's update";
        o->scratch = be->alloc(largest * sizeof *o->scratch);
        if (!o->scratch) rc = PL_ENOMEM;
    }
    if (rc) {
        pl_optimizer_close(o);
        if (what) return pl_fail(err, rc, "optimizer: no memory for %s", what);
        return pl_fail(err, rc,
                       "optimizer: no memory for the moments of %.120s, the %zu. of %zu tensors",
                       name, done + 1, count);
    }
    *out = o;
    return PL_OK;
}

struct pl_optimizer_tensor pl_optimizer_tensor_of(const struct pl_param *p, double decay)
{
    return (struct pl_optimizer_tensor){ .offset = p->offset,
                                         .n = p->n,
                                         .decay = p->decay ? decay : 0,
                                         .name = p->name,
                                         .rows = p->is_block ? (int)p->shape[0] : 0 };
}

int pl_optimizer_open_params(struct pl_optimizer **out, const struct pl_params *params,
                             const struct pl_optimizer_options *options, struct pl_err *err)
{
    struct pl_optimizer_tensor *tensors = calloc(params->count + 1, sizeof *tensors);
    int rc;
    *out = NULL;
    if (!tensors) return pl_fail(err, PL_ENOMEM, "optimizer: out of memory");
    for (size_t i = 0; i < params->count; i++)
        tensors[i] = pl_optimizer_tensor_of(&params->list[i], options->decay);
    rc = pl_optimizer_open(out, params->be, options, tensors, params->count, err);
    free(tensors);
    return rc;
}

void pl_optimizer_close(struct pl_optimizer *o)
{
    if (!o) return;
    for (size_t i = 0; i < o->count; i++)
        for (int k = 0; k < 2; k++) {
            const struct pl_moments *m = &o->slots[i].moments;
            o->home->free(m->value[k]);
            o->home->free(m->code[k]);
            o->home->free(m->absmax[k]);
        }
    o->be->free(o->scratch);
    pl_offload_close(o->offload);
    free(o->slots);
    free(o);
}

int pl_optimizer_grad_norm(const struct pl_optimizer *o, const float *grad, double *norm)
{
    double all = 0, one;
    for (size_t i = 0; i < o->count; i++) {
        const struct pl_optimizer_tensor *t = &o->slots[i].tensor;
        int rc = t->n ? o->be->sumsq(&one, grad + t->offset, t->n) : PL_OK;
        if (rc) return rc;
        if (t->n) all += one;
    }
    *norm = sqrt(all);
    return PL_OK;
}

/* value and grad: this tensor's, in the home's memory. */
static int step_lamb(struct pl_optimizer *o, struct slot *s, float *value, float *grad, double lr,
                     float clip)
{
    const struct pl_optimizer_options *opt = &o->options;
    struct pl_lamb step = { .lr = lr,
                            .beta1 = opt->beta1,
                            .beta2 = opt->beta2,
                            .eps = opt->eps,
                            .decay = s->tensor.decay,
                            .clamp = opt->clamp,
                            .clip = clip,
                            .chunk = opt->chunk };
    double t = (double)o->steps;
    if (opt->bias_correction) step.lr *= sqrt(1 - pow(opt->beta2, t)) / (1 - pow(opt->beta1, t));
    return o->home->lamb(&s->norms, value, o->scratch ? o->scratch : grad, grad, &s->moments,
                         s->tensor.n, &step);
}

static int step_adam(struct pl_optimizer *o, struct slot *s, float *value, const float *grad,
                     double lr, float clip)
{
    const struct pl_optimizer_options *opt = &o->options;
    double t = (double)o->steps;
    struct pl_adam step = { .lr = lr,
                            .beta1 = opt->beta1,
                            .beta2 = opt->beta2,
                            .eps = opt->eps,
                            .decay = s->tensor.decay,
                            .bias1 = 1,
                            .bias2 = 1,
                            .clip = clip };
    if (opt->bias_correction) {
        step.bias1 = 1 - pow(opt->beta1, t);
        step.bias2 = 1 - pow(opt->beta2, t);
    }
    return o->home->adam(value, grad, &s->moments, s->tensor.n, &step);
}

/* W (a,b) -= rate sqrt(max(1, a / b)) O, where O is orthogonal. The root mean square of its entries
 * is 1 / sqrt(max(a, b)), that of the whole step rate / sqrt(b). AdamW's is about 0.2 lr, so with
 *
 *   rate = 0.2 sqrt(b) lr
 *
 * one learning rate fits both. The decay stays lr decay. [Muon is scalable: Liu et al. 2025] */
static int step_muon(struct pl_optimizer *o, struct slot *s, float *value, const float *grad,
                     double lr)
{
    const int a = s->tensor.rows, b = (int)(s->tensor.n / (size_t)a);
    const double scale = 0.2 * sqrt(b);
    const struct pl_muon step = { .lr = lr * scale,
                                  .momentum = o->options.momentum,
                                  .decay = s->tensor.decay / scale };
    return pl_muon_step(value, s->moments.value[0], grad, a, b, &step, o->home);
}

struct stepping {
    struct pl_optimizer *o;
    double lr;
    float clip;
};

static int step_tensor(void *context, size_t tensor, float *value, float *grad)
{
    const struct stepping *w = context;
    struct slot *s = &w->o->slots[tensor];
    if (w->o->options.kind == PL_LAMB) return step_lamb(w->o, s, value, grad, w->lr, w->clip);
    return is_muons(&w->o->options, &s->tensor) ? step_muon(w->o, s, value, grad, w->lr)
                                                : step_adam(w->o, s, value, grad, w->lr, w->clip);
}

int pl_optimizer_step(struct pl_optimizer *o, float *value, float *grad, double lr)
{
    double norm = 0;
    int rc = o->options.max_grad_norm > 0 ? pl_optimizer_grad_norm(o, grad, &norm) : PL_OK;
    return rc ? rc : pl_optimizer_step_normed(o, value, grad, norm, lr);
}

int pl_optimizer_step_normed(struct pl_optimizer *o, float *value, float *grad, double norm,
                             double lr)
{
    struct stepping w = { .o = o, .lr = lr, .clip = 1 };
    int rc;
    if (o->options.max_grad_norm > 0) {
        double k = o->options.max_grad_norm / (norm + 1e-6);
        if (!(k >= 1)) w.clip = (float)k; /* a NaN stays one: nothing is hidden */
    }
    o->steps++;
    if (o->offload) {
        if (o->value != value) pl_offload_stale(o->offload);
        o->value = value;
        o->grad = grad;
        return pl_offload_run(o->offload, value, grad, step_tensor, &w);
    }
    for (size_t i = 0; i < o->count; i++) {
        const struct pl_optimizer_tensor *t = &o->slots[i].tensor;
        if (!t->n) continue;
        rc = step_tensor(&w, i, value + t->offset, grad + t->offset);
        if (rc) return rc;
    }
    return PL_OK;
}

void pl_optimizer_written(struct pl_optimizer *o, const float *p)
{
    if (o->offload && p != o->grad) pl_offload_stale(o->offload);
}

uint64_t pl_optimizer_steps(const struct pl_optimizer *o) { return o->steps; }
void pl_optimizer_set_steps(struct pl_optimizer *o, uint64_t steps) { o->steps = steps; }

struct pl_lamb_norms pl_optimizer_norms(const struct pl_optimizer *o, size_t tensor)
{
    assert(tensor < o->count);
    return o->slots[tensor].norms;
}

size_t pl_optimizer_state_count(const struct pl_optimizer *o) { return o->states; }

static struct slot *find_slot(const struct pl_optimizer *o, size_t index)
{
    size_t low = 0, high = o->count; /* the last slot that begins at or before the index */
    assert(index < o->states);
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (o->slots[middle].first_state <= index) low = middle;
        else high = middle;
    }
    return &o->slots[low];
}

/* The array, and its description. */
static void *state_array(const struct pl_optimizer *o, size_t index,
                         struct pl_optimizer_state *state)
{
    static const char *const names[] = { "absmax1", "absmax2", "state1", "state2" };
    struct slot *s = find_slot(o, index);
    const struct pl_moments *m = &s->moments;
    size_t k = index - s->first_state + (m->value[0] ? 2 : 0);
    *state = (struct pl_optimizer_state){
        .tensor = (size_t)(s - o->slots),
        .name = names[k],
        .n = s->tensor.n,
        .element_size = m->value[0] || k < 2 ? sizeof(float) : 1,
    };
    if (m->value[0]) return m->value[k - 2];
    if (k >= 2) return m->code[k - 2];
    state->n = pl_blocks(s->tensor.n, m->block);
    return m->absmax[k];
}

struct pl_optimizer_state pl_optimizer_state_at(const struct pl_optimizer *o, size_t index)
{
    struct pl_optimizer_state state;
    state_array(o, index, &state);
    return state;
}

int pl_optimizer_state_get(const struct pl_optimizer *o, size_t index, void *host)
{
    struct pl_optimizer_state state;
    const void *device = state_array(o, index, &state);
    return o->home->get(host, device, state.n * state.element_size);
}

int pl_optimizer_state_put(struct pl_optimizer *o, size_t index, const void *host)
{
    struct pl_optimizer_state state;
    void *device = state_array(o, index, &state);
    return o->home->put(device, host, state.n * state.element_size);
}
