/* train_data.c - the pairs that a command trains on. [TTT 3.1]
 *
 *   sources   files, folders and URLs become one list of shards
 *   part      of N peers each keeps every N-th shard
 *   exclude   held-out captions are removed
 *   stream    batches in an order that depends on seed and position alone, so that training resumes
 *             bit for bit, and a validator can draw a peer's samples again */
#include "train_data.h"
#include "data/files/json.h"
#include "cmd/common/environment.h"
#include "cmd/common/interrupt.h"
#include "data/files/file.h"
#include "net/http/client/http_source.h"
#include "ref/small.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CAPTIONS_MAX (16u << 20) /* bytes of a file of captions */
#define SHARDS_MAX 1000000       /* in a folder: more than any published data set has */

/* Takes the text; NULL: there was no memory for it. */
static int append(char ***list, size_t *count, char *text)
{
    char **grown = text ? realloc(*list, (*count + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(text);
        return PL_ENOMEM;
    }
    *list = grown;
    grown[(*count)++] = text;
    return PL_OK;
}

static int is_shard(const struct dirent *d)
{
    return strcmp(d->d_name, ".parquet") && pl_ends_with(d->d_name, ".parquet");
}

/* Ends a download when the training stops or the stream is closed: a slow server must not delay
 * either. */
static int is_stopped(void *context)
{
    struct train_data *d = context;
    return interrupted() || atomic_load(&d->is_closing);
}

static void close_opener(struct train_opener *opener)
{
    http_client_close(opener->http);
    http_cache_close(opener->cache);
    *opener = (struct train_opener){ NULL, NULL };
}

/* Once the shards are counted, one connection to their server is enough. */
static int open_stream(struct train_data *d, struct pl_err *err)
{
    int rc = pl_batch_stream_open(&d->stream, &d->options, d->batch, 0, err);
    for (int i = 1; i < PAIRS_OPENERS_MAX; i++) close_opener(&d->opener[i]);
    return rc;
}

/* The flag ends a download that the stream's reader may be waiting in. */
static void close_stream(struct train_data *d)
{
    atomic_store(&d->is_closing, 1);
    pl_batch_stream_close(d->stream);
    d->stream = NULL;
    atomic_store(&d->is_closing, 0);
}

/* A client and a view of the cache, once. The first URL's origin is the one that POTLUCK_TOKEN
 * belongs to. */
static int open_opener(struct train_data *d, struct train_opener *opener, struct pl_err *err)
{
    struct http_client_options o = http_client_options();
    int rc = PL_OK;
    environment_credentials(o.credential, d->has_no_token ? NULL : d->first_url, environment_hub());
    o.ca_file = environment_ca_file();
    o.stopped = is_stopped;
    o.context = d;
    if (!opener->http) rc = http_client_open(&opener->http, &o, err);
    if (!rc && d->cache_folder && !opener->cache)
        rc = http_cache_open(&opener->cache, d->cache_folder, d->cache_bytes, err);
    return rc;
}

static int add_url(struct train_data *d, const char *url, struct pl_err *err)
{
    struct http_list *grown, *list;
    int rc = PL_OK;
    if (!d->first_url && !(d->first_url = strdup(url)))
        return pl_fail(err, PL_ENOMEM, "%.200s: no memory", url);
    if ((rc = open_opener(d, &d->opener[0], err))) return rc;
    if (!http_is_list(url))
        return append(&d->path, &d->paths, strdup(url))
                   ? pl_fail(err, PL_ENOMEM, "%.200s: no memory", url)
                   : PL_OK;
    if (!(grown = realloc(d->list, (d->lists + 1) * sizeof *grown)))
        return pl_fail(err, PL_ENOMEM, "%.200s: no memory", url);
    d->list = grown;
    list = &d->list[d->lists];
    if ((rc = http_list_read(list, d->opener[0].http, url, err))) return rc;
    d->lists++;
    for (size_t i = 0; i < list->count && !rc; i++)
        rc = append(&d->path, &d->paths, strdup(list->url[i]));
    return rc ? pl_fail(err, rc, "%.200s: no memory", url) : PL_OK;
}

/* A list may give the shard's SHA-256: then the download is checked against it. */
static const char *listed_sha256(const struct train_data *d, const char *name)
{
    for (size_t k = 0; k < d->lists; k++)
        for (size_t i = 0; i < d->list[k].count; i++)
            if (!strcmp(d->list[k].url[i], name)) return d->list[k].sha256[i];
    return NULL;
}

/* Opens a shard by its name: a file, or a URL read in blocks. */
static int open_shard(void *context, int opener, struct pl_source **source, const char *name,
                      struct pl_err *err)
{
    struct train_data *d = context;
    struct train_opener *by = &d->opener[opener];
    int rc;
    if (!http_is_url(name)) return pl_source_file(source, name, err);
    if ((rc = open_opener(d, by, err))) return rc;
    return http_source_open(source, by->http, by->cache, name, listed_sha256(d, name), err);
}

/* Shards are given out in turn, so that parts differ by one shard at most. */
int train_data_part(struct train_data *d, int64_t part, int64_t parts, struct pl_err *err)
{
    size_t kept = 0;
    if ((uint64_t)parts > d->paths)
        return pl_fail(err, PL_EUSE, "%zu shards cannot be shared among %lld peers", d->paths,
                       (long long)parts);
    for (size_t i = 0; i < d->paths; i++) {
        if ((int64_t)(i % (size_t)parts) == part) d->path[kept++] = d->path[i];
        else free(d->path[i]);
    }
    d->paths = kept;
    return PL_OK;
}

int train_data_add(struct train_data *d, const char *path, struct pl_err *err)
{
    struct dirent **entries;
    struct stat st;
    int n, rc = PL_OK;
    if (http_is_url(path)) return add_url(d, path, err);
    if (stat(path, &st)) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return append(&d->path, &d->paths, strdup(path))
                   ? pl_fail(err, PL_ENOMEM, "%s: no memory", path)
                   : PL_OK;
    n = scandir(path, &entries, is_shard, alphasort);
    if (n < 0) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    if (n == 0) rc = pl_fail(err, PL_ENOTFOUND, "%s: no *.parquet in this folder", path);
    if (n > SHARDS_MAX) rc = pl_fail(err, PL_ELIMIT, "%s: more than %d shards", path, SHARDS_MAX);
    for (int i = 0; i < n; i++) {
        if (!rc && append(&d->path, &d->paths, pl_path_join(path, entries[i]->d_name)))
            rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int train_data_cache(struct train_data *d, const char *folder, uint64_t bytes, struct pl_err *err)
{
    d->cache_folder = folder;
    d->cache_bytes = bytes;
    return open_opener(d, &d->opener[0], err); /* a folder that is not usable is refused here */
}

int train_data_without(struct train_data *d, const char *path, struct pl_err *err)
{
    char *text, *save = NULL;
    int rc = pl_file_read_text(&text, path, CAPTIONS_MAX, err);
    if (rc) return rc;
    for (char *line = strtok_r(text, "\r\n", &save); line && !rc;
         line = strtok_r(NULL, "\r\n", &save))
        if (line[0] != '#' && append(&d->without, &d->without_count, strdup(line)))
            rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    free(text);
    return rc;
}

int train_data_tokenizer(struct train_data *d, const char *path, struct pl_err *err)
{
    return pl_unigram_open(&d->tokenizer, path, err);
}

/* --- the stream as a train_source ------------------------------------------------------------- */

static int next(void *context, const int32_t **text, const int32_t **codes, struct pl_err *err)
{
    struct train_data *d = context;
    struct stream_batch batch;
    int rc = pl_batch_stream_next(d->stream, &batch, err);
    if (rc) return rc;
    *text = batch.tokens;
    *codes = batch.codes;
    return PL_OK;
}

static json_t *position(void *context)
{
    struct train_data *d = context;
    char *text = d->is_shuffled ? NULL : pl_batch_stream_position(d->stream);
    json_t *value = text ? pl_json_load(text, strlen(text), 0, NULL) : NULL;
    if (d->is_shuffled)
        value = json_pack("{s:b}", "dealt", 1); /* each step has an order of its own */
    free(text);
    return value;
}

static int seek(void *context, const json_t *value, struct pl_err *err)
{
    struct train_data *d = context;
    char *text;
    int rc;
    if (json_object_get(value, "dealt")) return PL_OK;
    text = json_is_object(value) ? pl_json_text(value, JSON_COMPACT) : NULL;
    rc = text ? pl_batch_stream_restore(d->stream, text, err)
              : pl_fail(err, PL_EFORMAT, "the checkpoint holds no data position");
    free(text);
    return rc;
}

/* The same shards in the order of another seed, from the beginning. */
static int shuffle(void *context, uint64_t seed, struct pl_err *err)
{
    struct train_data *d = context;
    close_stream(d);
    d->options.seed = seed;
    d->is_shuffled = 1;
    return open_stream(d, err);
}

/* SHA-256 over all that decides which samples a seed draws: shards, tokenizer, exclusions; half of
 * it in hex. */
static int name(void *context, char text[TRAIN_DATA_NAME], struct pl_err *err)
{
    struct train_data *d = context;
    json_t *at = position(d), *data = json_object_get(at, "data"), *without;
    uint8_t hash[32];
    char *what;
    pl_json_begin();
    without = json_array();
    json_object_del(data, "seed");
    json_object_set_new(data, "tokens", json_integer(pl_unigram_size(d->tokenizer)));
    for (size_t i = 0; i < d->without_count; i++)
        json_array_append_new(without, json_string(d->without[i]));
    json_object_set_new(data, "without", without);
    what = pl_json_text(data, JSON_COMPACT | JSON_SORT_KEYS);
    if (what) EVP_Digest(what, strlen(what), hash, NULL, EVP_sha256(), NULL);
    if (what) pl_hex(text, hash, (TRAIN_DATA_NAME - 1) / 2);
    free(what);
    json_decref(at);
    return what ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory to name the data");
}

static struct pairs_options options_of(struct train_data *d, const struct pl_dalle_config *config)
{
    return (struct pairs_options){
        .path = (const char *const *)d->path,
        .paths = d->paths,
        .tokenizer = d->tokenizer,
        .text = config->T,
        .pad = config->pad,
        .cells = config->F * config->F,
        .codes = config->Vi,
        .exclude = (const char *const *)d->without,
        .excludes = d->without_count,
        .open = d->first_url ? open_shard : NULL,
        .open_context = d,
        .openers = PAIRS_OPENERS_MAX,
    };
}

/* --- open, close ------------------------------------------------------------------------------ */

int train_data_open(struct train_data *d, const struct pl_dalle_config *config, int batch,
                    uint64_t seed, uint64_t limit, struct train_source *source, struct pl_err *err)
{
    struct pairs_options o = options_of(d, config);
    o.seed = seed;
    o.limit = limit;
    if (pl_unigram_size(d->tokenizer) > config->V)
        return pl_fail(err, PL_EUSE, "the tokenizer has %d ids, the model takes %d",
                       pl_unigram_size(d->tokenizer), config->V);
    *source = (struct train_source){ next, position, seek, shuffle, name, d };
    d->options = o;
    d->batch = batch;
    return open_stream(d, err);
}

/* One pass over the excluded pairs alone. */
int train_data_held_out(struct train_data *d, const struct pl_dalle_config *config, int most,
                        int32_t **tokens, int32_t **codes, int *count, struct pl_err *err)
{
    struct pairs_options o = options_of(d, config);
    struct pairs_position at = { 0 };
    struct pairs *p;
    int rc;
    o.only_excluded = 1;
    o.buffer = (size_t)most;
    *count = 0;
    *tokens = pl_alloc((size_t)most, sizeof **tokens * (size_t)o.text);
    *codes = pl_alloc((size_t)most, sizeof **codes * (size_t)o.cells);
    if (!*tokens || !*codes) return pl_fail(err, PL_ENOMEM, "held-out pairs: no memory");
    if ((rc = pl_pairs_open(&p, &o, err))) return rc;
    while (!rc && *count < most) {
        rc = pl_pairs_next(p, *tokens + (size_t)*count * (size_t)o.text,
                           *codes + (size_t)*count * (size_t)o.cells, err);
        if (!rc && (rc = pl_pairs_position(p, &at))) pl_fail(err, rc, "held-out pairs: no memory");
        pl_pairs_position_clear(&at);
        if (at.epoch) break; /* a second pass has begun: these were all */
        *count += !rc;
    }
    pl_pairs_close(p);
    return rc;
}

void train_data_close(struct train_data *d)
{
    close_stream(d);
    for (int i = 0; i < PAIRS_OPENERS_MAX; i++) close_opener(&d->opener[i]);
    free(d->first_url);
    pl_unigram_close(d->tokenizer);
    for (size_t i = 0; i < d->lists; i++) http_list_clear(&d->list[i]);
    free(d->list);
    for (size_t i = 0; i < d->paths; i++) free(d->path[i]);
    for (size_t i = 0; i < d->without_count; i++) free(d->without[i]);
    free(d->path);
    free(d->without);
    memset(d, 0, sizeof *d);
}

/* 1: text names a readable file, and is replaced by its real path, without ".." for messages. */
static int found(char *text, size_t size)
{
    char *real = access(text, R_OK) ? NULL : realpath(text, NULL);
    if (real && strlen(real) < size) strcpy(text, real);
    free(real);
    return real != NULL;
}

const char *train_data_demo(char *text, size_t size, const char *file)
{
    const char *named = getenv("PL_DATA_DIR");
    char folder[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash;
    folder[n > 0 ? n : 0] = 0;
    if ((slash = strrchr(folder, '/'))) *slash = 0;
    if (named && *named) {
        snprintf(text, size, "%s/%s", named, file);
        return text;
    }
    snprintf(text, size, "%s/../data/demo/%s", folder, file); /* build/potluck of a source tree */
    if (found(text, size)) return text;
    snprintf(text, size, "%s/../share/potluck/demo/%s", folder, file); /* make install */
    if (found(text, size)) return text;
    snprintf(text, size, "data/demo/%s", file);
    return text;
}
