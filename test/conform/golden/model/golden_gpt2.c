/* golden_gpt2.c - GPT-2 against transformers: forward, loss, gradients, padding, cached greedy
 * generation, AdamW, names, the hub's files. [spec images-and-text 6] */
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"
#include "golden_container.h"
#include "golden_model.h"
#include "data/models/gpt2_file.h"
#include "runtime/optimizer.h"
#include "runtime/models.h"
#include "ref/small.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* relative to a tensor's largest value, from the README of the golden values */
#define FORWARD 2e-5
#define GRADIENTS 5e-5
#define FULL 1e-4
#define AFTER_STEPS 2e-4 /* absolute, over the rate */
#define MARGIN 1e-3      /* greedy choices that are closer may differ */

/* The model of the configuration with its weights; 0 after a golden_fail line. */
static int open_model(struct golden *g, struct pl_gpt2 *m, const json_t *config, const char *stem,
                      int with_grad)
{
    struct pl_gpt2_config c;
    struct pl_err err;
    struct st_file *weights;
    int good, rc = pl_gpt2_config_parse(&c, json_object_get(config, "model"), stem, &err);
    if (!rc && (rc = pl_gpt2_init(m, &c, g->be, with_grad)))
        pl_fail(&err, rc, "%s for the model", pl_status_name(rc));
    if (rc) {
        golden_fail(g, "model", "%s", err.text);
        return 0;
    }
    if (json_object_get(config, "counter"))
        good = golden_counter_fill(g, &m->params, config, pl_gpt2_is_transposed);
    else {
        weights = golden_weights(g, stem);
        rc = weights ? pl_gpt2_load(m, weights, &err) : PL_EIO;
        if (weights && rc) golden_fail(g, "weights", "%s", err.text);
        pl_safetensors_close(weights);
        good = !rc;
    }
    if (!good) pl_gpt2_clear(m);
    return good;
}

/* A batch of the file: ids [B,n] or NULL after a golden_fail line. */
static int32_t *batch(struct golden *g, const struct st_file *f, const char *name, int *B, int *n)
{
    const struct st_tensor *t = pl_safetensors_find(f, name);
    if (!t || t->dims != 2 || t->shape[0] < 1 || t->shape[1] < 1) {
        golden_fail(g, name, "no such tensor of two dimensions");
        return NULL;
    }
    *B = (int)t->shape[0];
    *n = (int)t->shape[1];
    return golden_ints(g, f, name, NULL);
}

static void compare(struct golden *g, const struct st_file *f, const char *name, const float *got,
                    size_t n, double scale, double allowed)
{
    size_t count;
    float *want;
    if (!pl_safetensors_find(f, name) || !(want = golden_floats(g, f, name, &count))) return;
    if (count != n) golden_fail(g, name, "%zu values for %zu", n, count);
    else
        golden_case(g, name,
                    scale > 0 ? golden_absolute(got, want, n) / scale
                              : golden_relative(got, want, n),
                    allowed);
    pl_free(want);
}

/* --- forward, loss, gradients ----------------------------------------------------------------- */

struct watching {
    struct golden *g;
    const struct st_file *f;
};

/* Our block0.qkv is block0.c_attn in the file, and so on; of residual sums the file has only the
 * output. */
static void compare_activation(void *context, const char *name, const float *at, size_t n)
{
    static const struct {
        const char *ours, *theirs;
    } parts[] = {
        { ".qkv", ".c_attn" },
        { ".fc", ".c_fc" },
        { ".act", ".gelu" },
    };
    struct watching *l = context;
    char full[60];
    const char *dot = strchr(name, '.');
    snprintf(full, sizeof full, "%s", name);
    for (size_t i = 0; dot && i < PL_COUNT(parts); i++)
        if (!strcmp(dot, parts[i].ours))
            snprintf(full, sizeof full, "%.*s%s", (int)(dot - name), name, parts[i].theirs);
    if (pl_safetensors_find(l->f, full)) golden_device(l->g, l->f, full, at, n, 0, FORWARD);
}

