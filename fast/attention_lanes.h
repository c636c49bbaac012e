/* attention_lanes.h - attention of one head, over the allowed keys only; see attention_plan.h. */

#include "product_lanes.h"

#define blind_backward ISA(blind_backward)
#define columns_of_group ISA(columns_of_group)
#define dot ISA(dot)
#define gather ISA(gather)
#define head_backward ISA(head_backward)
#define head_finish ISA(head_finish)
#define head_forward ISA(head_forward)
#define head_step ISA(head_step)
#define mean_value ISA(mean_value)
#define pack_columns ISA(pack_columns)
#define pack_keys ISA(pack_keys)
#define pack_panels ISA(pack_panels)
#define pack_queries ISA(pack_queries)
#define pack_rows ISA(pack_rows)
#define scatter ISA(scatter)
#define scores_of_block ISA(scores_of_block)
#define unpack ISA(unpack)
#define unpack_sum ISA(unpack_sum)
#define weigh ISA(weigh)
#define weigh_backward ISA(weigh_backward)

/* ---- packing ---- */

/* `count` rows of d floats, `stride` apart, times `scale`; up to the next full register zeros. */
static void pack_rows(float *to, int line, const float *from, size_t stride, int count, int d,
                      float scale)
{
    for (int i = 0; i < count; i++, to += line, from += stride) {
        int c = 0;
        for (; c + LANES <= d; c += LANES) store(to + c, load(from + c) * all(scale));
        if (c < d) store(to + c, load_part(from + c, d - c) * all(scale));
    }
}

/* The same rows cut into panels of PANEL channels, `panel` floats apart. */
static void pack_panels(float *to, size_t panel, const float *from, size_t stride, int count, int d)
{
    for (int i = 0; i < count; i++, to += PANEL, from += stride) {
        int c = 0;
        for (; c + LANES <= d; c += LANES)
            store(to + (size_t)(c / PANEL) * panel + c % PANEL, load(from + c));
        if (c < d) store(to + (size_t)(c / PANEL) * panel + c % PANEL, load_part(from + c, d - c));
    }
}

/* The transpose, in panels of PANEL keys: panel j holds (d, PANEL). Keys that are missing up to
 * `room`, or in the last register, are zeros. */
static void pack_columns(float *to, const float *from, size_t stride, int count, int room, int d,
                         const float *zeros)
{
    for (int i = 0; i < room; i += LANES) {
        float *column = to + (size_t)(i / PANEL) * PANEL * (size_t)d + i % PANEL;
        const float *row[LANES];
        int c = 0;
        for (int j = 0; j < LANES; j++)
            row[j] = i + j < count ? from + (size_t)(i + j) * stride : zeros;
        for (; c + 4 <= d; c += 4) {
            vec x[4];
            turned_quads(x, row, c);
            _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++)
                store(column + (c + k) * PANEL, x[k]);
        }
        for (; c < d; c++)
            for (int j = 0; j < LANES; j++) column[c * PANEL + j] = row[j][c];
    }
}

/* Where a group's transposed keys begin. */
LANE size_t columns_of_group(const struct attention_plan *p, int group)
{
    int text = (p->text + PANEL - 1) / PANEL, each = (p->F + PANEL - 1) / PANEL;
    return (size_t)(text + group * each) * PANEL * (size_t)p->d;
}

/* Packs the keys and values that the blocks look at: transposed ones where `columns` are given,
 * rows where `rows` are. */
