/* demo_page.c - forks and executes this same program as `potluck dash --folder`. */
#include "demo_page.h"
#include "cmd/train/train_data.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The page's one line of output is its address. It is waited for, because the progress line would
 * be drawn into it. The pipe's end is closed with the program. */
static void print_address(int fd)
{
    char c;
    while (read(fd, &c, 1) == 1) {
        fputc(c, stderr);
        if (c == '\n') return;
    }
}

pid_t demo_page_start(const char *out, int64_t steps)
{
    char number[32], page[PATH_MAX], captions[PATH_MAX], shards[PATH_MAX];
    char *args[] = { "potluck",
                     "dash",
                     "--folder",
                     (char *)(uintptr_t)out,
                     "--port",
                     "0",
                     "--every",
                     "2",
                     "--total-steps",
                     number,
                     "--export",
                     page,
                     "--captions",
                     captions,
                     "--nearest",
                     shards,
                     NULL };
    pid_t pid;
    int out_pipe[2];
    train_data_demo(captions, sizeof captions, "live.txt");
    train_data_demo(shards, sizeof shards, ".");
    snprintf(number, sizeof number, "%lld", (long long)steps);
    snprintf(page, sizeof page, "%s/page", out);
    mkdir(out, 0777); /* where it cannot be made, the training will say so */
    if (pipe2(out_pipe, O_CLOEXEC)) return 0;
    if ((pid = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* no page outlives its demo */
        setpgid(0, 0); /* Ctrl-C is for the training; it ends the page in its turn */
        dup2(out_pipe[1], STDOUT_FILENO);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    close(out_pipe[1]);
    print_address(out_pipe[0]);
    return pid > 0 ? pid : 0;
}

void demo_page_end(pid_t page, const char *out)
{
    int status;
    if (page <= 0) return;
    kill(page, SIGTERM);
    if (waitpid(page, &status, 0) == page && status == 0)
        fprintf(stderr, "its page stays: %s/page/index.html\n", out);
}
