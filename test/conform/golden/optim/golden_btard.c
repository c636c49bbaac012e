/* golden_btard.c - one worked round of BTARD with its Byzantine peers: commitments, lots,
 * aggregates, reports, the verdict, and the choice of validators. */
#include "golden_aggregate.h"
#include "ref/btard.h"

#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_MAX 1024

static void sha256(uint8_t hash[PL_HASH_BYTES], const void *data, size_t bytes)
{
    SHA256(data, bytes, hash);
}

struct btard_case {
    struct golden *g;
    const struct st_file *f;
    json_t *doc, *config;
    struct pl_btard b;
    size_t n, d;
    float *honest, *sent, *published;
    double *s, *reported, *norms, *sums;
    uint8_t *flags; /* 3 n (n + 2), the verdict's */
    const uint8_t *seed;
};

static int hash_is(const uint8_t hash[PL_HASH_BYTES], const json_t *hex)
{
    char text[2 * PL_HASH_BYTES + 1];
    for (int i = 0; i < PL_HASH_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
    return json_is_string(hex) && !strcmp(json_string_value(hex), text);
}

static int unhex(uint8_t out[PL_HASH_BYTES], const json_t *hex)
{
    const char *text = json_string_value(hex);
    for (int i = 0; i < PL_HASH_BYTES; i++) {
        unsigned byte;
        if (!text || strlen(text) != 2 * PL_HASH_BYTES || sscanf(text + 2 * i, "%2x", &byte) != 1)
            return PL_EFORMAT;
        out[i] = (uint8_t)byte;
    }
    return PL_OK;
}

static int list_is(const json_t *list, const int *want, size_t n)
{
    if (json_array_size(list) != n) return 0;
    for (size_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(list, i)) != want[i]) return 0;
    return 1;
}

/* The marked columns, as a list. */
static int marks_are(const json_t *list, const uint8_t *mark, size_t n)
{
    int at[PEERS_MAX];
    size_t count = 0;
    for (size_t j = 0; j < n; j++)
        if (mark[j]) at[count++] = (int)j;
    return list_is(list, at, count);
}

static void commitments(struct btard_case *c)
{
    const json_t *parts = json_object_get(c->doc, "step_1_commit_parts_sha256_le_f32");
    const json_t *aggregates = json_object_get(c->doc, "step_4_commit_aggregate_sha256_le_f32");
    uint8_t hash[PL_HASH_BYTES];
    size_t wrong = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t j = 0; j < c->n; j++) {
            pl_btard_commit(hash, &c->b, c->sent + (i * c->n + j) * c->d, c->d);
            wrong += !hash_is(hash, json_array_get(json_array_get(parts, i), j));
        }
    golden_check(c->g, "commitments to parts", !wrong, "%zu hashes differ", wrong);
    for (size_t j = 0; j < c->n; j++) {
        pl_btard_commit(hash, &c->b, c->published + j * c->d, c->d);
        wrong += !hash_is(hash, json_array_get(aggregates, j));
    }
    golden_check(c->g, "commitments to aggregates", !wrong, "%zu hashes differ", wrong);
}

static void lots(struct btard_case *c)
{
    const json_t *lot = json_object_get(c->doc, "step_5_mprng");
    const json_t *commits = json_object_get(lot, "commit_sha256(le32(i)||x||salt)");
    uint8_t x[PEERS_MAX][PL_HASH_BYTES], salt[PL_HASH_BYTES], hash[PL_HASH_BYTES],
        seed[PL_HASH_BYTES];
    size_t wrong = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (unhex(x[i], json_array_get(json_object_get(lot, "x_hex"), i)) ||
            unhex(salt, json_array_get(json_object_get(lot, "salt_hex"), i))) {
            golden_fail(c->g, "step_5_mprng", "no 32 bytes in hexadecimal");
            return;
        }
        pl_btard_lot_commit(hash, &c->b, (uint32_t)i, x[i], salt);
        wrong += !hash_is(hash, json_array_get(commits, i));
        wrong += !pl_btard_lot_holds(&c->b, hash, (uint32_t)i, x[i], salt);
        salt[0] ^= 1;
        wrong += pl_btard_lot_holds(&c->b, hash, (uint32_t)i, x[i], salt);
    }
    golden_check(c->g, "commitments to lots", !wrong, "%zu wrong", wrong);
    pl_btard_seed(seed, x[0], (int)c->n);
    golden_check(c->g, "seed",
                 !memcmp(seed, c->seed, PL_HASH_BYTES) &&
                     hash_is(seed, json_object_get(lot, "seed_hex")),
                 "another seed");
}

