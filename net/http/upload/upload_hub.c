/* upload_hub.c - to a hub as Hugging Face's: it is asked how it wants the file (preupload); a large
 * one goes to its file storage, whose addresses the LFS batch call returns, in one piece or in
 * parts; then a commit names it. Parts that the storage already has are not sent again. [git-lfs,
 * docs/api/batch.md] [huggingface_hub, modules _commit_api and lfs] */
#include "upload_request.h"
#include "data/files/json.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE 512              /* bytes that the hub judges a file by */
#define REGULAR_MAX (10u << 20) /* larger ones go to the storage, whatever the hub says */
#define LFS_JSON "application/vnd.git-lfs+json"

static int no_memory(const struct upload *u)
{
    return pl_fail(u->err, PL_ENOMEM, "%.200s: no memory", u->path);
}

/* Asks with a JSON body until there is an answer of JSON. The body's reference is taken; it was
 * built since pl_json_begin(). */
static int call(struct upload *u, json_t **answer, const char *url, const char *type, json_t *body,
                const char *what)
{
    char accept[80], content[80];
    const char *headers[] = { accept, content, NULL };
    char *text = pl_json_text(body, JSON_COMPACT);
    struct upload_reply x;
    int rc;
    json_decref(body);
    *answer = NULL;
    if (!text) return no_memory(u);
    snprintf(accept, sizeof accept, "Accept: %s", type);
    snprintf(content, sizeof content, "Content-Type: %s", type);
    rc = upload_insist(u, &x, "POST", url, headers, text, strlen(text), what);
    free(text);
    if (!rc) *answer = pl_json_load((const char *)u->answer.data, u->answer.bytes, 0, NULL);
    if (!rc && !*answer)
        rc = pl_json_status() == PL_ENOMEM
                 ? no_memory(u)
                 : pl_fail(u->err, PL_EFORMAT, "%.200s: %s: the answer is not JSON", url, what);
    return rc;
}

static char *base64(const void *data, size_t bytes)
{
    char *text = malloc((bytes + 2) / 3 * 4 + 1);
    if (text) EVP_EncodeBlock((unsigned char *)text, data, (int)bytes);
    return text;
}

/* "<hub>/api/<kind>/<repository>/<call>/<revision>" */
static int api(char url[HTTP_URL_MAX], struct upload *u, const char *what)
{
    char *revision = curl.easy_escape(u->easy, u->o->revision, 0);
    int n = revision ? snprintf(url, HTTP_URL_MAX, "%s/api/%s/%s/%s/%s", u->url, u->o->kind,
                                u->o->repository, what, revision)
                     : 0;
    curl.free(revision);
    if (!revision) return no_memory(u);
    return n < HTTP_URL_MAX ? PL_OK
                            : pl_fail(u->err, PL_ELIMIT, "%.100s: too long an address", u->url);
}

/* Whether the storage shall have the file. */
static int ask_way(struct upload *u, int *storage)
{
    char url[HTTP_URL_MAX];
    char *sample = base64(u->file.at, u->file.bytes < SAMPLE ? u->file.bytes : SAMPLE);
    json_t *answer, *file;
    const char *mode;
    int rc = sample ? api(url, u, "preupload") : no_memory(u);
    pl_json_begin();
    if (!rc)
        rc = call(u, &answer, url, "application/json",
                  json_pack("{s:[{s:s, s:s, s:I}]}", "files", "path", u->o->name, "sample", sample,
                            "size", (json_int_t)u->file.bytes),
                  "asking how to upload");
    free(sample);
    if (rc) return rc;
    file = json_array_get(json_object_get(answer, "files"), 0);
    mode = json_string_value(json_object_get(file, "uploadMode"));
    if (!mode || (strcmp(mode, "lfs") && strcmp(mode, "regular")))
        rc = pl_fail(u->err, PL_EFORMAT, "%.200s: does not say whether '%.100s' is lfs or regular",
                     url, u->o->name);
    else if (json_is_true(json_object_get(file, "shouldIgnore")))
        rc = pl_fail(u->err, PL_EUSE, "%.200s: the repository ignores '%.100s'", url, u->o->name);
    else *storage = !strcmp(mode, "lfs") || u->file.bytes > REGULAR_MAX;
    json_decref(answer);
    return rc;
}

/* --- the storage ------------------------------------------------------------------------------ */

/* The parts' addresses of an action, by their numbers 1, 2, ...; NULL: it is not in parts. */
static json_t *part_urls(const struct upload *u, json_t *header, size_t chunk)
{
    size_t parts = u->file.bytes / chunk + (u->file.bytes % chunk != 0), found = 0;
    json_t *urls = json_array(), *value;
    const char *key;
    if (parts > UPLOAD_PARTS_MAX) parts = 0;
    for (size_t i = 0; urls && i < parts; i++) json_array_append_new(urls, json_null());
    json_object_foreach(header, key, value)
    {
        unsigned long number = strspn(key, "0123456789") == strlen(key) ? strtoul(key, NULL, 10)
                                                                        : 0;
        if (number < 1 || number > parts || !json_is_string(value)) continue;
        found += json_is_null(json_array_get(urls, number - 1));
        json_array_set(urls, number - 1, value);
    }
    if (urls && (!parts || found < parts)) {
        json_decref(urls);
        urls = NULL;
    }
    return urls;
}

