/* authority_server.c - HTTPS around the authority (net/hivemind/moderation/authority.c): TLS, one
 * path, the allowlist's file. Strangers meet three limits before they cost much: connections share
 * slots (slots.h), TLS handshakes are rationed by network (handshakes.h), and wrong secrets are
 * answered with "wait" after sixty a minute (failures.h). */
#include "authority_server.h"
#include "net/http/server/connections.h"
#include "failures.h"
#include "handshakes.h"
#include "data/files/file.h"
#include "ref/small.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char path[] = "/api/experiments/join";

struct authority_server {
    struct MHD_Daemon *daemon;
    struct connections connections; /* MHD's thread alone sees them, */
    struct failures failures;       /* and these two */
    struct handshakes handshakes;
    pthread_mutex_t lock; /* of everything below */
    struct authority *authority;
    const char *allow_path;
    struct stat seen; /* the list's file as it was last read */
    struct pl_err complaint;
    size_t issued, refused;
};

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- the allowlist ---------------------------------------------------------------------------- */

int authority_server_list(struct authority *a, const char *allow_path, struct pl_err *err)
{
    struct pl_err why;
    void *text;
    size_t n;
    int rc = pl_file_read(&text, &n, allow_path, AUTHORITY_LIST_MAX, &why);
    if (rc)
        return pl_fail(err, rc,
                       "--allow %.300s; potluck authority --invite USER --allow FILE begins "
                       "a list",
                       why.text);
    if ((rc = authority_read(a, text, n, &why)))
        pl_fail(err, rc, "--allow %.200s: %.200s", allow_path, why.text);
    free(text);
    return rc;
}

static int is_same(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_size == b->st_size && a->st_ino == b->st_ino;
}

/* The file is read again when it has changed: a user taken off the list gets no further token,
 * without a restart. */
static void follow_list(struct authority_server *s)
{
    struct stat now;
    if (stat(s->allow_path, &now) || is_same(&now, &s->seen)) return;
    s->seen = now;
    s->complaint.text[0] = 0;
    authority_server_list(s->authority, s->allow_path, &s->complaint);
}

/* --- requests --------------------------------------------------------------------------------- */

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const void *json, size_t n)
{
    struct MHD_Response *r = MHD.create_response_from_buffer(n, (void *)(uintptr_t)json,
                                                             MHD_RESPMEM_MUST_COPY);
    enum MHD_Result queued;
    if (!r) return MHD_NO;
    MHD.add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
    MHD.add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (status == 401) MHD.add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == 429) MHD.add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "60");
    queued = MHD.queue_response(c, status, r);
    MHD.destroy_response(r);
    return queued;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *json)
{
    return reply(c, status, json, strlen(json));
}

static enum MHD_Result answer(struct authority_server *s, struct MHD_Connection *c,
                              const struct bytes *body)
{
    const char *bearer = MHD.lookup_connection_value(c, MHD_HEADER_KIND,
                                                     MHD_HTTP_HEADER_AUTHORIZATION);
    struct bytes json = { 0 };
    enum MHD_Result queued;
    int status;
    pthread_mutex_lock(&s->lock);
    follow_list(s);
    status = authority_join(s->authority, &json, bearer, bytes_at(body), bytes_length(body),
                            wall());
    s->issued += status == 200;
    s->refused += status != 200;
    pthread_mutex_unlock(&s->lock);
    /* Counted after the secret was checked, so that failures never keep a right one out. */
    if (status == 401 && failures_add(&s->failures, &connections_of(c)->remote, pl_seconds()) >
                             AUTHORITY_TRIES_MAX) {
        bytes_clear(&json);
        return refuse(c, MHD_HTTP_TOO_MANY_REQUESTS,
                      "{\"detail\":\"too many wrong tokens; wait a minute\"}");
    }
    queued = reply(c, (unsigned)status, bytes_at(&json), bytes_length(&json));
    bytes_clear(&json);
    return queued;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    struct authority_server *s = context;
    struct bytes *body = *state;
    if (!body) { /* headers alone are here */
        if (!(body = *state = calloc(1, sizeof *body))) return MHD_NO;
        body->limit = AUTHORITY_BODY_MAX + 1;
        return MHD_YES;
    }
    if (*upload_size) { /* a body that is too long is cut, and refused when it ends */
        size_t capacity = AUTHORITY_BODY_MAX + 1 - bytes_length(body);
        bytes_add(body, upload, *upload_size < capacity ? *upload_size : capacity);
        *upload_size = 0;
        return MHD_YES;
    }
    connections_request(&s->connections, c);
    if (!pl_ends_with(url, path)) /* behind any base */
        return refuse(c, MHD_HTTP_NOT_FOUND,
                      "{\"detail\":\"PUT /api/experiments/join is all there is\"}");
    if (strcmp(method, MHD_HTTP_METHOD_PUT))
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "{\"detail\":\"PUT, please\"}");
    if (bytes_length(body) > AUTHORITY_BODY_MAX)
        return refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, "{\"detail\":\"one public key is enough\"}");
    return answer(s, c, body);
}

