/* server.c - the web server of a run's page. Nothing is computed for a request: a published path
 * is one MHD_Response, which all requests share and MHD counts. A watcher is a connection with
 * an endless response (server-sent events) that is suspended until there is a newer event. MHD
 * does not poll suspended connections, so a watcher that has left is noticed at the next event,
 * or when a new one finds no place. */
#include "server.h"
#include "connections.h"
#include "host_name.h"
#include "responses.h"
#include "net/list.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct event {
    size_t users, n;
    unsigned long number;
    char text[];
};

struct watcher {
    struct slot slot; /* the first member; of the watchers' slots */
    struct http_server *server;
    struct MHD_Connection *connection;
    struct connection *held; /* its connection's place */
    struct event *event;     /* being sent; NULL: nothing */
    size_t at;
    unsigned long seen; /* number of the last one begun */
    int asleep;
    int has_left; /* no longer counted */
    struct watcher *next, *prev;
};

struct http_server {
    struct MHD_Daemon *daemon;
    struct http_hosts hosts;
    struct connections connections; /* MHD's thread alone sees them, */
    struct slots watched;           /* and the number of watchers of each address */
    pthread_mutex_t lock;           /* of everything below */
    struct published {
        char path[HTTP_PATH_MAX];
        struct MHD_Response *answer, *packed; /* packed: may be NULL */
    } paths[HTTP_PATHS_MAX];
    size_t count;
    char events[HTTP_PATH_MAX];
    struct event *latest;
    struct watcher *watchers;
    size_t watching;
    int closing;
    struct MHD_Response *missing, *method, *busy, *host;
};

/* --- watchers ----------------------------------------------------------------------- */

static void drop(struct event *e)
{
    if (e && --e->users == 0) free(e);
}

