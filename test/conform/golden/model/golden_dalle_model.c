/* golden_dalle_model.c - golden files of whole networks: loading them, and the model's losses,
 * logits, gradients and training steps. */
#include "golden_dalle_net.h"
#include "data/models/dalle_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- a network out of a file ------------------------------------------------------------------ */

int net_did(struct net *net, const char *what, int status, const struct pl_err *err)
{
    if (status == PL_OK) return 1;
    golden_fail(net->g, what, "%s", err && err->text[0] ? err->text : pl_status_name(status));
    return 0;
}

float *net_floats(struct net *net, const char *tensor, size_t n)
{
    size_t has;
    float *x = golden_floats(net->g, net->f, tensor, &has);
    if (!x || has == n) return x;
    golden_fail(net->g, tensor, "%zu elements where %zu were expected", has, n);
    pl_free(x);
    return NULL;
}

int32_t *net_ints(struct net *net, const char *tensor, size_t n)
{
    size_t has;
    int32_t *x = golden_ints(net->g, net->f, tensor, &has);
    if (!x || has == n) return x;
    golden_fail(net->g, tensor, "%zu elements where %zu were expected", has, n);
    pl_free(x);
    return NULL;
}

/* The parameter that a tensor of the file holds, or -1 after a line. */
static long param_of(struct net *net, const struct st_tensor *t, const char *name)
{
    long index = pl_dalle_find(net->m, name);
    if (index < 0) golden_fail(net->g, t->name, "the configuration has no such parameter");
    else if (net->m->params.list[index].n != t->n)
        golden_fail(net->g, t->name, "%zu elements where %zu were expected", t->n,
                    net->m->params.list[index].n);
    else return index;
    return -1;
}

static int load_params(struct net *net)
{
    size_t loaded = 0, without_ends = net->m->norm_weight;
    for (size_t i = 0; i < net->f->count; i++) {
        const struct st_tensor *t = &net->f->tensors[i];
        long index;
        float *host;
        int good;
        if (strncmp(t->name, "param.", 6)) continue;
        if ((index = param_of(net, t, t->name + 6)) < 0) return 0;
        if (!(host = net_floats(net, t->name, t->n))) return 0;
        good = net_did(net, t->name, pl_params_put(&net->m->params, (size_t)index, host), NULL);
        pl_free(host);
        if (!good) return 0;
        loaded++;
    }
    if (loaded == net->m->params.count ||
        (loaded == without_ends && !pl_safetensors_find(net->f, "text")))
        return 1;
    golden_fail(net->g, "param.*", "%zu tensors where %zu were expected", loaded,
                net->m->params.count);
    return 0;
}

static int load_angles(struct net *net)
{
    float *table = net_floats(net, "pos_emb",
                              (size_t)(net->S + 1) * (size_t)net->m->stack.blocks.R);
    struct pl_err err = { "" };
    int rc = table ? pl_dalle_set_pos_emb(net->m, table, &err) : PL_EFORMAT;
    pl_free(table);
    return table && net_did(net, "pos_emb", rc, &err);
}

/* Names that DALLE-pytorch's state dict has for one tensor must be one parameter here. */
static int check_aliases(struct net *net)
{
    json_t *alias = golden_meta(net->g, net->f, "alias"), *first;
    const char *name;
    int good = json_is_object(alias);
    json_object_foreach(alias, name, first)
    {
        const char *same = json_string_value(first);
        long index = pl_dalle_find(net->m, name);
        if (same && index >= 0 && index == pl_dalle_find(net->m, same)) continue;
        golden_fail(net->g, "alias", "%s is not %s", name, same ? same : "a name");
        good = 0;
        break;
    }
    json_decref(alias);
    return good;
}

int net_open(struct net *net, struct golden *g, const struct st_file *f)
{
    struct pl_err err;
    *net = (struct net){ .g = g, .f = f, .json = golden_meta(g, f, "config") };
    if (!net->json) return 0;
    if (!net_did(net, "config",
                 pl_dalle_config_from_json(&net->config, net->json, 0, "config", &err), &err) ||
        !net_did(net, "config", pl_dalle_open(&net->m, &net->config, g->be, 1, &err), &err))
        return 0;
    net->B = (int)golden_int(g, net->json, "batch");
    net->S = pl_dalle_positions(&net->config);
    if (net->B < 1 || net->B > 1 << 16) {
        golden_fail(g, "batch", "%d where 1..65536 was expected", net->B);
        return 0;
    }
    return load_params(net) && load_angles(net) && check_aliases(net);
}

void net_close(struct net *net)
{
    pl_dalle_close(net->m);
    json_decref(net->json);
}

/* --- comparing parameters --------------------------------------------------------------------- */

