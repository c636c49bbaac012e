/* upload_s3.c - to S3 and servers with its protocol. A file of one piece is put; a larger one is a
 * multipart upload: begun, its parts put, completed by the list of their ETags. The upload's ID and
 * the ETags are stored, so a part that has arrived is never sent again. [Amazon S3 API, multipart
 * upload] */
#include "upload_request.h"
#include "sigv4.h"
#include "data/files/json.h"
#include "ref/small.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ID_MAX 1000

/* Host, with its port unless it is the usual one, and path of the object. */
struct place {
    char host[300], path[HTTP_URL_MAX];
};

static int find_place(struct place *p, const struct upload *u)
{
    CURLU *url = curl.url();
    char *host = NULL, *port = NULL, *path = NULL;
    int good = url && !curl.url_set(url, CURLUPART_URL, u->url, 0) &&
               !curl.url_get(url, CURLUPART_HOST, &host, 0) &&
               !curl.url_get(url, CURLUPART_PATH, &path, 0) && strlen(host) < 256 &&
               !strchr(u->url, '?');
    if (good) {
        curl.url_get(url, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
        snprintf(p->host, sizeof p->host, "%s%s%.10s", host, port ? ":" : "", port ? port : "");
        snprintf(p->path, sizeof p->path, "%s", path);
    }
    curl.free(host);
    curl.free(port);
    curl.free(path);
    curl.url_cleanup(url);
    return good ? PL_OK
                : pl_fail(u->err, PL_EUSE,
                          "%.200s: not the address of an object, "
                          "https://ENDPOINT/BUCKET/NAME",
                          u->url);
}

/* A signed request for the object with a query, "" for none. PL_EUSE, PL_ELIMIT: it cannot be sent,
 * and u->err says why. */
static int ask(struct upload *u, struct upload_reply *x, const char *method, const char *query,
               const void *data, size_t bytes)
{
    struct place place;
    char host[310], sum[100], date[40], session[4200], url[HTTP_URL_MAX + ID_MAX * 3 + 100];
    char signature[SIGV4_HEADER_MAX], authorization[SIGV4_HEADER_MAX + 20], when[20];
    const char *signed_headers[] = { host, sum, date, u->o->session ? session : NULL, NULL };
    const char *headers[] = { sum,
                              date,
                              authorization,
                              "Content-Type: application/octet-stream",
                              u->o->session ? session : NULL,
                              NULL };
    unsigned char digest[EVP_MAX_MD_SIZE];
    time_t now = time(NULL);
    struct tm utc;
    int rc = find_place(&place, u);
    *x = (struct upload_reply){ .status = 0 }; /* there is none yet, if signing fails */
    if (rc) return rc;
    if (!EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL)) return PL_ENOMEM;
    strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &utc));
    snprintf(host, sizeof host, "host:%s", place.host);
    snprintf(sum, sizeof sum, "x-amz-content-sha256:");
    pl_hex(sum + strlen(sum), digest, 32);
    snprintf(date, sizeof date, "x-amz-date:%s", when);
    if (u->o->session)
        snprintf(session, sizeof session, "x-amz-security-token:%.4000s", u->o->session);
    rc = sigv4_authorization(
        signature, &(struct sigv4){ u->o->key_id, u->o->secret, u->o->region, "s3", when },
        &(struct sigv4_request){ method, place.path, query, signed_headers, strchr(sum, ':') + 1 });
    if (rc) return pl_fail(u->err, rc, "%.200s: cannot be signed", u->url);
    snprintf(authorization, sizeof authorization, "Authorization: %s", signature);
    snprintf(url, sizeof url, "%s%s%s", u->url, *query ? "?" : "", query);
    return upload_ask(u, x, method, url, headers, data, bytes);
}

/* The same, tried again; every try is signed anew, as a signature is good for minutes. */
static int insist(struct upload *u, struct upload_reply *x, const char *method, const char *query,
                  const void *data, size_t bytes, const char *what)
{
    for (int try = 0;; try++) {
        int rc = ask(u, x, method, query, data, bytes);
        if (rc == PL_EUSE || rc == PL_ELIMIT) return rc;
        if (!rc && x->status >= 200 && x->status < 300) return PL_OK;
        if ((rc = upload_again(u, try, rc, x, what, 0))) return rc;
    }
}

/* The text of the first element <name> of a response; 0: there is none, or it is too long. */
static int element(char *text, size_t capacity, const char *answer, const char *name)
{
    char open[40], close[40];
    const char *begin, *end;
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    begin = strstr(answer, open);
    end = begin ? strstr(begin, close) : NULL;
    if (!end || (size_t)(end - begin) - strlen(open) >= capacity) return 0;
    snprintf(text, capacity, "%.*s", (int)(end - begin - (int)strlen(open)), begin + strlen(open));
    return 1;
}

static json_t *begin_parts(struct upload *u, size_t piece)
{
    struct upload_reply x;
    char id[ID_MAX];
    json_t *state;
    if (insist(u, &x, "POST", "uploads=", "", 0, "beginning an upload")) return NULL;
    if (!element(id, sizeof id, (const char *)u->answer.data, "UploadId") || !*id) {
        pl_fail(u->err, PL_EFORMAT, "%.200s: the server begins an upload without an id", u->url);
        return NULL;
    }
    pl_json_begin();
    state = json_pack("{s:s, s:I, s:[]}", "id", id, "piece", (json_int_t)piece, "etags");
    if (!state || pl_json_failed()) pl_fail(u->err, PL_ENOMEM, "%.200s: no memory", u->path);
    else if (!upload_remember(u, state)) return state;
    json_decref(state);
    return NULL;
}