/* Parameter i's gradient as the file has it, on the host; NULL without memory. */
static float *gradient(struct golden *g, const struct pl_gpt2 *m, size_t i)
{
    const struct pl_param *p = &m->params.list[i];
    float *x = pl_alloc(p->n, sizeof *x), *y;
    if (!x || golden_down(g, x, pl_params_grad(&m->params, i), p->n) ||
        !pl_gpt2_is_transposed(p->name))
        return x;
    if ((y = pl_alloc(p->n, sizeof *y)))
        pl_checkpoint_transpose(y, x, (size_t)p->shape[0], (size_t)p->shape[1]);
    pl_free(x);
    return y;
}

static void check_gradients(struct golden *g, const struct st_file *f, const struct pl_gpt2 *m)
{
    double most = 0;
    for (size_t k = 0; k < f->count; k++) {
        size_t n;
        float *x = strncmp(f->tensors[k].name, "grad.", 5)
                       ? NULL
                       : golden_floats(g, f, f->tensors[k].name, &n);
        for (size_t i = 0; x && i < n; i++) most = fmax(most, fabs((double)x[i]));
        pl_free(x);
    }
    for (size_t i = 0; i < m->params.count; i++) {
        char name[PL_NAME_MAX + 8];
        float *x = gradient(g, m, i);
        snprintf(name, sizeof name, "grad.%s", m->params.list[i].name);
        if (!x) golden_fail(g, name, "out of memory");
        else if (!pl_safetensors_find(f, name)) golden_fail(g, name, "not in the file");
        else compare(g, f, name, x, m->params.list[i].n, most, GRADIENTS);
        pl_free(x);
    }
}

static void check_padded(struct golden *g, const struct st_file *f, struct pl_gpt2 *m,
                         const int32_t *ids, int B, int n)
{
    size_t M = (size_t)B * (size_t)n, V = (size_t)m->config.vocab, count;
    int32_t *mask = golden_ints(g, f, "padded.attention_mask", &count);
    int32_t *labels = pl_alloc(M, sizeof *labels);
    uint8_t *bytes = pl_alloc(M, 1);
    float *logits = pl_alloc(M, V * sizeof *logits);
    double loss;
    float value;
    if (mask && count == M && labels && bytes && logits && B > 1) {
        for (size_t i = 0; i < M; i++) {
            bytes[i] = mask[i] != 0;
            labels[i] = mask[i] ? ids[i] : -100;
        }
        int rc = pl_gpt2_logits(m, logits, ids, bytes, B, n);
        if (!rc) rc = pl_gpt2_loss(m, &loss, ids, labels, bytes, B, n, 0);
        value = (float)loss;
        if (rc) golden_fail(g, "padded", "%s", pl_status_name(rc));
        else {
            compare(g, f, "padded.logits_row1", logits + (size_t)n * V, (size_t)n * V, 0, FORWARD);
            compare(g, f, "padded.loss", &value, 1, 0, FORWARD);
        }
    } else golden_fail(g, "padded", "no mask of the batch's shape, or out of memory");
    pl_free(mask);
    pl_free(labels);
    pl_free(bytes);
    pl_free(logits);
}

static int likeliest(const float *logits, int V, float *margin)
{
    int best = 0;
    float second = -INFINITY;
    for (int i = 1; i < V; i++)
        if (logits[i] > logits[best]) best = i;
    for (int i = 0; i < V; i++)
        if (i != best && logits[i] > second) second = logits[i];
    *margin = logits[best] - second;
    return best;
}

/* Each token after the prompt is the most likely one, given those before it. */
static void check_greedy(struct golden *g, const struct st_file *f, struct pl_gpt2 *m, int prompt)
{
    int B, n, wrong = 0, rc;
    int32_t *want = batch(g, f, "greedy", &B, &n);
    float *margin = pl_alloc((size_t)(want ? n : 1), sizeof *margin);
    size_t vocab = (size_t)m->config.vocab;
    float *logits = pl_alloc((size_t)(want ? n : 1) * vocab, sizeof *logits);
    if (!want || !margin || !logits || prompt < 1 || prompt > n) {
        golden_fail(g, "greedy", "no continuation, or out of memory");
        n = 0;
    }
    rc = n ? pl_gpt2_logits(m, logits, want, NULL, 1, n) : PL_EUSE;
    for (int t = 0; t < n && !rc; t++) {
        int best = likeliest(logits + (size_t)t * vocab, m->config.vocab, &margin[t]);
        if (t + 1 >= prompt && t + 1 < n) wrong += best != want[t + 1] && margin[t] > MARGIN;
    }
    if (n && rc) golden_fail(g, "greedy", "%s", pl_status_name(rc));
    if (n && !rc) {
        golden_check(g, "greedy", !wrong, "%d of %d tokens differ", wrong, n - prompt);
        compare(g, f, "greedy.margin", margin, (size_t)n, 0, 1e-4);
    }
    pl_free(want);
    pl_free(margin);
    pl_free(logits);
}