double net_grad_tolerance(const struct net *net, double ref, double fast)
{
    double share = (net->config.L - 9) / 55.0, at_9 = golden_tolerance(net->g, ref, fast);
    if (share < 0) share = 0;
    if (share > 1) share = 1;
    return at_9 * pow(golden_tolerance(net->g, 2e-3, 5e-3) / at_9, share);
}

int net_zero_grad(struct net *net)
{
    const struct pl_params *p = &net->m->params;
    return net_did(net, "fill", net->g->be->fill(p->grad, 0, p->total), NULL);
}

/* The distance of one parameter, or of its gradient, from a tensor of the file. */
static double distance(struct net *net, const struct st_tensor *t, size_t index, int grad)
{
    const struct pl_params *p = &net->m->params;
    float *want = net_floats(net, t->name, t->n), *got = pl_alloc(t->n, sizeof *got);
    double error = INFINITY;
    if (want && got &&
        !net->g->be->get(got, grad ? pl_params_grad(p, index) : pl_params_value(p, index),
                         t->n * sizeof *got))
        error = golden_relative(got, want, t->n);
    pl_free(want);
    pl_free(got);
    return error;
}

void net_params(struct net *net, const char *prefix, int grad, const char *worst_of, double allowed)
{
    size_t length = strlen(prefix), seen = 0, without_ends = net->m->norm_weight;
    double worst = 0;
    for (size_t i = 0; i < net->f->count; i++) {
        const struct st_tensor *t = &net->f->tensors[i];
        long index;
        double error;
        if (strncmp(t->name, prefix, length)) continue;
        if ((index = param_of(net, t, t->name + length)) < 0) continue;
        error = distance(net, t, (size_t)index, grad);
        if (!worst_of) golden_case(net->g, t->name, error, allowed);
        if (!(error <= worst)) worst = error;
        seen++;
    }
    if (worst_of) golden_case(net->g, worst_of, worst, allowed);
    if (seen != net->m->params.count &&
        (seen != without_ends || pl_safetensors_find(net->f, "text")))
        golden_fail(net->g, prefix, "%zu tensors where %zu were expected", seen,
                    net->m->params.count);
}

/* --- the whole model -------------------------------------------------------------------------- */

static void compare_scalar(struct net *net, const char *what, const char *tensor, double got,
                           double allowed)
{
    float *want = net_floats(net, tensor, 1);
    if (want) golden_case(net->g, what, fabs(got - want[0]) / fabs((double)want[0]), allowed);
    pl_free(want);
}

static void compare_losses(struct net *net, const struct pl_dalle_loss *loss, double allowed)
{
    compare_scalar(net, "loss", "loss", loss->total, allowed);
    compare_scalar(net, "loss_text", "loss_text", loss->text, allowed);
    compare_scalar(net, "loss_image", "loss_image", loss->image, allowed);
}

/* Values where the position may predict the column; the fill value everywhere else, and only
 * there. */
static void compare_logits(struct net *net, const int32_t *text, const int32_t *image,
                           double allowed)
{
    int I = net->config.F * net->config.F;
    size_t n = (size_t)net->B * (size_t)net->S * (size_t)pl_dalle_rows(&net->config), odd = 0;
    float *want = net_floats(net, "logits", n), *got = pl_alloc(n, sizeof *got);
    struct pl_err err = { "" };
    if (want && got &&
        net_did(net, "logits", pl_dalle_logits(net->m, got, text, image, I, net->B, &err), &err)) {
        for (size_t i = 0; i < n; i++) odd += (want[i] < -3e38f) != (got[i] < -3e38f);
        golden_check(net->g, "logits.masked", odd == 0, "%zu columns are masked on one side only",
                     odd);
        golden_case(net->g, "logits", golden_relative(got, want, n), allowed);
    }
    pl_free(want);
    pl_free(got);
}

static void compare_labels(struct net *net, const int32_t *text, const int32_t *image)
{
    const struct pl_dalle_config *c = &net->config;
    size_t n = (size_t)net->B * (size_t)net->S, I = (size_t)(c->F * c->F);
    int32_t *want = net_ints(net, "labels", n), *got = pl_alloc(n, sizeof *got);
    if (want && got) {
        for (size_t b = 0; b < (size_t)net->B; b++)
            pl_dalle_labels(c, got + b * (size_t)net->S, text + b * (size_t)c->T, image + b * I);
        golden_check(net->g, "labels", !memcmp(want, got, n * sizeof *got), "they differ");
    }
    pl_free(want);
    pl_free(got);
}

