/* golden_dalle_stack.c - the reversible stack: streams after each block, inputs rebuilt from
 * outputs, and gradients with and without shared layers. */
#include "golden_dalle_net.h"

#include <stdio.h>
#include <string.h>

/* One forward or backward pass between host buffers (B,S,D). */
static int run_forward(struct net *net, const struct pl_dalle *m, float *y, const float *x)
{
    struct pl_stack *s = (struct pl_stack *)&m->stack;
    size_t bytes = (size_t)net->B * (size_t)net->S * (size_t)net->config.D * sizeof *x;
    const struct pl_backend *be = net->g->be;
    return net_did(net, "y", pl_stack_reserve(s, net->B * net->S, m->activations, 1), NULL) &&
           net_did(net, "y", be->put(pl_stack_input(s), x, bytes), NULL) &&
           net_did(net, "y", pl_stack_forward(s, net->B, net->S, 1), NULL) &&
           net_did(net, "y", be->get(y, pl_stack_output(s), bytes), NULL);
}

static int run_backward(struct net *net, const struct pl_dalle *m, float *dx, const float *dy)
{
    struct pl_stack *s = (struct pl_stack *)&m->stack;
    size_t bytes = (size_t)net->B * (size_t)net->S * (size_t)net->config.D * sizeof *dy;
    const struct pl_backend *be = net->g->be;
    return net_did(net, "dx", be->put(s->da, dy, bytes), NULL) &&
           net_did(net, "dx", pl_stack_backward(s, net->B, net->S), NULL) &&
           net_did(net, "dx", be->get(dx, s->da, bytes), NULL);
}

/* out (rows,2D) = the two streams, concatenated. */
static int concatenate(struct net *net, float *out, const float *a, const float *b, size_t rows)
{
    size_t D = (size_t)net->config.D;
    float *host = pl_alloc(2 * rows * D, sizeof *host);
    int good = host && net_did(net, "streams", golden_down(net->g, host, a, rows * D), NULL) &&
               net_did(net, "streams", golden_down(net->g, host + rows * D, b, rows * D), NULL);
    for (size_t r = 0; good && r < rows; r++) {
        memcpy(out + 2 * r * D, host + r * D, D * sizeof *out);
        memcpy(out + (2 * r + 1) * D, host + (rows + r) * D, D * sizeof *out);
    }
    pl_free(host);
    return good;
}

/* The streams after every block of a pass that keeps nothing. */
static void compare_streams(struct net *net, const float *x, double allowed)
{
    struct pl_stack *s = &net->m->stack;
    int L = net->config.L, B = net->B, S = net->S;
    size_t rows = (size_t)B * (size_t)S, n = rows * (size_t)net->config.D;
    float *want = net_floats(net, "streams", (size_t)L * 2 * n),
          *got = pl_alloc((size_t)L, 2 * n * sizeof *got);
    int good = want && got &&
               net_did(net, "streams", net->g->be->put(pl_stack_input(s), x, n * sizeof *x),
                       NULL) &&
               net_did(net, "streams", pl_stack_begin(s, B, S, 0), NULL);
    for (int l = 0; good && l < L; l++)
        good = net_did(net, "streams", pl_stack_block(s, l, B, S, 0), NULL) &&
               concatenate(net, got + (size_t)l * 2 * n, s->a[0], s->b[L], rows);
    for (int l = 0; good && l < L; l++) {
        char what[40];
        snprintf(what, sizeof what, "streams after block %d", l);
        golden_case(net->g, what,
                    golden_relative(got + (size_t)l * 2 * n, want + (size_t)l * 2 * n, 2 * n),
                    allowed);
    }
    pl_free(want);
    pl_free(got);
}

/* Compares the inputs that the reversible backward pass has reconstructed. */
static void compare_rebuilt(struct net *net, double allowed)
{
    const struct pl_stack *s = &net->m->stack;
    size_t rows = (size_t)net->B * (size_t)net->S, n = 2 * rows * (size_t)net->config.D;
    float *want = net_floats(net, "rebuilt_input", n), *got = pl_alloc(n, sizeof *got);
    if (want && got && concatenate(net, got, s->a[0], s->b[0], rows))
        golden_case(net->g, "rebuilt_input", golden_relative(got, want, n), allowed);
    pl_free(want);
    pl_free(got);
}

/* --- one gradient a block --------------------------------------------------------------------- */

