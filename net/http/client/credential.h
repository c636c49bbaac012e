/* credential.h - which URL may see which secret. Every request that could carry a token, a key or
 * a signature asks here first: the first request, each redirect, each entry of a list.
 *
 * A secret belongs to one origin (scheme, host, port) [RFC 6454] and travels over https alone. */
#ifndef PL_HTTP_CREDENTIAL_H
#define PL_HTTP_CREDENTIAL_H

#include <stddef.h>

/* A bearer token and a URL of the only origin that may see it. */
struct http_credential {
    const char *token, *home; /* either NULL: it is never sent */
};

/* 1: `url` may see a secret that belongs to the origin of `home`. Both have to be https URLs of the
 * same host and port, written so plainly that no two parsers read them differently: a URL with user
 * information, an escaped or an unusual character in its host, or an empty port sees nothing. */
int http_may_see(const char *url, const char *home);

/* The first token that `url` may see; NULL: none. */
const char *http_token_for(const char *url, const struct http_credential *credentials,
                           size_t count);

#endif
