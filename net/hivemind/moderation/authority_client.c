/* authority_client.c - how a volunteer gets an access token, its entry to a moderated run. [spec
 * hivemind-protocol 3]
 *
 *   PUT /api/experiments/join   our public key; the user's secret as a bearer token
 *   200                         username, peer_public_key, expiration_time, signature; and the
 *                               authority's key
 *   check                       the signature is the authority's, the key ours, the time not over
 *
 * A peer of a moderated run cannot send a single DHT message without the token, so this comes
 * before joining. Other peers verify the same signature, so a token that fails here would be
 * refused by everybody. A failure names the side that has to act: the user, the owner of the
 * authority, or nobody yet (it is tried again after 1, 2, 4, ... s). */
#include "authority_client.h"
#include "data/files/json.h"
#include "net/http/client/credential.h"
#include "net/http/libraries.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the answer ------------------------------------------------------------------------------- */

/* A text of the answer. Its bytes go into the signed message, so a NUL in it, where C would see its
 * end and Python would not, is refused. */
static int add_text(struct bytes *out, const json_t *o, const char *name, struct pl_err *err)
{
    const json_t *v = json_object_get(o, name);
    size_t n = json_string_length(v);
    if (!json_is_string(v) || !n || n > RSA_TEXT_MAX || strlen(json_string_value(v)) != n)
        return pl_fail(err, PL_EFORMAT, "authority: hivemind_access.%s is missing or no text",
                       name);
    return bytes_add(out, json_string_value(v), n);
}

/* The signature covers Python's str(datetime) of the expiration, while JSON carries another form of
 * it. A text that is not a time stays as it is: the check of the signature will name it. */
static int sign_form(struct bytes *expiration)
{
    char text[AUTH_TIME_TEXT];
    int64_t time;
    if (auth_time_parse(&time, bytes_at(expiration), bytes_length(expiration)) ||
        auth_time_write(text, time))
        return PL_OK;
    bytes_clear(expiration);
    return bytes_add(expiration, text, strlen(text));
}