static void check_io(struct golden *g, const struct st_file *f, const json_t *config,
                     const char *stem)
{
    struct pl_gpt2 m;
    int B, n, rc;
    int32_t *ids = batch(g, f, "input_ids", &B, &n), *labels = batch(g, f, "labels", &B, &n);
    size_t capacity = 0;
    float *logits = NULL, value;
    double loss;
    if (ids && labels && open_model(g, &m, config, stem, 1)) {
        struct watching watching = { g, f };
        capacity = (size_t)B * (size_t)n * (size_t)m.config.vocab;
        logits = pl_alloc(capacity, sizeof *logits);
        m.stack.watch = compare_activation;
        m.stack.context = &watching;
        rc = logits ? pl_gpt2_logits(&m, logits, ids, NULL, B, n) : PL_ENOMEM;
        m.stack.watch = NULL;
        if (!rc) rc = pl_gpt2_loss(&m, &loss, ids, labels, NULL, B, n, 1);
        value = (float)loss;
        if (rc) golden_fail(g, "forward", "%s", pl_status_name(rc));
        else {
            compare(g, f, "logits", logits, capacity, 0, FORWARD);
            compare(g, f, "loss", &value, 1, 0, FORWARD);
            check_gradients(g, f, &m);
        }
        if (pl_safetensors_find(f, "padded.attention_mask")) check_padded(g, f, &m, ids, B, n);
        if (pl_safetensors_find(f, "greedy"))
            check_greedy(g, f, &m, (int)golden_int(g, config, "prompt_length"));
        pl_gpt2_clear(&m);
    }
    pl_free(ids);
    pl_free(labels);
    pl_free(logits);
}

/* --- the official size ------------------------------------------------------------------------ */

static void check_full(struct golden *g, const struct st_file *f, const json_t *config,
                       const char *stem)
{
    struct pl_gpt2 m;
    int B, n, rc, wrong = 0, every = 0;
    int32_t *ids = batch(g, f, "input_ids", &B, &n), *want = golden_ints(g, f, "argmax", NULL);
    if (ids && want && open_model(g, &m, config, stem, 0)) {
        size_t M = (size_t)B * (size_t)n, V = (size_t)m.config.vocab, columns;
        float *logits = pl_alloc(M, V * sizeof *logits), *some = NULL,
              *sums = pl_alloc(M, sizeof *sums);
        float *top = pl_alloc(M, 2 * sizeof *top), value = 0;
        double loss = 0;
        char name[40] = "logits_every_997";
        for (size_t i = 0; i < f->count; i++)
            if (!strncmp(f->tensors[i].name, "logits_every_", 13))
                snprintf(name, sizeof name, "%.39s", f->tensors[i].name);
        every = atoi(name + 13);
        columns = every > 0 ? (V + (size_t)every - 1) / (size_t)every : 0;
        some = pl_alloc(M * columns + 1, sizeof *some);
        rc = logits && some && sums && top ? pl_gpt2_logits(&m, logits, ids, NULL, B, n)
                                           : PL_ENOMEM;
        if (!rc) rc = pl_gpt2_loss(&m, &loss, ids, ids, NULL, B, n, 0);
        if (rc) golden_fail(g, "forward", "%s", pl_status_name(rc));
        for (size_t r = 0; r < M && !rc; r++) {
            const float *z = logits + r * V;
            float margin;
            int best = likeliest(z, (int)V, &margin);
            double sum = 0;
            for (size_t k = 0; k < columns; k++) some[r * columns + k] = z[k * (size_t)every];
            for (size_t k = 0; k < V; k++) sum += exp((double)z[k] - z[best]);
            sums[r] = (float)(z[best] + log(sum));
            top[2 * r] = z[best];
            top[2 * r + 1] = z[best] - margin;
            wrong += best != want[r] && margin > MARGIN;
        }
        if (!rc) {
            value = (float)loss;
            compare(g, f, "loss", &value, 1, 0, FULL);
            compare(g, f, name, some, M * columns, 0, FULL);
            compare(g, f, "logsumexp", sums, M, 0, FULL);
            compare(g, f, "top2", top, 2 * M, 0, FULL);
            golden_check(g, "argmax", !wrong, "%d of %zu differ", wrong, M);
        }
        pl_free(logits);
        pl_free(some);
        pl_free(sums);
        pl_free(top);
        pl_gpt2_clear(&m);
    }
    pl_free(ids);
    pl_free(want);
}