static int put_part(struct upload *u, struct upload_reply *x, json_t *state, size_t part,
                    const uint8_t *data, size_t bytes)
{
    const char *url = json_string_value(json_array_get(json_object_get(state, "parts"), part));
    static const char *const headers[] = { "Content-Type:", NULL }; /* it would have to be signed */
    if (!url)
        return pl_fail(u->err, PL_EFORMAT, "%.200s: no address for part %zu", u->url, part + 1);
    return upload_ask(u, x, "PUT", url, headers, data, bytes);
}

/* Sends the missing parts and completes the upload. PL_ENOTFOUND: its URLs have expired. */
static int send_parts(struct upload *u, json_t *state)
{
    size_t piece = (size_t)json_integer_value(json_object_get(state, "piece")), i;
    const char *url = json_string_value(json_object_get(state, "complete"));
    json_t *list, *answer = NULL, *tag;
    int rc;
    if (!url)
        return pl_fail(u->err, PL_EFORMAT, "%.200s: no address to complete an upload at", u->url);
    u->bare = 1;
    rc = upload_parts(u, state, piece, put_part);
    pl_json_begin();
    if (!rc && !(list = json_array())) rc = no_memory(u);
    if (rc) return rc;
    json_array_foreach(json_object_get(state, "etags"), i, tag)
        json_array_append_new(list, json_pack("{s:i, s:O}", "partNumber", (int)i + 1, "etag", tag));
    u->bare = 0;
    rc = call(u, &answer, url, LFS_JSON, json_pack("{s:s, s:o}", "oid", u->sha256, "parts", list),
              "completing an upload");
    json_decref(answer);
    return rc;
}

/* As the batch call's "upload" says: in parts if it has a chunk_size. */
static int send_action(struct upload *u, json_t *action)
{
    json_t *header = json_object_get(action, "header"), *value, *state;
    const char *url = json_string_value(json_object_get(action, "href")), *key;
    const json_t *chunk = json_object_get(header, "chunk_size");
    long long piece = json_is_integer(chunk)  ? json_integer_value(chunk)
                      : json_is_string(chunk) ? atoll(json_string_value(chunk))
                                              : 0;
    char lines[16][HTTP_TAG_MAX * 4];
    const char *headers[18] = { "Content-Type: application/octet-stream" };
    struct upload_reply x;
    int n = 0, rc;
    if (!url) return pl_fail(u->err, PL_EFORMAT, "%.200s: the storage gives no address", u->url);
    if (chunk) {
        pl_json_begin();
        json_t *urls = piece > 0 ? part_urls(u, header, (size_t)piece) : NULL;
        if (pl_json_failed()) {
            json_decref(urls);
            return no_memory(u);
        }
        if (!urls)
            return pl_fail(u->err, PL_EFORMAT,
                           "%.200s: the storage's parts do not make up %zu bytes", u->url,
                           u->file.bytes);
        state = json_pack("{s:s, s:I, s:o, s:[]}", "complete", url, "piece", (json_int_t)piece,
                          "parts", urls, "etags");
        rc = state && !pl_json_failed() ? upload_remember(u, state) : no_memory(u);
        if (!rc) rc = send_parts(u, state);
        json_decref(state);
        return rc;
    }
    json_object_foreach(header, key, value)
    {
        if (n == 16 || !json_is_string(value)) break;
        snprintf(lines[n], sizeof lines[n], "%.100s: %.600s", key, json_string_value(value));
        headers[n + 1] = lines[n];
        n++;
    }
    u->bare = 1;
    return upload_insist(u, &x, "PUT", url, headers, u->file.at, u->file.bytes, "the storage");
}

/* Resumes an earlier upload; PL_ENOTFOUND: there is none, or it is no longer valid. */
static int go_on(struct upload *u)
{
    json_t *state = upload_recall(u);
    int good = json_is_array(json_object_get(state, "parts")) &&
               json_is_array(json_object_get(state, "etags")) &&
               json_integer_value(json_object_get(state, "piece")) > 0;
    int rc = good ? send_parts(u, state) : PL_ENOTFOUND;
    json_decref(state);
    return rc;
}