static void aggregates(struct btard_case *c)
{
    float *column = pl_alloc(c->n * c->d, sizeof *column),
          *got = pl_alloc(c->n * c->d, sizeof *got);
    double *wide = pl_alloc(c->n * c->d, sizeof *wide);
    int rc = column && got && wide ? PL_OK : PL_ENOMEM;
    for (size_t j = 0; !rc && j < c->n; j++) {
        for (size_t i = 0; i < c->n; i++)
            memcpy(column + i * c->d, c->sent + (i * c->n + j) * c->d, c->d * sizeof *column);
        rc = pl_btard_aggregate(got + j * c->d, &c->b, c->g->be->centered_clip, c->g->be->median,
                                column, (int)c->n, c->d);
    }
    for (size_t k = 0; !rc && k < c->n * c->d; k++) wide[k] = got[k];
    if (!rc) agg_compare(c->g, c->f, "aggregate_true", wide, c->n * c->d, 1e-6);
    else golden_fail(c->g, "aggregate", "%s", pl_status_name(rc));
    pl_free(column);
    pl_free(got);
    pl_free(wide);
}

static void reports(struct btard_case *c)
{
    double *z = pl_alloc(c->n * c->d, sizeof *z), *s = pl_alloc(c->n * c->n, sizeof *s);
    double *norm = pl_alloc(c->n * c->n, sizeof *norm), worst = 0;
    for (size_t j = 0; z && s && norm && j < c->n; j++) {
        pl_btard_direction(z + j * c->d, c->d, &c->b, c->seed, (uint32_t)j);
        for (size_t i = 0; i < c->n; i++)
            pl_btard_report(&s[i * c->n + j], &norm[i * c->n + j], &c->b, z + j * c->d,
                            c->sent + (i * c->n + j) * c->d, c->published + j * c->d, c->d);
    }
    if (z && s && norm) {
        agg_compare(c->g, c->f, "z", z, c->n * c->d, 1e-12);
        agg_compare(c->g, c->f, "norms", norm, c->n * c->n, 1e-6);
        for (size_t k = 0; k < c->n * c->n; k++) worst = fmax(worst, fabs(s[k] - c->s[k]));
        golden_case(c->g, "s", worst, 1e-6);
    } else golden_fail(c->g, "s", "out of memory");
    pl_free(z);
    pl_free(s);
    pl_free(norm);
}

/* [[sender, aggregator], ...], aggregators ascending. */
static int byzantine_are(const json_t *pairs, const uint8_t *byzantine, size_t n)
{
    size_t count = 0;
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < n; i++) {
            if (!byzantine[i * n + j]) continue;
            if (!list_is(json_array_get(pairs, count++), (int[]){ (int)i, (int)j }, 2)) return 0;
        }
    return count == json_array_size(pairs);
}

static void verdict(struct btard_case *c)
{
    struct pl_btard_verdict v = { c->flags, c->sums, c->flags + c->n * c->n,
                                  c->flags + c->n * (c->n + 1) };
    struct pl_btard_round round = { (int)c->n,   c->d,     c->sent, c->published,
                                    c->reported, c->norms, c->seed };
    double *want = agg_list(c->g, c->doc, "step_8_column_sums", c->n, NULL), worst = 0;
    double *votes = agg_list(c->g, c->doc, "step_9_votes_over_delta_max", c->n, NULL);
    uint8_t failed[PEERS_MAX];
    size_t wrong = 0;
    if (!want || !votes || pl_btard_judge(&v, &c->b, &round)) {
        golden_fail(c->g, "verdict", "cannot be replayed");
        pl_free(want);
        pl_free(votes);
        return;
    }
    for (size_t j = 0; j < c->n; j++) {
        int recompute;
        worst = fmax(worst, fabs(v.sums[j] - want[j]));
        failed[j] = !pl_btard_sum_holds(&c->b, v.sums[j]);
        wrong += pl_btard_votes(&recompute, &c->b, c->norms, (int)c->n, (int)j) != (int)votes[j];
    }
    golden_check(c->g, "verification 1",
                 byzantine_are(json_object_get(c->doc,
                                               "step_7_verification_1_accused_[sender,aggregator]"),
                               v.false_reports, c->n),
                 "others accused");
    golden_case(c->g, "column sums", worst, 1e-6);
    golden_check(c->g, "verification 2",
                 marks_are(json_object_get(c->doc, "verification_2_failed_columns"), failed, c->n),
                 "other columns");
    golden_check(c->g, "verification 2, corrected",
                 marks_are(json_object_get(c->doc, "verification_2_failed_after_correcting_v1"),
                           v.shifted, c->n),
                 "other columns");
    golden_check(c->g, "votes", !wrong, "%zu columns have other votes", wrong);
    golden_check(c->g, "verification 3",
                 marks_are(json_object_get(c->doc, "verification_3_columns"), v.recompute, c->n),
                 "other columns");
    pl_free(want);
    pl_free(votes);
}