static void on_over(void *context, struct MHD_Connection *c, void **state,
                    enum MHD_RequestTerminationCode why)
{
    struct authority_server *s = context;
    connections_answered(&s->connections, c);
    if (*state) bytes_clear(*state);
    free(*state);
    *state = NULL;
}

/* --- connections ------------------------------------------------------------------------------ */

/* MHD_NO closes the connection before TLS begins. */
static enum MHD_Result on_accept(void *context, const struct sockaddr *from, socklen_t n)
{
    struct authority_server *s = context;
    struct http_address address;
    http_address_of(&address, from);
    return handshakes_may_begin(&s->handshakes, &address, pl_seconds()) ? MHD_YES : MHD_NO;
}

static void on_connection(void *context, struct MHD_Connection *c, void **held,
                          enum MHD_ConnectionNotificationCode what)
{
    struct authority_server *s = context;
    const struct connection *connection = *held;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && connection)
        handshakes_end(&s->handshakes, &connection->remote, connection->fd, pl_seconds());
    connections_notify(&s->connections, c, held, what);
}

/* --- life ------------------------------------------------------------------------------------- */

int authority_server_open(struct authority_server **out, struct authority *a,
                          const char *allow_path, const char *address, int port, const char *cert,
                          const char *key, struct pl_err *err)
{
    struct authority_server *s;
    struct sockaddr_storage sa;
    int rc = microhttpd_load(err);
    *out = NULL;
    if (rc) return rc;
    if (!(s = calloc(1, sizeof *s))) return pl_fail(err, PL_ENOMEM, "no memory");
    pthread_mutex_init(&s->lock, NULL);
    s->authority = a;
    s->allow_path = allow_path;
    connections_init(&s->connections, AUTHORITY_CONNECTIONS_MAX);
    handshakes_init(&s->handshakes);
    rc = connections_address(&sa, address ? address : "0.0.0.0", port, err);
    if (!rc) rc = authority_server_list(a, allow_path, err);
    if (!rc) stat(allow_path, &s->seen);
    if (!rc) {
        unsigned flags = MHD_USE_TLS | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO;
        s->daemon = MHD.start_daemon(sa.ss_family == AF_INET6 ? flags | MHD_USE_IPv6 : flags,
                                     (uint16_t)port, on_accept, s, on_request, s,
                                     MHD_OPTION_SOCK_ADDR, &sa, MHD_OPTION_HTTPS_MEM_CERT, cert,
                                     MHD_OPTION_HTTPS_MEM_KEY, key, MHD_OPTION_CONNECTION_LIMIT,
                                     connections_limit(&s->connections),
                                     MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                                     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)AUTHORITY_IDLE_S,
                                     MHD_OPTION_NOTIFY_COMPLETED, on_over, s, MHD_OPTION_END);
        if (!s->daemon)
            rc = pl_fail(
                err, PL_EIO,
                "cannot serve on %.60s port %d: %s; --address must be an address of this machine, "
                "and --port must be free",
                address ? address : "0.0.0.0", port, strerror(errno));
    }
    if (rc) authority_server_close(s);
    else *out = s;
    return rc;
}

void authority_server_close(struct authority_server *s)
{
    if (!s) return;
    if (s->daemon) MHD.stop_daemon(s->daemon);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int authority_server_port(const struct authority_server *s)
{
    const union MHD_DaemonInfo *info = MHD.get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : 0;
}

void authority_server_complaint(struct authority_server *s, struct pl_err *err)
{
    pthread_mutex_lock(&s->lock);
    *err = s->complaint;
    pthread_mutex_unlock(&s->lock);
}

void authority_server_counts(struct authority_server *s, size_t *issued, size_t *refused)
{
    pthread_mutex_lock(&s->lock);
    *issued = s->issued;
    *refused = s->refused;
    pthread_mutex_unlock(&s->lock);
}
