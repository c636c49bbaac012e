/* authority_server.h - the authority's service over HTTPS: PUT .../api/experiments/join and nothing
 * else. Behind it: libmicrohttpd. [spec hivemind-protocol 3] */
#ifndef PL_AUTHORITY_SERVER_H
#define PL_AUTHORITY_SERVER_H

#include "net/hivemind/moderation/authority.h"

/* Each takes a TLS session, about 100 KiB. slots.h decides which one is closed when there are
 * more. */
#define AUTHORITY_CONNECTIONS_MAX 256
#define AUTHORITY_IDLE_S 15
/* Wrong secrets a minute from one network that are answered with 401; then with 429, which asks it
 * to wait. Wrong secrets never keep a correct one out, however many came before it. The limit is
 * not against guessing, which is hopeless with 256 bits, but against programs that ask again and
 * again. */
#define AUTHORITY_TRIES_MAX 60

struct authority_server;

/* a: key, life and coordinator are set; the list is read from allow_path now and whenever that file
 * changes (a broken new version is ignored, see authority_server_complaint). cert, key: PEM.
 * address NULL: all of this machine's. port 0: any free one. a and the texts are borrowed. */
int authority_server_open(struct authority_server **s, struct authority *a, const char *allow_path,
                          const char *address, int port, const char *cert, const char *key,
                          struct pl_err *err);
void authority_server_close(struct authority_server *s);
int authority_server_port(const struct authority_server *s);
/* Reads the list once, so that its faults are known before the server opens. */
int authority_server_list(struct authority *a, const char *allow_path, struct pl_err *err);
/* The fault in the allowlist's present version; empty text: none. */
void authority_server_complaint(struct authority_server *s, struct pl_err *err);
void authority_server_counts(struct authority_server *s, size_t *issued, size_t *refused);

/* A self-signed certificate (P-256, ten years) for a DNS name or an IP address, and its key, in
 * PEM. */
int certificate_make(struct bytes *cert, struct bytes *key, const char *name, struct pl_err *err);
/* PL_OK: both are valid and belong together. PL_EFORMAT with a sentence that names the file. */
int certificate_check(const char *cert, const char *cert_path, const char *key,
                      const char *key_path, struct pl_err *err);

#endif
