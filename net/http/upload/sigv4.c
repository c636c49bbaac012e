/* sigv4.c - a request is signed by a key that is good for one day, region and service only.
 * [Amazon S3 API, "Authenticating Requests: Using the Authorization Header"]
 *
 *   1. request    SHA-256(method, path, query, headers, their names, the body's SHA-256)
 *   2. text       "AWS4-HMAC-SHA256", time, scope = day/region/service/aws4_request, 1
 *   3. key        k = "AWS4" + secret;  k = HMAC(k, word) for each word of the scope
 *   4. signature  HMAC(k, text), sent along with the scope and the names of the signed headers */
#include "sigv4.h"
#include "data/files/buffer.h"
#include "ref/small.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#define HASH 32

static void add(struct pl_buffer *b, const char *text) { pl_buffer_add(b, text, strlen(text)); }

/* The headers' names with ; between them. */
static void add_names(struct pl_buffer *b, const char *const *headers)
{
    for (int i = 0; headers[i]; i++) {
        if (i) add(b, ";");
        pl_buffer_add(b, headers[i], strcspn(headers[i], ":"));
    }
}

/* out = HMAC-SHA256 of a text; out may be the key. */
static int mac(unsigned char out[HASH], const void *key, size_t bytes, const char *text)
{
    unsigned char hash[HASH];
    unsigned n = HASH;
    if (!HMAC(EVP_sha256(), key, (int)bytes, (const unsigned char *)text, strlen(text), hash, &n))
        return PL_ENOMEM;
    memcpy(out, hash, HASH);
    return PL_OK;
}

/* The SHA-256 of the request in its canonical form, hexadecimal. */
static int hash_request(char text[2 * HASH + 1], const struct sigv4_request *r)
{
    struct pl_buffer b = { 0 };
    unsigned char hash[EVP_MAX_MD_SIZE];
    int good;
    add(&b, r->method);
    add(&b, "\n");
    add(&b, r->path);
    add(&b, "\n");
    add(&b, r->query);
    add(&b, "\n");
    for (int i = 0; r->headers[i]; i++) {
        add(&b, r->headers[i]);
        add(&b, "\n");
    }
    add(&b, "\n");
    add_names(&b, r->headers);
    add(&b, "\n");
    add(&b, r->sha256);
    good = !b.failed && EVP_Digest(b.data, b.bytes, hash, NULL, EVP_sha256(), NULL);
    pl_buffer_clear(&b);
    if (good) pl_hex(text, hash, HASH);
    return good ? PL_OK : PL_ENOMEM;
}

int sigv4_authorization(char out[SIGV4_HEADER_MAX], const struct sigv4 *k,
                        const struct sigv4_request *r)
{
    char scope[128], text[400], digest[2 * HASH + 1], first[160], signature[2 * HASH + 1];
    unsigned char key[HASH];
    struct pl_buffer b = { 0 };
    int rc = PL_OK, bytes;
    if (strlen(k->when) != 16 || strlen(k->secret) > 128 || strlen(k->region) > 40 ||
        strlen(k->service) > 40 || strlen(k->key_id) > 200)
        return PL_ELIMIT;
    snprintf(scope, sizeof scope, "%.8s/%s/%s/aws4_request", k->when, k->region, k->service);
    if ((rc = hash_request(digest, r))) return rc;
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", k->when, scope, digest);
    snprintf(first, sizeof first, "AWS4%s", k->secret);
    char day[9];
    snprintf(day, sizeof day, "%.8s", k->when);
    if (mac(key, first, strlen(first), day) || mac(key, key, HASH, k->region) ||
        mac(key, key, HASH, k->service) || mac(key, key, HASH, "aws4_request") ||
        mac(key, key, HASH, text))
        return PL_ENOMEM;
    pl_hex(signature, key, HASH);
    add_names(&b, r->headers);
    pl_buffer_byte(&b, 0);
    if (b.failed) return PL_ENOMEM;
    bytes = snprintf(out, SIGV4_HEADER_MAX,
                     "AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s", k->key_id,
                     scope, (const char *)b.data, signature);
    pl_buffer_clear(&b);
    return bytes < SIGV4_HEADER_MAX ? PL_OK : PL_ELIMIT;
}