/* --- AdamW ------------------------------------------------------------------------------------ */

static void check_after(struct golden *g, const struct st_file *f, const struct pl_gpt2 *m,
                        double lr)
{
    for (size_t k = 0; k < f->count; k++) {
        const char *name = f->tensors[k].name;
        long at = strncmp(name, "after3.", 7) ? -1 : pl_gpt2_find(&m->params, name + 7);
        if (strncmp(name, "after3.", 7)) continue;
        if (at < 0) {
            golden_fail(g, name, "the model has no such tensor");
            continue;
        }
        const struct pl_param *p = &m->params.list[at];
        float *x = pl_alloc(p->n, sizeof *x), *y = pl_alloc(p->n, sizeof *y);
        int transposed = pl_gpt2_is_transposed(p->name);
        if (x && y && !pl_params_get(&m->params, (size_t)at, x)) {
            if (transposed) pl_checkpoint_transpose(y, x, (size_t)p->shape[0], (size_t)p->shape[1]);
            compare(g, f, name, transposed ? y : x, p->n, 1, AFTER_STEPS * (lr / 1e-3));
        } else golden_fail(g, name, "out of memory");
        pl_free(x);
        pl_free(y);
    }
}

static void check_adamw(struct golden *g, const struct st_file *f, const json_t *config,
                        const char *stem)
{
    const json_t *how = json_object_get(config, "optimizer"),
                 *betas = json_object_get(how, "betas");
    char io[300], stem_only[200];
    struct pl_optimizer_options options = pl_adam_options(0, 32);
    struct pl_optimizer *opt = NULL;
    struct st_file *data = NULL;
    struct pl_gpt2 m;
    struct pl_err err = { "out of memory" };
    int B, n, rc, steps;
    size_t count = 0;
    float *losses = golden_floats(g, f, "losses", &count);
    float *norms = golden_floats(g, f, "grad_norms_before_clipping", NULL);
    int32_t *ids = NULL, *labels = NULL;
    double lr = golden_real(g, how, "lr");
    snprintf(stem_only, sizeof stem_only, "%.*s", (int)(strlen(stem) - strlen(".adamw")), stem);
    snprintf(io, sizeof io, "%s/%s.io.safetensors", g->folder, stem_only);
    options.beta1 = json_number_value(json_array_get(betas, 0));
    options.beta2 = json_number_value(json_array_get(betas, 1));
    options.eps = golden_real(g, how, "eps");
    options.max_grad_norm = json_number_value(json_object_get(how, "clip_grad_norm"));
    options.decay = atof(json_string_value(json_object_get(how, "weight_decay"))
                             ? json_string_value(json_object_get(how, "weight_decay"))
                             : "0");
    if (pl_safetensors_open(&data, io, &err)) golden_fail(g, "batch", "%s", err.text);
    else {
        ids = batch(g, data, "input_ids", &B, &n);
        labels = batch(g, data, "labels", &B, &n);
    }
    if (losses && norms && ids && labels && open_model(g, &m, config, stem_only, 1)) {
        float *got = pl_alloc(count, sizeof *got), *got_norms = pl_alloc(count, sizeof *got_norms);
        rc = got && got_norms ? pl_optimizer_open_params(&opt, &m.params, &options, &err)
                              : PL_ENOMEM;
        for (steps = 0; steps < (int)count && !rc; steps++) {
            double loss, norm;
            rc = g->be->fill(m.params.grad, 0, m.params.total);
            if (!rc) rc = pl_gpt2_loss(&m, &loss, ids, labels, NULL, B, n, 1);
            if (!rc) rc = pl_optimizer_grad_norm(opt, m.params.grad, &norm);
            if (!rc) rc = pl_optimizer_step(opt, m.params.value, m.params.grad, lr);
            if (rc) break;
            got[steps] = (float)loss;
            got_norms[steps] = (float)norm;
        }
        if (rc) golden_fail(g, "steps", "%s", err.text);
        else {
            compare(g, f, "losses", got, count, 0, GRADIENTS);
            compare(g, f, "grad_norms_before_clipping", got_norms, count, 0, GRADIENTS);
            check_after(g, f, &m, lr);
        }
        pl_free(got);
        pl_free(got_norms);
        pl_optimizer_close(opt);
        pl_gpt2_clear(&m);
    }
    pl_safetensors_close(data);
    pl_free(losses);
    pl_free(norms);
    pl_free(ids);
    pl_free(labels);
}

