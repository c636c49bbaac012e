/* uv.c - the part of libuv that net/ calls, on the virtual clock and network. The order within an
 * iteration is libuv 1.44's: timers, completed requests, prepare, poll, sockets and jobs, closed
 * handles. Sockets that are ready are served in an order that the seed picks.
 * One long file, as it stands in for one library. */
#include "network.h"
#include "threads.h"

#include "net/loop/loop_uv.h"
#include "net/loop/socket.h"

#include <arpa/inet.h>
#include <string.h>

#define READS_MAX 32         /* of one socket in an iteration, as libuv's */
#define JOB_MAX (2 * SIM_MS) /* a job of the thread pool takes up to this long */
#define FD_FIRST 1000000     /* the result of uv_fileno: a number that the system does not know */

enum { ACTIVE = 1, UNREF = 2, CLOSING = 4, READY = 8, READING = 16 };

struct virtual_loop {
    uv_handle_t *handles; /* linked by handle_queue[0] */
    uv_handle_t *closing; /* by next_closing */
    uv_async_t *sent;     /* by queue[0] */
    struct job *done, *last;
    int jobs;
    uint64_t timer_number;
};

static struct virtual_loop *of(const uv_loop_t *l) { return l->internal_fields; }
static struct virtual_loop *loop_of(const void *h) { return of(((const uv_handle_t *)h)->loop); }

/* The socket of a TCP handle. */
static struct sim_socket *socket_of(const void *h)
{
    return ((const uv_handle_t *)h)->u.reserved[0];
}
static void set_socket(void *h, struct sim_socket *s) { ((uv_handle_t *)h)->u.reserved[0] = s; }

static void init_handle(uv_loop_t *l, void *h_, uv_handle_type type)
{
    uv_handle_t *h = h_;
    h->loop = l;
    h->type = type;
    h->flags = 0;
    h->u.reserved[0] = NULL;
    h->handle_queue[0] = of(l)->handles;
    of(l)->handles = h;
}

/* --- loop ------------------------------------------------------------------------------------- */

int uv_loop_init(uv_loop_t *l)
{
    memset(l, 0, sizeof *l);
    l->internal_fields = __real_calloc(1, sizeof(struct virtual_loop));
    l->time = sim_now() / SIM_MS;
    return 0;
}

int uv_loop_close(uv_loop_t *l)
{
    if (of(l)->handles) sim_fail("a loop is closed that has open handles");
    __real_free(of(l));
    return 0;
}

uint64_t uv_now(const uv_loop_t *l) { return l->time; }
uint64_t uv_hrtime(void) { return SIM_S + sim_read_clock(); }

void uv_unref(uv_handle_t *h) { h->flags |= UNREF; }
int uv_is_closing(const uv_handle_t *h) { return (h->flags & CLOSING) != 0; }

void uv_close(uv_handle_t *h, uv_close_cb cb)
{
    if (h->flags & CLOSING) sim_fail("a handle is closed twice");
    h->flags = (h->flags & ~(unsigned)(ACTIVE | READING)) | CLOSING;
    h->close_cb = cb;
    h->next_closing = loop_of(h)->closing;
    loop_of(h)->closing = h;
    if (h->type == UV_TCP && socket_of(h)) sim_socket_close(socket_of(h));
}

const char *uv_strerror(int error)
{
    switch (error) {
#define NAME(name, text) \
    case UV_##name: return text;
        UV_ERRNO_MAP(NAME)
#undef NAME
    default: return "unknown error";
    }
}

/* --- timers, prepare, async ------------------------------------------------------------------- */

int uv_timer_init(uv_loop_t *l, uv_timer_t *t)
{
    init_handle(l, t, UV_TIMER);
    return 0;
}

int uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t repeat)
{
    (void)repeat; /* net/ never asks for it */
    t->timer_cb = cb;
    t->timeout = t->loop->time + ms;
    t->start_id = loop_of(t)->timer_number++;
    t->flags |= ACTIVE;
    return 0;
}

