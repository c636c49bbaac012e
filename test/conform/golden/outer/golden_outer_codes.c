/* golden_outer_codes.c - few bits a value: E3M0, torchft's rows of bytes, SparseLoCo's codes and
 * 12-bit indices. */
#include "golden_outer.h"
#include "ref/outer/e3m0.h"
#include "ref/outer/rows8.h"
#include "ref/outer/sparse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- E3M0 ---- */

/* Encodes x (n) by the backend and compares with the tensor NAME; then decodes that. */
static void e3m0_both_ways(struct golden *g, const struct st_file *f, const char *name,
                           const float *x, size_t n, size_t block, const char *bytes,
                           const char *decoded)
{
    const struct st_tensor *want = outer_find(f, "%s.%s", name, bytes);
    float *values = decoded ? outer_floats(g, f, n, "%s.%s", name, decoded) : NULL;
    size_t size = pl_e3m0_bytes(n, block);
    float *at = golden_up(g, x, n), *back = pl_alloc(n, sizeof *back);
    uint8_t *coded = g->be->alloc(size), *got = pl_alloc(size, 1);
    char what[100];
    int rc = want && at && back && coded && got ? PL_OK : PL_ENOMEM;
    if (!rc) rc = g->be->e3m0_encode(coded, at, n, block);
    if (!rc) rc = g->be->get(got, coded, size);
    snprintf(what, sizeof what, "%.60s bytes", name);
    golden_check(g, what, !rc && want->bytes == size && !memcmp(got, want->data, size),
                 "%s: other bytes", pl_status_name(rc));
    if (!rc && want->bytes == size) rc = g->be->put(coded, want->data, size);
    if (!rc) rc = g->be->e3m0_decode(at, coded, n, block);
    if (!rc) rc = golden_down(g, back, at, n);
    snprintf(what, sizeof what, "%.60s decoded", name);
    if (decoded)
        golden_check(g, what, !rc && values && !memcmp(back, values, n * sizeof *back),
                     "%s: other values", pl_status_name(rc));
    pl_free(values);
    pl_free(back);
    pl_free(got);
    g->be->free(at);
    g->be->free(coded);
}

void golden_outer_e3m0(struct golden *g, const struct st_file *f, const json_t *config)
{
    json_t *all = json_object_get(config, "cases"), *c;
    const char *name;
    json_object_foreach(all, name, c)
    {
        size_t n = (size_t)golden_int(g, c, "n"), block = (size_t)golden_int(g, c, "B");
        float *x = outer_floats(g, f, n, "%s.x", name);
        if (x && block) e3m0_both_ways(g, f, name, x, n, block, "bytes", "decoded");
        pl_free(x);
    }
}

/* Sum of the decoded messages in float32, peers ascending, by their number; the mean again. */
void golden_outer_e3m0_exchange(struct golden *g, const struct st_file *f, const json_t *config)
{
    long R = golden_int(g, config, "R");
    size_t n = (size_t)golden_int(g, config, "n"), block = (size_t)golden_int(g, config, "B");
    float *sum = pl_alloc(n, sizeof *sum), *one = pl_alloc(n, sizeof *one), *at = NULL;
    float *mean = outer_floats(g, f, n, "mean");
    uint8_t *coded = block ? g->be->alloc(pl_e3m0_bytes(n, block)) : NULL;
    char name[100];
    at = g->be->alloc(n * sizeof *at);
    for (long k = 0; sum && one && mean && coded && at && k < R; k++) {
        float *delta = outer_floats(g, f, n, "p%ld.delta", k);
        const struct st_tensor *bytes = outer_find(f, "p%ld.bytes", k);
        snprintf(name, sizeof name, "p%ld", k);
        if (delta) e3m0_both_ways(g, f, name, delta, n, block, "bytes", NULL);
        if (bytes && bytes->bytes == pl_e3m0_bytes(n, block) &&
            !g->be->put(coded, bytes->data, bytes->bytes) &&
            !g->be->e3m0_decode(at, coded, n, block) && !golden_down(g, one, at, n))
            for (size_t i = 0; i < n; i++) sum[i] += one[i];
        pl_free(delta);
    }
    for (size_t i = 0; sum && i < n; i++) sum[i] /= (float)R;
    if (mean && sum) golden_case(g, "mean", golden_relative(sum, mean, n), 1e-7);
    if (mean) {
        const struct st_tensor *bytes = outer_find(f, "answer.bytes");
        float *answer = outer_floats(g, f, n, "answer");
        int rc = g->be->put(at, mean, n * sizeof *mean);
        if (!rc) rc = g->be->e3m0_encode(coded, at, n, block);
        if (!rc) rc = g->be->e3m0_decode(at, coded, n, block);
        if (!rc) rc = golden_down(g, one, at, n);
        golden_check(g, "answer", !rc && bytes && answer && !memcmp(one, answer, n * sizeof *one),
                     "other values");
        pl_free(answer);
    }
    pl_free(sum);
    pl_free(one);
    pl_free(mean);
    g->be->free(at);
    g->be->free(coded);
}

