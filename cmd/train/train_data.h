/* train_data.h - the pairs that a command trains on: shards by file or folder, the tokenizer,
 * held-out pairs; a stream of batches as a train_source. */
#ifndef PL_CMD_TRAIN_DATA_H
#define PL_CMD_TRAIN_DATA_H

#include "train_job.h"
#include "data/pairs/batch_stream.h"
#include "net/http/client/shard_list.h"

#include <stdatomic.h>

struct train_data {
    char **path; /* shards: files and URLs */
    size_t paths;
    struct http_list *list; /* those that URLs were read from: they may tell checksums */
    size_t lists;
    int has_no_token; /* POTLUCK_TOKEN is for no server of this data */
    char *first_url;  /* the first that was named: POTLUCK_TOKEN belongs to its origin; or NULL */
    struct train_opener {
        struct http_client *http; /* NULL until a URL is met */
        struct http_cache *cache; /* NULL: downloads are not kept */
    } opener[PAIRS_OPENERS_MAX];  /* shards are counted by all, read by the first */
    const char *cache_folder;     /* borrowed; NULL: no cache */
    uint64_t cache_bytes;
    char **without; /* captions held out */
    size_t without_count;
    struct unigram *tokenizer;
    struct stream *stream;
    struct pairs_options options; /* the stream's */
    int batch, is_shuffled;
    atomic_int is_closing; /* ends the stream: its reader no longer waits for a server */
};

/* A file, or all *.parquet of a folder, in alphabetical order; or a URL: of a shard, or of a list
 * of them (http_is_list of net/http/client/shard_list.h). $POTLUCK_TOKEN goes to the origin of the
 * first URL, $HF_TOKEN to the hub's, whatever a list names; $SSL_CERT_FILE names the trusted
 * certificates. */
int train_data_add(struct train_data *d, const char *path, struct pl_err *err);
/* Leaves shards part, part + parts, part + 2 parts, ... (from 0): different peers read different
 * ones. */
int train_data_part(struct train_data *d, int64_t part, int64_t parts, struct pl_err *err);
/* Keeps what is fetched from the web in a folder, at most `bytes` of it. The name is borrowed. */
int train_data_cache(struct train_data *d, const char *folder, uint64_t bytes, struct pl_err *err);
/* One caption a line; empty lines and those that begin with # don't count. */
int train_data_without(struct train_data *d, const char *path, struct pl_err *err);
int train_data_tokenizer(struct train_data *d, const char *path, struct pl_err *err);

/* Opens the stream for a model's sizes. limit: pairs to use, 0 all. */
int train_data_open(struct train_data *d, const struct pl_dalle_config *config, int batch,
                    uint64_t seed, uint64_t limit, struct train_source *source, struct pl_err *err);
/* At most `most` of the pairs that are held out: tokens (count,T), codes (count,cells), freed with
 * pl_free. PL_ENOTFOUND: none is in the data. */
int train_data_held_out(struct train_data *d, const struct pl_dalle_config *config, int most,
                        int32_t **tokens, int32_t **codes, int *count, struct pl_err *err);
void train_data_close(struct train_data *d);

/* Where the demo's files lie: $PL_DATA_DIR, else data/demo of the source tree or of the
 * installation. text holds `size` bytes. */
const char *train_data_demo(char *text, size_t size, const char *file);

#endif
