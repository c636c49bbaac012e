/* demo_swarm.c - the demo's swarm: one bootstrap peer and four trainers, as processes over
 * loopback. [TTT 2.1]
 *
 * Each peer is this same program (potluck peer, potluck train --run), and prints its progress as
 * JSON lines. The demo starts them, lets one join late, kills one half-way, and draws a table of
 * their reports: the swarm survives all of it. */
#include "demo_swarm.h"
#include "demo_view.h"
#include "cmd/common/interrupt.h"
#include "cmd/train/train_data.h"
#include "data/files/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS DEMO_PEERS
#define TRAINERS (PEERS - 1)
#define LINE_BYTES 65536 /* of a peer's output; its longest line has 600 */
#define DRAWN 7          /* times: the page draws from the first trainer's checkpoints */
#define ARGS_MAX 72      /* 63 with every option, the NULL at the end included */
#define START_LIMIT 30.0 /* s for the bootstrap peer's address */
#define SHOW_EVERY 0.2   /* s, on a terminal */
#define SAY_EVERY 10.0   /* s, elsewhere */

/* slow: seconds that a batch takes at least. With one gradient a step, a slow peer brings fewer
 * samples to it. With local steps all make the same number of them, and the others wait for the
 * slowest: so its batches take little more than two cores need for those of four trainers. */
static const struct {
    const char *name;
    double slow, slow_local;
    int late, dies, client;
} kinds[PEERS] = {
    [1] = { .name = "first" },
    [2] = { .name = "killed half-way", .slow = 0.1, .slow_local = 0.05, .dies = 1 },
    [3] = { .name = "late", .slow = 0.2, .slow_local = 0.08, .late = 1 },
    [4] = { .name = "client", .slow = 0.5, .slow_local = 0.1, .client = 1 },
};

struct peer {
    pid_t pid;
    int fd; /* its output; -1: ended */
    char line[LINE_BYTES];
    size_t n;
    int status, ended, killed;
};

struct show {
    const struct demo_swarm *d;
    struct peer peer[PEERS], page; /* page: the dashboard, which is not a peer */
    struct demo_view view;
    char address[512], run[64];
    int64_t rounds;
    FILE *log; /* events.jsonl, or NULL */
    int terminal, lines;
    double shown, logged;
};

static int is_local(const struct show *s) { return s->d->inner_steps > 1; }

/* --- the record for demo_replay.c: one event a line, with its time and its peer --------------- */

static void log_event(struct show *s, int k, json_t *event)
{
    if (!s->log || !event) return;
    json_object_set_new(event, "time", json_real(pl_seconds() - s->view.began));
    json_object_set_new(event, "peer", json_integer(k));
    json_dumpf(event, s->log, JSON_COMPACT);
    fputc('\n', s->log);
}

static void set_state(struct show *s, int k, const char *state)
{
    json_t *event = demo_view_state(state);
    demo_view_event(&s->view, k, event);
    log_event(s, k, event);
    json_decref(event);
}

/* --- processes -------------------------------------------------------------------------------- */

