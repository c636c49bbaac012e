/* attention.cl - attention, one work-item per query (forward, dq) or key (dk, dv). Only allowed
 * keys are visited: some text keys, then the cells of a regular grid of rows and columns. */
enum { FULL, ROW, COL, CONV, CONV_CORNER, NONE }; /* the order of enum pl_mask_kind */

struct mask {
    int kind, P, F, kernel_, dilation;
};

/* Keys of one query: the first `text` positions, then the cells (r0 + i down, c0 + j across). */
struct keys {
    int text, rows, columns, r0, down, c0, across;
};

struct keys keys_of(struct mask m, int q, int n)
{
    struct keys k = { q + 1, 0, 1, 0, 1, 0, 1 };
    int cell = q - m.P, row, column, left, right, up;
    if (m.kind == NONE) k.text = n;
    if (m.kind == NONE || m.kind == FULL || cell < 0) return k;
    row = cell / m.F;
    column = cell % m.F;
    k.text = m.P;
    switch (m.kind) {
    case ROW:
        k.rows = 1, k.r0 = row;
        k.columns = column + 1;
        return k;
    case COL:
        k.rows = row + 1;
        k.c0 = column;
        return k;
    }
    up = m.kind == CONV ? m.kernel_ / 2 : m.kernel_ - 1; /* in steps of the dilation */
    left = up;
    right = m.kind == CONV ? m.kernel_ / 2 : 0;
    up = min(up, row / m.dilation);
    left = min(left, column / m.dilation);
    right = min(right, (m.F - 1 - column) / m.dilation);
    k.rows = up + 1, k.r0 = row - up * m.dilation, k.down = m.dilation;
    k.columns = left + right + 1, k.c0 = column - left * m.dilation, k.across = m.dilation;
    return k;
}

int key_count(struct keys k) { return k.text + k.rows * k.columns; }

int key_at(struct keys k, struct mask m, int i)
{
    if (i < k.text) return i;
    i -= k.text;
    return m.P + (k.r0 + i / k.columns * k.down) * m.F + k.c0 + i % k.columns * k.across;
}

int allowed(struct mask m, int q, int k)
{
    int down, across, reach;
    if (m.kind == NONE) return 1;
    if (k > q) return 0;
    if (m.kind == FULL || k < m.P) return 1;
    down = (q - m.P) / m.F - (k - m.P) / m.F;
    across = (q - m.P) % m.F - (k - m.P) % m.F;
    if (m.kind == ROW) return down == 0;
    if (m.kind == COL) return across == 0;
    if (down % m.dilation || across % m.dilation) return 0;
    reach = m.dilation * (m.kind == CONV ? m.kernel_ / 2 : m.kernel_ - 1);
    return down <= reach && (m.kind == CONV ? abs(across) <= reach : 0 <= across && across <= reach);
}

int is_whole(struct mask m) { return m.kind == FULL || m.kind == NONE; }

/* Whether the key mask hides a key. It is (B,n) for FULL and NONE, otherwise (B,P) over text, and
 * applies to queries of the image only. */
int hidden(struct mask m, global const uchar *hide, int has_hide, int b, int n, int q, int k)
{
    if (!has_hide) return 0;
    if (is_whole(m)) return !hide[(ulong)b * n + k];
    return q >= m.P && k < m.P && !hide[(ulong)b * m.P + k];
}

/* Whether all keys of a query are masked, which happens only with FULL and NONE: it then attends to
 * all keys equally. */
int is_fully_masked(struct mask m, global const uchar *hide, int has_hide, int b, int n, int q)
{
    if (!has_hide || !is_whole(m)) return 0;
    for (int k = 0; k < (m.kind == NONE ? n : q + 1); k++)
        if (hide[(ulong)b * n + k]) return 0;
    return 1;
}

float dot_(global const float *a, global const float *b, int d)
{
    float s = 0;
    for (int c = 0; c < d; c++) s = fma(a[c], b[c], s);
    return s;
}

/* Online softmax: the largest score so far, and the denominator and the weighted sum relative to
 * it. */
kernel void attention(ulong total, global float *o, global float *lse, int has_lse, global const float *qkv, int n,
                      int H, int d, int kind, int P, int F, int kernel_, int dilation, global const uchar *hide,
                      int has_hide)
{
    EACH(i, total); /* (b, q, h), the order of o */
    struct mask m = { kind, P, F, kernel_, dilation };
    int h = i % H, q = i / H % n, b = i / H / n, fully_masked = is_fully_masked(m, hide, has_hide, b, n, q);
    struct keys keys = keys_of(m, q, n);
    ulong step = 3ul * H * d;
    global const float *first = qkv + (ulong)b * n * step + (ulong)h * d, *mine = first + q * step;
    global float *out = o + i * d;
    float best = -INFINITY, sum = 0, scale = (float)(1 / sqrt((double)d));
    int count = fully_masked ? n : key_count(keys);
    for (int c = 0; c < d; c++) out[c] = 0;
    for (int j = 0; j < count; j++) {
        int k = fully_masked ? j : key_at(keys, m, j);
        global const float *key = first + k * step + (ulong)H * d, *value = key + (ulong)H * d;
        float score, w;
        if (!fully_masked && ((k > q && kind != NONE) || hidden(m, hide, has_hide, b, n, q, k))) continue;
        score = fully_masked ? 0 : scale * dot_(mine, key, d);
        if (score > best) {
            float shrink = best == -INFINITY ? 0 : exp(best - score);
            sum *= shrink;
            for (int c = 0; c < d; c++) out[c] *= shrink;
            best = score;
        }
        w = exp(score - best);
        sum += w;
        for (int c = 0; c < d; c++) out[c] = fma(w, value[c], out[c]);
    }
    for (int c = 0; c < d; c++) out[c] /= sum;
    if (has_lse) lse[((ulong)b * H + h) * n + q] = best + log(sum);
}