static void compare_evaluation(struct net *net, const int32_t *text, const int32_t *image,
                               double allowed)
{
    size_t n = (size_t)net->B * (size_t)net->S;
    float *want = net_floats(net, "token_logp", n), *got = pl_alloc(n, sizeof *got);
    struct pl_dalle_loss loss;
    struct pl_err err = { "" };
    if (want && got &&
        net_did(net, "evaluation", pl_dalle_evaluate(net->m, text, image, net->B, &loss, got, &err),
                &err)) {
        golden_case(net->g, "token_logp", golden_relative(got, want, n), allowed);
        compare_scalar(net, "loss of the evaluation", "loss", loss.total, allowed);
    }
    pl_free(want);
    pl_free(got);
}

void net_model(struct net *net)
{
    static const char *const worst[] = { NULL, "grad.* recomputed, the worst",
                                         "grad.* stored, the worst" };
    size_t T = (size_t)net->config.T, I = (size_t)(net->config.F * net->config.F);
    int32_t *text = net_ints(net, "text", (size_t)net->B * T);
    int32_t *image = net_ints(net, "image", (size_t)net->B * I);
    double forward = golden_tolerance(net->g, 1e-5, 4e-5),
           back = net_grad_tolerance(net, 2e-4, 1e-3);
    for (int mode = PL_REVERSIBLE; text && image && mode <= PL_STORED; mode++) {
        struct pl_dalle_loss loss;
        struct pl_err err = { "" };
        net->m->activations = (enum pl_activations)mode;
        if (!net_zero_grad(net) ||
            !net_did(net, "step", pl_dalle_step(net->m, text, image, net->B, 1, &loss, &err), &err))
            break;
        if (mode == PL_REVERSIBLE) {
            compare_losses(net, &loss, forward);
            compare_evaluation(net, text, image, forward);
            compare_labels(net, text, image);
            compare_logits(net, text, image, forward);
        }
        net_params(net, "grad.", 1, worst[mode], back);
    }
    pl_free(text);
    pl_free(image);
}

/* Plain gradient descent: a new batch in each step, then the first one again. */
void net_train(struct net *net)
{
    const struct pl_dalle_config *c = &net->config;
    const struct pl_params *p = &net->m->params;
    long steps = golden_int(net->g, net->json, "steps");
    double lr = golden_real(net->g, net->json, "lr"),
           allowed = golden_tolerance(net->g, 2e-5, 1e-4);
    size_t T = (size_t)net->B * (size_t)c->T, I = (size_t)net->B * (size_t)(c->F * c->F), n;
    int32_t *text, *image;
    float *got, *want;
    struct pl_dalle_loss loss;
    struct pl_err err = { "" };
    int good = 1;
    if (steps < 1 || steps > 1000) {
        golden_fail(net->g, "steps", "%ld where 1..1000 was expected", steps);
        return;
    }
    n = (size_t)steps;
    text = net_ints(net, "text", n * T);
    image = net_ints(net, "image", n * I);
    want = net_floats(net, "losses", n + 1);
    got = pl_alloc(n + 1, sizeof *got);
    for (size_t i = 0; text && image && want && got && good && i < n; i++) {
        good = net_zero_grad(net) &&
               net_did(net, "step",
                       pl_dalle_step(net->m, text + i * T, image + i * I, net->B, 1, &loss, &err),
                       &err) &&
               net_did(net, "step", net->g->be->axpy(p->value, (float)-lr, p->grad, p->total),
                       NULL);
        got[i] = (float)loss.total;
    }
    if (text && image && want && got && good &&
        net_did(net, "loss", pl_dalle_evaluate(net->m, text, image, net->B, &loss, NULL, &err),
                &err)) {
        got[n] = (float)loss.total;
        golden_case(net->g, "losses", golden_relative(got, want, n + 1), allowed);
        net_params(net, "final.", 0, NULL, allowed);
    }
    pl_free(text);
    pl_free(image);
    pl_free(got);
    pl_free(want);
}

/* --- which kind ------------------------------------------------------------------------------- */

static int facts_file(struct golden *g, const char *stem)
{
    char file[300];
    json_t *facts;
    int is_facts;
    snprintf(file, sizeof file, "%.250s.json", stem);
    facts = golden_json(g, file);
    if (!facts) return 1; /* a line has been printed */
    is_facts = json_object_get(facts, "training_state_dict") != NULL;
    if (is_facts) net_facts(g, facts);
    json_decref(facts);
    return is_facts;
}

int golden_dalle_model(struct golden *g, const struct st_file *f, const char *stem)
{
    static const struct {
        const char *tensor;
        void (*replay)(struct net *net);
    } kinds[] = {
        { "streams", net_stack },
        { "losses", net_train },
        { "greedy.tokens", net_generate },
        { "token_logp", net_model },
    };
    if (!f) return facts_file(g, stem);
    for (size_t i = 0; i < PL_COUNT(kinds); i++)
        if (pl_safetensors_find(f, kinds[i].tensor)) {
            struct net net;
            if (net_open(&net, g, f)) kinds[i].replay(&net);
            net_close(&net);
            return 1;
        }
    return 0;
}
