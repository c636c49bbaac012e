/* golden_dalle_tables.c - what is computed once, on the host or for all heads alike: attention
 * masks, rotary angles and the rotation, the filters of sampling. */
#include "golden_dalle.h"
#include "ref/sample.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- masks_*: which query sees which key ------------------------------------------------------- */

/* "conv5_v166.T256.F32" -> mask and number of positions; 0 if it is no such name. */
static int parse_key(struct pl_mask *mask, int *S, const char *key)
{
    char kind[32];
    int T, F, used = 0;
    if (sscanf(key, "%31[^.].T%5d.F%4d%n", kind, &T, &F, &used) != 3 || key[used]) return 0;
    if (T < 1 || F < 1 || pl_mask_parse(mask, kind, NULL)) return 0;
    mask->P = T + 1;
    mask->F = F;
    *S = T + F * F;
    return 1;
}

static int same_hash(const uint8_t *bits, size_t n, const char *want)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned length;
    if (!EVP_Digest(bits, n, hash, &length, EVP_sha256(), NULL)) return 0;
    for (unsigned i = 0; i < length; i++) sprintf(text + 2 * i, "%02x", hash[i]);
    return want && !strcmp(text, want);
}

static void one_mask(struct golden *g, const struct st_file *f, const char *key, const json_t *fact)
{
    const char *sha = json_string_value(json_object_get(fact, "sha256_of_bits"));
    const struct st_tensor *want;
    struct pl_mask mask;
    size_t stride, rows = 0, wrong = 0;
    int32_t *row_counts;
    uint8_t *bits;
    char name[96];
    long ones;
    int S;
    if (strlen(key) > 64 || !parse_key(&mask, &S, key)) {
        golden_fail(g, key, "expected KIND.Tt.Ff with a kind of attention that we know");
        return;
    }
    stride = ((size_t)S + 7) / 8;
    snprintf(name, sizeof name, "%s.bits", key);
    want = pl_safetensors_find(f, name);
    if (!want || want->dtype != PL_U8 || want->n != (size_t)S * stride) {
        golden_fail(g, name, "expected %d rows of %zu bytes", S, stride);
        return;
    }
    bits = pl_alloc(want->n, 1);
    if (!bits) {
        golden_fail(g, name, "out of memory");
        return;
    }
    pl_mask_bits(bits, &mask, S);
    golden_check(g, name, !memcmp(bits, want->data, want->n), "other pairs are allowed");
    snprintf(name, sizeof name, "%s.row_counts", key);
    row_counts = golden_ints(g, f, name, &rows);
    for (size_t q = 0; q < rows && rows == (size_t)S; q++) {
        int32_t count = 0;
        for (size_t i = 0; i < stride; i++) count += __builtin_popcount(bits[q * stride + i]);
        wrong += count != row_counts[q];
    }
    if (row_counts)
        golden_check(g, name, rows == (size_t)S && !wrong, "%zu of %zu rows differ", wrong, rows);
    ones = golden_int(g, fact, "ones");
    snprintf(name, sizeof name, "%s.ones", key);
    golden_check(g, name, pl_mask_count(&mask, S) == (uint64_t)ones, "%llu where %ld were expected",
                 (unsigned long long)pl_mask_count(&mask, S), ones);
    snprintf(name, sizeof name, "%s.sha256", key);
    golden_check(g, name, same_hash(bits, want->n, sha), "other bits");
    pl_free(row_counts);
    pl_free(bits);
}

void golden_dalle_masks(struct golden *g, const struct st_file *f)
{
    json_t *facts = golden_meta(g, f, "facts"), *fact;
    size_t masks = 0;
    const char *key;
    json_object_foreach(facts, key, fact)
    {
        one_mask(g, f, key, fact);
        masks++;
    }
    if (masks == 0 || 2 * masks != f->count)
        golden_fail(g, "facts", "%zu masks and %zu tensors: expected two tensors per mask", masks,
                    f->count);
    json_decref(facts);
}

/* --- rotary_*: angles, rotation ---------------------------------------------------------------- */

