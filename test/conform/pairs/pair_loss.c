/* pair_loss.c - output layer and cross-entropy in one. Bounds: an error e in the logits changes a
 * log-probability by at most 2e and a probability q by at most q (exp(2e) - 1) <= 3e q; the GEMMs
 * after that have the errors of linear.h. */
#include "pair.h"
#include "pairs.h"

#include <math.h>
#include <string.h>

#define EPS 0x1p-24

struct shape {
    int B, S, D, V, segments;
    struct pl_loss_segment segment[3];
    /* one label in `skip` does not count; 1: none counts in the first segment; 0: all do */
    int skip;
};

static const struct shape shapes[] = {
    { 1, 1, 1, 2, 1, { { 0, 1, 0, 2, 1 } }, 0 },
    { 2, 7, 5, 33, 1, { { 0, 7, 0, 33, 1 } }, 3 },
    { 3, 9, 17, 71, 2, { { 0, 4, 0, 41, 0.125f }, { 4, 9, 41, 71, 0.875f } }, 4 },
    { 2, 10, 8, 60, 2, { { 0, 5, 0, 20, 1 }, { 5, 10, 20, 60, 1 } }, 1 },
    { 1, 6, 12, 50, 3, { { 0, 2, 0, 50, 1 }, { 2, 2, 0, 10, 1 }, { 2, 6, 7, 30, 2 } }, 0 },
    { 1, 130, 65, 700, 2, { { 0, 67, 0, 400, 0.125f }, { 67, 130, 400, 700, 0.875f } }, 0 },
    { 4, 80, 64, 900, 2, { { 0, 16, 0, 388, 0.125f }, { 16, 80, 388, 900, 0.875f } }, 0 },
};

/* The sizes of the demo and the reference run: sampled rows represent all. */
static const struct shape large[] = {
    { 64,
      80,
      128,
      2372 + 512,
      2,
      { { 0, 16, 0, 2372, 0.125f }, { 16, 80, 2372, 2884, 0.875f } },
      0 },
    { 1,
      1280,
      1024,
      32356 + 8192,
      2,
      { { 0, 256, 0, 32356, 0.125f }, { 256, 1280, 32356, 40548, 0.875f } },
      0 },
};

struct given {
    struct pair_f32 x, W, b;
    struct pair_i32 label;
    struct pair_f64 loss;
    struct pair_f32 logp, dx, dW, db;
};

static size_t rows(const struct shape *s) { return (size_t)s->B * (size_t)s->S; }

static const struct pl_loss_segment *segment_of(const struct shape *s, int position)
{
    for (int i = 0; i < s->segments; i++)
        if (s->segment[i].row0 <= position && position < s->segment[i].row1) return &s->segment[i];
    return NULL;
}

static struct given given(struct pair *p, const struct shape *s, int gradients)
{
    size_t n = rows(s), D = (size_t)s->D, V = (size_t)s->V;
    struct given g = { .x = pair_normal(p, n * D, 1),
                       .W = pair_normal(p, V * D, 1 / sqrt(s->D)),
                       .b = pair_normal(p, V, 1),
                       .label = pair_ids(p, n, 0, 0),
                       .loss = pair_host_f64(p, (size_t)s->segments),
                       .logp = pair_poison(p, n) };
    if (gradients) {
        g.dx = pair_poison(p, n * D);
        g.dW = pair_normal(p, V * D, 1e-3);
        g.db = pair_normal(p, V, 1e-3);
    }
    for (size_t i = 0; i < n; i++) {
        const struct pl_loss_segment *seg = segment_of(s, (int)(i % (size_t)s->S));
        int counts = s->skip == 0 ||
                     (s->skip == 1 ? seg != s->segment : pair_int(p, 1, s->skip) > 1);
        g.label.at[0][i] = counts ? pair_int(p, seg->col0, seg->col1 - 1) : -1;
    }
    pair_share(p, g.label.any);
    return g;
}

static double flops(const struct shape *s, int gradients)
{
    double sum = 0;
    for (int i = 0; i < s->segments; i++)
        sum += 2.0 * s->B * (s->segment[i].row1 - s->segment[i].row0) * s->D *
               (s->segment[i].col1 - s->segment[i].col0);
    return gradients ? 3 * sum : sum;
}

static int starts(struct pair *p, const struct shape *s, int gradients, int bf16)
{
    return pair_case(p, "loss", "B%d S%d D%d V%d segments%d%s%s%s", s->B, s->S, s->D, s->V,
                     s->segments, s->skip ? " skips" : "", gradients ? " gradients" : "",
                     bf16 ? " bf16" : "");
}