/* ---- torchft's rows ---- */

struct rows {
    struct golden *g;
    const struct st_file *f;
    const json_t *shapes;
    long R;
    size_t slice; /* bytes of a rank's slice of all tensors */
};

/* Rows of tensor i that a rank reduces, and their columns. */
static size_t rows_of(const struct rows *r, size_t i, size_t *rows, size_t *columns)
{
    struct pl_outer_tensor t;
    if (!outer_shape(&t, r->shapes, i) || t.axes != 2) return 0;
    *rows = (size_t)t.shape[0];
    *columns = (size_t)t.shape[1];
    return (*rows + (size_t)r->R - 1) / (size_t)r->R;
}

/* Peer k's message: for each rank its slice of every tensor; padding is zero. */
static void check_peer(const struct rows *r, long k)
{
    const struct st_tensor *want = outer_find(r->f, "p%ld.quantized", k);
    uint8_t *got = pl_alloc((size_t)r->R * r->slice, 1);
    size_t at = 0, rows = 0, columns = 0;
    char what[100];
    for (size_t i = 0; got && i < json_array_size(r->shapes); i++) {
        size_t each = rows_of(r, i, &rows, &columns), bytes = pl_rows8_bytes(each, columns);
        float *x = outer_floats(r->g, r->f, rows * columns, "p%ld.x%zu", k, i), *back;
        float *values = outer_floats(r->g, r->f, rows * columns, "p%ld.decoded%zu", k, i);
        back = pl_alloc(rows * columns, sizeof *back);
        for (long j = 0; x && back && j < r->R && (size_t)j * each < rows; j++) {
            size_t first = (size_t)j * each, n = rows - first < each ? rows - first : each;
            uint8_t *to = got + (size_t)j * r->slice + at;
            if (at + bytes > r->slice) break;
            pl_rows8_encode(to, x + first * columns, n, columns);
            pl_rows8_decode(back + first * columns, to, n, columns);
        }
        snprintf(what, sizeof what, "p%ld.decoded%zu", k, i);
        golden_check(r->g, what,
                     back && values && !memcmp(back, values, rows * columns * sizeof *back),
                     "other values");
        at += bytes;
        pl_free(x);
        pl_free(values);
        pl_free(back);
    }
    snprintf(what, sizeof what, "p%ld.quantized", k);
    golden_check(r->g, what,
                 got && want && want->bytes == (size_t)r->R * r->slice &&
                     !memcmp(got, want->data, want->bytes),
                 "other bytes");
    pl_free(got);
}

/* The sum that each rank makes of its slices, and all ranks' results as values. */
static void check_reduced(const struct rows *r)
{
    size_t at = 0, rows = 0, columns = 0;
    char what[100];
    for (size_t i = 0; i < json_array_size(r->shapes); i++) {
        size_t each = rows_of(r, i, &rows, &columns), bytes = pl_rows8_bytes(each, columns);
        uint8_t *out = pl_alloc(bytes, 1);
        float *all = pl_alloc((size_t)r->R * each * columns, sizeof *all);
        float *sum = outer_floats(r->g, r->f, rows * columns, "sum%zu", i);
        for (long k = 0; out && all && k < r->R; k++) {
            const struct st_tensor *want = outer_find(r->f, "r%ld.reduced", k);
            const uint8_t *in[OUTER_PEERS_MAX];
            int good = want && want->bytes == r->slice && at + bytes <= r->slice;
            for (long h = 0; good && h < r->R; h++) {
                const struct st_tensor *sent = outer_find(r->f, "p%ld.quantized", h);
                good = sent && sent->bytes == (size_t)r->R * r->slice;
                if (good) in[h] = (const uint8_t *)sent->data + (size_t)k * r->slice + at;
            }
            if (good) good = !pl_rows8_reduce(out, in, (int)r->R, (int)k, each, columns);
            if (good) pl_rows8_decode(all + (size_t)k * each * columns, out, each, columns);
            snprintf(what, sizeof what, "r%ld.reduced, tensor %zu", k, i);
            /* Padding rows are zeros with scale 1 or 0: only values are compared there. */
            good = good && each * (size_t)k < rows;
            if (good) {
                size_t n = rows - each * (size_t)k < each ? rows - each * (size_t)k : each;
                golden_check(r->g, what,
                             !memcmp(out, (const uint8_t *)want->data + at,
                                     pl_rows8_bytes(n, columns)),
                             "other bytes");
            } else if (each * (size_t)k < rows) golden_fail(r->g, what, "cannot be replayed");
        }
        snprintf(what, sizeof what, "sum%zu", i);
        golden_check(r->g, what, all && sum && !memcmp(all, sum, rows * columns * sizeof *sum),
                     "other values");
        at += bytes;
        pl_free(out);
        pl_free(all);
        pl_free(sum);
    }
}