int uv_timer_stop(uv_timer_t *t)
{
    t->flags &= ~(unsigned)ACTIVE;
    return 0;
}

int uv_prepare_init(uv_loop_t *l, uv_prepare_t *p)
{
    init_handle(l, p, UV_PREPARE);
    return 0;
}

int uv_prepare_start(uv_prepare_t *p, uv_prepare_cb cb)
{
    p->prepare_cb = cb;
    p->flags |= ACTIVE;
    return 0;
}

int uv_async_init(uv_loop_t *l, uv_async_t *a, uv_async_cb cb)
{
    init_handle(l, a, UV_ASYNC);
    a->async_cb = cb;
    a->pending = 0;
    a->flags |= ACTIVE;
    return 0;
}

/* From any thread. */
int uv_async_send(uv_async_t *a)
{
    a->pending = 1;
    sim_wake(a->loop, 0);
    return 0;
}

/* --- jobs ------------------------------------------------------------------------------------- */

struct job {
    uv_work_t *req;
    uv_getaddrinfo_t *names;
    struct job *next;
};

static void end_job(uv_loop_t *l, struct job *j)
{
    struct virtual_loop *v = of(l);
    if (v->last) v->last->next = j;
    else v->done = j;
    v->last = j;
    sim_wake(l, 0);
}

static void *run_job(void *argument)
{
    struct job *j = argument;
    sim_wait(j, sim_now() + sim_random_below(&sim_order, JOB_MAX));
    j->req->work_cb(j->req);
    end_job(j->req->loop, j);
    return NULL;
}

int uv_queue_work(uv_loop_t *l, uv_work_t *req, uv_work_cb work, uv_after_work_cb after)
{
    struct job *j = __real_calloc(1, sizeof *j);
    req->loop = l;
    req->work_cb = work;
    req->after_work_cb = after;
    j->req = req;
    of(l)->jobs++;
    sim_thread_new(sim_peer_here(), run_job, j);
    return 0;
}

/* The virtual network has addresses only: every name is unknown. */
int uv_getaddrinfo(uv_loop_t *l, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb, const char *node,
                   const char *service, const struct addrinfo *hints)
{
    struct job *j = __real_calloc(1, sizeof *j);
    (void)node, (void)service, (void)hints;
    j->names = req;
    req->cb = cb;
    req->loop = l;
    of(l)->jobs++;
    end_job(l, j);
    return 0;
}

void uv_freeaddrinfo(struct addrinfo *list) { (void)list; }

int uv_cancel(uv_req_t *req)
{
    (void)req;
    return UV_EBUSY;
}

static void run_done_jobs(uv_loop_t *l)
{
    struct job *j = of(l)->done, *next;
    of(l)->done = of(l)->last = NULL;
    for (; j; j = next) {
        next = j->next;
        of(l)->jobs--;
        if (j->req) j->req->after_work_cb(j->req, 0);
        else j->names->cb(j->names, UV_EAI_NONAME, NULL);
        __real_free(j);
    }
}

/* --- TCP -------------------------------------------------------------------------------------- */

static void on_change(void *context)
{
    uv_handle_t *h = context;
    h->flags |= READY;
    sim_wake(h->loop, 0);
}

static void adopt(uv_tcp_t *t, struct sim_socket *s)
{
    set_socket(t, s);
    sim_socket_watch(s, on_change, t);
}

int uv_tcp_init_ex(uv_loop_t *l, uv_tcp_t *t, unsigned flags)
{
    init_handle(l, t, UV_TCP);
    t->connect_req = NULL;
    t->write_queue[0] = t->write_completed_queue[0] = NULL;
    t->write_queue_size = 0;
    t->connection_cb = NULL;
    t->read_cb = NULL;
    t->queued_fds = NULL;
    if (flags) adopt(t, sim_socket_new(sim_peer_here())); /* the family: has a descriptor at once */
    return 0;
}

int uv_tcp_init(uv_loop_t *l, uv_tcp_t *t) { return uv_tcp_init_ex(l, t, 0); }