static void pack_keys(const struct attention_plan *p, const struct attention_scratch *w,
                      const float *from, size_t stride, float *columns, float *rows, int block0,
                      int block1)
{
    size_t panel = (size_t)p->n * PANEL;
    int keys = 0, first = p->groups, end = 0;
    for (int x = block0; x < block1; x++) {
        const struct attention_block *b = &p->block[x];
        if (b->keys > keys) keys = b->keys;
        if (!b->groups) continue;
        if (b->group < first) first = b->group;
        if (b->group + b->groups > end) end = b->group + b->groups;
    }
    first -= (p->slots - 1) * p->apart;
    if (columns) pack_columns(columns, from, stride, keys, keys, p->d, w->zeros);
    if (rows) pack_panels(rows, panel, from, stride, keys, p->d);
    for (int g = first < 0 ? 0 : first; g < end; g++) {
        struct attention_run u = run_of_group(p, g);
        const float *at = from + (size_t)u.position * stride;
        size_t step = (size_t)u.apart * stride;
        if (columns)
            pack_columns(columns + columns_of_group(p, g), at, step, u.rows, p->F, p->d, w->zeros);
        if (rows) pack_panels(rows + (size_t)p->start[g] * PANEL, panel, at, step, u.rows, p->d);
    }
}

/* ---- scores and weights ---- */

/* s (rows, pitch) = q (rows, d) times the transposed keys: text first, then one slot of `width` for
 * each group that the query's group looks at. */
static void scores_of_block(const struct attention_plan *p, const struct attention_block *b,
                            float *s, const float *q, const float *columns)
{
    int text = round_up(b->keys);
    struct matrix k = { columns, PANEL, PANEL * (ptrdiff_t)p->d };
    product(s, p->pitch, q, p->line, k, b->rows, text, p->d, 0);
    for (int i = 0; i < b->groups; i++) {
        struct attention_run u = run_of(p, b, i);
        for (int slot = 0; slot < slots_of(p, u.group); slot++) {
            k.at = columns + columns_of_group(p, u.group - slot * p->apart);
            product(s + (ptrdiff_t)u.row * p->pitch + text + slot * p->width, p->pitch,
                    q + (ptrdiff_t)u.row * p->line, p->line, k, u.rows, p->width, p->d, 0);
        }
    }
}

/* Scores become exp(score - largest), hidden ones zero; *most is the largest, *sum their sum, and 0
 * if all are hidden. */
LANE void weigh(float *s, const struct attention_row *r, float *most, float *sum)
{
    int columns = r->text + r->slots * r->width;
    vec m = all(-INFINITY), sums = all(0), shift;
    for (int j = 0; j < r->text; j += LANES) {
        vec x = load(s + j) + load(r->mask + j);
        if (r->more) x += load(r->more + j);
        store(s + j, x);
        m = larger(m, x);
    }
    for (int slot = 0; slot < r->slots; slot++) {
        float *at = s + r->text + slot * r->width;
        const float *mask = slot ? r->above : r->own;
        for (int j = 0; j < r->width; j += LANES) {
            vec x = load(at + j) + load(mask + j);
            store(at + j, x);
            m = larger(m, x);
        }
    }
    *most = largest(m);
    shift = all(*most > -INFINITY ? *most : 0);
    for (int j = 0; j < columns; j += LANES) {
        vec e = exponential(load(s + j) - shift);
        store(s + j, e);
        sums += e;
    }
    *sum = total(sums);
}

/* Scores become weights, and ds = dout . v their gradients: weight * (ds - inner). */
LANE void weigh_backward(float *s, float *ds, const float *mask, const float *more, int columns,
                         float lse, float inner)
{
    for (int j = 0; j < columns; j += LANES) {
        vec x = load(s + j) + load(mask + j), w;
        if (more) x += load(more + j);
        w = exponential(x - all(lse));
        store(s + j, w);
        store(ds + j, w * (load(ds + j) - all(inner)));
    }
}

/* ---- forward ---- */