/* --- files ------------------------------------------------------------------------------------ */

static void check_names(struct golden *g, const char *path)
{
    json_t *doc = golden_json(g, strrchr(path, '/') + 1);
    struct pl_gpt2_config c;
    struct pl_gpt2 m;
    struct pl_err err;
    if (doc && pl_gpt2_config_parse(&c, json_object_get(doc, "model"), path, &err))
        golden_fail(g, "model", "%s", err.text);
    else if (doc && !pl_gpt2_declare(&m, &c)) {
        golden_names(g, doc, &m.params, pl_gpt2_is_transposed);
        pl_gpt2_clear(&m);
    }
    json_decref(doc);
}

static void check_weights(struct golden *g, const char *path)
{
    struct pl_gpt2 m;
    struct pl_err err;
    int rc = pl_gpt2_open(&m, path, g->be, 0, &err);
    golden_check(g, "loads", !rc, "%s", rc ? err.text : "");
    if (!rc) pl_gpt2_clear(&m);
}

/* Every name in the file is a parameter's, or one of the two masks, which are not. */
static void check_hub(struct golden *g, const char *path)
{
    struct pl_gpt2_config c = { .layers = PL_PRENORM_LAYERS_MAX,
                                .heads = 1,
                                .width = 1,
                                .positions = 1,
                                .vocab = 1,
                                .inner = 4 };
    struct pl_gpt2 m;
    struct st_file *f;
    if (!(f = golden_open(g, path))) return;
    if (!pl_gpt2_declare(&m, &c)) {
        for (size_t i = 0; i < f->count; i++) {
            const char *name = f->tensors[i].name;
            int mask = pl_ends_with(name, ".attn.bias") || pl_ends_with(name, ".attn.masked_bias");
            golden_check(g, name, (pl_gpt2_find(&m.params, name) < 0) == mask, "%s",
                         mask ? "a mask is mistaken for a weight" : "no parameter");
        }
        pl_gpt2_clear(&m);
    }
    pl_safetensors_close(f);
}

int golden_area_gpt2(struct golden *g, const char *path, const char *stem)
{
    struct st_file *f;
    json_t *config;
    int known = 1;
    if (pl_ends_with(path, ".state_dict.json")) {
        check_names(g, path);
        return 1;
    }
    if (strstr(stem, "hub_names")) {
        golden_container(g, path, stem);
        if (pl_ends_with(path, ".safetensors")) check_hub(g, path);
        return 1;
    }
    if (!pl_ends_with(path, ".safetensors")) return 0;
    if (pl_ends_with(stem, ".weights")) {
        check_weights(g, path);
        return 1;
    }
    if (!(f = golden_open(g, path))) return 1;
    config = golden_meta(g, f, "config");
    if (!config) known = 1;
    else if (pl_ends_with(stem, ".adamw")) check_adamw(g, f, config, stem);
    else if (pl_ends_with(stem, ".io") && json_object_get(config, "counter"))
        check_full(g, f, config, stem);
    else if (pl_ends_with(stem, ".io")) check_io(g, f, config, stem);
    else known = 0;
    json_decref(config);
    pl_safetensors_close(f);
    return known;
}