/* The same network with nothing shared, every layer a copy of the one it shared. */
static struct pl_dalle *untied(struct net *net)
{
    struct pl_dalle_config config = net->config;
    struct pl_dalle *m = NULL;
    struct pl_err err = { "" };
    size_t count = 0;
    struct pl_dalle_entry *names = NULL;
    int good;
    pl_dalle_config_untie(&config);
    good = net_did(net, "untied", pl_dalle_open(&m, &config, net->g->be, 1, &err), &err) &&
           (names = pl_dalle_state_dict(m, &count)) != NULL;
    for (size_t i = 0; good && i < count; i++) {
        long to = names[i].param, from = pl_dalle_find(net->m, names[i].name);
        if (to < 0) continue;
        good = net_did(net, "untied",
                       net->g->be->copy(pl_params_value(&m->params, (size_t)to),
                                        pl_params_value(&net->m->params, (size_t)from),
                                        m->params.list[to].n),
                       NULL);
    }
    if (good)
        good = net_did(net, "untied",
                       pl_blocks_set_angles(&m->stack.blocks, net->m->stack.blocks.angle), NULL);
    free(names);
    if (good) return m;
    pl_dalle_close(m);
    return NULL;
}

/* "per_layer_grad.net.0.bias" (L,n): the gradient of that tensor in each block. */
static void compare_layers(struct net *net, const struct pl_dalle *m, const struct st_tensor *t,
                           double allowed)
{
    const char *tensor = strchr(t->name, '.') + 1;
    int L = net->config.L;
    size_t n = t->n / (size_t)L;
    float *want = net_floats(net, t->name, (size_t)L * n),
          *got = pl_alloc((size_t)L * n, sizeof *got);
    int good = want && got;
    for (int l = 0; good && l < L; l++) {
        char name[2 * PL_NAME_MAX];
        long index;
        snprintf(name, sizeof name, "layers.blocks.%d.%c.net.fn.fn.fn.%.80s", l,
                 strncmp(tensor, "to_", 3) ? 'g' : 'f', tensor);
        index = pl_dalle_find(m, name);
        good = index >= 0 && m->params.list[index].n == n;
        if (!good) golden_fail(net->g, t->name, "no tensor %s of %zu elements", name, n);
        else
            good = net_did(net, t->name,
                           golden_down(net->g, got + (size_t)l * n,
                                       pl_params_grad(&m->params, (size_t)index), n),
                           NULL);
    }
    if (good) golden_case(net->g, t->name, golden_relative(got, want, t->n), allowed);
    pl_free(want);
    pl_free(got);
}

static void compare_untied(struct net *net, float *scratch, const float *x, const float *dy,
                           double allowed)
{
    struct pl_dalle *m = untied(net);
    if (m && run_forward(net, m, scratch, x) && run_backward(net, m, scratch, dy))
        for (size_t i = 0; i < net->f->count; i++)
            if (!strncmp(net->f->tensors[i].name, "per_layer_grad.", 15))
                compare_layers(net, m, &net->f->tensors[i], allowed);
    pl_dalle_close(m);
}

/* --- all of it -------------------------------------------------------------------------------- */

void net_stack(struct net *net)
{
    static const char *const worst[] = { NULL, "grad.* recomputed, the worst",
                                         "grad.* stored, the worst" };
    size_t n = (size_t)net->B * (size_t)net->S * (size_t)net->config.D;
    float *x = net_floats(net, "x", n), *dy = net_floats(net, "dy", n);
    float *y = net_floats(net, "y", n), *dx = net_floats(net, "dx", n),
          *got = pl_alloc(n, sizeof *got);
    double forward = golden_tolerance(net->g, 1e-5, 4e-5),
           back = net_grad_tolerance(net, 1e-5, 4e-5);
    int good = x && dy && y && dx && got;
    for (int mode = PL_REVERSIBLE; good && mode <= PL_STORED; mode++) {
        net->m->activations = (enum pl_activations)mode;
        good = net_zero_grad(net) && run_forward(net, net->m, got, x);
        if (!good) break;
        if (mode == PL_REVERSIBLE) golden_case(net->g, "y", golden_relative(got, y, n), forward);
        good = run_backward(net, net->m, got, dy);
        if (!good) break;
        net_params(net, "grad.", 1, worst[mode], back);
        if (mode != PL_REVERSIBLE) continue;
        golden_case(net->g, "dx", golden_relative(got, dx, n), back);
        compare_rebuilt(net, back);
        compare_streams(net, x, forward);
    }
    if (good) compare_untied(net, got, x, dy, back);
    pl_free(x);
    pl_free(dy);
    pl_free(y);
    pl_free(dx);
    pl_free(got);
}