static void make_socket(uv_tcp_t *t)
{
    if (!socket_of(t)) adopt(t, sim_socket_new(sim_peer_here()));
}

int uv_tcp_bind(uv_tcp_t *t, const struct sockaddr *to, unsigned flags)
{
    (void)flags;
    if (to->sa_family != AF_INET) return UV_EAFNOSUPPORT;
    make_socket(t);
    return sim_socket_bind(socket_of(t), ntohs(((const struct sockaddr_in *)to)->sin_port));
}

int uv_listen(uv_stream_t *s, int backlog, uv_connection_cb cb)
{
    (void)backlog;
    s->connection_cb = cb;
    s->flags |= ACTIVE;
    return sim_socket_listen(socket_of(s));
}

int uv_accept(uv_stream_t *server, uv_stream_t *client)
{
    struct sim_socket *s = server->queued_fds;
    if (!s) return UV_EAGAIN;
    server->queued_fds = NULL;
    adopt((uv_tcp_t *)client, s);
    on_change(server); /* there may be more */
    return 0;
}

int uv_tcp_connect(uv_connect_t *req, uv_tcp_t *t, const struct sockaddr *to, uv_connect_cb cb)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)to;
    if (to->sa_family != AF_INET) return UV_EAFNOSUPPORT;
    make_socket(t);
    req->handle = (uv_stream_t *)t;
    req->cb = cb;
    t->connect_req = req;
    t->flags |= ACTIVE;
    return sim_socket_connect(socket_of(t), ntohl(four->sin_addr.s_addr), ntohs(four->sin_port));
}

int uv_read_start(uv_stream_t *s, uv_alloc_cb alloc, uv_read_cb cb)
{
    s->alloc_cb = alloc;
    s->read_cb = cb;
    s->flags |= ACTIVE | READING;
    on_change(s);
    return 0;
}

int uv_read_stop(uv_stream_t *s)
{
    s->flags &= ~(unsigned)READING;
    return 0;
}

int uv_try_write(uv_stream_t *s, const uv_buf_t *bufs, unsigned n)
{
    (void)n; /* net/ writes one buffer */
    if (s->connect_req || s->write_queue[0]) return UV_EAGAIN;
    return (int)sim_socket_send(socket_of(s), bufs->base, bufs->len);
}

/* The rest of a write that waits for capacity is in bufsml[0]. */
static void push_write(uv_stream_t *s)
{
    uv_write_t *w = s->write_queue[0];
    ssize_t n;
    if (!w) return;
    n = sim_socket_send(socket_of(s), w->bufsml[0].base, w->bufsml[0].len);
    if (n == UV_EAGAIN) return;
    if (n > 0) {
        w->bufsml[0].base += n;
        w->bufsml[0].len -= (size_t)n;
        s->write_queue_size -= (size_t)n;
        if (w->bufsml[0].len) return;
    }
    w->error = n < 0 ? (int)n : 0;
    s->write_queue_size = 0;
    s->write_queue[0] = NULL;
    s->write_completed_queue[0] = w;
    on_change(s);
}

int uv_write(uv_write_t *w, uv_stream_t *s, const uv_buf_t bufs[], unsigned n, uv_write_cb cb)
{
    if (n != 1 || s->write_queue[0]) sim_fail("uv.c: one write of one buffer at a time");
    w->handle = s;
    w->cb = cb;
    w->bufsml[0] = bufs[0];
    s->write_queue[0] = w;
    s->write_queue_size = bufs[0].len;
    push_write(s);
    return 0;
}

size_t uv_stream_get_write_queue_size(const uv_stream_t *s) { return s->write_queue_size; }

int uv_tcp_getsockname(const uv_tcp_t *t, struct sockaddr *name, int *n)
{
    sim_socket_name(socket_of(t), 0, (struct sockaddr_in *)name);
    *n = sizeof(struct sockaddr_in);
    return 0;
}

int uv_tcp_getpeername(const uv_tcp_t *t, struct sockaddr *name, int *n)
{
    sim_socket_name(socket_of(t), 1, (struct sockaddr_in *)name);
    *n = sizeof(struct sockaddr_in);
    return 0;
}