/* to (rows, line) = weights of the block times rows of v (or gradients of scores times k). */
static void gather(const struct attention_plan *p, const struct attention_block *b, float *to,
                   const float *s, const float *rows)
{
    int text = round_up(b->keys), d = round_up(p->d);
    struct matrix v = { rows, PANEL, PANEL * (ptrdiff_t)p->n };
    product(to, p->line, s, p->pitch, v, b->rows, d, b->keys, 0);
    for (int i = 0; i < b->groups; i++) {
        struct attention_run u = run_of(p, b, i);
        for (int slot = 0; slot < slots_of(p, u.group); slot++) {
            int from = u.group - slot * p->apart;
            v.at = rows + (ptrdiff_t)p->start[from] * PANEL;
            product(to + (ptrdiff_t)u.row * p->line, p->line,
                    s + (ptrdiff_t)u.row * p->pitch + text + slot * p->width, p->pitch, v, u.rows,
                    d, p->length[from], 1);
        }
    }
}

/* to (d) = from (d) * scale */
LANE void unpack(float *to, const float *from, int d, float scale)
{
    int c = 0;
    for (; c + LANES <= d; c += LANES) store(to + c, load(from + c) * all(scale));
    if (c < d) store_part(to + c, load(from + c) * all(scale), d - c);
}

/* A query without keys gets the mean of all values, later ones included. */
static void mean_value(const struct attention_plan *p, const struct attention_head *h, float *o)
{
    for (int c = 0; c < p->d; c++) {
        double sum = 0;
        for (int i = 0; i < p->n; i++) sum += h->v[(size_t)i * h->stride + (size_t)c];
        o[c] = (float)(sum / p->n);
    }
}

static void head_forward(const struct attention_plan *p, const struct attention_head *h,
                         const struct attention_scratch *w, int block0, int block1)
{
    pack_keys(p, w, h->k, h->stride, w->k_columns, NULL, block0, block1);
    pack_keys(p, w, h->v, h->stride, NULL, w->v_rows, block0, block1);
    for (const struct attention_block *b = p->block + block0; b < p->block + block1; b++) {
        for (int i = 0; i < runs_of(b); i++) {
            struct attention_run u = run_of(p, b, i);
            pack_rows(w->q + (ptrdiff_t)u.row * p->line, p->line,
                      h->q + (size_t)u.position * h->stride, (size_t)u.apart * h->stride, u.rows,
                      p->d, p->scale);
        }
        scores_of_block(p, b, w->s, w->q, w->k_columns);
        for (int i = 0; i < runs_of(b); i++) {
            struct attention_run u = run_of(p, b, i);
            for (int x = 0; x < u.rows; x++) {
                struct attention_row r = row_of(p, h, b, &u, x);
                float most, sum;
                fetch_next(h, u.position + x * u.apart, p->d);
                weigh(w->s + (ptrdiff_t)(u.row + x) * p->pitch, &r, &most, &sum);
                w->sum[u.row + x] = sum;
                if (h->lse)
                    h->lse[u.position + x * u.apart] = sum > 0 ? most + logf(sum)
                                                               : logf((float)p->n);
            }
        }
        gather(p, b, w->out, w->s, w->v_rows);
        for (int i = 0; i < runs_of(b); i++) {
            struct attention_run u = run_of(p, b, i);
            for (int x = 0; x < u.rows; x++) {
                float *o = h->o + (size_t)(u.position + x * u.apart) * h->o_stride;
                float sum = w->sum[u.row + x];
                if (sum > 0) unpack(o, w->out + (ptrdiff_t)(u.row + x) * p->line, p->d, 1 / sum);
                else mean_value(p, h, o);
            }
        }
    }
}

/* ---- backward ---- */

/* to (n, line) += the block's weights, transposed, times its rows of dout (or of q). */
static void scatter(const struct attention_plan *p, const struct attention_block *b, float *to,
                    const float *s, const float *rows)
{
    int text = round_up(b->keys), d = round_up(p->d);
    struct matrix m = { rows, p->line, PANEL };
    product_transposed(to, p->line, s, p->pitch, m, b->keys, d, b->rows);
    for (int i = 0; i < b->groups; i++) {
        struct attention_run u = run_of(p, b, i);
        m.at = rows + (ptrdiff_t)u.row * p->line;
        for (int slot = 0; slot < slots_of(p, u.group); slot++) {
            int into = u.group - slot * p->apart;
            product_transposed(to + (ptrdiff_t)p->start[into] * p->line, p->line,
                               s + (ptrdiff_t)u.row * p->pitch + text + slot * p->width, p->pitch,
                               m, p->length[into], d, u.rows);
        }
    }
}

