/* bench_peer.c - times of the Python packages, measured on this machine by test/bench/peer.py,
 * which prints one JSON object for each. Numbers measured elsewhere compare machines, not
 * programs. */
#include "bench_peer.h"
#include "data/files/json.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64

extern char **environ;

static void take_line(struct bench_peers *p, const char *line)
{
    json_t *o = pl_json_load(line, strlen(line), 0, NULL);
    const char *missing = json_string_value(json_object_get(o, "missing"));
    const char *what = json_string_value(json_object_get(o, "what"));
    const char *by = json_string_value(json_object_get(o, "by"));
    if (missing) printf("peer not found: %.200s\n", missing);
    if (what && by && p->count < PEER_TIMES_MAX) {
        struct bench_peer_time *t = &p->time[p->count++];
        snprintf(t->what, sizeof t->what, "%s", what);
        snprintf(t->by, sizeof t->by, "%s", by);
        t->seconds = json_number_value(json_object_get(o, "seconds"));
    }
    json_decref(o);
}

static int start(pid_t *pid, int *out, char *const *argv)
{
    posix_spawn_file_actions_t actions;
    int pipes[2], rc;
    if (pipe(pipes)) return PL_EIO;
    rc = posix_spawn_file_actions_init(&actions);
    if (!rc) {
        rc = posix_spawn_file_actions_adddup2(&actions, pipes[1], 1) ||
             posix_spawn_file_actions_addclose(&actions, pipes[0]) ||
             posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(pipes[1]);
    *out = pipes[0];
    if (rc) close(pipes[0]);
    return rc ? PL_EIO : PL_OK;
}

int bench_peers_ask(struct bench_peers *p, char *const *wanted, int count, int threads, int bf16,
                    struct pl_err *err)
{
    char *argv[ARGUMENTS_MAX + 1], number[16], line[1024];
    int n = 0, out, status = 0;
    pid_t pid;
    FILE *f;
    snprintf(number, sizeof number, "%d", threads);
    argv[n++] = (char *)p->python;
    argv[n++] = (char *)p->script;
    argv[n++] = "--threads";
    argv[n++] = number;
    if (bf16) argv[n++] = "--bf16";
    for (int i = 0; i < count && n + 2 <= ARGUMENTS_MAX; i++) {
        argv[n++] = "--what";
        argv[n++] = wanted[i];
    }
    argv[n] = NULL;
    if (start(&pid, &out, argv))
        return pl_fail(err, PL_EIO, "%.100s: could not be started; --python names another",
                       p->python);
    f = fdopen(out, "r");
    while (f && fgets(line, sizeof line, f)) take_line(p, line);
    if (f) fclose(f);
    else close(out);
    if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
        return pl_fail(err, PL_EIO, "%.100s %.100s: ended with an error", p->python, p->script);
    return PL_OK;
}

const struct bench_peer_time *bench_peer(const struct bench_peers *p, const char *format, ...)
{
    char what[48];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    for (int i = 0; i < p->count; i++)
        if (!strcmp(p->time[i].what, what)) return &p->time[i];
    return NULL;
}