int authority_answer_read(struct auth_token *t, EVP_PKEY **authority, const char *json, size_t n,
                          struct pl_err *err)
{
    /* Duplicate names are read differently by different parsers. */
    json_t *o = pl_json_load(json, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *access = json_object_get(o, "hivemind_access");
    const char *key = json_string_value(json_object_get(o, "auth_server_public_key"));
    int rc;
    memset(t, 0, sizeof *t);
    *authority = NULL;
    /* The four fields of an AccessToken, and the key that all of the run's tokens are signed by.
     * Other fields (coordinator_ip, coordinator_port) are not needed: the user names the peers. */
    if (!o && pl_json_status() == PL_ENOMEM) rc = pl_fail(err, PL_ENOMEM, "authority: no memory");
    else if (!key || rsa_public_parse(authority, key, strlen(key)))
        rc = pl_fail(err, PL_EFORMAT,
                     "authority: auth_server_public_key is not an RSA key as OpenSSH text");
    else rc = add_text(&t->username, access, "username", err);
    if (!rc) rc = add_text(&t->public_key, access, "peer_public_key", err);
    if (!rc) rc = add_text(&t->expiration, access, "expiration_time", err);
    if (!rc) rc = add_text(&t->signature, access, "signature", err);
    if (!rc) rc = sign_form(&t->expiration);
    json_decref(o);
    if (!rc) return PL_OK;
    auth_token_clear(t);
    EVP_PKEY_free(*authority);
    *authority = NULL;
    return rc;
}

/* --- the request ------------------------------------------------------------------------------ */

/* libcurl's callback. The buffer has a limit; whatever goes beyond it ends the transfer. */
static size_t on_body(char *data, size_t size, size_t n, void *context)
{
    return bytes_add(context, data, size * n) ? 0 : size * n;
}

/* The key's OpenSSH text is what the authority will sign, byte for byte. */
static char *body_for(const struct rsa_key *key)
{
    json_t *o;
    char *text;
    pl_json_begin();
    o = json_pack("{s:{s:o}}", "experiment_join_input", "peer_public_key",
                  json_stringn((const char *)bytes_at(&key->text), bytes_length(&key->text)));
    text = pl_json_text(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

/* The query's two names are of the service that the run used; an authority may ignore them. */
static char *url_for(CURL *easy, const struct authority_ask *ask)
{
    char *organization = curl.easy_escape(easy, ask->organization ? ask->organization : "", 0);
    char *model = curl.easy_escape(easy, ask->model ? ask->model : "", 0), *url = NULL;
    size_t n = strlen(ask->url);
    while (n && ask->url[n - 1] == '/') n--; /* "https://host/" is "https://host" */
    if (organization && model &&
        asprintf(&url, "%.*s/api/experiments/join?organization_name=%s&model_name=%s", (int)n,
                 ask->url, organization, model) < 0)
        url = NULL;
    curl.free(organization);
    curl.free(model);
    return url;
}

/* libcurl passes OpenSSL's verdict on: the numbers for what is wrong with a certificate
 * (X509_V_ERR_...). */
enum { CERT_NOT_YET = 9, CERT_OVER = 10, CERT_SELF_SIGNED = 18, CERT_UNKNOWN = 21, CERT_NAME = 62 };

/* A certificate that is not accepted has four usual reasons, each with another remedy. */
static const char *certificate_advice(long verified, int has_ca, const char *why)
{
    if (verified == CERT_NOT_YET)
        return "your side: set the clock (timedatectl set-ntp true); if it is right, the "
               "authority's owner's: its certificate is not valid yet";
    if (verified == CERT_OVER)
        return "the authority's owner's side: its certificate has expired (potluck authority makes "
               "a new one if FILE.crt is deleted); yours, if your clock is ahead";
    if (verified == CERT_NAME || strstr(why, "subject name"))
        return "your side: --authority must use the name in the authority's certificate (its "
               "owner's --name)";
    if (has_ca)
        return "your side: --authority-ca is another authority's certificate: use the FILE.crt "
               "that this authority's owner gives out";
    return "your side: give the authority's certificate by --authority-ca, the FILE.crt that its "
           "owner gives out";
}

/* Names the side that has to act. *status: whether another try may help. Mistakes in the command
 * line or a certificate are permanent; a service that does not respond may start later. */
static const char *advice(int *status, CURL *easy, CURLcode code, const struct authority_ask *ask,
                          const char *why)
{
    long verified = 0;
    *status = PL_EUSE;
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
        curl.easy_getinfo(easy, CURLINFO_SSL_VERIFYRESULT, &verified);
        return certificate_advice(verified, ask->ca_file != NULL, why);
    case CURLE_SSL_CACERT_BADFILE:
        return "your side: --authority-ca must be the authority's certificate (PEM), the FILE.crt "
               "that its owner gives out";
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return "your side: give --authority as https://NAME:PORT";
    case CURLE_SSL_CONNECT_ERROR:
        return "your side: another program than an authority answers there; check --authority's "
               "address and port";
    case CURLE_COULDNT_RESOLVE_HOST:
        return "your side: the name cannot be resolved; check --authority, then this machine's DNS";
    case CURLE_OPERATION_TIMEDOUT:
        *status = PL_EAGAIN;
        return "its owner's side, if --authority is right: it is off or frozen, or a firewall "
               "drops us; otherwise yours: your network blocks that port";
    default:
        *status = PL_EAGAIN;
        return "its owner's side, if --authority is right: no program answers there (potluck "
               "authority runs it)";
    }
}

/* It has answered, but not with a token: 401 is final, other failures are tried again. [spec
 * hivemind-protocol 3] */
static int refusal(const struct authority_ask *ask, long status, struct pl_err *err)
{
    if (status == 401 || status == 429) /* 429: and too often */
        return pl_fail(err, PL_EUSE,
                       "authority %.100s: the secret of %.100s is not on its list; your side: ask "
                       "the authority's owner for one (potluck authority --invite), and give it by "
                       "--token-file",
                       ask->url, ask->secret_from ? ask->secret_from : "ours");
    /* 500 and above: the service has failed, not we; a proxy answers so while it restarts. */
    if (status >= 500)
        return pl_fail(err, PL_EAGAIN,
                       "authority %.100s answers with status %ld; its owner's "
                       "side: it is in trouble itself",
                       ask->url, status);
    return pl_fail(err, PL_EUSE,
                   "authority %.100s answers with status %ld, expected 200; your "
                   "side: another program than an authority answers there; check --authority",
                   ask->url, status);
}

/* One request. PL_EAGAIN: worth another try. */
static int put(struct bytes *out, const struct authority_ask *ask, const struct rsa_key *key,
               struct pl_err *err)
{
    CURL *easy = curl.easy_init();
    char *body = body_for(key), *url = easy ? url_for(easy, ask) : NULL, *bearer = NULL;
    struct curl_slist *headers = curl.slist_append(NULL, "Content-Type: application/json");
    char why[CURL_ERROR_SIZE] = "";
    long status = 0;
    CURLcode code;
    int rc = PL_OK;
    /* The secret travels in a header, as the run's hub tokens did, and over TLS alone. */
    if (asprintf(&bearer, "Authorization: Bearer %s", ask->user_token) < 0) bearer = NULL;
    if (bearer) headers = curl.slist_append(headers, bearer);
    if (!easy || !body || !url || !bearer || !headers) {
        rc = pl_fail(err, PL_ENOMEM, "authority: no memory");
        goto done;
    }
    curl.easy_setopt(easy, CURLOPT_URL, url);
    /* No redirects and no other protocol: the secret is for this address alone. */
    curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
    curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "PUT");
    curl.easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    curl.easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl.easy_setopt(easy, CURLOPT_TIMEOUT,
                     ask->timeout_s > 0 ? ask->timeout_s : AUTHORITY_TIMEOUT_S);
    /* Without signals, which would interrupt the program that this library is part of. */
    curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
    curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl.easy_setopt(easy, CURLOPT_WRITEDATA, out);
    /* A self-signed authority's certificate replaces the system's list: no other is trusted
     * then. */
    if (ask->ca_file) curl.easy_setopt(easy, CURLOPT_CAINFO, ask->ca_file);
    code = curl.easy_perform(easy);
    curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (code) {
        const char *side = advice(&rc, easy, code, ask, why);
        pl_fail(err, rc, "authority %.100s: %.120s; %s", ask->url[0] ? ask->url : "''",
                why[0] ? why : curl.easy_strerror(code), side);
    } else if (status != 200) rc = refusal(ask, status, err);
done:
    /* The secret does not stay in freed memory. */
    if (bearer) OPENSSL_cleanse(bearer, strlen(bearer));
    curl.slist_free_all(headers);
    free(bearer);
    free(body);
    free(url);
    curl.easy_cleanup(easy);
    return rc;
}

/* The user's secret is not for another address. */
int authority_check_url(const char *url, struct pl_err *err)
{
    if (http_may_see(url, url)) return PL_OK;
    return pl_fail(err, PL_EUSE,
                   "'%.100s' is not a valid address; your side: give --authority as "
                   "https://NAME:PORT",
                   url);
}

int authority_ask(struct auth *auth, const struct authority_ask *ask, double now,
                  struct pl_err *err)
{
    struct bytes answer = { .limit = AUTHORITY_ANSWER_MAX };
    struct auth_token t;
    EVP_PKEY *authority = NULL;
    struct pl_err why;
    int tries = ask->tries ? ask->tries : AUTHORITY_TRIES, rc = curl_load(err);
    if (rc) return rc;
    if (authority_check_url(ask->url, err)) return PL_EUSE;
    for (int i = 0;; i++) {
        bytes_clear(&answer); /* a try that broke off may have left a part of an answer */
        answer.limit = AUTHORITY_ANSWER_MAX;
        rc = put(&answer, ask, auth->key, err);
        if (rc != PL_EAGAIN || i + 1 >= tries) break;
        /* 1, 2, 4, ... s, as the run's volunteers did: after an outage they do not all come at
         * once. */
        sleep(1u << i);
    }
    if (!rc && (rc = authority_answer_read(&t, &authority, (const char *)bytes_at(&answer),
                                           bytes_length(&answer), &why)))
        pl_fail(err, rc, "authority %.100s: %.200s; its owner's side, if --authority is right",
                ask->url, why.text);
    bytes_clear(&answer);
    if (rc) return rc;
    /* The checks that every peer makes. The signature: is it this authority's, over these texts?
     * The expiration, by our own clock: a token that is over already shows that one of the two
     * clocks is wrong. */
    if ((rc = auth_token_check(&t, authority, now, &why)))
        pl_fail(err, rc,
                "authority %.100s returned an invalid token: %.200s; the authority's owner's side; "
                "yours, if your clock is wrong (timedatectl set-ntp true)",
                ask->url, why.text);
    /* And one that only we can make: a token for another key would be signed well, and be of no use
     * to us, since we cannot sign by that key. */
    if (!rc &&
        (bytes_length(&t.public_key) != bytes_length(&auth->key->text) ||
         memcmp(bytes_at(&t.public_key), bytes_at(&auth->key->text), bytes_length(&t.public_key))))
        rc = pl_fail(err, PL_EPROTO,
                     "authority %.200s: the token is for another key; its owner's "
                     "side",
                     ask->url);
    if (rc) { /* the old token, if there is one, stays in use */
        auth_token_clear(&t);
        EVP_PKEY_free(authority);
        return rc;
    }
    /* All checks have passed: only now does the new token replace the old one. */
    auth_token_clear(&auth->token);
    auth->token = t;
    auth->authority = authority;
    return PL_OK;
}
