/* upload.c - `potluck upload`: checkpoints and shards to where others can fetch them. */
#include "cmd.h"
#include "progress.h"
#include "../net/http/upload.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: potluck upload --to URL [--tus] FILE ...\n"
    "\n"
    "Sends files to a web server. A URL that ends in / gets the file's name behind it. $POTLUCK_TOKEN (or\n"
    "$HF_TOKEN) goes along as \"Authorization: Bearer\".\n"
    "\n"
    "  --to URL   where to: WebDAV, a presigned S3 address, or whatever takes a PUT\n"
    "  --tus      URL is a server of the tus protocol: an upload that broke goes on in the middle, also\n"
    "             after this program was stopped (what it needs for that is in FILE.upload)\n"
    "  --tries N  in a row without progress, before giving up (default 6)\n"
    "  --quiet    no progress\n";

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

struct view {
    struct progress progress;
    const char *file;
};

static int watch(void *context, uint64_t done, uint64_t size)
{
    struct view *v = context;
    progress_show(&v->progress, done == size, "%s: %.1f of %.1f MB", v->file, (double)done / 1e6,
                  (double)size / 1e6);
    return stopped;
}

/* The address of one file. NULL: no memory. */
static char *address(const char *to, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(to);
    char *out = malloc(n + strlen(name) + 1);
    if (out) sprintf(out, "%s%s", to, n && to[n - 1] == '/' ? name : "");
    return out;
}

static int send_file(const char *to, const char *path, struct http_upload_options *o, int quiet)
{
    struct view v = { .file = path };
    struct pl_err err = { "no memory" };
    char *url = o->tus ? strdup(to) : address(to, path);
    int rc;
    progress_begin(&v.progress, quiet);
    o->progress = watch;
    o->context = &v;
    rc = url ? http_upload(url, path, o, &err) : PL_ENOMEM;
    progress_end(&v.progress);
    if (rc) fprintf(stderr, "potluck upload: %s\n", err.text);
    else printf("%s is at %s\n", path, url);
    free(url);
    return rc;
}

int cmd_upload(int argc, char **argv)
{
    static const struct option options[] = {
        { "to", required_argument, NULL, 't' },    { "tus", no_argument, NULL, 'u' },
        { "tries", required_argument, NULL, 'n' }, { "quiet", no_argument, NULL, 'q' },
        { "help", no_argument, NULL, 'h' },        { 0 },
    };
    struct http_upload_options o = http_upload_options();
    const char *to = NULL;
    int64_t tries = o.tries;
    int quiet = 0, c, rc = PL_OK;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 't': to = optarg; break;
        case 'u': o.tus = 1; break;
        case 'q': quiet = 1; break;
        case 'n':
            if (cmd_integer(&tries, "upload", "--tries", optarg, 1, 1000)) return 2;
            break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (!to || optind == argc) {
        fputs(usage, stderr);
        return 2;
    }
    if (optind + 1 < argc && !o.tus && to[strlen(to) - 1] != '/') {
        fprintf(stderr, "potluck upload: several files, but --to is one file's address: end it in /\n");
        return 2;
    }
    o.tries = (int)tries;
    o.token = getenv("POTLUCK_TOKEN");
    if (!o.token) o.token = getenv("HF_TOKEN");
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    for (int i = optind; i < argc && !rc; i++) rc = send_file(to, argv[i], &o, quiet);
    return rc != 0;
}