int uv_tcp_nodelay(uv_tcp_t *t, int on) { return (void)t, (void)on, 0; }
int uv_tcp_keepalive(uv_tcp_t *t, int on, unsigned s) { return (void)t, (void)on, (void)s, 0; }

/* socket_unconfirmed asks by descriptor: the last handle is enough, as it is asked at once. */
static struct sim_socket *asked;
int uv_fileno(const uv_handle_t *h, uv_os_fd_t *fd)
{
    if (!(asked = socket_of(h))) return UV_EBADF;
    *fd = FD_FIRST;
    return 0;
}

/* In place of net/loop/socket.c: congestion control is the kernel's. */
void socket_begin(int fd, const struct sockaddr *to) { (void)fd, (void)to; }
void socket_prepare(int fd) { (void)fd; }
int socket_share_port(int fd) { return (void)fd, -1; }
size_t socket_unconfirmed(int fd) { return (void)fd, sim_socket_undelivered(asked); }

uv_buf_t uv_buf_init(char *base, unsigned n) { return (uv_buf_t){ .base = base, .len = n }; }

int uv_interface_addresses(uv_interface_address_t **list, int *count)
{
    uv_interface_address_t *a = __real_calloc(1, sizeof *a);
    a->address.address4.sin_family = AF_INET;
    a->address.address4.sin_addr.s_addr = htonl(sim_address(sim_peer_here()));
    *list = a;
    *count = 1;
    return 0;
}

void uv_free_interface_addresses(uv_interface_address_t *list, int count)
{
    (void)count;
    __real_free(list);
}

static void serve_socket(uv_stream_t *s)
{
    uv_write_t *w;
    if (s->connect_req) {
        uv_connect_t *req = s->connect_req;
        int status = sim_socket_connected(socket_of(s));
        if (status == UV_EAGAIN) return;
        s->connect_req = NULL;
        s->flags &= ~(unsigned)ACTIVE;
        req->cb(req, status);
        if (s->flags & CLOSING) return;
    }
    /* A connection that the callback does not accept blocks all further ones, as libuv does it. */
    while (s->connection_cb && !s->queued_fds && !(s->flags & CLOSING)) {
        if (!(s->queued_fds = sim_socket_accept(socket_of(s)))) return;
        s->connection_cb(s, 0);
    }
    for (int i = 0; i < READS_MAX && (s->flags & READING) && !sim_peer_here()->reads_nothing; i++) {
        uv_buf_t buf = { NULL, 0 };
        ssize_t n;
        s->alloc_cb((uv_handle_t *)s, 65536, &buf);
        n = buf.len ? sim_socket_receive(socket_of(s), buf.base, buf.len) : UV_ENOBUFS;
        if (n == UV_EAGAIN) break;
        if (n < 0 && n != UV_ENOBUFS) s->flags &= ~(unsigned)READING;
        s->read_cb(s, n, &buf);
        if (n == UV_ENOBUFS || (n > 0 && (size_t)n < buf.len)) break;
        if (i == READS_MAX - 1) on_change(s);
    }
    if (s->flags & CLOSING) return;
    push_write(s);
    if ((w = s->write_completed_queue[0])) {
        s->write_completed_queue[0] = NULL;
        w->cb(w, w->error);
    }
}

static void cancel_requests(uv_stream_t *s)
{
    uv_connect_t *connect = s->connect_req;
    uv_write_t *w = s->write_queue[0] ? s->write_queue[0] : s->write_completed_queue[0];
    s->connect_req = NULL;
    if (w && w == s->write_queue[0]) w->error = UV_ECANCELED;
    s->write_queue[0] = s->write_completed_queue[0] = NULL;
    if (connect) connect->cb(connect, UV_ECANCELED);
    if (w) w->cb(w, w->error);
}

/* --- the iteration ---------------------------------------------------------------------------- */