/* Does what a target committed to differ from what its public batch gives? */
static int caught(struct btard_case *c, int target)
{
    uint8_t sent[PL_HASH_BYTES], own[PL_HASH_BYTES];
    for (size_t j = 0; j < c->n; j++) {
        size_t at = ((size_t)target * c->n + j) * c->d;
        pl_btard_commit(sent, &c->b, c->sent + at, c->d);
        pl_btard_commit(own, &c->b, c->honest + at, c->d);
        if (memcmp(sent, own, PL_HASH_BYTES)) return 1;
    }
    return 0;
}

static void validators(struct btard_case *c)
{
    const json_t *step = json_object_get(c->doc, "step_10_validators"),
                 *list = json_object_get(step, "alive");
    int alive[PEERS_MAX], order[PEERS_MAX], found[PEERS_MAX];
    size_t n = json_array_size(list), index;
    json_t *row;
    if (!n || n > c->n) {
        golden_fail(c->g, "step_10_validators", "no peers are alive");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        alive[i] = (int)json_integer_value(json_array_get(list, i));
        if (alive[i] < 0 || (size_t)alive[i] >= c->n) {
            golden_fail(c->g, "alive", "peer %d of %zu", alive[i], c->n);
            return;
        }
    }
    json_array_foreach(json_object_get(step, "rounds"), index, row)
    {
        uint8_t seed[PL_HASH_BYTES];
        size_t half = n / 2, count = 0;
        char what[40];
        int rc = pl_btard_validators(order, seed, &c->b, c->seed,
                                     (uint32_t)json_integer_value(json_object_get(row, "round")),
                                     alive, (int)n);
        for (size_t k = 0; !rc && k < half; k++)
            if (caught(c, order[half + k])) found[count++] = order[half + k];
        snprintf(what, sizeof what, "validators, round %zu", index);
        golden_check(c->g, what,
                     !rc && hash_is(seed, json_object_get(row, "seed_hex")) &&
                         list_is(json_object_get(row, "order"), order, n) &&
                         list_is(json_object_get(row, "validators"), order, half) &&
                         list_is(json_object_get(row, "targets"), order + half, half) &&
                         list_is(json_object_get(row, "caught_by_hash_mismatch"), found, count),
                     "another order, or others caught");
    }
}

static int btard_load(struct btard_case *c)
{
    const struct st_tensor *seed = pl_safetensors_find(c->f, "seed");
    size_t all;
    c->n = (size_t)golden_int(c->g, c->config, "peers");
    c->d = (size_t)golden_int(c->g, c->config, "part_len");
    if (!c->n || c->n > PEERS_MAX || !c->d || c->d > 1u << 24 || !seed ||
        seed->bytes != PL_HASH_BYTES)
        return PL_EFORMAT;
    all = c->n * c->n * c->d;
    c->b = (struct pl_btard){
        .hash = sha256,
        .tau = golden_real(c->g, c->config, "tau"),
        .delta_max = golden_real(c->g, c->config, "delta_max"),
        .tolerance = golden_real(c->g, c->config, "tol"),
        .iterations = (int)golden_int(c->g, c->config, "iterations"),
    };
    c->seed = seed->data;
    c->honest = agg_floats(c->g, c->f, "honest_grad", all);
    c->sent = agg_floats(c->g, c->f, "sent_grad", all);
    c->published = agg_floats(c->g, c->f, "aggregate_published", c->n * c->d);
    c->s = agg_doubles(c->g, c->f, "s", c->n * c->n, NULL);
    c->reported = agg_doubles(c->g, c->f, "s_reported", c->n * c->n, NULL);
    c->norms = agg_doubles(c->g, c->f, "norms", c->n * c->n, NULL);
    c->sums = pl_alloc(c->n, sizeof *c->sums);
    c->flags = pl_alloc(c->n * (c->n + 2), 1);
    return c->honest && c->sent && c->published && c->s && c->reported && c->norms && c->sums &&
                   c->flags
               ? PL_OK
               : PL_EFORMAT;
}

static void btard_replay(struct btard_case *c)
{
    commitments(c);
    lots(c);
    aggregates(c);
    reports(c);
    verdict(c);
    validators(c);
}

int golden_btard(struct golden *g, const char *path, const char *stem)
{
    struct btard_case c = { .g = g };
    struct st_file *f;
    char name[300];
    if (strstr(strrchr(path, '/'), ".json"))
        return 1; /* replayed with the tensors of the same stem */
    if (!(f = golden_open(g, path))) return 1;
    snprintf(name, sizeof name, "%s.json", stem);
    c.f = f;
    c.doc = golden_json(g, name);
    c.config = golden_meta(g, f, "config");
    if (!c.doc || !c.config || btard_load(&c)) golden_fail(g, "", "no round that can be replayed");
    else btard_replay(&c);
    pl_free(c.honest);
    pl_free(c.sent);
    pl_free(c.published);
    pl_free(c.s);
    pl_free(c.reported);
    pl_free(c.norms);
    pl_free(c.sums);
    pl_free(c.flags);
    json_decref(c.doc);
    json_decref(c.config);
    pl_safetensors_close(f);
    return 1;
}