/* Our table against the file's, which it equals bit for bit, and against the angles that produced it. */
static void angles(struct replay *r, int P, int F, int d)
{
    size_t n = (size_t)pl_rotary_channels(d) / 6, half = 3 * n,
           rows = (size_t)P + (size_t)F * (size_t)F;
    float *table = replay_host(r, "table", rows * 2 * half);
    float *text = replay_host(r, "base_text", n), *axis = replay_host(r, "base_axis", n);
    float *position = replay_host(r, "axis_coordinates", (size_t)F);
    float *angle = replay_host_zeros(r, rows * half);
    double near = 0, far = 0, e_text = 0, e_axis = 0, e_place = 0;
    if (!r->bad) {
        pl_rotary_angles(angle, P, F, d);
        for (size_t i = 0; i < rows * 2 * half; i++) {
            double e = fabs((double)angle[i / 2] - table[i]);
            double *worst = i / (2 * half) >= (size_t)P && i / 2 % half < n ? &far : &near;
            if (!(e <= *worst)) *worst = e;
        }
        for (size_t i = 0; i < n;
             i++) { /* position 1 turns by the frequency itself, text by -10 of it */
            e_text = fmax(e_text, fabs((double)angle[half + i] - text[i]) / text[0]);
            e_axis = fmax(e_axis, fabs(angle[n + i] / -10.0 - axis[i]) / axis[n - 1]);
        }
        for (size_t i = 0; i < (size_t)F; i++)
            e_place = fmax(e_place, fabs(angle[((size_t)P + i) * half + 2 * n] / (double)axis[0] -
                                         position[i]));
        golden_case(r->g, "table, text rows and image axes", near, 0);
        golden_case(r->g, "table, text axis of image rows", far, 0);
        golden_case(r->g, "base_text", e_text, 1e-6);
        golden_case(r->g, "base_axis", e_axis, 1e-6);
        golden_case(r->g, "axis_coordinates", e_place, 1e-6);
    }
    pl_free(table);
    pl_free(text);
    pl_free(axis);
    pl_free(position);
    pl_free(angle);
}

/* Between (B,H,n,d), as the file has q, k and v, and part `which` of our (B,n,3,H,d). */
static void pack(float *qkv, float *part, int which, size_t B, size_t H, size_t n, size_t d,
                 int out)
{
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t p = 0; p < n; p++) {
                float *packed = qkv + (((b * n + p) * 3 + (size_t)which) * H + h) * d;
                float *apart = part + ((b * H + h) * n + p) * d;
                if (out) memcpy(apart, packed, d * sizeof *apart);
                else memcpy(packed, apart, d * sizeof *apart);
            }
}

static void rotation(struct replay *r, int P, int F, int d)
{
    static const char *const parts[] = { "q", "k", "v" };
    const struct pl_backend *be = r->g->be;
    int B = replay_dim(r, "q", 0), H = replay_dim(r, "q", 1), n = replay_dim(r, "q", 2);
    int R = pl_rotary_channels(d);
    size_t one = (size_t)B * (size_t)H * (size_t)n * (size_t)d;
    size_t rows = (size_t)P + (size_t)F * (size_t)F;
    float *host = replay_host_zeros(r, 3 * one), *qkv, *cosine, *sine, *rotated, *back;
    if (!r->bad && (size_t)n > rows) {
        golden_fail(r->g, "q", "%d positions, the table has %zu", n, rows);
        r->bad = 1;
    }
    for (int i = 0; i < 3; i++) {
        float *part = replay_host(r, parts[i], one);
        if (part) pack(host, part, i, (size_t)B, (size_t)H, (size_t)n, (size_t)d, 0);
        pl_free(part);
    }
    qkv = replay_bytes(r, host, 3 * one * sizeof *host);
    replay_rotary(r, &cosine, &sine, "table", rows, (size_t)n, (size_t)R);
    if (!r->bad) replay_did(r, be->rotary(qkv, cosine, sine, B, n, 3 * H, d, R, 0));
    rotated = replay_out(r, qkv, 3 * one);
    if (!r->bad) replay_did(r, be->rotary(qkv, cosine, sine, B, n, 3 * H, d, R, 1));
    back = replay_out(r, qkv, 3 * one);
    for (int i = 0; i < 3; i++) {
        char name[16];
        float *got = replay_host_zeros(r, one), *want;
        snprintf(name, sizeof name, "%s_rotated", parts[i]);
        want = replay_host(r, name, one);
        if (got && want && rotated) {
            pack(rotated, got, i, (size_t)B, (size_t)H, (size_t)n, (size_t)d, 1);
            golden_case(r->g, name, golden_relative(got, want, one),
                        golden_tolerance(r->g, 1e-6, 4e-6));
        }
        pl_free(got);
        pl_free(want);
    }
    if (back)
        golden_case(r->g, "q, k, v rotated back", golden_relative(back, host, 3 * one),
                    golden_tolerance(r->g, 1e-6, 4e-6));
    pl_free(host);
    pl_free(rotated);
    pl_free(back);
}

