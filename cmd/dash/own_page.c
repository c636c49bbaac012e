/* own_page.c - forks and executes this same program as `potluck dash`, with the peer's own address
 * to join. The page dies with its peer and leaves Ctrl-C to it. */
#include "own_page.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PRIORITY 10 /* nice: below the training */

static int take(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct own_page *p = options;
    int64_t port;
    p->wanted = 1;
    if (!strcmp(name, "dash-captions")) p->captions = value;
    else if (!strcmp(name, "dash-nearest")) p->nearest = value;
    else if (!strcmp(name, "dash-port")) {
        p->port = value;
        return option_integer(&port, value, 0, 65535, err);
    }
    return PL_OK;
}

const struct option_row own_page_rows[] = {
    { NULL, NULL, NULL, OPT_HEADING, "Web page of the run" },
    { "dash", NULL, NULL, OPT_CALL(take),
      "serve the run's page on this machine, as potluck dash does" },
    { "dash-port", "PORT", NULL, OPT_CALL(take),
      "port of the page; implies --dash (default: any free port)" },
    { "dash-captions", "FILE", NULL, OPT_CALL(take),
      "captions, one per line, to draw from each new checkpoint of this peer; implies --dash" },
    { "dash-nearest", "PATH", NULL, OPT_CALL(take),
      "shards with the reference images of these captions: the page shows how many drawings are "
      "nearest to their own caption's image; implies --dash" },
    { 0 },
};

/* execv does not change it. */
static char *word(const char *text) { return (char *)(uintptr_t)text; }

void own_page_start(struct own_page *p, struct swarm *s, const char *const *join, size_t join_count)
{
    char own[MULTIADDR_TEXT_MAX], target[32], steps[32];
    char *args[2 * OWN_PAGE_JOIN_MAX + 24] = {
        "potluck", "dash", "--run", word(p->run), "--port", word(p->port ? p->port : "0")
    };
    size_t n = 6;
    if (!p->wanted) return;
    if (!swarm_address_for_others(s, own)) args[n++] = "--join", args[n++] = own;
    for (size_t i = 0; i < join_count && i < OWN_PAGE_JOIN_MAX - 1; i++)
        args[n++] = "--join", args[n++] = word(join[i]);
    snprintf(target, sizeof target, "%lld", (long long)p->target_batch);
    snprintf(steps, sizeof steps, "%lld", (long long)p->total_steps);
    if (p->target_batch) args[n++] = "--target-batch", args[n++] = target;
    if (p->total_steps) args[n++] = "--total-steps", args[n++] = steps;
    if (p->folder) args[n++] = "--folder", args[n++] = word(p->folder);
    if (p->folder && p->captions) args[n++] = "--captions", args[n++] = word(p->captions);
    if (p->folder && p->nearest) args[n++] = "--nearest", args[n++] = word(p->nearest);
    if (p->membership && p->membership->authority) {
        args[n++] = "--authority", args[n++] = word(p->membership->authority);
        args[n++] = "--token-file", args[n++] = word(p->membership->token_file);
        if (p->membership->ca_file) {
            args[n++] = "--authority-ca";
            args[n++] = word(p->membership->ca_file);
        }
    }
    if (p->json) args[n++] = "--json";
    if ((p->process = fork()) == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* no page outlives its peer */
        setpgid(0, 0);                    /* Ctrl-C is for the peer; it ends the page in its turn */
        setpriority(PRIO_PROCESS, 0, PRIORITY);
        if (!p->json) dup2(STDERR_FILENO, STDOUT_FILENO);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    if (p->process < 0) p->process = 0;
}

void own_page_end(struct own_page *p)
{
    if (p->process <= 0) return;
    kill(p->process, SIGTERM);
    waitpid(p->process, NULL, 0);
    p->process = 0;
}