static void run(struct pair *p, const struct shape *s, struct given *g, int gradients, int bf16)
{
    float *none[2] = { NULL, NULL };
    float **dx = gradients ? g->dx.at : none, **dW = gradients ? g->dW.at : none;
    float **db = gradients ? g->db.at : none;
    pair_work(p, flops(s, gradients), 0);
    if (bf16) p->side[1]->set_precision(PL_BF16);
    PAIR(p, loss, g->loss.at[side], g->logp.at[side], dx[side], dW[side], db[side], g->x.at[side],
         g->W.at[side], g->b.at[side], g->label.at[side], s->segment, s->segments, s->B, s->S, s->D,
         s->V);
    if (bf16) p->side[1]->set_precision(PL_FLOAT32);
}

/* One position in double: logits of its segment's columns (as gradients of -log softmax when done),
 * the log-probability of its label, and the largest bound of a logit. */
static double position(double *z, double *error, const struct shape *s, const struct given *g,
                       size_t row, int bf16)
{
    const struct pl_loss_segment *seg = segment_of(s, (int)(row % (size_t)s->S));
    const float *x = g->x.at[0] + row * (size_t)s->D;
    double most = -INFINITY, sum = 0, logp;
    int label = g->label.at[0][row];
    *error = 0;
    for (int v = seg->col0; v < seg->col1; v++) {
        const float *w = g->W.at[0] + (size_t)v * (size_t)s->D;
        double dot = g->b.at[0][v], absolute = fabs(dot), squares = dot * dot;
        for (int i = 0; i < s->D; i++) {
            double t = (double)x[i] * w[i];
            dot += t;
            absolute += fabs(t);
            squares += t * t;
        }
        z[v - seg->col0] = dot;
        most = fmax(most, dot);
        *error = fmax(*error, fmax((s->D + 8) * EPS * absolute, bf16 ? 0x1p-6 * sqrt(squares) : 0));
    }
    for (int j = 0; j < seg->col1 - seg->col0; j++) sum += exp(z[j] - most);
    sum = most + log(sum);
    logp = z[label - seg->col0] - sum;
    for (int j = 0; j < seg->col1 - seg->col0; j++)
        z[j] = exp(z[j] - sum) - (j + seg->col0 == label);
    return logp;
}

static long counted(const struct shape *s, const struct given *g, const struct pl_loss_segment *seg)
{
    long n = 0;
    for (size_t i = 0; i < rows(s); i++)
        n += g->label.at[0][i] >= 0 && segment_of(s, (int)(i % (size_t)s->S)) == seg;
    return n;
}

/* A segment's mean errs by the mean of its positions' bounds, and by the error that the contract
 * allows. */
static void compare_losses(struct pair *p, const struct shape *s, const struct given *g,
                           const double *error)
{
    for (int i = 0; i < s->segments; i++)
        pair_element(p, "loss", g->loss.any, (size_t)i, g->loss.at[0][i],
                     1e-6 * fabs(g->loss.at[0][i]) + 2 * error[i]);
}

static void small(struct pair *p, const struct shape *s, int gradients, int bf16)
{
    size_t n = rows(s), D = (size_t)s->D, V = (size_t)s->V;
    double *z, mean[3] = { 0 };
    if (!starts(p, s, gradients, bf16)) return;
    struct given g = given(p, s, gradients);
    float *of_logp = pair_scratch(p, n), *of_dx = pair_scratch(p, n * D),
          *of_dW = pair_scratch(p, V * D);
    float *of_db = pair_scratch(p, V);
    double round = bf16 ? 0x1p-6 : 0; /* of each rounded factor of the gradients' GEMMs */
    z = (double *)(void *)pair_scratch(p, 2 * V);
    for (size_t r = 0; r < n; r++) {
        const struct pl_loss_segment *seg = segment_of(s, (int)(r % (size_t)s->S));
        double error, logp, scale;
        if (g.label.at[0][r] < 0) continue;
        logp = position(z, &error, s, &g, r, bf16);
        of_logp[r] = (float)(2 * error + 1e-6 * fabs(logp));
        mean[seg - s->segment] += error / (double)counted(s, &g, seg);
        scale = seg->weight / (double)counted(s, &g, seg);
        for (int v = seg->col0; v < seg->col1; v++) {
            double dz = fabs(z[v - seg->col0]), q = dz;
            double e, own_x, own_W;
            if (v == g.label.at[0][r])
                q = 1 - dz; /* dz = q - 1 there, and 1 - dz loses its last bits */
            e = scale * (3 * error * q + 4e-7 * (q + dz));
            own_x = (seg->col1 - seg->col0 + 8) * EPS + round; /* terms of dx's sums */
            own_W = ((double)n + 8) * EPS + round;
            for (size_t i = 0; i < D; i++) {
                double x = fabs(g.x.at[0][r * D + i]), w = fabs(g.W.at[0][(size_t)v * D + i]);
                of_dx[r * D + i] += (float)((e + own_x * scale * dz) * w);
                of_dW[(size_t)v * D + i] += (float)((e + own_W * scale * dz) * x);
            }
            of_db[v] += (float)(e + own_W * scale * dz);
        }
    }
    if (gradients) {
        for (size_t i = 0; i < V * D; i++) of_dW[i] += (float)(4 * EPS * fabs(g.dW.at[0][i]));
        for (size_t i = 0; i < V; i++) of_db[i] += (float)(4 * EPS * fabs(g.db.at[0][i]));
    }
    run(p, s, &g, gradients, bf16);
    compare_losses(p, s, &g, mean);
    pair_within(p, "logp", g.logp.any, 1, of_logp);
    if (!gradients) return;
    pair_within(p, "dx", g.dx.any, 1, of_dx);
    pair_within(p, "dW", g.dW.any, 1, of_dW);
    pair_within(p, "db", g.db.any, 1, of_db);
}