void golden_outer_rows8(struct golden *g, const struct st_file *f, const json_t *config)
{
    struct rows r = { .g = g, .f = f, .shapes = json_object_get(config, "shapes") };
    r.R = golden_int(g, config, "R");
    r.slice = (size_t)golden_int(g, config, "bytes_per_rank");
    if (r.R < 1 || r.R > OUTER_PEERS_MAX) {
        golden_fail(g, "R", "%ld ranks", r.R);
        return;
    }
    for (long k = 0; k < r.R; k++) check_peer(&r, k);
    check_reduced(&r);
}

/* ---- SparseLoCo's codes ---- */

void golden_outer_pack(struct golden *g, const struct st_file *f, const json_t *config)
{
    const json_t *row, *list = json_object_get(config, "rejected"), *v;
    size_t i, j;
    char name[100];
    for (i = 0; i < f->count; i++) {
        const char *dot = strstr(f->tensors[i].name, ".idx");
        const struct st_tensor *want;
        size_t n = f->tensors[i].n;
        int32_t *index, *back = pl_alloc(n, sizeof *back);
        uint8_t *out = pl_alloc(n / 2 * 3, 1);
        if (!dot) {
            pl_free(back);
            pl_free(out);
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(dot - f->tensors[i].name), f->tensors[i].name);
        want = outer_find(f, "%s.packed", name);
        index = outer_ints(g, f, n, "%s.idx", name);
        golden_check(g, name,
                     index && out && want && want->bytes == n / 2 * 3 &&
                         !pl_pack12(out, index, n) && !memcmp(out, want->data, want->bytes),
                     "other bytes");
        if (out && back) pl_unpack12(back, out, n);
        golden_check(g, name, index && back && !memcmp(back, index, n * sizeof *back),
                     "other indices");
        pl_free(index);
        pl_free(back);
        pl_free(out);
    }
    json_array_foreach(list, i, row)
    {
        int32_t index[8] = { 0 };
        uint8_t out[12];
        size_t n = json_array_size(json_array_get(row, 0));
        json_array_foreach(json_array_get(row, 0), j, v) if (j < PL_COUNT(index))
            index[j] = (int32_t)json_integer_value(v);
        snprintf(name, sizeof name, "rejected %zu", i);
        golden_check(g, name, n <= PL_COUNT(index) && pl_pack12(out, index, n) == PL_EUSE,
                     "accepted");
    }
}

static void quantizer(struct golden *g, const struct st_file *f, const char *name, int bins,
                      double range)
{
    const struct st_tensor *t = outer_find(f, "%s.v", name);
    const struct st_tensor *want = outer_find(f, "%s.b%d.codes", name, bins);
    float *v = outer_floats(g, f, SIZE_MAX, "%s.v", name);
    float *table = outer_floats(g, f, (size_t)bins, "%s.b%d.table", name, bins);
    float *two = outer_floats(g, f, 2, "%s.b%d.shift_scale", name, bins), *decoded;
    struct pl_sparse_levels levels;
    double largest = 0, of_table = 0, of_values = 0;
    uint8_t *codes = t ? pl_alloc(t->n, 1) : NULL;
    char what[100];
    int rc;
    decoded = t ? outer_floats(g, f, t->n, "%s.b%d.decoded", name, bins) : NULL;
    snprintf(what, sizeof what, "%.40s.b%d", name, bins);
    if (!v || !table || !two || !decoded || !codes || !want || want->n != t->n) {
        golden_fail(g, what, "tensors are missing");
    } else if ((rc = pl_sparse_quantize(codes, &levels, v, t->n, bins, range))) {
        /* the original decodes all to NaN; ours refuses */
        golden_check(g, what, rc == PL_EUSE && isnan(decoded[0]), "%s", pl_status_name(rc));
    } else {
        for (size_t i = 0; i < t->n; i++) largest = fmax(largest, fabs((double)v[i]));
        if (largest == 0) largest = 1;
        for (int c = 0; c < bins; c++)
            of_table = fmax(of_table, fabs(levels.table[c] - table[c]) / largest);
        for (size_t i = 0; i < t->n; i++)
            of_values = fmax(of_values,
                             fabs((double)pl_sparse_level(&levels, codes[i]) - decoded[i]) /
                                 largest);
        golden_check(g, what, !memcmp(codes, want->data, t->n), "other codes");
        golden_case(g, what, of_table, 1e-6);
        golden_case(g, what, of_values, 1e-6);
        golden_case(g, what, fabs(levels.shift - two[0]) / largest, 1e-6);
        golden_case(g, what, fabs(levels.scale / two[1] - 1), 1e-6);
    }
    pl_free(v);
    pl_free(table);
    pl_free(two);
    pl_free(decoded);
    pl_free(codes);
}

void golden_outer_quantizer(struct golden *g, const struct st_file *f, const json_t *config)
{
    json_t *cases = json_object_get(config, "cases"), *c;
    const char *name;
    json_object_foreach(cases, name, c)
    {
        const char *dot = strrchr(name, '.');
        char stem[60], bins[20];
        if (!dot || dot[1] != 'b') continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(dot - name), name);
        snprintf(bins, sizeof bins, "%s", dot + 2);
        quantizer(g, f, stem, atoi(bins),
                  golden_real(g, json_object_get(config, "range_sigmas"), bins));
    }
}