/* MHD asks for bytes on its own thread. */
static ssize_t read_events(void *context, uint64_t position, char *to, size_t capacity)
{
    struct watcher *w = context;
    struct http_server *s = w->server;
    ssize_t n = 0;
    pthread_mutex_lock(&s->lock);
    if (s->closing) n = MHD_CONTENT_READER_END_OF_STREAM;
    else if (w->has_left) n = MHD_CONTENT_READER_END_WITH_ERROR;
    else {
        if (!w->event && s->latest && s->latest->number != w->seen) {
            w->event = s->latest;
            w->event->users++;
            w->seen = w->event->number;
            w->at = 0;
        }
        if (w->event) {
            size_t left = w->event->n - w->at;
            n = (ssize_t)(left < capacity ? left : capacity);
            memcpy(to, w->event->text + w->at, (size_t)n);
            w->at += (size_t)n;
            if (w->at == w->event->n) {
                drop(w->event);
                w->event = NULL;
            }
        } else {
            w->asleep = 1;
            MHD.suspend_connection(w->connection);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void watcher_free(void *context)
{
    struct watcher *w = context;
    struct http_server *s = w->server;
    pthread_mutex_lock(&s->lock);
    list_remove(&s->watchers, w);
    if (!w->has_left) s->watching--;
    drop(w->event);
    pthread_mutex_unlock(&s->lock);
    slots_remove(&s->watched, &w->slot);
    free(w);
}

/* Its stream ends. Called with the lock held, on MHD's thread, which alone closes connections. */
static void end_watcher(struct watcher *w)
{
    if (w->has_left) return;
    w->has_left = 1;
    w->server->watching--;
    slots_remove(&w->server->watched, &w->slot);
    if (!w->asleep) return;
    w->asleep = 0;
    MHD.resume_connection(w->connection);
}

/* Another needs its connection's slot. */
static void on_end(void *context)
{
    struct watcher *w = context;
    pthread_mutex_lock(&w->server->lock);
    end_watcher(w);
    pthread_mutex_unlock(&w->server->lock);
}

/* Called with the lock held. */
static void wake_all(struct http_server *s)
{
    for (struct watcher *w = s->watchers; w; w = w->next)
        if (w->asleep) {
            w->asleep = 0;
            MHD.resume_connection(w->connection);
        }
}

/* Releases clients that have closed their end. Called with the lock held, on MHD's thread. */
static void let_go(struct http_server *s)
{
    struct watcher *of[HTTP_WATCHERS_MAX];
    struct pollfd end[HTTP_WATCHERS_MAX];
    nfds_t n = 0;
    for (struct watcher *w = s->watchers; w && n < HTTP_WATCHERS_MAX; w = w->next) {
        const union MHD_ConnectionInfo *info =
            w->asleep ? MHD.get_connection_info(w->connection, MHD_CONNECTION_INFO_CONNECTION_FD)
                      : NULL;
        if (!info) continue;
        of[n] = w;
        end[n++] = (struct pollfd){ .fd = info->connect_fd, .events = POLLRDHUP };
    }
    if (poll(end, n, 0) <= 0) return;
    for (nfds_t i = 0; i < n; i++)
        if (end[i].revents) end_watcher(of[i]);
}

/* A place among the watchers, perhaps of one that has left or of the network that has most. */
static int add_watcher(struct http_server *s, struct watcher *w)
{
    struct slot *evicted = NULL;
    int rc = PL_ELIMIT;
    pthread_mutex_lock(&s->lock);
    if (s->watching >= s->watched.limit) let_go(s);
    if (!s->closing)
        rc = slots_add(&s->watched, &w->slot, &evicted, &w->held->remote, 0, pl_seconds());
    if (evicted) end_watcher((struct watcher *)evicted);
    if (!rc) {
        s->watching++;
        list_add(&s->watchers, w);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static enum MHD_Result watch(struct http_server *s, struct MHD_Connection *connection)
{
    struct watcher *w = calloc(1, sizeof *w);
    struct MHD_Response *r;
    enum MHD_Result queued;
    if (!w) return MHD_NO;
    w->server = s;
    w->connection = connection;
    w->held = connections_of(connection);
    if (add_watcher(s, w)) {
        free(w);
        return MHD.queue_response(connection, MHD_HTTP_SERVICE_UNAVAILABLE, s->busy);
    }
    w->held->on_end = on_end;
    w->held->context = w;
    r = MHD.create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_events, w, watcher_free);
    if (!r) {
        watcher_free(w);
        return MHD_NO;
    }
    queued = response_add_headers(r, "text/event-stream")
                 ? MHD_NO
                 : MHD.queue_response(connection, MHD_HTTP_OK, r);
    MHD.destroy_response(r);
    return queued;
}

/* --- requests ----------------------------------------------------------------------- */

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    static int begun;
    struct http_server *s = context;
    enum MHD_Result queued;
    struct MHD_Response *r = NULL;
    if (*state != &begun) { /* headers alone are here */
        *state = &begun;
        return MHD_YES;
    }
    if (*upload_size) { /* requests have no body here */
        *upload_size = 0;
        return MHD_YES;
    }
    connections_request(&s->connections, connection);
    if (!http_hosts_have(&s->hosts, connections_host(connection),
                         &connections_of(connection)->local))
        return MHD.queue_response(connection, MHD_HTTP_MISDIRECTED_REQUEST, s->host);
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return MHD.queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, s->method);
    if (*s->events && !strcmp(url, s->events) && !strcmp(method, "GET"))
        return watch(s, connection);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->count && !r; i++)
        if (!strcmp(url, s->paths[i].path))
            r = s->paths[i].packed && response_takes_gzip(connection) ? s->paths[i].packed
                                                                      : s->paths[i].answer;
    queued = MHD.queue_response(connection, r ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND,
                                r ? r : s->missing);
    pthread_mutex_unlock(&s->lock);
    return queued;
}

static void on_over(void *context, struct MHD_Connection *connection, void **state,
                    enum MHD_RequestTerminationCode why)
{
    struct http_server *s = context;
    connections_answered(&s->connections, connection);
}

int http_server_open(struct http_server **out, const char *address, int port, struct pl_err *err)
{
    struct http_server *s;
    struct sockaddr_storage where;
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    int rc;
    *out = NULL;
    if (!address) address = "127.0.0.1";
    if ((rc = microhttpd_load(err)) || (rc = connections_address(&where, address, port, err)))
        return rc;
    if (where.ss_family == AF_INET6) flags |= MHD_USE_IPv6;
    if (!(s = calloc(1, sizeof *s))) return pl_fail(err, PL_ENOMEM, "web server: out of memory");
    pthread_mutex_init(&s->lock, NULL);
    s->missing = response_text("There is nothing here.\n");
    s->method = response_text("This server only answers GET and HEAD.\n");
    s->busy = response_text("Too many watch already.\n");
    s->host = response_text("This page is not served under that host name; "
                            "potluck dash --allowed-host NAME adds one.\n");
    if (!s->missing || !s->method || !s->busy || !s->host)
        rc = pl_fail(err, PL_ENOMEM, "web server: out of memory");
    else rc = http_hosts_add(&s->hosts, address, err);
    connections_init(&s->connections, HTTP_CONNECTIONS_MAX);
    s->watched.limit = s->connections.slots.limit * HTTP_WATCHERS_MAX / HTTP_CONNECTIONS_MAX;
    errno = 0;
    if (!rc)
        s->daemon = MHD.start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, s,
                                     MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&where,
                                     MHD_OPTION_CONNECTION_LIMIT,
                                     connections_limit(&s->connections),
                                     MHD_OPTION_NOTIFY_CONNECTION, connections_notify,
                                     &s->connections, MHD_OPTION_NOTIFY_COMPLETED, on_over, s,
                                     MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                     (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
                                     (unsigned)HTTP_IDLE_S, MHD_OPTION_END);
    if (!rc && !s->daemon)
        rc = pl_fail(err, PL_EIO, "web server: cannot listen on %s port %d: %s", address, port,
                     errno ? strerror(errno) : "refused");
    if (rc) http_server_close(s);
    else *out = s;
    return rc;
}

/* MHD keeps a response until its last reader has it. */
static void forget(const struct published *p)
{
    if (p->answer) MHD.destroy_response(p->answer);
    if (p->packed) MHD.destroy_response(p->packed);
}

void http_server_close(struct http_server *s)
{
    if (!s) return;
    if (s->daemon) { /* suspended connections would keep MHD waiting */
        pthread_mutex_lock(&s->lock);
        s->closing = 1;
        wake_all(s);
        pthread_mutex_unlock(&s->lock);
        MHD.stop_daemon(s->daemon);
    }
    for (size_t i = 0; i < s->count; i++) forget(&s->paths[i]);
    if (s->missing) MHD.destroy_response(s->missing);
    if (s->method) MHD.destroy_response(s->method);
    if (s->busy) MHD.destroy_response(s->busy);
    if (s->host) MHD.destroy_response(s->host);
    drop(s->latest);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int http_server_host(struct http_server *s, const char *name, struct pl_err *err)
{
    return http_hosts_add(&s->hosts, name, err);
}

int http_server_port(const struct http_server *s)
{
    const union MHD_DaemonInfo *info = MHD.get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : 0;
}

/* Takes the answers over; packed may be NULL. */
static int publish(struct http_server *s, const char *path, struct MHD_Response *r,
                   struct MHD_Response *packed)
{
    struct published old = { .answer = r, .packed = packed };
    size_t i = 0;
    int rc = PL_OK;
    pthread_mutex_lock(&s->lock);
    while (i < s->count && strcmp(s->paths[i].path, path)) i++;
    if (i == HTTP_PATHS_MAX || strlen(path) >= HTTP_PATH_MAX) rc = PL_ELIMIT;
    else {
        if (i == s->count) {
            s->count++;
            memcpy(s->paths[i].path, path, strlen(path) + 1);
            s->paths[i].answer = s->paths[i].packed = NULL;
        }
        old = s->paths[i];
        s->paths[i].answer = r;
        s->paths[i].packed = packed;
    }
    pthread_mutex_unlock(&s->lock);
    forget(&old);
    return rc;
}

int http_server_put(struct http_server *s, const char *path, const char *type, const void *data,
                    size_t n)
{
    struct MHD_Response *r = response_of(type, data, n);
    return r ? publish(s, path, r, response_packed(type, data, n)) : PL_ENOMEM;
}

int http_server_file(struct http_server *s, const char *path, const char *type, const char *file,
                     const char *name, struct pl_err *err)
{
    struct MHD_Response *r;
    struct stat st;
    char disposition[HTTP_PATH_MAX + 40];
    int fd = open(file, O_RDONLY | O_CLOEXEC), rc;
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        rc = pl_fail(err, PL_EIO, "%s: %s", file, fd < 0 ? strerror(errno) : "not a file");
        if (fd >= 0) close(fd);
        return rc;
    }
    if (!(r = MHD.create_response_from_fd64((uint64_t)st.st_size, fd))) { /* r owns fd from here */
        close(fd);
        return pl_fail(err, PL_ENOMEM, "%s: out of memory", file);
    }
    snprintf(disposition, sizeof disposition, "attachment; filename=\"%.*s\"", HTTP_PATH_MAX,
             name ? name : "");
    if (response_add_headers(r, type) ||
        (name && MHD.add_response_header(r, "Content-Disposition", disposition) != MHD_YES)) {
        MHD.destroy_response(r);
        return pl_fail(err, PL_ENOMEM, "%s: out of memory", file);
    }
    rc = publish(s, path, r, NULL);
    return rc ? pl_fail(err, rc, "%s: %s", file, pl_status_name(rc)) : PL_OK;
}

void http_server_remove(struct http_server *s, const char *path)
{
    struct published old = { .answer = NULL };
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->count && !old.answer; i++)
        if (!strcmp(s->paths[i].path, path)) {
            old = s->paths[i];
            s->paths[i] = s->paths[--s->count];
        }
    pthread_mutex_unlock(&s->lock);
    forget(&old);
}

int http_server_events(struct http_server *s, const char *path)
{
    if (strlen(path) >= sizeof s->events) return PL_ELIMIT;
    memcpy(s->events, path, strlen(path) + 1);
    return PL_OK;
}

int http_server_push(struct http_server *s, const char *event, const char *data, size_t n)
{
    static const char form[] = "event: %s\ndata: ";
    size_t capacity = sizeof form + strlen(event) + n + 2;
    struct event *e = malloc(sizeof *e + capacity);
    int head;
    if (!e) return PL_ENOMEM;
    head = snprintf(e->text, capacity, form, event);
    memcpy(e->text + head, data, n);
    memcpy(e->text + head + n, "\n\n", 2);
    e->n = (size_t)head + n + 2;
    e->users = 1;
    pthread_mutex_lock(&s->lock);
    e->number = s->latest ? s->latest->number + 1 : 1;
    drop(s->latest);
    s->latest = e;
    wake_all(s);
    pthread_mutex_unlock(&s->lock);
    return PL_OK;
}

size_t http_server_watchers(struct http_server *s)
{
    size_t n;
    pthread_mutex_lock(&s->lock);
    n = s->watching;
    pthread_mutex_unlock(&s->lock);
    return n;
}