/* "uploadId=...", behind a part's number if there is one. */
static int id_query(char *query, size_t capacity, struct upload *u, const json_t *state,
                    size_t number)
{
    const char *id = json_string_value(json_object_get(state, "id"));
    char *escaped = id ? curl.easy_escape(u->easy, id, 0) : NULL, part[40] = "";
    if (!escaped) return PL_ENOMEM;
    if (number) snprintf(part, sizeof part, "partNumber=%zu&", number);
    snprintf(query, capacity, "%suploadId=%s", part, escaped);
    curl.free(escaped);
    return PL_OK;
}

static int put_part(struct upload *u, struct upload_reply *x, json_t *state, size_t part,
                    const uint8_t *data, size_t bytes)
{
    char query[3 * ID_MAX + 60];
    int rc = id_query(query, sizeof query, u, state, part + 1);
    return rc ? rc : ask(u, x, "PUT", query, data, bytes);
}

/* Tags come from outside and go into XML. */
static int is_plain(const char *tag)
{
    return tag &&
           strspn(tag, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_+/=\"") ==
               strlen(tag);
}

static int complete(struct upload *u, const json_t *state)
{
    struct pl_buffer b = { 0 };
    struct upload_reply x;
    char query[3 * ID_MAX + 60], text[HTTP_TAG_MAX + 100];
    const json_t *tags = json_object_get(state, "etags"), *tag;
    size_t i;
    int rc = id_query(query, sizeof query, u, state, 0);
    pl_buffer_add(&b, "<CompleteMultipartUpload>", 25);
    json_array_foreach(tags, i, tag)
    {
        if (!is_plain(json_string_value(tag)))
            rc = pl_fail(u->err, PL_EFORMAT, "%.200s: part %zu: invalid ETag", u->url, i + 1);
        else
            snprintf(text, sizeof text,
                     "<Part><PartNumber>%zu</PartNumber><ETag>%.200s</ETag></Part>", i + 1,
                     json_string_value(tag));
        if (rc) break;
        pl_buffer_add(&b, text, strlen(text));
    }
    pl_buffer_add(&b, "</CompleteMultipartUpload>", 26);
    if (!rc && b.failed) rc = pl_fail(u->err, PL_ENOMEM, "%.200s: no memory", u->path);
    if (!rc) rc = insist(u, &x, "POST", query, b.data, b.bytes, "completing an upload");
    /* An error may come with 200: the answer begins before the server knows. */
    if (!rc && !strstr((const char *)u->answer.data, "<CompleteMultipartUploadResult")) {
        if (!element(text, sizeof text, (const char *)u->answer.data, "Code"))
            snprintf(text, sizeof text, "no result");
        rc = pl_fail(u->err, PL_EIO, "%.200s: completing an upload: %.100s", u->url, text);
    }
    pl_buffer_clear(&b);
    return rc;
}

/* The pieces that a remembered upload was begun with; 0: it is not one of ours. */
static size_t piece_of(const json_t *state)
{
    json_int_t piece = json_integer_value(json_object_get(state, "piece"));
    int good = json_is_string(json_object_get(state, "id")) &&
               json_is_array(json_object_get(state, "etags")) &&
               strlen(json_string_value(json_object_get(state, "id"))) < ID_MAX;
    return good && piece > 0 ? (size_t)piece : 0;
}

int upload_s3(struct upload *u)
{
    size_t least = u->file.bytes / UPLOAD_PARTS_MAX + 1,
           piece = u->o->piece > least ? u->o->piece : least;
    struct upload_reply x;
    json_t *state;
    int rc, known;
    if (!u->o->key_id || !u->o->secret || !u->o->region)
        return pl_fail(u->err, PL_EUSE, "%.200s: S3 needs a key, its secret and a region", u->url);
    /* A reader of a signed request could send it again, and would know the session's token. */
    if (!http_may_see(u->url, u->url))
        return pl_fail(u->err, PL_EUSE, "%.200s: S3 keys sign requests to https addresses alone",
                       u->url);
    u->bare = 1;
    if (u->file.bytes <= piece) {
        rc = upload_report(u, 0);
        if (!rc) rc = insist(u, &x, "PUT", "", u->file.at, u->file.bytes, "PUT");
        return rc ? rc : upload_report(u, u->file.bytes);
    }
    state = upload_recall(u);
    known = piece_of(state) != 0;
    if (known) piece = piece_of(state);
    for (int again = 0;; again = 1) {
        if (!known || again) {
            json_decref(state);
            if (!(state = begin_parts(u, piece))) return PL_EIO;
        }
        rc = upload_parts(u, state, piece, put_part);
        /* a forgotten upload is begun once more */
        if (rc != PL_ENOTFOUND || !known || again) break;
    }
    if (!rc) rc = complete(u, state);
    json_decref(state);
    if (rc) return rc == PL_ENOTFOUND ? PL_EIO : rc;
    upload_forget(u);
    return upload_report(u, u->file.bytes);
}
