/* golden_dalle_generate.c - sampling image tokens: cached and in one pass, greedy, and with
 * guidance. */
#include "golden_dalle_net.h"
#include "runtime/generate.h"

#include <string.h>

/* Sizes of one array of codes or logits in the file. */
static size_t cells(const struct net *net) { return (size_t)(net->config.F * net->config.F); }
static size_t code_count(const struct net *net) { return (size_t)net->B * cells(net); }
static size_t logit_count(const struct net *net)
{
    return code_count(net) * (size_t)net->config.Vi;
}

/* Image logits (B,I,Vi) of given codes: one pass over everything. */
static int in_one_pass(struct net *net, float *out, const int32_t *text, const int32_t *codes)
{
    const struct pl_dalle_config *c = &net->config;
    size_t I = cells(net), Vt = (size_t)pl_dalle_rows(c), Vi = (size_t)c->Vi, S = (size_t)net->S;
    float *all = pl_alloc((size_t)net->B * S, Vt * sizeof *all);
    struct pl_err err = { "" };
    int good = all &&
               net_did(net, "one pass",
                       pl_dalle_logits(net->m, all, text, codes, (int)I, net->B, &err), &err);
    for (size_t b = 0; good && b < (size_t)net->B; b++)
        for (size_t i = 0; i < I; i++)
            memcpy(out + (b * I + i) * Vi, all + (b * S + (size_t)c->T + i) * Vt + (Vt - Vi),
                   Vi * sizeof *out);
    pl_free(all);
    return good;
}

/* The same one code after the other, through the cache. */
static int one_by_one(struct net *net, float *out, const int32_t *text, const int32_t *codes)
{
    size_t I = cells(net), B = (size_t)net->B, Vi = (size_t)net->config.Vi;
    float *z = pl_alloc(B, Vi * sizeof *z);
    int32_t *last = pl_alloc(B, sizeof *last);
    struct pl_kv_cache *cache = NULL;
    struct pl_err err = { "" };
    int good = z && last &&
               net_did(net, "cache", pl_kv_cache_open(&cache, net->m, net->B, &err), &err);
    for (size_t i = 0; good && i < I; i++) {
        for (size_t b = 0; b < B && i > 0; b++) last[b] = codes[b * I + i - 1];
        good = net_did(net, "cache",
                       i ? pl_kv_cache_step(cache, z, last, &err)
                         : pl_kv_cache_begin(cache, z, text, net->B, &err),
                       &err);
        for (size_t b = 0; good && b < B; b++)
            memcpy(out + (b * I + i) * Vi, z + b * Vi, Vi * sizeof *out);
    }
    pl_kv_cache_close(cache);
    pl_free(z);
    pl_free(last);
    return good;
}

static void compare(struct net *net, const char *what, const char *tensor, const float *got,
                    double allowed)
{
    float *want = net_floats(net, tensor, logit_count(net));
    if (want) golden_case(net->g, what, golden_relative(got, want, logit_count(net)), allowed);
    pl_free(want);
}

static void compare_greedy(struct net *net, float *z, const int32_t *text, double allowed)
{
    int32_t *want = net_ints(net, "greedy.tokens", code_count(net));
    int32_t *got = pl_alloc(code_count(net), sizeof *got);
    struct pl_generate_options o = pl_generate_options();
    struct pl_err err = { "" };
    o.greedy = 1;
    for (o.uncached = 0; want && got && o.uncached <= 1; o.uncached++)
        if (net_did(net, "greedy.tokens", pl_generate(net->m, got, text, net->B, &o, &err), &err))
            golden_check(net->g, o.uncached ? "greedy.tokens uncached" : "greedy.tokens",
                         !memcmp(got, want, code_count(net) * sizeof *got),
                         "other codes were drawn");
    if (want && in_one_pass(net, z, text, want))
        compare(net, "greedy.logits", "greedy.logits", z, allowed);
    pl_free(want);
    pl_free(got);
}

/* Without a caption all ids are 0. The guided logits are computed from the cached passes. */
static void compare_guidance(struct net *net, const float *given, const int32_t *codes,
                             double allowed)
{
    double scale = golden_real(net->g, net->json, "cond_scale");
    int32_t *blank = pl_alloc((size_t)net->B * (size_t)net->config.T, sizeof *blank);
    float *z = pl_alloc(logit_count(net), sizeof *z);
    if (blank && z && in_one_pass(net, z, blank, codes))
        compare(net, "guidance.null_logits", "guidance.null_logits", z, allowed);
    if (blank && z && one_by_one(net, z, blank, codes)) {
        compare(net, "guidance.null_logits cached", "guidance.null_logits", z, allowed);
        pl_sample_guide(z, given, z, logit_count(net), scale);
        compare(net, "guidance.mixed_logits", "guidance.mixed_logits", z, allowed);
    }
    pl_free(blank);
    pl_free(z);
}

void net_generate(struct net *net)
{
    int32_t *text = net_ints(net, "text", (size_t)net->B * (size_t)net->config.T);
    int32_t *forced = net_ints(net, "forced", code_count(net));
    float *z = pl_alloc(logit_count(net), sizeof *z);
    double allowed = golden_tolerance(net->g, 1e-5, 4e-5);
    if (text && forced && z) {
        if (in_one_pass(net, z, text, forced))
            compare(net, "forced.logits_full", "forced.logits_full", z, allowed);
        compare_greedy(net, z, text, allowed);
        if (one_by_one(net, z, text, forced)) {
            compare(net, "forced.logits_cached", "forced.logits_cached", z, allowed);
            compare_guidance(net, z, forced, allowed);
        }
    }
    pl_free(text);
    pl_free(forced);
    pl_free(z);
}