static int start(struct peer *p, const char *errors, char *const *args, struct pl_err *err)
{
    int out[2], log;
    if (pipe(out)) return pl_fail(err, PL_EIO, "pipe: %s", strerror(errno));
    log = open(errors, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    p->pid = fork();
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* no peer outlives its demo */
        dup2(out[1], STDOUT_FILENO);
        if (log >= 0) dup2(log, STDERR_FILENO);
        close(out[0]);
        close(out[1]);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    close(out[1]);
    if (log >= 0) close(log);
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    p->fd = out[0];
    if (p->pid > 0) return PL_OK;
    close(out[0]);
    p->fd = -1;
    return pl_fail(err, PL_EIO, "fork: %s", strerror(errno));
}

static int start_bootstrap(struct show *s, struct pl_err *err)
{
    char errors[PATH_MAX];
    char *args[] = { "potluck", "peer", "--listen", "/ip4/127.0.0.1/tcp/0",
                     "--run",   s->run, "--json",   NULL };
    snprintf(errors, sizeof errors, "%s/bootstrap.txt", s->d->out);
    set_state(s, 0, "starting");
    return start(&s->peer[0], errors, args, err);
}

/* Starts the dashboard, which reads the swarm's records; --export writes it to a folder at the
 * end. */
static int start_page(struct show *s, struct pl_err *err)
{
    char errors[PATH_MAX], folder[PATH_MAX], captions[PATH_MAX], shards[PATH_MAX];
    char batch[32], steps[32];
    char *out = (char *)(uintptr_t)s->d->out;
    char *args[] = { "potluck",       "dash",   "--join",    s->address, "--run",          s->run,
                     "--port",        "0",      "--every",   "2",        "--target-batch", batch,
                     "--total-steps", steps,    "--export",  folder,     "--folder",       out,
                     "--captions",    captions, "--nearest", shards,     "--json",         NULL };
    train_data_demo(captions, sizeof captions, "live.txt");
    train_data_demo(shards, sizeof shards, ".");
    snprintf(errors, sizeof errors, "%s/dash.txt", s->d->out);
    snprintf(folder, sizeof folder, "%s/page", s->d->out);
    snprintf(batch, sizeof batch, "%lld", (long long)(s->d->target_batch * s->d->inner_steps));
    snprintf(steps, sizeof steps, "%lld", (long long)s->rounds);
    return start(&s->page, errors, args, err);
}

/* Each trainer has a folder; the first one's is the demo's own. */
static void folder_of(const struct show *s, int k, char *folder, size_t capacity)
{
    if (k == 1) snprintf(folder, capacity, "%s", s->d->out);
    else snprintf(folder, capacity, "%s/peer%d", s->d->out, k);
}

static int start_trainer(struct show *s, int k, struct pl_err *err)
{
    const struct demo_swarm *d = s->d;
    const struct compute *c = d->compute;
    long threads = c->threads ? (long)c->threads : sysconf(_SC_NPROCESSORS_ONLN);
    char folder[PATH_MAX], errors[PATH_MAX + 16], held[PATH_MAX + 64], number[12][32];
    char *args[ARGS_MAX];
    int n = 0;
    folder_of(s, k, folder, sizeof folder);
    if (mkdir(folder, 0777) && errno != EEXIST)
        return pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
    snprintf(errors, sizeof errors, "%s/messages.txt", folder);
    snprintf(number[0], sizeof number[0], "%lld", (long long)d->steps);
    snprintf(number[1], sizeof number[1], "%lld", (long long)d->target_batch);
    snprintf(number[2], sizeof number[2], "%lld", (long long)d->limit);
    snprintf(number[3], sizeof number[3], "%lld", (long long)d->seed);
    snprintf(number[5], sizeof number[5], "%lld", (long long)d->seed + k);
    snprintf(number[4], sizeof number[4], "%g", is_local(s) ? kinds[k].slow_local : kinds[k].slow);
    snprintf(number[6], sizeof number[6], "%g", d->peak);
    snprintf(number[7], sizeof number[7], "%ld", threads > TRAINERS ? threads / TRAINERS : 1);
    snprintf(number[8], sizeof number[8], "%g", c->gpu_memory / TRAINERS);
    snprintf(number[9], sizeof number[9], "%lld", (long long)d->inner_steps);
    snprintf(number[10], sizeof number[10], "%lld", (long long)(d->steps / DRAWN));
    snprintf(number[11], sizeof number[11], "%g", d->token_noise);
    train_data_demo(held, sizeof held, "holdout.txt");
#define ADD(...) \
    do { \
        char *more[] = { __VA_ARGS__ }; \
        for (size_t i = 0; i < PL_COUNT(more); i++) args[n++] = more[i]; \
    } while (0)
    ADD("potluck", "train", "--run", s->run, "--join", s->address, "--out", folder, "--steps",
        number[0]);
    ADD("--target-batch", number[1], "--batch", "8", "--seed", number[3], "--data-seed", number[5]);
    ADD("--slow", number[4], "--lr", number[6], "--token-noise", number[11]);
    ADD("--matchmaking-time", "3", "--averaging-timeout", "60", "--allreduce-timeout", "20");
    ADD("--activations", "stored", "--threads", number[7], "--keep", "1", "--json", "--quiet");
    /* The first one alone draws for the page, and measures the held-out loss. */
    ADD("--save-every", k == 1 ? number[10] : "0", "--evaluate-every", k == 1 ? number[10] : "0");
    ADD("--exclude", held, "--average-state-every", "5");
    ADD("--algorithm", (char *)(uintptr_t)d->algorithm, "--inner-steps", number[9]);
    ADD("--name", (char *)(uintptr_t)kinds[k].name);
    if (d->limit) ADD("--limit", number[2]);
    if (kinds[k].client) ADD("--client-mode");
    else ADD("--listen", "/ip4/127.0.0.1/tcp/0");
    if (c->backend) ADD("--backend", (char *)(uintptr_t)c->backend);
    if (c->precision) ADD("--precision", (char *)(uintptr_t)c->precision);
    if (c->gpu_memory > 0) ADD("--gpu-memory", number[8]);
#undef ADD
    args[n] = NULL;
    set_state(s, k, "starting");
    return start(&s->peer[k], errors, args, err);
}

/* --- the peers' reports ----------------------------------------------------------------------- */

/* Prints a line above the table, which is drawn again below it. */
static void say(struct show *s, const char *text)
{
    if (s->lines) fprintf(stderr, "\033[%dA\033[J", s->lines);
    s->lines = 0;
    fprintf(stderr, "%s\n", text);
}

static void receive_line(struct show *s, struct peer *p, const char *text)
{
    json_t *line = pl_json_load(text, strlen(text), 0, NULL);
    const char *event = json_string_value(json_object_get(line, "event")), *address;
    if (event && !strcmp(event, "listening")) {
        address = json_string_value(json_object_get(line, "multiaddr"));
        if (p == &s->peer[0] && address) snprintf(s->address, sizeof s->address, "%s", address);
        if (p == &s->peer[0]) set_state(s, 0, "open");
    } else if (event && !strcmp(event, "serving")) {
        const char *url = json_string_value(json_object_get(line, "url"));
        char page[200];
        snprintf(page, sizeof page, "its page: %.180s", url ? url : "");
        if (p == &s->page && url) say(s, page);
    } else if (p > &s->peer[0] && p != &s->page) {
        demo_view_event(&s->view, (int)(p - s->peer), line);
        if (json_is_object(line)) log_event(s, (int)(p - s->peer), line);
    }
    json_decref(line);
}

static void receive(struct show *s, struct peer *p)
{
    ssize_t n = read(p->fd, p->line + p->n, sizeof p->line - 1 - p->n);
    char *end;
    if (n <= 0) {
        close(p->fd);
        p->fd = -1;
        return;
    }
    p->n += (size_t)n;
    p->line[p->n] = 0;
    while ((end = strchr(p->line, '\n'))) {
        *end = 0;
        receive_line(s, p, p->line);
        p->n -= (size_t)(end + 1 - p->line);
        memmove(p->line, end + 1, p->n + 1);
    }
    if (p->n == sizeof p->line - 1) p->n = 0; /* too long for a line of our programs */
}

/* Returns 1 if it has ended just now. */
static int reap(struct peer *p)
{
    if (p->pid <= 0 || p->ended || waitpid(p->pid, &p->status, WNOHANG) != p->pid) return 0;
    return p->ended = 1;
}

/* --- the view --------------------------------------------------------------------------------- */

/* Draws the table over the last one; lines are cut at the terminal's width. */
static void draw(struct show *s, char *text)
{
    fprintf(stderr, "\033[?7l");
    if (s->lines) fprintf(stderr, "\033[%dA", s->lines);
    s->lines = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, s->lines++)
        fprintf(stderr, "\033[K%.*s\n", (int)(end - line), line);
    fprintf(stderr, "\033[?7h");
}

