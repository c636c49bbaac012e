/* train_describe.c - the manifest made from our own options. Files are named by their contents: the
 * tokenizer by its digest, the image tokens by their codec. */
#include "train_agree.h"
#include "data/files/file.h"
#include "data/pairs/shard.h"
#include "ref/small.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS_ASKED 1000                /* for their codec: a millisecond each */
#define TOKENIZER_MAX ((size_t)64 << 20) /* bytes; a vocabulary of a million words */

static int digest_file(char hex[MANIFEST_DIGEST_MAX + 1], const char *path, struct pl_err *err)
{
    uint8_t hash[32];
    void *data;
    size_t n;
    int rc = pl_file_read(&data, &n, path, TOKENIZER_MAX, err);
    if (rc) return rc;
    EVP_Digest(data, n, hash, NULL, EVP_sha256(), NULL);
    free(data);
    pl_hex(hex, hash, 32);
    return PL_OK;
}

/* The codec's name that `potluck prepare` wrote into a shard on this machine; empty: none. PL_OK or
 * PL_ENOMEM. */
static int codec_of_shard(char codec[MANIFEST_DIGEST_MAX + 1], const char *path)
{
    struct shard *shard;
    int rc;
    *codec = 0;
    if (strstr(path, "://")) return PL_OK;
    if ((rc = pl_shard_open(&shard, path, NULL))) return rc == PL_ENOMEM ? rc : PL_OK;
    rc = pl_shard_codec(codec, shard);
    pl_shard_close(shard);
    return rc;
}

/* Image tokens of two codecs have different meanings: a model trained on both can draw with
 * neither. Only the first SHARDS_ASKED shards are opened for this, and none on web servers. */
static int find_codec(char codec[MANIFEST_DIGEST_MAX + 1], const struct train_data *d,
                      struct pl_err *err)
{
    char other[MANIFEST_DIGEST_MAX + 1];
    size_t first = 0;
    *codec = 0;
    for (size_t i = 0; i < d->paths && i < SHARDS_ASKED; i++) {
        if (codec_of_shard(other, d->path[i]))
            return pl_fail(err, PL_ENOMEM, "%s: no memory", d->path[i]);
        if (!*other || !strcmp(codec, other)) continue;
        if (*codec)
            return pl_fail(
                err, PL_EUSE,
                "--data: shards of two codecs: %.120s is of codec %.64s, %.120s of %.64s",
                d->path[first], codec, d->path[i], other);
        strcpy(codec, other);
        first = i;
    }
    return PL_OK;
}

/* Only addresses that others can open, and none that may hold a secret: a user's name or a
 * query. */
static void describe_data(struct run_manifest *m, const struct train_requests *w)
{
    if (!w->given_count) strcpy(m->data[m->data_count++], "demo");
    for (size_t i = 0; i < w->given_count && m->data_count < MANIFEST_DATA_MAX; i++)
        if (!strncmp(w->given[i], "https://", 8) && !strpbrk(w->given[i], "@?") &&
            strlen(w->given[i]) <= MANIFEST_URL_MAX)
            strcpy(m->data[m->data_count++], w->given[i]);
}

int train_describe(struct run_manifest *m, const struct train_requests *w,
                   const struct pl_dalle_config *config, struct pl_err *err)
{
    char path[4200];
    int rc;
    memset(m, 0, sizeof *m);
    /* A longer name stays empty, and train_manifest_begin publishes nothing then. */
    if (w->swarm.run && strlen(w->swarm.run) <= MANIFEST_TEXT_MAX) strcpy(m->run, w->swarm.run);
    snprintf(m->software, sizeof m->software, "potluck %s", PL_VERSION);
    snprintf(m->optimizer, sizeof m->optimizer, "%s", w->optimizer);
    snprintf(m->compression, sizeof m->compression, "%s", w->averaging.compression);
    snprintf(m->algorithm, sizeof m->algorithm, "%s", w->swarm.algorithm);
    if (w->swarm.algorithm_settings)
        snprintf(m->algorithm_settings, sizeof m->algorithm_settings, "%s",
                 w->swarm.algorithm_settings);
    m->config = *config;
    m->steps = (int64_t)w->job.steps;
    m->target_batch = w->job.target_batch;
    m->average_state_every = w->swarm.average_state_every;
    m->seed = w->seed;
    m->lr = w->lr;
    m->warmup = w->warmup;
    m->token_noise = w->token_noise;
    m->inner_steps = w->swarm.inner_steps;
    m->outer_lr = w->swarm.outer_lr;
    m->outer_momentum = w->swarm.outer_momentum;
    describe_data(m, w);
    if ((rc = find_codec(m->codec, &w->data, err))) return rc;
    return digest_file(m->tokenizer,
                       w->tokenizer ? w->tokenizer
                                    : train_data_demo(path, sizeof path, "t5_2k.model"),
                       err);
}
