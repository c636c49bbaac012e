/* potluck.c - the program: a table of subcommands. */
#include "cmd.h"
#include "cmd/common/environment.h"
#include "../ref/backend.h"
#include "../runtime/backend_open.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *help;
    cmd_fn *run;
} commands[] = {
#define ENTRY(name, help) { #name, help, cmd_##name },
    PL_COMMANDS(ENTRY)
#undef ENTRY
};

static void usage(FILE *to)
{
    fputs("usage: potluck COMMAND [OPTION ...]\n\n"
          "Train transformers together over the internet. Commands:\n\n",
          to);
    for (size_t i = 0; i < PL_COUNT(commands); i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n'potluck COMMAND --help' explains one; 'potluck --version' says what this build "
          "chose.\n",
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

int cmd_misused(const char *cmd, const char *format, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    fprintf(stderr, "potluck %s: %s ('potluck %s --help' tells more)\n", cmd, what, cmd);
    return PL_EUSE;
}

int cmd_no_more(const char *cmd, int argc, char **argv)
{
    if (optind >= argc) return PL_OK;
    return cmd_misused(cmd, "'%.60s' is no option", argv[optind]);
}

int cmd_integer(int64_t *out, const char *cmd, const char *flag, const char *text, int64_t min,
                int64_t max)
{
    char *end;
    long long x;
    errno = 0;
    x = strtoll(text, &end, 10);
    if (errno || end == text || *end || x < min || x > max) {
        fprintf(stderr, "potluck %s: %s: '%.80s' is not a whole number from %lld to %lld\n", cmd,
                flag, text, (long long)min, (long long)max);
        return PL_EUSE;
    }
    *out = x;
    return PL_OK;
}

int cmd_real(double *out, const char *cmd, const char *flag, const char *text, double min,
             double max)
{
    char *end;
    double x;
    errno = 0;
    x = strtod(text, &end);
    if (end == text || *end || !isfinite(x) || x < min || x > max) {
        fprintf(stderr, "potluck %s: %s: '%.80s' is not a number from %g to %g\n", cmd, flag, text,
                min, max);
        return PL_EUSE;
    }
    *out = x;
    return PL_OK;
}

/* The exit status, when what was printed must also have arrived. */
static int said(const char *name, int rc)
{
    if (!fflush(stdout) && !ferror(stdout)) return rc;
    fprintf(stderr, "%s: cannot write to standard output\n", name);
    return rc ? rc : 1;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe or socket, or a file grown too large, */
    signal(SIGXFSZ, SIG_IGN); /* is an error to report, not a death */
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (environment_check()) return 2;
    if (!strcmp(argv[1], "--version")) return said("potluck", version());
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return said("potluck", 0);
    }
    for (size_t i = 0; i < PL_COUNT(commands); i++)
        if (!strcmp(argv[1], commands[i].name)) {
            char name[64]; /* getopt begins its own complaints with it, as we begin ours */
            snprintf(name, sizeof name, "potluck %s", argv[1]);
            argv[1] = name;
            return said(name, commands[i].run(argc - 1, argv + 1));
        }
    fprintf(stderr, "potluck: no command '%.40s'; 'potluck --help' lists them\n", argv[1]);
    return 2;
}