static void show(struct show *s, int force)
{
    double now = pl_seconds();
    char text[DEMO_VIEW_TEXT];
    if (!force && now - s->shown < (s->terminal ? SHOW_EVERY : SAY_EVERY)) return;
    s->shown = now;
    demo_view_mark(&s->view, now);
    if (force || now - s->logged >= SAY_EVERY) { /* a replay prints its lines here */
        json_t *event = json_pack("{s:s}", "event", "shown");
        log_event(s, 0, event);
        json_decref(event);
        s->logged = now;
    }
    if (s->terminal) {
        demo_view_table(text, &s->view, now);
        draw(s, text);
    } else {
        demo_view_line(text, &s->view, now);
        fprintf(stderr, "%s\n", text);
    }
}

/* --- the play --------------------------------------------------------------------------------- */

static void listen_for(struct show *s, int milliseconds)
{
    struct pollfd fds[PEERS + 1];
    for (int k = 0; k <= PEERS; k++) {
        const struct peer *p = k < PEERS ? &s->peer[k] : &s->page;
        fds[k] = (struct pollfd){ .fd = p->pid ? p->fd : -1, .events = POLLIN };
    }
    if (poll(fds, PEERS + 1, milliseconds) > 0)
        for (int k = 0; k <= PEERS; k++)
            if (fds[k].revents) receive(s, k < PEERS ? &s->peer[k] : &s->page);
    for (int k = 0; k < PEERS; k++)
        if (reap(&s->peer[k])) set_state(s, k, s->peer[k].killed ? "dead" : "done");
    reap(&s->page);
}

