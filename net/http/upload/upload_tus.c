/* upload_tus.c - the tus protocol: an upload is created once and has an address; how far it is can
 * be asked. [tus 1.0.0, tus.io/protocols] */
#include "upload_request.h"
#include "data/files/json.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

/* The location of an earlier upload of this very file to this very address; 0: none. */
static int recall(struct upload *u)
{
    json_t *state = upload_recall(u);
    const char *location = json_string_value(json_object_get(state, "location"));
    int good = location && strlen(location) < sizeof u->location;
    if (good) snprintf(u->location, sizeof u->location, "%s", location);
    json_decref(state);
    return good;
}

static int remember(struct upload *u)
{
    json_t *state;
    int rc;
    pl_json_begin();
    state = json_pack("{s:s}", "location", u->location);
    rc = state && !pl_json_failed() ? upload_remember(u, state)
                                    : pl_fail(u->err, PL_ENOMEM, "%.200s: no memory", u->path);
    json_decref(state);
    return rc;
}

/* Where the server wants the bytes: an address of its own, perhaps next to the one that was
 * asked. */
static int take_location(struct upload *u, const char *location)
{
    CURLU *url = curl.url();
    char *whole = NULL;
    int good = url && !curl.url_set(url, CURLUPART_URL, u->url, 0) &&
               !curl.url_set(url, CURLUPART_URL, location, 0) &&
               !curl.url_get(url, CURLUPART_URL, &whole, 0) && strlen(whole) < sizeof u->location;
    if (good) snprintf(u->location, sizeof u->location, "%s", whole);
    curl.free(whole);
    curl.url_cleanup(url);
    return good;
}

static int create(struct upload *u)
{
    const char *slash = strrchr(u->path, '/'), *name = slash ? slash + 1 : u->path;
    char length[60], metadata[512], coded[400];
    const char *headers[] = { "Tus-Resumable: 1.0.0", length, metadata, "Content-Length: 0", NULL };
    struct upload_reply x;
    int rc;
    EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)name,
                    (int)(strlen(name) < 255 ? strlen(name) : 255));
    snprintf(length, sizeof length, "Upload-Length: %zu", u->file.bytes);
    snprintf(metadata, sizeof metadata, "Upload-Metadata: filename %s", coded);
    for (int try = 0;; try++) {
        rc = upload_ask(u, &x, "POST", u->url, headers, NULL, 0);
        if (!rc && x.status == 201) break;
        if ((rc = upload_again(u, try, rc, &x, "beginning an upload", 0))) return rc;
    }
    if (!x.location[0] || !take_location(u, x.location))
        return pl_fail(u->err, PL_EFORMAT,
                       "%.200s: the server's response has no Location for the upload", u->url);
    return remember(u);
}

/* How many bytes the server has. PL_ENOTFOUND: it has forgotten the upload. */
static int ask_offset(struct upload *u, uint64_t *offset)
{
    static const char *const headers[] = { "Tus-Resumable: 1.0.0", NULL };
    struct upload_reply x;
    for (int try = 0;; try++) {
        int rc = upload_ask(u, &x, "HEAD", u->location, headers, NULL, 0);
        if (!rc && (x.status == 404 || x.status == 410 || x.status == 403)) return PL_ENOTFOUND;
        if (!rc && x.status >= 200 && x.status < 300) break;
        if ((rc = upload_again(u, try, rc, &x, "asking how much it has", *offset))) return rc;
    }
    if (x.offset < 0 || (uint64_t)x.offset > u->file.bytes)
        return pl_fail(u->err, PL_EFORMAT, "%.200s: the server has %lld of %zu bytes, it says",
                       u->url, x.offset, u->file.bytes);
    *offset = (uint64_t)x.offset;
    return PL_OK;
}

/* From *offset on, piece by piece. */
static int send_pieces(struct upload *u, uint64_t offset)
{
    double wait = u->o->wait_s;
    int bare = 0, rc = upload_report(u, offset);
    while (!rc && offset < u->file.bytes) {
        size_t n = u->file.bytes - offset < u->o->piece ? (size_t)(u->file.bytes - offset)
                                                        : u->o->piece;
        char where[60];
        const char *headers[] = { "Tus-Resumable: 1.0.0",
                                  "Content-Type: application/offset+octet-stream", where, NULL };
        struct upload_reply x;
        uint64_t now = offset;
        snprintf(where, sizeof where, "Upload-Offset: %llu", (unsigned long long)offset);
        rc = upload_ask(u, &x, "PATCH", u->location, headers, u->file.at + offset, n);
        if (!rc && x.status == 204 && x.offset == (long long)(offset + n)) {
            offset += n;
            bare = 0;
            wait = u->o->wait_s;
            rc = upload_report(u, offset);
            continue;
        }
        if (!upload_is_temporary(rc, &x) && !(rc == PL_OK && x.status == 204))
            return upload_complain(u, rc, &x, "PATCH");
        if ((rc = ask_offset(u, &now)))
            return rc == PL_ENOTFOUND ? upload_complain(u, 0, &x, "PATCH") : rc;
        if (now <= offset && ++bare >= u->o->tries)
            return pl_fail(u->err, PL_EIO, "%.200s: stays at byte %llu of %zu", u->url,
                           (unsigned long long)now, u->file.bytes);
        if (now > offset) bare = 0;
        offset = now;
        if (!(rc = upload_report(u, offset))) upload_wait(&wait);
    }
    return rc;
}

int upload_tus(struct upload *u)
{
    uint64_t offset = 0;
    int rc = recall(u) ? ask_offset(u, &offset) : PL_ENOTFOUND;
    if (rc == PL_ENOTFOUND) {
        offset = 0;
        rc = create(u);
    }
    if (!rc) rc = send_pieces(u, offset);
    if (rc) return rc;
    upload_forget(u);
    return PL_OK;
}
