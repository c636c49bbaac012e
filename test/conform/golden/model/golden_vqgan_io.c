/* golden_vqgan_io.c - whole encoders and decoders: every activation that the file contains is
 * compared as it is computed. Tensors are named PREFIX.enc.out and so on; a file may have several
 * prefixes, or none. */
#include "golden_vqgan.h"
#include "golden_model.h"
#include "runtime/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_ 200

struct comparison {
    struct golden *g;
    const struct st_file *f;
    struct pl_vqgan *m;
    const char *prefix; /* "square.", "" */
    char *seen;         /* of each of the file's tensors: 1 once it was compared or used */
    float *logits;      /* the last ones, host, and their shape */
    int B, N, P;
};

/* The tensor PREFIX + name, marked as compared; NULL: not in the file. */
static const struct st_tensor *find(struct comparison *l, const char *name, char *full)
{
    const struct st_tensor *t;
    snprintf(full, NAME_MAX_, "%s%s", l->prefix, name);
    t = pl_safetensors_find(l->f, full);
    if (t) l->seen[t - l->f->tensors] = 1;
    return t;
}

static float *find_floats(struct comparison *l, const char *name, size_t *n)
{
    char full[NAME_MAX_];
    return find(l, name, full) ? golden_floats(l->g, l->f, full, n) : NULL;
}

static int32_t *find_ints(struct comparison *l, const char *name, size_t *n)
{
    char full[NAME_MAX_];
    return find(l, name, full) ? golden_ints(l->g, l->f, full, n) : NULL;
}

/* Compares n host values with the tensor of this name, if there is one. */
static void compare(struct comparison *l, const char *name, const float *got, size_t n)
{
    char full[NAME_MAX_];
    size_t count;
    float *want = find_floats(l, name, &count);
    if (!want) return;
    snprintf(full, sizeof full, "%s%s", l->prefix, name);
    if (count != n) golden_fail(l->g, full, "%zu values for %zu", n, count);
    else golden_case(l->g, full, golden_relative(got, want, n), VQGAN_MODEL);
    pl_free(want);
}

/* Compares the part of an activation that a smaller tensor of the file contains: its first rows and
 * columns, or every k-th row. */
static void compare_part(struct comparison *l, const char *name, const float *host,
                         const struct pl_maps *map, int spread_rows)
{
    char full[NAME_MAX_];
    const struct st_tensor *t = find(l, name, full);
    size_t rows, columns, k = 0, stride;
    float *part;
    if (!t) return;
    if (t->dims != 4 || t->shape[0] != map->B || t->shape[1] != map->C || t->shape[2] < 1 ||
        t->shape[2] > map->H || t->shape[3] > map->W) {
        golden_fail(l->g, full, "no part of a map (%d,%d,%d,%d)", map->B, map->C, map->H, map->W);
        return;
    }
    rows = (size_t)t->shape[2];
    columns = (size_t)t->shape[3];
    stride = spread_rows ? ((size_t)map->H + rows - 1) / rows : 1;
    if (!(part = pl_alloc(t->n, sizeof *part))) return;
    for (size_t plane = 0; plane < (size_t)map->B * (size_t)map->C; plane++)
        for (size_t r = 0; r < rows; r++)
            for (size_t q = 0; q < columns; q++)
                part[k++] = host[(plane * (size_t)map->H + r * stride) * (size_t)map->W + q];
    compare(l, name, part, k);
    pl_free(part);
}

