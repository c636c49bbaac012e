/* golden_outer_steps.c - outer optimizers with local steps, replayed: torch's Nesterov, DiLoCo,
 * torchft's streaming, delayed and eager steps, NoLoCo.
 * One long file: each recorded format is replayed by a few lines that share its helpers. */
#include "golden_outer.h"
#include "ref/byte_order.h"
#include "ref/outer/pairing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bounds of the area's README: AdamW's 1 - lr decay is rounded to float32 by torch. */
static double tolerance(const json_t *inner)
{
    const char *kind = json_string_value(json_object_get(inner, "kind"));
    return kind && !strcmp(kind, "adamw") ? 5e-6 : 1e-6;
}

static struct pl_outer_setup setup_of(const struct outer_file *r, int peers)
{
    struct pl_outer_setup s;
    pl_outer_defaults(&s);
    s.be = r->g->be;
    s.tensors = r->tensors;
    s.count = r->count;
    s.peers = peers;
    s.H = (int)outer_long(r, "H", 1);
    s.mu = outer_real(r, "mu", 0);
    s.nu = outer_real(r, "nu", 1);
    return s;
}

/* One file, and the peers that replay it. */
struct replay {
    struct outer_file r;
    struct outer_swarm s;
    struct outer_inner in;
    struct pl_outer_setup setup;
    float *init, *grad; /* (peers, n), (n) */
    int peers;
};

/* Reads the start: the same for all, or with a prefix "r%d." each peer's own. Returns 0, and says
 * why, for an invalid file. */
static int replay_read(struct replay *p, struct golden *g, const char *path, const char *prefix)
{
    char own[20];
    int good;
    *p = (struct replay){ .s = { .g = g } };
    snprintf(own, sizeof own, prefix, 0); /* "r0.", or "" */
    if (!outer_open(&p->r, g, path, own)) return 0;
    p->peers = (int)outer_long(&p->r, "R", 1);
    p->setup = setup_of(&p->r, p->peers);
    p->init = pl_alloc((size_t)p->peers * p->r.n, sizeof *p->init);
    p->grad = pl_alloc(p->r.n, sizeof *p->grad);
    good = p->init && p->grad;
    for (int k = 0; good && k < p->peers; k++) {
        snprintf(own, sizeof own, prefix, k);
        good = outer_read(&p->r, p->init + (size_t)k * p->r.n, own, "init", -1);
    }
    if (!good) golden_fail(g, "peers", "the file's cannot be replayed");
    return good;
}

/* Opens the peers with p->setup, and the inner optimizer that the file names: Muon, with Adam for
 * tensors that are not matrices; Adam; or plain SGD. */
static int replay_open(struct replay *p, const char *algorithm)
{
    const struct outer_file *r = &p->r;
    const json_t *adam = json_object_get(r->config, "adam");
    const json_t *inner = adam ? adam : json_object_get(r->config, "inner");
    struct outer_inner *in = &p->in;
    if (!outer_swarm_open(&p->s, r->g, algorithm, &p->setup, p->init) ||
        !outer_inner_open(in, r, inner, p->peers)) {
        golden_fail(r->g, "peers", "the file's cannot be replayed");
        return 0;
    }
    if (adam) {
        in->kind = INNER_MUON;
        in->lr = outer_real(r, "adam_lr", 0);
        in->decay = outer_real(r, "adam_wd", outer_real(r, "wd", 0));
        in->muon_lr = outer_real(r, "lr", 0);
        in->muon_momentum = outer_real(r, "momentum", 0);
        in->muon_decay = outer_real(r, "wd", 0);
        in->matrices = -1;
    } else if (!json_is_object(inner)) {
        in->kind = INNER_SGD;
        in->lr = outer_real(r, "lr", 0);
    }
    return 1;
}

/* next: the last step's, negative if it failed. */
static void replay_close(struct replay *p, int next)
{
    if (next < 0) golden_fail(p->s.g, "steps", "%s", pl_status_name(next));
    outer_inner_close(&p->in);
    outer_swarm_close(&p->s);
    pl_free(p->init);
    pl_free(p->grad);
    outer_close(&p->r);
}

/* ---- one outer step at a time ---- */