static int to_storage(struct upload *u)
{
    char url[HTTP_URL_MAX];
    json_t *answer = NULL, *object, *actions, *verify, *done = NULL;
    const char *where, *why;
    int rc, model = !strcmp(u->o->kind, "models");
    if (snprintf(url, sizeof url, "%s/%s%s%s.git/info/lfs/objects/batch", u->url,
                 model ? "" : u->o->kind, model ? "" : "/", u->o->repository) >= (int)sizeof url)
        return pl_fail(u->err, PL_ELIMIT, "%.100s: too long an address", u->url);
    rc = go_on(u);
    if (rc && rc != PL_ENOTFOUND) return rc;
    u->bare = 0;
    if (!rc) return PL_OK;
    pl_json_begin();
    rc = call(u, &answer, url, LFS_JSON,
              json_pack("{s:s, s:[s, s], s:s, s:{s:s}, s:[{s:s, s:I}]}", "operation", "upload",
                        "transfers", "basic", "multipart", "hash_algo", "sha256", "ref", "name",
                        u->o->revision, "objects", "oid", u->sha256, "size",
                        (json_int_t)u->file.bytes),
              "asking the storage");
    if (rc) return rc;
    object = json_array_get(json_object_get(answer, "objects"), 0);
    actions = json_object_get(object, "actions");
    why = json_string_value(json_object_get(json_object_get(object, "error"), "message"));
    if (!object || json_object_get(object, "error"))
        rc = pl_fail(u->err, PL_EIO, "%.200s: the storage refuses: %.200s", url,
                     !object ? "no object"
                     : why   ? why
                             : "it does not say why");
    else if (json_object_get(actions, "upload"))
        rc = send_action(u, json_object_get(actions, "upload"));
    verify = json_object_get(actions, "verify");
    where = json_string_value(json_object_get(verify, "href"));
    u->bare = 0;
    pl_json_begin();
    if (!rc && where)
        rc = call(u, &done, where, LFS_JSON,
                  json_pack("{s:s, s:I}", "oid", u->sha256, "size", (json_int_t)u->file.bytes),
                  "verifying");
    json_decref(done);
    json_decref(answer);
    return rc == PL_ENOTFOUND ? PL_EIO : rc;
}

/* --- the commit ------------------------------------------------------------------------------- */

static json_t *commit_line(struct upload *u, int storage)
{
    char *content;
    json_t *line;
    if (storage)
        return json_pack("{s:s, s:{s:s, s:s, s:s, s:I}}", "key", "lfsFile", "value", "path",
                         u->o->name, "algo", "sha256", "oid", u->sha256, "size",
                         (json_int_t)u->file.bytes);
    if (!(content = base64(u->file.at, u->file.bytes))) return NULL;
    line = json_pack("{s:s, s:{s:s, s:s, s:s}}", "key", "file", "value", "path", u->o->name,
                     "encoding", "base64", "content", content);
    free(content);
    return line;
}

static int commit(struct upload *u, int storage)
{
    static const char *const headers[] = { "Content-Type: application/x-ndjson", NULL };
    char url[HTTP_URL_MAX], summary[300];
    json_t *head, *line, *answer;
    char *first, *second;
    struct pl_buffer body = { 0 };
    struct upload_reply x;
    int rc = api(url, u, "commit");
    pl_json_begin();
    line = commit_line(u, storage);
    second = pl_json_text(line, JSON_COMPACT);
    snprintf(summary, sizeof summary, "Upload %.200s with potluck", u->o->name);
    head = json_pack("{s:s, s:{s:s, s:s}}", "key", "header", "value", "summary", summary,
                     "description", "");
    first = pl_json_text(head, JSON_COMPACT);
    if (!rc && (!first || !second)) rc = no_memory(u);
    if (!rc) {
        pl_buffer_add(&body, first, strlen(first));
        pl_buffer_byte(&body, '\n');
        pl_buffer_add(&body, second, strlen(second));
        pl_buffer_byte(&body, '\n');
        rc = body.failed
                 ? no_memory(u)
                 : upload_insist(u, &x, "POST", url, headers, body.data, body.bytes, "the commit");
    }
    if (!rc) {
        answer = pl_json_load((const char *)u->answer.data, u->answer.bytes, 0, NULL);
        if (!json_is_string(json_object_get(answer, "commitOid")))
            rc = pl_fail(u->err, PL_EFORMAT, "%.200s: the hub names no commit", url);
        json_decref(answer);
    }
    pl_buffer_clear(&body);
    free(first);
    free(second);
    json_decref(head);
    json_decref(line);
    return rc;
}

int upload_hub(struct upload *u)
{
    int storage = 0, rc;
    if (!u->o->repository || !u->o->kind || !u->o->revision || !u->o->name)
        return pl_fail(u->err, PL_EUSE,
                       "%.200s: a hub needs a repository, its kind, a branch and a name", u->url);
    if ((rc = upload_report(u, 0)) || (rc = ask_way(u, &storage))) return rc;
    if (storage && (rc = to_storage(u))) return rc;
    if ((rc = commit(u, storage))) return rc;
    upload_forget(u);
    return upload_report(u, u->file.bytes);
}