void golden_dalle_rotary(struct golden *g, const struct st_file *f)
{
    struct replay r;
    int P, F, d;
    replay_open(&r, g, f);
    P = replay_size(&r, "T") + 1;
    F = replay_size(&r, "F");
    d = replay_size(&r, "dim_head");
    if (!r.bad && d < 6) {
        golden_fail(g, "dim_head", "%d: no channel turns in a head so narrow", d);
        r.bad = 1;
    }
    angles(&r, P, F, d);
    rotation(&r, P, F, d);
    replay_close(&r);
}

/* --- filters: top-k, top-p, temperature -------------------------------------------------------- */

static int falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void settings(struct replay *r, const float *logits, size_t rows, size_t V)
{
    size_t n = (size_t)replay_dim(r, "grid.top_k", 0), cells = n * rows * V, all = 0, tied = 0;
    float *top_p = replay_host(r, "grid.top_p", n),
          *temperature = replay_host(r, "grid.temperature", n);
    float *keep = replay_host(r, "keep", cells), *want = replay_host(r, "probabilities", cells);
    float *ties = replay_host(r, "row_has_ties", rows), *got = replay_host_zeros(r, cells);
    int32_t *top_k = golden_ints(r->g, r->f, "grid.top_k", NULL);
    int32_t *keep_count = golden_ints(r->g, r->f, "keep_count", &all);
    uint8_t *mine = pl_alloc(V, 1);
    long wrong_count = 0, wrong_keep = 0;
    if (!mine) replay_did(r, PL_ENOMEM);
    if (!top_k || !keep_count || all != n * rows) r->bad = 1;
    for (size_t i = 0; i < n * rows && !r->bad; i++) {
        const float *z = logits + i % rows * V;
        size_t set = i / rows;
        int32_t count = 0;
        if (!(temperature[set] > 0)) {
            golden_fail(r->g, "grid.temperature", "%g is not above 0", (double)temperature[set]);
            r->bad = 1;
            break;
        }
        replay_did(r, pl_sample_filter(mine, z, (int)V, top_k[set], top_p[set]));
        pl_sample_softmax(got + i * V, z, mine, (int)V, temperature[set]);
        for (size_t j = 0; j < V; j++) count += mine[j];
        wrong_count += count != keep_count[i];
        if (ties[i % rows] != 0) { /* which of several equals stays is open, how many are not */
            qsort(got + i * V, V, sizeof *got, falling);
            qsort(want + i * V, V, sizeof *want, falling);
            tied++;
        } else
            for (size_t j = 0; j < V; j++) wrong_keep += mine[j] != keep[i * V + j];
    }
    if (!r->bad) {
        golden_check(r->g, "keep_count", !wrong_count, "%ld of %zu differ", wrong_count, all);
        golden_check(r->g, "keep", !wrong_keep, "%ld columns differ (%zu rows with ties left out)",
                     wrong_keep, tied);
        golden_case(r->g, "probabilities", golden_relative(got, want, cells),
                    golden_tolerance(r->g, 1e-6, 5e-6));
    }
    pl_free(top_p);
    pl_free(temperature);
    pl_free(keep);
    pl_free(want);
    pl_free(ties);
    pl_free(got);
    pl_free(top_k);
    pl_free(keep_count);
    pl_free(mine);
}

static void fractions(struct replay *r, const float *logits, size_t rows, size_t V)
{
    json_t *thres = golden_meta(r->g, r->f, "thres");
    size_t n = json_array_size(thres), all = 0;
    int32_t *want = golden_ints(r->g, r->f, "fraction.keep_count", &all);
    uint8_t *mine = pl_alloc(V, 1);
    long wrong = 0;
    for (size_t i = 0; i < n * rows && want && all == n * rows && mine; i++) {
        int32_t count = 0;
        double fraction = json_number_value(json_array_get(thres, i / rows));
        replay_did(r, pl_sample_filter_fraction(mine, logits + i % rows * V, (int)V, fraction));
        for (size_t j = 0; j < V; j++) count += mine[j];
        wrong += count != want[i];
    }
    golden_check(r->g, "fraction.keep_count", n > 0 && mine && all == n * rows && !wrong,
                 "%ld of %zu differ (%zu settings)", wrong, all, n);
    json_decref(thres);
    pl_free(want);
    pl_free(mine);
}

void golden_dalle_filters(struct golden *g, const struct st_file *f)
{
    size_t rows, V;
    float *logits;
    struct replay r;
    replay_open(&r, g, f);
    rows = (size_t)replay_dim(&r, "logits", 0);
    V = (size_t)replay_dim(&r, "logits", 1);
    logits = replay_host(&r, "logits", rows * V);
    if (logits) {
        settings(&r, logits, rows, V);
        fractions(&r, logits, rows, V);
    }
    pl_free(logits);
    replay_close(&r);
}