static void compare_logits(struct comparison *l, const float *host, const struct pl_maps *map)
{
    int N = map->C, P = map->H * map->W, B = map->B;
    size_t positions = (size_t)B * (size_t)P, first = P < 4 ? (size_t)P : 4;
    float *most = pl_alloc(3 * positions, sizeof *most), *mean, *lse, *row;
    row = pl_alloc(first * (size_t)N, sizeof *row);
    if (!most || !row) return;
    mean = most + positions;
    lse = mean + positions;
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++) {
            const float *at = host + (size_t)b * (size_t)N * (size_t)P + (size_t)p;
            size_t i = (size_t)b * (size_t)P + (size_t)p;
            double sum = 0, exps = 0;
            float top = -INFINITY;
            for (int n = 0; n < N; n++) {
                float x = at[(size_t)n * (size_t)P];
                sum += x;
                if (x > top) top = x;
                if (i < first) row[i * (size_t)N + (size_t)n] = x;
            }
            for (int n = 0; n < N; n++) exps += exp((double)at[(size_t)n * (size_t)P] - top);
            most[i] = top;
            mean[i] = (float)(sum / N);
            lse[i] = (float)(top + log(exps));
        }
    compare(l, "logits.max", most, positions);
    compare(l, "logits.mean", mean, positions);
    compare(l, "logits.logsumexp", lse, positions);
    compare(l, "logits.first4", row, first * (size_t)N);
    pl_free(most);
    pl_free(row);
}

static void compare_output(struct comparison *l, const float *host, const struct pl_maps *map)
{
    size_t plane = (size_t)map->H * (size_t)map->W, planes = (size_t)map->B * (size_t)map->C;
    float *decoded = pl_alloc(plane * planes, sizeof *decoded),
          *mean = pl_alloc(planes, sizeof *mean);
    if (!decoded || !mean) return;
    for (size_t i = 0; i < planes; i++) {
        double sum = 0;
        for (size_t k = i * plane; k < (i + 1) * plane; k++) {
            sum += host[k];
            decoded[k] = (fminf(1, fmaxf(-1, host[k])) + 1) * 0.5f;
        }
        mean[i] = (float)(sum / (double)plane);
    }
    compare_part(l, "dec.out.rows", host, map, 1);
    compare(l, "dec.out.mean", mean, planes);
    compare(l, "decoded", decoded, plane * planes);
    pl_free(decoded);
    pl_free(mean);
}

/* "decoder.up.3.attn.1" is the end of its level if no later block of the list belongs to it. */
static int ends_level(const struct pl_vqgan *m, const char *name, int *level)
{
    int last = -1, here = -2;
    if (sscanf(name, "decoder.up.%d.", level) != 1) return 0;
    for (int i = 0; i < m->decoders; i++) {
        int other;
        const char *at = m->decoder[i].name;
        if (sscanf(at, "decoder.up.%d.", &other) != 1 || other != *level || strstr(at, "upsample"))
            continue;
        last = i;
        if (!strcmp(at, name)) here = i;
    }
    return here == last;
}

static void watch(void *context, const char *name, const struct pl_maps *map)
{
    struct comparison *l = context;
    size_t n = pl_maps_floats(map);
    char short_name[100];
    int level;
    float *host = pl_alloc(n, sizeof *host);
    if (!host || golden_down(l->g, host, map->at, n)) {
        golden_fail(l->g, name, "out of memory");
        pl_free(host);
        return;
    }
    if (!strcmp(name, "encoder.conv_out")) {
        compare(l, "enc.out", host, n);
        compare_part(l, "enc.corner", host, map, 0);
    } else if (!strcmp(name, "decoder.conv_out")) {
        compare(l, "dec.out", host, n);
        compare_output(l, host, map);
    } else if (!strcmp(name, "quantize.proj")) {
        compare_logits(l, host, map);
        pl_free(l->logits);
        l->logits = host;
        l->B = map->B;
        l->N = map->C;
        l->P = map->H * map->W;
        host = NULL;
    } else if (!strncmp(name, "encoder.", 8) || !strncmp(name, "decoder.", 8)) {
        snprintf(short_name, sizeof short_name, "%.3s.%s", name, name + 8);
        compare(l, short_name, host, n);
        if (ends_level(l->m, name, &level)) {
            snprintf(short_name, sizeof short_name, "dec.up.%d.blocks", level);
            compare(l, short_name, host, n);
        }
    } else if (*name) {
        compare(l, name, host, n); /* quant_conv, zq, post_quant_conv */
        if (!strcmp(name, "quant_conv")) compare(l, "z", host, n);
    }
    pl_free(host);
}