static int play(struct show *s, struct pl_err *err)
{
    const int64_t late = s->rounds / 10, half = s->rounds / 2;
    int rc = PL_OK, running = 1, stopping = 0;
    for (int k = 1; k < PEERS && !rc; k++)
        if (!kinds[k].late) rc = start_trainer(s, k, err);
    while (!rc && running) {
        int64_t step = demo_view_step(&s->view);
        listen_for(s, 100);
        for (int k = 1; k < PEERS && interrupted() && !stopping; k++)
            if (s->peer[k].pid && !s->peer[k].ended) kill(s->peer[k].pid, SIGINT);
        stopping = interrupted();
        running = 0;
        for (int k = 1; k < PEERS && !rc; k++) {
            struct peer *p = &s->peer[k];
            if (!p->pid && kinds[k].late && step >= late && !interrupted())
                rc = start_trainer(s, k, err);
            if (p->pid && !p->ended && kinds[k].dies && !p->killed && step >= half) {
                p->killed = 1;
                s->view.peer[k].is_gone = 1; /* from now on; its state follows once it has ended */
                kill(p->pid, SIGKILL);
            }
            if (p->ended && !p->killed && p->status) {
                char folder[PATH_MAX];
                folder_of(s, k, folder, sizeof folder);
                rc = pl_fail(err, PL_EIO, "peer %d has failed; its messages are in %s/messages.txt",
                             k, folder);
            }
            running |= p->pid && !p->ended;
        }
        if (s->peer[0].ended)
            rc = pl_fail(err, PL_EIO, "the bootstrap peer has ended; see %s/bootstrap.txt",
                         s->d->out);
        show(s, 0);
    }
    show(s, 1);
    return rc;
}

/* Without a record the demo goes on: it is only for a later look. */
static void open_log(struct show *s)
{
    char path[PATH_MAX];
    json_t *event;
    snprintf(path, sizeof path, "%s/events.jsonl", s->d->out);
    s->log = fopen(path, "we");
    event = json_pack("{s:s, s:I, s:I, s:b}", "event", "begin", "steps", (json_int_t)s->rounds,
                      "target_batch", (json_int_t)s->view.target_batch, "is_local", is_local(s));
    log_event(s, 0, event);
    json_decref(event);
}

int demo_swarm_train(struct demo_swarm_result *result, const struct demo_swarm *d,
                     struct pl_err *err)
{
    struct interrupt before;
    struct show *s = calloc(1, sizeof *s);
    int rc;
    if (!s) return pl_fail(err, PL_ENOMEM, "no memory");
    s->d = d;
    s->terminal = isatty(STDERR_FILENO);
    s->rounds = (d->steps + d->inner_steps - 1) / d->inner_steps; /* as potluck train */
    demo_view_begin(&s->view, s->rounds, d->target_batch * d->inner_steps, is_local(s),
                    pl_seconds());
    open_log(s);
    snprintf(s->run, sizeof s->run, "demo-%ld", (long)getpid());
    interrupt_catch(&before);
    rc = start_bootstrap(s, err);
    while (!rc && !s->address[0] && !s->peer[0].ended && pl_seconds() - s->view.began < START_LIMIT)
        listen_for(s, 100);
    if (!rc && !s->address[0])
        rc = pl_fail(err, PL_EIO, "the bootstrap peer does not start; see %s/bootstrap.txt",
                     d->out);
    if (!rc && d->page) rc = start_page(s, err);
    if (!rc) rc = play(s, err);
    if (s->page.pid > 0 &&
        !s->page
             .ended) { /* before the bootstrap peer ends: it saves the records that it has seen */
        kill(s->page.pid, SIGTERM);
        waitpid(s->page.pid, &s->page.status, 0);
        if (!rc && !s->page.status) fprintf(stderr, "its page stays: %s/page/index.html\n", d->out);
    }
    if (s->page.pid > 0 && s->page.fd >= 0) close(s->page.fd);
    for (int k = 0; k < PEERS; k++) {
        struct peer *p = &s->peer[k];
        if (p->pid > 0 && !p->ended) {
            kill(p->pid, rc || k ? SIGKILL : SIGTERM);
            waitpid(p->pid, &p->status, 0);
        }
        if (p->pid && p->fd >= 0) close(p->fd);
    }
    *result = (struct demo_swarm_result){ .end = s->view.peer[1].step >= s->rounds ? TRAIN_DONE
                                                                                   : TRAIN_STOPPED,
                                          .samples = s->view.trained,
                                          .rounds = s->view.peer[1].step,
                                          .averaging = s->view.averaging };
    interrupt_release(&before);
    if (s->log) fclose(s->log);
    free(s);
    return rc;
}
