/* potluck.c - the program: a table of commands, and rules for all of them. */
#include "cmd.h"
#include "cmd/common/environment.h"
#include "cmd/common/json_event.h"
#include "ref/backend.h"
#include "runtime/backend_open.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the order in which a newcomer meets them. */
static const struct command *const commands[] = {
    &command_demo,     &command_train,   &command_join,     &command_new_run, &command_generate,
    &command_tokenize, &command_prepare, &command_show,     &command_convert, &command_upload,
    &command_average,  &command_peer,    &command_dht,      &command_doctor,  &command_authority,
    &command_vqgan,    &command_dash,    &command_finetune, &command_calc,    &command_bench,
    &command_conform,  &command_lab,
};

static void usage(FILE *to)
{
    fputs("usage: potluck COMMAND [OPTION ...]\n\n"
          "Train transformers together over the internet. Commands:\n\n",
          to);
    for (size_t i = 0; i < PL_COUNT(commands); i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n"
          "'potluck help COMMAND' explains a command. 'potluck --version' prints the version and "
          "the\n"
          "backend that this build would choose.\n",
          to);
}

static int version(void)
{
    struct pl_backend be;
    struct pl_err err;
    printf("potluck %s\n", PL_VERSION);
    if (pl_backend_open(&be, "auto", &err)) printf("backend: %s\n", err.text);
    else printf("backend %s\n", be.note);
    return 0;
}

/* NULL, with a line on stderr: there is no such command. */
static const struct command *find_command(const char *name)
{
    const char *names[PL_COUNT(commands) + 1] = { NULL }, *similar;
    for (size_t i = 0; i < PL_COUNT(commands); i++) {
        names[i] = commands[i]->name;
        if (!strcmp(name, names[i])) return commands[i];
    }
    similar = option_similar(name, names);
    fprintf(stderr, "potluck: no command '%.40s'; ", name);
    if (similar) fprintf(stderr, "did you mean %s? ", similar);
    fputs("'potluck --help' lists them\n", stderr);
    return NULL;
}

static int help(int argc, char **argv)
{
    const struct command *c;
    if (argc < 3 || !strcmp(argv[2], "--help") || !strcmp(argv[2], "help")) {
        usage(stdout);
        return 0;
    }
    if (!(c = find_command(argv[2]))) return 2;
    if (argc > 3 && !strcmp(argv[3], "--list")) options_list(stdout, c); /* for completion */
    else options_help(stdout, c);
    return 0;
}

/* The exit status: the output must also have been written. A reader that has closed its end, like
 * head, is no error. */
static int finish(const char *name, int status)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    if (!fflush(stdout) && !ferror(stdout)) return status;
    if (poll(&out, 1, 0) != 1 || !(out.revents & POLLERR))
        command_failed(name, "cannot write to standard output");
    return status ? status : 1;
}

/* With --json a program reads our output: why the command fails is an event, too. */
static int run(const struct command *c, int argc, char **argv)
{
    const int json = options_ask_json(c, argc - 1, argv + 1); /* parsing moves words */
    const int status = c->run(argc - 1, argv + 1);
    if (status && json && *command_complaint()) json_event_error(c->name, command_complaint());
    return status;
}

int main(int argc, char **argv)
{
    const struct command *c;
    signal(SIGPIPE, SIG_IGN); /* a closed socket or a file grown too large */
    signal(SIGXFSZ, SIG_IGN); /* is an error to report, not a death */
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (environment_check()) return 2;
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return finish("--version", version());
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return finish("--help", help(1, argv));
    if (!strcmp(argv[1], "help")) return finish("help", help(argc, argv));
    if (!(c = find_command(argv[1]))) return 2;
    return finish(c->name, run(c, argc, argv));
}