/* -- pictures ---------------------------------------------------------------------------------- */

/* The file's picture in [-1,1], or the one that its configuration describes; NULL after a failure
 * line. */
static float *picture(struct comparison *l, const json_t *config, int shape[3])
{
    char full[NAME_MAX_];
    const struct st_tensor *image = find(l, "image", full);
    const char *text = json_string_value(json_object_get(config, "image")), *at;
    int h, w, times_h, times_w;
    float *x, *u;
    size_t n;
    if (image && image->dims == 4 && image->shape[1] == 3) {
        shape[0] = (int)image->shape[0];
        shape[1] = (int)image->shape[2];
        shape[2] = (int)image->shape[3];
        if (!(x = golden_floats(l->g, l->f, full, &n))) return NULL;
        for (size_t i = 0; i < n; i++) x[i] = 2 * x[i] - 1;
        compare(l, "x", x, n);
        return x;
    }
    if (!text || !(at = strstr(text, "[3,")) || sscanf(at, "[3,%d,%d]", &h, &w) != 2 ||
        !(at = strstr(text, "repeated ")) ||
        sscanf(at, "repeated %dx%d", &times_h, &times_w) != 2 || h < 1 || w < 1 || times_h < 1 ||
        times_w < 1 || h > 1024 || w > 1024 || times_h > 64 || times_w > 64) {
        golden_fail(l->g, full, "neither a tensor [B,3,H,W] nor a description of a picture");
        return NULL;
    }
    shape[0] = 1;
    shape[1] = h * times_h;
    shape[2] = w * times_w;
    n = 3 * (size_t)h * (size_t)w;
    u = pl_alloc(n, sizeof *u);
    x = pl_alloc(n * (size_t)times_h * (size_t)times_w, sizeof *x);
    if (u && x) {
        golden_counter(u, "image", (uint64_t)golden_int(l->g, config, "counter_seed"), n);
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < shape[1]; i++)
                for (int j = 0; j < shape[2]; j++)
                    x[(c * shape[1] + i) * shape[2] + j] =
                        2 * (u[(c * h + i / times_h) * w + j / times_w] * 0.5f + 0.5f) - 1;
    }
    pl_free(u);
    return x;
}

/* -- codes ------------------------------------------------------------------------------------- */

static void compare_codes(struct comparison *l, const int32_t *code, size_t n)
{
    size_t count, margins = 0, wrong = 0;
    int32_t *want = find_ints(l, "indices", &count);
    float *margin = find_floats(l, "margin", &margins);
    char full[NAME_MAX_];
    snprintf(full, sizeof full, "%sindices", l->prefix);
    if (want && count == n && (!margin || margins == n)) {
        for (size_t i = 0; i < n; i++)
            wrong += code[i] != want[i] && !(margin && margin[i] < VQGAN_MARGIN);
        golden_check(l->g, full, !wrong, "%zu of %zu codes differ", wrong, n);
    } else {
        golden_fail(l->g, full, "%zu codes for %zu", n, want ? count : 0);
    }
    pl_free(want);
    pl_free(margin);
}

/* Samples: the codes of the first positions follow from logits and noise, which the file has in
 * full. */
