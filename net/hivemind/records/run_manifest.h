/* run_manifest.h - the settings that all peers of a run share, as a signed record of the DHT. A
 * peer that has read it needs no option but an address: `potluck join MULTIADDR`.
 *
 * Each peer that trains publishes the manifest that it trains by, under two keys:
 *
 *   PEER_manifest   found by a newcomer that has the peer's address alone
 *   RUN_manifest    all peers of the run: do they train by the same one?
 *
 * The value is a map of three byte strings, in a record that its owner (an RSA key of this process)
 * signs as usual:
 *
 *   manifest    JSON, see manifest_read
 *   identity    the peer's libp2p public key: its peer ID follows from it
 *   signature   by that key, over MANIFEST_TAG + subkey + manifest
 *
 * The subkey names the record's owner, so nobody else can publish a peer's manifest again. hivemind
 * 1.1.12 stores and forwards both records like any signed one, and never reads them. */
#ifndef PL_RUN_MANIFEST_H
#define PL_RUN_MANIFEST_H

#include "data/models/dalle_config.h"
#include "net/libp2p/peer/identity.h"
#include "dht_id.h"
#include "schema.h"

#define MANIFEST_LIFE 1800.0 /* s; a manifest outlives its peer's restart */
#define MANIFEST_RENEW 600.0 /* s; two of three renewals may be lost */
/* A model of 256 blocks takes 5,500 bytes, eight addresses of data 2,048. */
#define MANIFEST_BYTES_MAX 8192
#define MANIFEST_DATA_MAX 8  /* addresses of lists of shards; a list has any number of shards */
#define MANIFEST_URL_MAX 255 /* characters */
#define MANIFEST_TEXT_MAX 63 /* characters of a name, as the run's: it is part of the DHT's keys */
#define MANIFEST_DIGEST_MAX 64 /* a SHA-256 in hex */

/* Texts are printable ASCII: they are shown in terminals. */
struct run_manifest {
    char run[MANIFEST_TEXT_MAX + 1], software[MANIFEST_TEXT_MAX + 1];
    char optimizer[MANIFEST_TEXT_MAX + 1], compression[MANIFEST_TEXT_MAX + 1];
    char algorithm[MANIFEST_TEXT_MAX + 1];
    char algorithm_settings[2 * MANIFEST_TEXT_MAX + 1]; /* of another one than gradients */
    char tokenizer[MANIFEST_DIGEST_MAX + 1];            /* SHA-256 of its file */
    char codec[MANIFEST_DIGEST_MAX + 1]; /* as the shards name it; empty: they don't */
    /* "demo": the shards that come with potluck. Others are https addresses. */
    char data[MANIFEST_DATA_MAX][MANIFEST_URL_MAX + 1];
    size_t data_count; /* 0: each peer brings its own */
    struct pl_dalle_config config;
    int64_t steps, target_batch, average_state_every, seed;
    double lr, warmup, token_noise; /* the last: pl_token_noise's share at the peak */
    int64_t inner_steps;            /* with another algorithm than gradients, as the next two */
    double outer_lr, outer_momentum;
};

/* The same manifest gives the same text. *text is freed with free(). PL_EUSE: a name is not
 * printable ASCII, or all of it is longer than MANIFEST_BYTES_MAX. */
int manifest_write(char **text, const struct run_manifest *m, struct pl_err *err);
/* A stranger's text: every field is checked. Keys of later versions are ignored. PL_EFORMAT,
 * PL_ENOMEM. */
int manifest_read(struct run_manifest *m, const char *text, size_t n, struct pl_err *err);

/* PL_OK if both train the same way. Otherwise PL_EUSE, and err names each field that differs with
 * both values. Not compared: software, data and seed, which may be each peer's own; the run's name
 * and digests only where both sides have one. */
int manifest_compare(const struct run_manifest *ours, const struct run_manifest *theirs,
                     struct pl_err *err);

/* The contents of a record, as read. */
struct manifest_record {
    struct peer_id peer; /* that has signed it */
    char *text;          /* of n characters and a zero; freed with free() */
    size_t n;
    struct run_manifest manifest;
};
/* Appends the record's value. subkey is the owner's (record_own_subkey). */
int manifest_record_write(struct bytes *out, const struct bytes *subkey, const struct identity *me,
                          const char *text);
/* of: NULL, or the peer whose manifest is wanted; records that name another one cost no check of a
 * signature. PL_ENOTFOUND: the record is another peer's. PL_EPROTO, PL_EFORMAT: it is not valid. */
int manifest_record_read(struct manifest_record *r, const struct peer_id *of, const uint8_t *subkey,
                         size_t subkey_n, const uint8_t *value, size_t n, struct pl_err *err);
void manifest_record_clear(struct manifest_record *r);

/* The two keys. */
int manifest_key_of_run(struct dht_id *key, const char *run);
int manifest_key_of_peer(struct dht_id *key, const struct peer_id *peer);

#endif