/* A tensor without a gradient in a step is skipped, and its momentum begins later. Heavy ball is a
 * step of gossip among peers that agree. */
static int nesterov_step(const struct outer_file *r, long t, float *x, float *b, float *g)
{
    const struct pl_backend *be = r->g->be;
    float mu = (float)outer_real(r, "mu", 0), nu = (float)outer_real(r, "nu", 1);
    int heavy = json_is_true(json_object_get(r->config, "heavy_ball")), rc = PL_OK;
    for (int i = 0; !rc && i < r->count; i++) {
        size_t n = r->tensors[i].n, at = r->tensors[i].offset;
        const struct st_tensor *grad = outer_find(r->f, "s%ld.p%d.grad", t, i);
        float *host = grad && grad->n == n ? pl_alloc(n, sizeof *host) : NULL;
        if (!host) continue;
        pl_safetensors_to_float(host, grad);
        rc = be->put(g, host, n * sizeof *host);
        if (!rc && !heavy) rc = be->outer_nesterov(x + at, b + at, g, n, mu, nu);
        else if (!rc && !(rc = be->scale(g, -1, n)))
            rc = be->outer_gossip(x + at, b + at, g, x + at, n, mu, nu, 0);
        pl_free(host);
    }
    return rc;
}

void golden_outer_nesterov(struct golden *g, const char *path)
{
    struct replay p;
    struct outer_file *r = &p.r;
    float *x = NULL, *b = NULL, *grad = NULL;
    char prefix[100];
    if (replay_read(&p, g, path, "")) {
        x = golden_up(g, p.init, r->n);
        b = g->be->alloc(r->n * sizeof *b);
        grad = g->be->alloc(r->n * sizeof *grad);
        for (long t = 1; x && b && grad && t <= outer_long(r, "steps", 0); t++) {
            int rc = nesterov_step(r, t, x, b, grad);
            snprintf(prefix, sizeof prefix, "s%ld.", t);
            if (rc) golden_fail(g, prefix, "%s", pl_status_name(rc));
            outer_compare(r, prefix, "param", -1, x, -1, 1e-6);
            if (outer_find(r->f, "s%ld.p0.momentum", t))
                outer_compare(r, prefix, "momentum", -1, b, -1, 1e-6);
        }
    }
    g->be->free(x);
    g->be->free(b);
    g->be->free(grad);
    replay_close(&p, 0);
}

/* ---- DiLoCo, and MuLoCo ---- */