static void compare_samples(struct comparison *l)
{
    size_t n, count, all, P = (size_t)l->P, N = (size_t)l->N;
    int32_t *want = find_ints(l, "sampled.indices", &n), *code = NULL;
    float *noise = find_floats(l, "sampled.noise_first4", &count), *spread, *of_chosen;
    char full[NAME_MAX_];
    snprintf(full, sizeof full, "%ssampled.indices", l->prefix);
    of_chosen = find_floats(l, "sampled.noise_at_sampled", &all);
    if (!want) goto done;
    if (!noise || !of_chosen || !l->logits || count % N || count / N > P || n != P || all != P) {
        golden_fail(l->g, full, "noise or logits are missing");
        goto done;
    }
    spread = pl_alloc(N * P, sizeof *spread);
    code = pl_alloc(P, sizeof *code);
    if (spread && code) {
        size_t good = 0, first = count / N;
        float *logits_up, *noise_up;
        void *codes_up;
        for (size_t p = 0; p < first; p++)
            for (size_t k = 0; k < N; k++) spread[k * P + p] = noise[p * N + k];
        logits_up = golden_up(l->g, l->logits, N * P);
        noise_up = golden_up(l->g, spread, N * P);
        codes_up = golden_up_ints(l->g, code, P);
        if (logits_up && noise_up && codes_up &&
            !l->g->be->gumbel_code(codes_up, logits_up, noise_up, 1, l->N, l->P) &&
            !l->g->be->get(code, codes_up, P * sizeof *code))
            for (size_t p = 0; p < first; p++)
                good += code[p] == want[p] && want[p] >= 0 && (size_t)want[p] < N &&
                        of_chosen[p] == noise[p * N + (size_t)want[p]];
        golden_check(l->g, full, good == first, "%zu of the first %zu codes", good, first);
        if (logits_up) l->g->be->free(logits_up);
        if (noise_up) l->g->be->free(noise_up);
        if (codes_up) l->g->be->free(codes_up);
    }
    pl_free(spread);
done:
    pl_free(want);
    pl_free(noise);
    pl_free(of_chosen);
    pl_free(code);
}

/* Squared distances of the first positions, and the codebook loss with the published weights. */
static void compare_distances(struct comparison *l, const float *z, const int32_t *code, int B,
                              int P)
{
    const struct pl_vqgan_config *c = &l->m->config;
    size_t N = (size_t)c->n_embed, D = (size_t)c->embed_dim, first = P < 2 ? 1 : 2;
    float *table = pl_alloc(N * D, sizeof *table),
          *distance = pl_alloc(first * N, sizeof *distance), loss;
    double sum = 0;
    if (!table || !distance || pl_params_get(&l->m->params, l->m->table, table)) return;
    for (size_t p = 0; p < first; p++)
        for (size_t k = 0; k < N; k++) {
            double d2 = 0;
            for (size_t d = 0; d < D; d++) {
                double apart = (double)z[d * (size_t)P + p] - table[k * D + d];
                d2 += apart * apart;
            }
            distance[p * N + k] = (float)d2;
        }
    for (int b = 0; b < B; b++)
        for (int p = 0; p < P; p++)
            for (size_t d = 0; d < D; d++) {
                double apart = (double)z[((size_t)b * D + d) * (size_t)P + (size_t)p] -
                               table[(size_t)code[b * P + p] * D + d];
                sum += apart * apart;
            }
    loss = (float)(1.25 * sum / ((double)B * P * (double)D));
    compare(l, "distance.first2", distance, first * N);
    compare(l, "codebook_loss", &loss, 1);
    pl_free(table);
    pl_free(distance);
}

/* -- one prefix -------------------------------------------------------------------------------- */

