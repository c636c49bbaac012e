/* own_page.c - see own_page.h. */
#include "own_page.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PRIORITY 10 /* nice: below whatever trains */

int own_page_option(struct own_page *p, int option, const char *value)
{
    if (option == OWN_PAGE_FIRST) p->wanted = 1;
    else if (option == OWN_PAGE_FIRST + 1) p->port = value, p->wanted = 1;
    else if (option == OWN_PAGE_FIRST + 2) p->captions = value, p->wanted = 1;
    else if (option == OWN_PAGE_FIRST + 3) p->nearest = value, p->wanted = 1;
    else return 0;
    return 1;
}

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
    if (!swarm_address(s, own)) args[n++] = "--join", args[n++] = own;
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
    if ((p->process = fork()) == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* no page outlives its peer */
        setpgid(0, 0);                    /* Ctrl-C is for the peer; it ends the page in its turn */
        setpriority(PRIO_PROCESS, 0, PRIORITY);
        dup2(STDERR_FILENO, STDOUT_FILENO);
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