/* A config's entry for a round, by peers. */
static double in_round(const struct outer_file *r, long t, const char *key, int k, double otherwise)
{
    const json_t *round = json_array_get(json_object_get(r->config, "rounds"), (size_t)t - 1);
    const json_t *v = json_array_get(json_object_get(round, key), (size_t)k);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

static int is_left_out(const struct outer_file *r, long t, int k)
{
    const json_t *round = json_array_get(json_object_get(r->config, "rounds"), (size_t)t - 1);
    const json_t *v;
    size_t i;
    json_array_foreach(json_object_get(round, "left_out"), i,
                       v) if (json_integer_value(v) == k) return 1;
    return 0;
}

/* A peer with fewer steps than H skips the rest, as after gradients with a NaN. A peer that the
 * original's NaN has spoilt gets it here too, after its steps. */
static int local_steps(struct outer_swarm *s, struct outer_inner *in, struct outer_file *r, long t,
                       int k, int H)
{
    const json_t *rates = json_object_get(json_object_get(r->config, "inner"), "lr_steps");
    long steps = (long)in_round(r, t, "steps", k, H);
    float *g = pl_alloc(r->n, sizeof *g), nan = NAN;
    char prefix[100];
    int next = g ? PL_OUTER_GRADIENT : PL_ENOMEM;
    snprintf(prefix, sizeof prefix, "t%ld.r%d.", t, k);
    for (long h = 0; h < H && next >= 0; h++) {
        if (json_is_array(rates))
            in->lr = json_number_value(json_array_get(rates, (size_t)((t - 1) * H + h)));
        if (h >= steps || !outer_read(r, g, prefix, "grads", h))
            for (size_t i = 0; i < r->n; i++) g[i] = NAN;
        next = outer_swarm_step(s, k, g, in->lr, outer_inner_step, in);
    }
    pl_free(g);
    if (next >= 0 && is_left_out(r, t, k)) {
        if (r->g->be->put(s->x[k], &nan, sizeof nan)) next = PL_EDEVICE;
    } else if (next >= 0) {
        outer_compare(r, prefix, "local", -1, s->x[k], -1,
                      in->kind == INNER_MUON ? 5e-6
                                             : tolerance(json_object_get(r->config, "inner")));
    }
    return next;
}

struct mean_check {
    struct outer_swarm *s;
    struct outer_file *r;
    const char *prefix;
    double allowed;
};

/* The mean pseudo-gradient, as the peers are about to compute it. */
static void check_mean(void *context, const struct pl_outer_message *in)
{
    struct mean_check *c = context;
    float *g = c->r->g->be->alloc(c->r->n * sizeof *g);
    double total = 0;
    if (g && !pl_outer_mean(c->s->o[0], g, &total, in, c->s->peers, in[0].bytes, 0, c->r->n))
        outer_compare(c->r, c->prefix, "g", -1, g, -1, c->allowed);
    c->r->g->be->free(g);
}

void golden_outer_diloco(struct golden *g, const char *path)
{
    struct replay p;
    char prefix[100];
    int next = 0;
    if (replay_read(&p, g, path, "") && replay_open(&p, "diloco")) {
        struct outer_swarm *s = &p.s;
        double allowed = p.in.kind == INNER_MUON ? 5e-6
                                                 : tolerance(json_object_get(p.r.config, "inner"));
        struct mean_check c = { s, &p.r, prefix, allowed };
        s->sent = check_mean;
        s->context = &c;
        for (long t = 1; t <= outer_long(&p.r, "T", 0) && next >= 0; t++) {
            snprintf(prefix, sizeof prefix, "t%ld.", t);
            for (int k = 0; k < p.peers && next >= 0; k++) {
                next = local_steps(s, &p.in, &p.r, t, k, p.setup.H);
                s->weight[k] = in_round(&p.r, t, "samples", k, 1);
            }
            if (next >= 0) next = outer_swarm_exchange(s);
            for (int k = 0; k < p.peers; k++)
                outer_compare(&p.r, prefix, "param", -1, s->x[k], -1, allowed);
            if (outer_find(p.r.f, "%sp0.momentum", prefix))
                outer_compare(&p.r, prefix, "momentum", -1, pl_outer_get(s->o[0], "momentum"), -1,
                              allowed);
        }
    }
    replay_close(&p, next);
}

/* ---- fragments ---- */

struct stream {
    struct outer_file *r;
    struct outer_swarm *s;
    long events, exchanges; /* so far */
    long step;
    double allowed;
};

static void event(struct stream *c, const char *name, int fragment)
{
    const json_t *want = json_array_get(json_object_get(c->r->config, "events"), (size_t)c->events);
    const char *their = json_string_value(json_object_get(want, "event"));
    char what[100];
    snprintf(what, sizeof what, "event %ld: %s", c->events, name);
    golden_check(c->r->g, what,
                 their && !strcmp(their, name) &&
                     json_integer_value(json_object_get(want, "step")) == c->step &&
                     json_integer_value(json_object_get(want, "fragment")) == fragment,
                 "step %ld, fragment %d, where the file has another event", c->step, fragment);
    c->events++;
}

static int fragment_of_event(const struct stream *c)
{
    const json_t *want = json_array_get(json_object_get(c->r->config, "events"), (size_t)c->events);
    return (int)json_integer_value(json_object_get(want, "fragment"));
}

/* The mean of the fragment's tensors is packed in the messages. It tells which fragment it is: the
 * one whose values are equal to it. */
static void fragment_sent(void *context, const struct pl_outer_message *in)
{
    struct stream *c = context;
    size_t n = in[0].bytes / sizeof(float), at = 0;
    const struct pl_backend *be = c->r->g->be;
    float *packed = be->alloc(n * sizeof *packed), *g = be->alloc(c->r->n * sizeof *g);
    int fragment = fragment_of_event(c), rc = packed && g ? PL_OK : PL_ENOMEM;
    double total = 0;
    char prefix[100];
    if (!rc) rc = pl_outer_mean(c->s->o[0], packed, &total, in, c->s->peers, in[0].bytes, 0, n);
    for (int i = 0; !rc && i < c->r->count; i++) {
        const struct pl_outer_tensor *t = &c->r->tensors[i];
        if (t->fragment != fragment || at + t->n > n) continue;
        rc = be->copy(g + t->offset, packed + at, t->n);
        at += t->n;
    }
    snprintf(prefix, sizeof prefix, "e%ld.", c->events);
    if (rc || at != n) golden_fail(c->r->g, prefix, "a message of %zu values, not %zu", n, at);
    else outer_compare(c->r, prefix, "g", -1, g, fragment, c->allowed);
    be->free(packed);
    be->free(g);
    event(c, "send", fragment);
}

static int fragment_arrives(void *context)
{
    struct stream *c = context;
    const json_t *failed = json_object_get(c->r->config, "failed"), *v;
    size_t i;
    int good = 1;
    c->exchanges++;
    json_array_foreach(failed, i, v) if (json_integer_value(v) == c->exchanges) good = 0;
    event(c, good ? "apply" : "failed", fragment_of_event(c));
    return good;
}

static int read_fragments(struct outer_file *r, struct pl_outer_setup *s, int *offsets)
{
    const json_t *members = json_object_get(r->config, "members"), *part, *block, *v;
    const json_t *given = json_object_get(r->config, "offsets");
    long each = outer_long(r, "per_block", 1);
    size_t p, i;
    s->fragments = (int)json_array_size(members);
    if (s->fragments < 1 || s->fragments > OUTER_TENSORS_MAX) return 0;
    json_array_foreach(members, p, part)
        json_array_foreach(part, i, block) for (long m = 0; m < each; m++)
    {
        long tensor = (long)json_integer_value(block) * each + m;
        if (tensor >= 0 && tensor < r->count) r->tensors[tensor].fragment = (int)p;
    }
    json_array_foreach(given, p, v) if (p < OUTER_TENSORS_MAX)
        offsets[p] = (int)json_integer_value(v);
    if (json_array_size(given)) s->offsets = offsets;
    s->tau = (int)outer_long(r, "tau", 0);
    s->alpha = outer_real(r, "alpha", 0);
    return 1;
}

static int streaming_step(struct stream *c, struct outer_inner *in, float *g)
{
    struct outer_swarm *s = c->s;
    char prefix[100];
    int next = PL_OUTER_GRADIENT;
    for (int k = 0; k < s->peers && next >= 0; k++) {
        snprintf(prefix, sizeof prefix, "r%d.", k);
        if (!outer_read(c->r, g, prefix, "grads", c->step - 1)) return PL_EFORMAT;
        next = outer_swarm_step(s, k, g, in->lr, outer_inner_step, in);
    }
    if (next >= 0) next = outer_swarm_exchange(s);
    for (int k = 0; k < s->peers && next >= 0; k++) {
        snprintf(prefix, sizeof prefix, "r%d.", k);
        outer_compare(c->r, prefix, "theta", c->step, s->x[k], -1, c->allowed);
    }
    outer_compare(c->r, "", "outer", c->step, pl_outer_get(s->o[0], "phi"), -1, c->allowed);
    if (s->o[0]->setup.mu != 0) /* torch has none then */
        outer_compare(c->r, "", "momentum", c->step, pl_outer_get(s->o[0], "momentum"), -1,
                      c->allowed);
    return next;
}

void golden_outer_streaming(struct golden *g, const char *path)
{
    struct replay p;
    int offsets[OUTER_TENSORS_MAX] = { 0 }, next = 0;
    if (replay_read(&p, g, path, "")) {
        struct stream c = { .r = &p.r,
                            .s = &p.s,
                            .allowed = tolerance(json_object_get(p.r.config, "inner")) };
        const json_t *weights = json_object_get(p.r.config, "weights");
        if (!read_fragments(&p.r, &p.setup, offsets)) next = PL_EFORMAT;
        else if (!replay_open(&p, "streaming")) next = PL_EUSE;
        p.s.sent = fragment_sent;
        p.s.arrives = fragment_arrives;
        p.s.context = &c;
        for (int k = 0; k < p.peers && json_array_size(weights); k++)
            p.s.weight[k] = json_number_value(json_array_get(weights, (size_t)k));
        for (c.step = 1; c.step <= outer_long(&p.r, "steps", 0) && next >= 0; c.step++)
            next = streaming_step(&c, &p.in, p.grad);
        golden_check(g, "events",
                     next >= 0 &&
                         (size_t)c.events == json_array_size(json_object_get(p.r.config, "events")),
                     "%ld, not all of the file's; status %d", c.events, next);
    }
    replay_close(&p, 0);
}

/* ---- one step late ---- */

/* Peer k's H inner steps with the file's gradients. */
static int inner_steps(struct replay *p, const char *prefix, int k)
{
    int next = 0;
    for (long h = 0; h < p->setup.H && next >= 0; h++)
        next = outer_read(&p->r, p->grad, prefix, "grads", h)
                   ? outer_swarm_step(&p->s, k, p->grad, p->in.lr, outer_inner_step, &p->in)
                   : PL_EFORMAT;
    return next;
}

void golden_outer_eager(struct golden *g, const char *path)
{
    struct replay p;
    const char *mode;
    char prefix[100];
    int next = 0, good = replay_read(&p, g, path, ""), one;
    mode = json_string_value(json_object_get(p.r.config, "mode"));
    one = mode && !strcmp(mode, "delayed");
    if (good && replay_open(&p, one ? "delayed" : "eager")) {
        struct outer_swarm *s = &p.s;
        for (long t = 1; t <= outer_long(&p.r, "T", 0) && next >= 0; t++) {
            for (int k = 0; k < p.peers && next >= 0; k++) {
                snprintf(prefix, sizeof prefix, "t%ld.r%d.", t, k);
                next = inner_steps(&p, prefix, k);
                outer_compare(&p.r, prefix, "delta", -1, pl_outer_get(s->o[k], "delta"), -1, 1e-6);
            }
            if (next >= 0) next = outer_swarm_exchange(s);
            for (int k = 0; k < p.peers; k++) {
                if (one) snprintf(prefix, sizeof prefix, "t%ld.", t);
                else snprintf(prefix, sizeof prefix, "t%ld.r%d.", t, k);
                outer_compare(&p.r, prefix, "param", -1, s->x[k], -1, 1e-6);
                if (p.setup.mu != 0)
                    outer_compare(&p.r, prefix, "momentum", -1, pl_outer_get(s->o[k], "momentum"),
                                  -1, 1e-6);
            }
        }
    }
    replay_close(&p, next);
}

/* One submission of the file's order: the worker's H steps, from wherever it is; then every peer
 * applies its change. */
static int submit(struct replay *p, long u)
{
    struct outer_file *r = &p->r;
    struct outer_swarm *s = &p->s;
    const json_t *order = json_array_get(json_object_get(r->config, "order"), (size_t)u - 1);
    int worker = (int)json_integer_value(json_object_get(order, "worker")), next = PL_EFORMAT;
    struct pl_outer_message m;
    float *delta = r->g->be->alloc(r->n * sizeof *delta);
    char prefix[100];
    snprintf(prefix, sizeof prefix, "u%ld.", u);
    if (worker >= 0 && worker < s->peers && delta) next = inner_steps(p, prefix, worker);
    if (next == PL_OUTER_SEND)
        next = pl_outer_message(s->o[worker], &m, s->x[worker], s->grad[worker]);
    if (next == PL_OUTER_RECEIVE) {
        float *sent = pl_alloc(m.bytes / sizeof *sent, sizeof *sent);
        if (sent) pl_copy_little(sent, m.data, sizeof *sent, m.bytes / sizeof *sent);
        if (sent && !r->g->be->put(delta, sent, m.bytes))
            outer_compare(r, prefix, "delta", -1, delta, -1, 2e-6);
        pl_free(sent);
        for (int k = 0; k < s->peers && next >= 0; k++)
            next = pl_outer_apply(s->o[k], s->x[k], s->grad[k], &m, 1);
    }
    r->g->be->free(delta);
    for (int k = 0; k < s->peers && next >= 0; k += s->peers > 1 ? s->peers - 1 : 1) {
        outer_compare(r, prefix, "param", -1, pl_outer_get(s->o[k], "phi"), -1, 2e-6);
        if (s->o[k]->setup.mu != 0)
            outer_compare(r, prefix, "momentum", -1, pl_outer_get(s->o[k], "momentum"), -1, 2e-6);
        outer_compare(r, prefix, "sum", -1, pl_outer_get(s->o[k], "sum"), -1, 2e-6);
    }
    return next;
}

void golden_outer_delayed(struct golden *g, const char *path)
{
    struct replay p;
    int next = 0, good = replay_read(&p, g, path, "");
    p.setup.N = (int)outer_long(&p.r, "N", 1);
    if (good && replay_open(&p, "delayed_nesterov"))
        for (long u = 1; u <= outer_long(&p.r, "submissions", 0) && next >= 0; u++)
            next = submit(&p, u);
    replay_close(&p, next);
}

/* ---- NoLoCo ---- */

/* The file's groups are those that we draw. */
static void check_groups(struct outer_file *r, long t, int peers, int group, int H)
{
    const json_t *groups = json_array_get(json_object_get(r->config, "groups"), (size_t)t - 1);
    const json_t *theirs, *v;
    size_t a, i;
    int good = 1, member[OUTER_PEERS_MAX] = { 0 }, n;
    char what[100];
    json_array_foreach(groups, a, theirs)
    {
        n = pl_noloco_group(member, (int)json_integer_value(json_array_get(theirs, 0)), peers,
                            group, (uint64_t)(t * H));
        good = good && n == (int)json_array_size(theirs);
        json_array_foreach(theirs, i, v) good = good && member[i] == json_integer_value(v);
    }
    snprintf(what, sizeof what, "t%ld.groups", t);
    golden_check(r->g, what, good && json_array_size(groups) > 0, "numpy draws others");
}

static int noloco_round(struct replay *p, long t)
{
    struct outer_swarm *s = &p->s;
    struct pl_outer_message all[OUTER_PEERS_MAX] = { { NULL, 0, 0, 0 } };
    int next = 0, member[OUTER_PEERS_MAX] = { 0 };
    char prefix[100];
    for (int k = 0; k < s->peers && next >= 0; k++) {
        snprintf(prefix, sizeof prefix, "t%ld.r%d.", t, k);
        next = inner_steps(p, prefix, k);
        outer_compare(&p->r, prefix, "local", -1, s->x[k], -1, 1e-6);
        if (next >= 0) next = pl_outer_message(s->o[k], &all[k], s->x[k], s->grad[k]);
    }
    for (int k = 0; k < s->peers && next >= 0; k++) {
        struct pl_outer_message in_group[OUTER_PEERS_MAX];
        int n = pl_noloco_group(member, k, s->peers, p->setup.group, (uint64_t)(t * p->setup.H));
        for (int i = 0; i < n; i++) in_group[i] = all[member[i]];
        next = n < 0 ? n : pl_outer_apply(s->o[k], s->x[k], s->grad[k], in_group, n);
        snprintf(prefix, sizeof prefix, "t%ld.r%d.", t, k);
        outer_compare(&p->r, prefix, "param", -1, s->x[k], -1, 1e-6);
        outer_compare(&p->r, prefix, "momentum", -1, pl_outer_get(s->o[k], "momentum"), -1, 1e-6);
    }
    return next;
}

void golden_outer_noloco(struct golden *g, const char *path)
{
    struct replay p;
    int next = 0, good = replay_read(&p, g, path, "r%d.");
    p.setup.group = (int)outer_long(&p.r, "n", 2);
    p.setup.gamma = outer_real(&p.r, "gamma", p.setup.nu);
    if (good && replay_open(&p, "noloco"))
        for (long t = 1; t <= outer_long(&p.r, "T", 0) && next >= 0; t++) {
            check_groups(&p.r, t, p.peers, p.setup.group, p.setup.H);
            next = noloco_round(&p, t);
        }
    replay_close(&p, next);
}