static void encode_decode(struct comparison *l, const json_t *config)
{
    const struct pl_vqgan_config *c = &l->m->config;
    int shape[3], h, w, rc;
    float *x = picture(l, config, shape), *z = NULL;
    int32_t *code = NULL;
    size_t positions, factor = (size_t)pl_vqgan_factor(c);
    if (!x) return;
    h = pl_vqgan_codes(c, shape[1]);
    w = pl_vqgan_codes(c, shape[2]);
    positions = (size_t)shape[0] * (size_t)h * (size_t)w;
    z = pl_alloc(positions * (size_t)c->embed_dim, sizeof *z);
    code = pl_alloc(positions, sizeof *code);
    if (!z || !code || !positions) {
        golden_fail(l->g, l->prefix, "out of memory, or a picture too small");
        goto done;
    }
    rc = pl_vqgan_encode(l->m, code, z, x, NULL, shape[0], shape[1], shape[2]);
    if (!rc) {
        size_t n;
        int32_t *want;
        char full[NAME_MAX_];
        compare_codes(l, code, positions);
        if (!c->gumbel) compare_distances(l, z, code, shape[0], h * w);
        else compare_samples(l);
        snprintf(full, sizeof full, "%sindices", l->prefix);
        want = golden_ints(l->g, l->f, full, &n); /* the decoder shall not suffer from a near tie */
        if (want && n == positions && !pl_vqgan_count_invalid(l->m, want, n))
            memcpy(code, want, n * sizeof *code);
        pl_free(want);
        pl_free(x);
        x = pl_alloc(3 * positions * factor * factor, sizeof *x);
        rc = x ? pl_vqgan_decode(l->m, x, code, shape[0], h, w) : PL_ENOMEM;
    }
    if (rc) golden_fail(l->g, l->prefix, "%s", pl_status_name(rc));
done:
    pl_free(x);
    pl_free(z);
    pl_free(code);
}

/* PREFIX.indices and PREFIX.decoded alone: decodes given codes. */
static void decode_given(struct comparison *l)
{
    size_t n, pixels;
    int32_t *code = find_ints(l, "indices", &n);
    char full[NAME_MAX_];
    const struct st_tensor *t = find(l, "decoded", full);
    size_t f = (size_t)pl_vqgan_factor(&l->m->config);
    float *x = NULL;
    if (!code || !t || t->dims != 4 || !n || t->n != 3 * n * f * f || (size_t)t->shape[2] % f ||
        (size_t)t->shape[3] % f || pl_vqgan_count_invalid(l->m, code, n)) {
        golden_fail(l->g, full, "codes and pictures do not belong together");
    } else {
        pixels = t->n;
        x = pl_alloc(pixels, sizeof *x);
        if (!x || pl_vqgan_decode(l->m, x, code, (int)t->shape[0], (int)((size_t)t->shape[2] / f),
                                  (int)((size_t)t->shape[3] / f)))
            golden_fail(l->g, full, "cannot be decoded"); /* watch() compares */
    }
    pl_free(code);
    pl_free(x);
}

void vqgan_golden_io(struct golden *g, const struct st_file *f, const json_t *config,
                     const char *stem)
{
    struct comparison l = { .g = g, .f = f, .seen = calloc(f->count + 1, 1) };
    struct pl_vqgan m;
    if (!l.seen || !vqgan_golden_model(g, &m, f, config, stem, 0)) {
        free(l.seen);
        return;
    }
    l.m = &m;
    m.watch = watch;
    m.context = &l;
    for (size_t i = 0; i < f->count; i++) { /* one round for each tensor PREFIX.indices */
        const char *name = f->tensors[i].name, *dot = strrchr(name, '.');
        char prefix[100], full[NAME_MAX_];
        size_t n = dot ? (size_t)(dot - name) + 1 : 0;
        if (strcmp(dot ? dot + 1 : name, "indices") || n >= sizeof prefix) continue;
        if (n >= 9 && !strncmp(name + n - 9, ".sampled.", 9)) continue;
        snprintf(prefix, sizeof prefix, "%.*s", (int)n, name);
        l.prefix = prefix;
        snprintf(full, sizeof full, "%smargin", prefix);
        if (pl_safetensors_find(f, full)) encode_decode(&l, config);
        else decode_given(&l);
        pl_free(l.logits);
        l.logits = NULL;
    }
    for (size_t i = 0; i < f->count; i++)
        if (!l.seen[i])
            golden_fail(g, f->tensors[i].name, "nothing here is compared with this tensor");
    pl_vqgan_clear(&m);
    free(l.seen);
}