/* Packs the block's queries, scaled, and its dout; inner = dout . o. Blind queries get no further
 * than dv, equally everywhere. */
static void pack_queries(const struct attention_plan *p, const struct attention_head *h,
                         const struct attention_scratch *w, const struct attention_block *b)
{
    for (int i = 0; i < runs_of(b); i++) {
        struct attention_run u = run_of(p, b, i);
        size_t at = (size_t)u.position * h->o_stride, apart = (size_t)u.apart * h->o_stride;
        float *dout = w->dout + (ptrdiff_t)u.row * p->line;
        pack_rows(w->q + (ptrdiff_t)u.row * p->line, p->line, h->q + (size_t)u.position * h->stride,
                  (size_t)u.apart * h->stride, u.rows, p->d, p->scale);
        pack_rows(dout, p->line, h->dout + at, apart, u.rows, p->d, 1);
        for (int x = 0; x < u.rows; x++, dout += p->line) {
            const float *o = h->saved_o + at + (size_t)x * apart;
            vec sum = all(0);
            int c = 0;
            for (; c + LANES <= p->d; c += LANES) sum = fma(load(o + c), load(dout + c), sum);
            if (c < p->d) sum = fma(load_part(o + c, p->d - c), load(dout + c), sum);
            w->sum[u.row + x] = total(sum);
        }
    }
}

/* A query without keys has looked at all values alike. */
static void blind_backward(const struct attention_plan *p, const struct attention_scratch *w,
                           const struct attention_block *b, int blind)
{
    vec share = all(1 / (float)p->n);
    for (int row = b->row; row < b->row + b->rows && row < blind; row++) {
        const float *dout = w->dout + (ptrdiff_t)(row - b->row) * p->line;
        for (int i = 0; i < p->n; i++)
            for (int c = 0; c < p->d; c += LANES) {
                float *dv = w->dv + (ptrdiff_t)i * p->line + c;
                store(dv, fma(load(dout + c), share, load(dv)));
            }
    }
}

static void head_backward(const struct attention_plan *p, const struct attention_head *h,
                          const struct attention_scratch *w, int block0, int block1)
{
    size_t sums = (size_t)p->n * (size_t)p->line;
    memset(w->dk, 0, sums * sizeof *w->dk);
    memset(w->dv, 0, sums * sizeof *w->dv);
    pack_keys(p, w, h->k, h->stride, w->k_columns, w->k_rows, block0, block1);
    pack_keys(p, w, h->v, h->stride, w->v_columns, NULL, block0, block1);
    for (const struct attention_block *b = p->block + block0; b < p->block + block1; b++) {
        pack_queries(p, h, w, b);
        scores_of_block(p, b, w->s, w->q, w->k_columns);
        scores_of_block(p, b, w->ds, w->dout, w->v_columns);
        for (int i = 0; i < runs_of(b); i++) {
            struct attention_run u = run_of(p, b, i);
            for (int x = 0; x < u.rows; x++) {
                struct attention_row r = row_of(p, h, b, &u, x);
                ptrdiff_t at = (ptrdiff_t)(u.row + x) * p->pitch;
                float lse = h->saved_lse[u.position + x * u.apart], inner = w->sum[u.row + x];
                fetch_next(h, u.position + x * u.apart, p->d);
                weigh_backward(w->s + at, w->ds + at, r.mask, r.more, r.text, lse, inner);
                at += r.text;
                for (int slot = 0; slot < r.slots; slot++, at += r.width)
                    weigh_backward(w->s + at, w->ds + at, slot ? r.above : r.own, NULL, r.width,
                                   lse, inner);
            }
        }
        scatter(p, b, w->dv, w->s, w->dout);
        scatter(p, b, w->dk, w->ds, w->q);
        gather(p, b, w->out, w->ds, w->k_rows);
        for (int i = 0; i < runs_of(b); i++) {
            struct attention_run u = run_of(p, b, i);
            for (int x = 0; x < u.rows; x++)
                unpack(h->dq + (size_t)(u.position + x * u.apart) * h->stride,
                       w->out + (ptrdiff_t)(u.row + x) * p->line, p->d, p->scale);
        }
        blind_backward(p, w, b, h->blind);
    }
}