#define SAMPLES 6
static void sampled(struct pair *p, const struct shape *s, int gradients, int bf16)
{
    size_t D = (size_t)s->D;
    double *z, *dx, sum[3] = { 0 }; /* dx: and its absolute terms */
    const float *logp;
    if (!starts(p, s, gradients, bf16)) return;
    struct given g = given(p, s, gradients);
    z = (double *)(void *)pair_scratch(p, 2 * (size_t)s->V);
    dx = (double *)(void *)pair_scratch(p, 4 * D);
    pair_large(p);
    run(p, s, &g, gradients, bf16);
    for (int k = 0; k < SAMPLES; k++) {
        int chosen = pair_int(p, 0, (int)rows(s) - 1);
        const struct pl_loss_segment *seg = segment_of(s, chosen % s->S);
        double error, want = position(z, &error, s, &g, (size_t)chosen, bf16);
        double scale = seg->weight / (double)(s->B * (seg->row1 - seg->row0));
        pair_element(p, "logp", g.logp.any, (size_t)chosen, want, 2 * error + 1e-6 * fabs(want));
        if (!gradients) continue;
        memset(dx, 0, 2 * D * sizeof *dx);
        for (int v = seg->col0; v < seg->col1; v++)
            for (size_t i = 0; i < D; i++) {
                double t = scale * z[v - seg->col0] * g.W.at[0][(size_t)v * D + i];
                dx[i] += t;
                dx[D + i] += fabs(t);
            }
        for (size_t i = 0; i < D; i++)
            pair_element(p, "dx", g.dx.any, (size_t)chosen * D + i, dx[i],
                         dx[D + i] * (6 * error + (seg->col1 - seg->col0 + 8) * EPS + 1e-6 +
                                      (bf16 ? 0x1p-6 : 0)));
    }
    /* the losses: means of the backend's own log-probabilities */
    logp = pair_result(p, g.logp.any, 1);
    for (size_t i = 0; i < rows(s); i++) {
        const struct pl_loss_segment *seg = segment_of(s, (int)(i % (size_t)s->S));
        sum[seg - s->segment] -= logp[i] / (double)(s->B * (seg->row1 - seg->row0));
    }
    for (int i = 0; i < s->segments; i++)
        pair_element(p, "loss", g.loss.any, (size_t)i, sum[i], 1e-6 * fabs(sum[i]));
    if (!gradients) return;
    /* Each position's gradients sum to nothing, so does a segment's share of db. */
    for (int i = 0; i < s->segments; i++) {
        const struct pl_loss_segment *seg = &s->segment[i];
        double total = 0, before = 0;
        for (int v = seg->col0; v < seg->col1; v++) {
            total += pair_result(p, g.db.any, 1)[v];
            before += pair_before(p, g.db.any)[v];
        }
        pair_check(p, fabs(total - before) < 1e-5, "db: segment %d gained %.3g, should be 0", i,
                   total - before);
    }
    pair_finite(p, "dW", g.dW.any);
    pair_finite(p, "db", g.db.any);
}

void pair_loss(struct pair *p)
{
    int precisions = 1;
    if (p->side[1]->set_precision(PL_BF16) == PL_OK) precisions = 2;
    p->side[1]->set_precision(PL_FLOAT32);
    for (int bf16 = 0; bf16 < precisions; bf16++)
        for (int gradients = 0; gradients <= 1; gradients++) {
            for (size_t i = 0; i < PL_COUNT(shapes); i++) small(p, &shapes[i], gradients, bf16);
            for (int i = 0; i < 3; i++) {
                int S = pair_int(p, 2, 40), V = pair_int(p, 4, 300), cut = pair_int(p, 1, S - 1);
                int col = pair_int(p, 1, V - 2);
                struct shape s = { pair_int(p, 1, 3),
                                   S,
                                   pair_int(p, 1, 50),
                                   V,
                                   2,
                                   { { 0, cut, 0, col, 0.125f }, { cut, S, col, V, 0.875f } },
                                   pair_int(p, 0, 4) };
                small(p, &s, gradients, bf16);
            }
            for (size_t i = 0; !pair_quick(p) && i < PL_COUNT(large); i++)
                sampled(p, &large[i], gradients, bf16);
        }
}