static int is_alive(const uv_loop_t *l)
{
    if (of(l)->closing || of(l)->jobs) return 1;
    for (const uv_handle_t *h = of(l)->handles; h; h = h->handle_queue[0])
        if ((h->flags & ACTIVE) && !(h->flags & UNREF)) return 1;
    return 0;
}

static void run_timers(uv_loop_t *l)
{
    for (;;) {
        uv_timer_t *first = NULL;
        for (uv_handle_t *h = of(l)->handles; h; h = h->handle_queue[0]) {
            uv_timer_t *t = (uv_timer_t *)h;
            if (h->type != UV_TIMER || !(h->flags & ACTIVE) || t->timeout > l->time) continue;
            if (!first || t->timeout < first->timeout ||
                (t->timeout == first->timeout && t->start_id < first->start_id))
                first = t;
        }
        if (!first) return;
        uv_timer_stop(first);
        first->timer_cb(first);
    }
}

static void run_prepares(uv_loop_t *l)
{
    uv_handle_t *next;
    for (uv_handle_t *h = of(l)->handles; h; h = next) {
        next = h->handle_queue[0];
        if (h->type == UV_PREPARE && (h->flags & ACTIVE))
            ((uv_prepare_t *)h)->prepare_cb((uv_prepare_t *)h);
    }
}

static int has_work(const uv_loop_t *l)
{
    if (of(l)->done || of(l)->closing) return 1;
    for (const uv_handle_t *h = of(l)->handles; h; h = h->handle_queue[0])
        if ((h->flags & READY) || (h->type == UV_ASYNC && ((const uv_async_t *)h)->pending))
            return 1;
    return 0;
}

/* Until something is ready or the first timer is due. */
static void poll_loop(uv_loop_t *l)
{
    uint64_t until = SIM_FOR_EVER;
    for (const uv_handle_t *h = of(l)->handles; h; h = h->handle_queue[0])
        if (h->type == UV_TIMER && (h->flags & ACTIVE)) {
            uint64_t at = ((const uv_timer_t *)h)->timeout * SIM_MS;
            if (at < until) until = at;
        }
    if (!is_alive(l)) return;
    while (!has_work(l) && sim_now() < until)
        if (sim_wait(l, until)) break;
    l->time = sim_now() / SIM_MS;
}

/* Those that are ready now, in an order that the seed picks. A handle closed by the one before it
 * stays in memory until run_closing. */
static void serve_handles(uv_loop_t *l)
{
    uv_handle_t *ready[1024], *h;
    size_t n = 0;
    for (h = of(l)->handles; h && n < 1024; h = h->handle_queue[0]) {
        if (h->type == UV_ASYNC && ((uv_async_t *)h)->pending) ready[n++] = h;
        else if (h->flags & READY) ready[n++] = h;
    }
    while (n) {
        size_t i = sim_random_below(&sim_order, n);
        h = ready[i];
        ready[i] = ready[--n];
        h->flags &= ~(unsigned)READY;
        if (h->flags & CLOSING) continue;
        if (h->type == UV_TCP) serve_socket((uv_stream_t *)h);
        else {
            ((uv_async_t *)h)->pending = 0;
            ((uv_async_t *)h)->async_cb((uv_async_t *)h);
        }
    }
}

static void run_closing(uv_loop_t *l)
{
    uv_handle_t *h = of(l)->closing, *next;
    of(l)->closing = NULL;
    for (; h; h = next) {
        void **place = (void **)&of(l)->handles;
        next = h->next_closing;
        while (*place != h) place = &((uv_handle_t *)*place)->handle_queue[0];
        *place = h->handle_queue[0];
        if (h->type == UV_TCP) cancel_requests((uv_stream_t *)h);
        if (h->close_cb) h->close_cb(h);
    }
}

int uv_run(uv_loop_t *l, uv_run_mode mode)
{
    (void)mode; /* net/ runs a loop until nothing is left */
    while (is_alive(l)) {
        l->time = sim_now() / SIM_MS;
        run_timers(l);
        run_prepares(l);
        poll_loop(l);
        run_done_jobs(l);
        serve_handles(l);
        run_closing(l);
    }
    return 0;
}