/* to (rows of d, `stride` apart) = the sum of `parts` packed buffers. */
static void unpack_sum(float *to, size_t stride, const float *from, int line, int rows, int d,
                       int parts, size_t apart)
{
    for (int i = 0; i < rows; i++, to += stride, from += line)
        for (int c = 0; c < d; c += LANES) {
            vec sum = load(from + c);
            for (int k = 1; k < parts; k++) sum += load(from + (size_t)k * apart + c);
            if (c + LANES <= d) store(to + c, sum);
            else store_part(to + c, sum, d - c);
        }
}

static void head_finish(const struct attention_plan *p, const struct attention_head *h,
                        const float *dk, const float *dv, int parts, size_t apart)
{
    for (int g = -1; g < p->groups; g++) {
        struct attention_run u = { .rows = p->text, .apart = 1 };
        size_t packed = 0, at, step;
        if (g >= 0) {
            u = run_of_group(p, g);
            packed = (size_t)p->start[g] * (size_t)p->line;
        }
        at = (size_t)u.position * h->stride;
        step = (size_t)u.apart * h->stride;
        unpack_sum(h->dk + at, step, dk + packed, p->line, u.rows, p->d, parts, apart);
        unpack_sum(h->dv + at, step, dv + packed, p->line, u.rows, p->d, parts, apart);
    }
}

/* ---- one query over a cache ---- */

LANE float dot(const float *a, const float *b, int d)
{
    vec sum = all(0);
    int c = 0;
    for (; c + LANES <= d; c += LANES) sum = fma(load(a + c), load(b + c), sum);
    if (c < d) sum = fma(load_part(a + c, d - c), load_part(b + c, d - c), sum);
    return total(sum);
}

static void head_step(float *o, const float *q, const float *k_cache, const float *v_cache,
                      const int *key, int count, int d, float *weight)
{
    float most = -INFINITY, scale = 1 / sqrtf((float)d), sum;
    vec sums = all(0);
    for (int j = 0; j < count; j++) {
        weight[j] = scale * dot(q, k_cache + (size_t)key[j] * (size_t)d, d);
        if (weight[j] > most) most = weight[j];
    }
    for (int j = count; j < round_up(count); j++) weight[j] = -INFINITY;
    for (int j = 0; j < count; j += LANES) {
        vec e = exponential(load(weight + j) - all(most));
        store(weight + j, e);
        sums += e;
    }
    sum = total(sums);
    for (int c = 0; c < d; c += 4 * LANES) { /* four registers of channels at a time */
        vec x[4] = { all(0), all(0), all(0), all(0) };
        for (int j = 0; j < count; j++) {
            const float *v = v_cache + (size_t)key[j] * (size_t)d + c;
            vec w = all(weight[j]);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                if (c + (i + 1) * LANES <= d) x[i] = fma(w, load(v + i * LANES), x[i]);
                else if (c + i * LANES < d)
                    x[i] = fma(w, load_part(v + i * LANES, d - c - i * LANES), x[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            if (c + (i + 1) * LANES <= d) store(o + c + i * LANES, x[i] * all(1 / sum));
            else if (c + i * LANES < d)
                store_part(o + c + i * LANES, x[i] * all(1 / sum), d - c - i * LANES);
    }
}

static const struct attention_ops ISA(ops) = {
    .lanes = LANES,
    .forward = head_forward,
    .backward = head_backward,
    .finish = head_finish,
    .step = head_step,
};