kernel void attention_delta(ulong total, global float *delta, global const float *dout, global const float *o, int n,
                            int H, int d)
{
    EACH(i, total);
    delta[(i / H / n * H + i % H) * n + i / H % n] = dot_(dout + i * d, o + i * d, d);
}

kernel void attention_dq(ulong total, global float *dqkv, global const float *dout, global const float *qkv,
                         global const float *lse, global const float *delta, int n, int H, int d, int kind, int P,
                         int F, int kernel_, int dilation, global const uchar *hide, int has_hide)
{
    EACH(i, total);
    struct mask m = { kind, P, F, kernel_, dilation };
    int h = i % H, q = i / H % n, b = i / H / n;
    struct keys keys = keys_of(m, q, n);
    ulong step = 3ul * H * d, row = ((ulong)b * H + h) * n + q;
    global const float *first = qkv + (ulong)b * n * step + (ulong)h * d, *mine = first + q * step;
    global float *out = dqkv + (mine - qkv);
    float scale = (float)(1 / sqrt((double)d));
    for (int c = 0; c < d; c++) out[c] = 0;
    if (is_fully_masked(m, hide, has_hide, b, n, q)) return;
    for (int j = 0; j < key_count(keys); j++) {
        int k = key_at(keys, m, j);
        global const float *key = first + k * step + (ulong)H * d, *value = key + (ulong)H * d;
        float w, e;
        if ((k > q && kind != NONE) || hidden(m, hide, has_hide, b, n, q, k)) continue;
        w = exp(scale * dot_(mine, key, d) - lse[row]);
        e = scale * w * (dot_(dout + i * d, value, d) - delta[row]);
        for (int c = 0; c < d; c++) out[c] = fma(e, key[c], out[c]);
    }
}

kernel void attention_dkv(ulong total, global float *dqkv, global const float *dout, global const float *qkv,
                          global const float *lse, global const float *delta, int n, int H, int d, int kind, int P,
                          int F, int kernel_, int dilation, global const uchar *hide, int has_hide)
{
    EACH(i, total);
    struct mask m = { kind, P, F, kernel_, dilation };
    /* if an earlier query has seen a key, no later one is fully masked */
    int h = i % H, k = i / H % n, b = i / H / n, seen = 0;
    ulong step = 3ul * H * d;
    global const float *first = qkv + (ulong)b * n * step + (ulong)h * d;
    global const float *key = first + k * step + (ulong)H * d, *value = key + (ulong)H * d;
    global float *dk = dqkv + (key - qkv), *dv = dk + (ulong)H * d;
    float scale = (float)(1 / sqrt((double)d));
    for (int c = 0; c < d; c++) dk[c] = dv[c] = 0;
    for (int q = 0; q < n; q++) {
        ulong at = ((ulong)b * n + q) * H + h, row = ((ulong)b * H + h) * n + q;
        global const float *query = first + q * step, *g = dout + at * d;
        int fully_masked = !seen && is_fully_masked(m, hide, has_hide, b, n, q);
        float w, e;
        seen |= !fully_masked;
        if (!fully_masked && (!allowed(m, q, k) || hidden(m, hide, has_hide, b, n, q, k))) continue;
        w = exp((fully_masked ? 0 : scale * dot_(query, key, d)) - lse[row]);
        e = fully_masked ? 0 : scale * w * (dot_(g, value, d) - delta[row]);
        for (int c = 0; c < d; c++) {
            dk[c] = fma(e, query[c], dk[c]);
            dv[c] = fma(w, g[c], dv[c]);
        }
    }
}

/* One step with a KV cache: one work-item per head. */
kernel void attention_step(ulong heads, global float *o, global float *k_cache, global float *v_cache,
                           global const float *qkv, int S, int H, int d, int q, int kind, int P, int F, int kernel_,
                           int dilation)
{
    EACH(i, heads);
    struct mask m = { kind, P, F, kernel_, dilation };
    struct keys keys = keys_of(m, q, q + 1);
    global const float *mine = qkv + (i / H * 3 * H + i % H) * d, *k_new = mine + (ulong)H * d,
                       *v_new = k_new + (ulong)H * d;
    global float *ks = k_cache + i * S * d, *vs = v_cache + i * S * d, *out = o + i * d;
    float best = -INFINITY, sum = 0, scale = (float)(1 / sqrt((double)d));
    for (int c = 0; c < d; c++) {
        ks[(ulong)q * d + c] = k_new[c];
        vs[(ulong)q * d + c] = v_new[c];
        out[c] = 0;
    }
    for (int j = 0; j < key_count(keys); j++) {
        int k = key_at(keys, m, j);
        float score, w;
        if (k > q) continue;
        score = scale * dot_(mine, ks + (ulong)k * d, d);
        if (score > best) {
            float shrink = best == -INFINITY ? 0 : exp(best - score);
            sum *= shrink;
            for (int c = 0; c < d; c++) out[c] *= shrink;
            best = score;
        }
        w = exp(score - best);
        sum += w;
        for (int c = 0; c < d; c++) out[c] = fma(w, vs[(ulong)k * d + c], out[c]);
    }
    for (int c = 0; c < d; c++) out[c] /= sum;
}
