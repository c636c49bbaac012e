/* upload.c - `potluck upload`: checkpoints and shards to where others can fetch them. */
#include "cmd.h"
#include "cmd/common/environment.h"
#include "cmd/common/interrupt.h"
#include "cmd/common/progress_line.h"
#include "cmd/options/checks.h"
#include "net/http/upload/upload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct view {
    struct progress progress;
    const char *file;
    uint64_t first; /* bytes on the server when we began, of an upload that continues */
    int begun;
};

static int watch(void *context, uint64_t done, uint64_t size)
{
    struct view *v = context;
    char left[24];
    double rate;
    v->progress.done = size ? (double)done / (double)size : 1;
    if (!v->begun) v->first = done, v->begun = 1;
    rate = (double)(done - v->first) / fmax(progress_elapsed(&v->progress), 1e-3);
    progress_show(&v->progress, done == size, "%s: %.1f of %.1f MB, %.1f MB/s, %s left", v->file,
                  (double)done / 1e6, (double)size / 1e6, rate / 1e6,
                  progress_time(left, rate > 0 ? (double)(size - done) / rate : 0));
    return interrupted();
}

struct options {
    const char *to, *folder;
    int quiet, tus, s3, dataset;
    struct http_upload_options o;
};

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The address of one file: its name behind a /, with what an address can't hold as %XX. NULL: no
 * memory. */
static char *address(const struct options *all, const char *path)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    const char *name = name_of(path);
    size_t n = strlen(all->to);
    int whole = all->o.way == HTTP_UPLOAD_TUS || all->o.way == HTTP_UPLOAD_HUB || !n ||
                all->to[n - 1] != '/';
    char *out = malloc(n + 3 * strlen(name) + 1), *at = out;
    if (!out) return NULL;
    at += sprintf(at, "%s", all->to);
    for (; !whole && *name; name++)
        at += strchr(plain, *name) ? sprintf(at, "%c", *name)
                                   : sprintf(at, "%%%02X", (unsigned char)*name);
    return out;
}

/* The file's name in a repository. NULL: no memory. */
static char *name_there(const struct options *all, const char *path)
{
    const char *folder = all->folder ? all->folder : "";
    size_t capacity = strlen(folder) + strlen(name_of(path)) + 2;
    char *out = malloc(capacity);
    if (out) snprintf(out, capacity, "%s%s%s", folder, *folder ? "/" : "", name_of(path));
    return out;
}

static int send_file(struct options *all, const char *path)
{
    struct view v = { .file = path };
    struct pl_err err = { "no memory" };
    char *url = address(all, path), *name = name_there(all, path);
    int rc;
    progress_begin(&v.progress, all->quiet);
    all->o.progress = watch;
    all->o.context = &v;
    all->o.name = name;
    rc = url && name ? http_upload(url, path, &all->o, &err) : PL_ENOMEM;
    progress_end(&v.progress);
    if (rc) command_failed("upload", "%s", err.text);
    else if (all->o.way == HTTP_UPLOAD_HUB)
        printf("%s is %s in %s of %s\n", path, name, all->o.repository, url);
    else printf("%s is at %s\n", path, url);
    free(url);
    free(name);
    return rc;
}

#define OPTIONS struct options
static const struct option_row rows[] = {
    { "to", "URL", NULL, OPT_TEXT_CHECKED(to, check_url),
      "where to send the files: WebDAV, a presigned S3 address, or another server that accepts "
      "PUT" },
    { "tus", NULL, NULL, OPT_FLAG(tus), "the server speaks the tus protocol" },
    { "s3", NULL, NULL, OPT_FLAG(s3),
      "the URL is https://ENDPOINT/BUCKET/ or an object in it. Requests are signed with "
      "$AWS_ACCESS_KEY_ID, $AWS_SECRET_ACCESS_KEY and, if it is set, $AWS_SESSION_TOKEN, for "
      "$AWS_REGION (default: us-east-1)" },
    { "hub", "REPO", NULL, OPT_TEXT(o.repository),
      "commit the files to this repository of a hub (default hub: $HF_ENDPOINT or "
      "https://huggingface.co)" },
    { "dataset", NULL, NULL, OPT_FLAG(dataset), "REPO holds a dataset (default: a model)" },
    { "revision", "REV", "main", OPT_TEXT(o.revision), "branch of REPO" },
    { "folder", "DIR", NULL, OPT_TEXT(folder), "folder of REPO that receives the files" },
    { "tries", "N", NULL, OPT_INTEGER(o.tries, 1, 1000),
      "give up after this many attempts in a row without progress (default: 6)" },
    { "quiet", NULL, NULL, OPT_FLAG(quiet), "print no progress" },
    { 0 },
};

static int check(struct options *all, int words)
{
    struct http_upload_options *o = &all->o;
    if (all->tus) o->way = HTTP_UPLOAD_TUS;
    if (all->s3) o->way = HTTP_UPLOAD_S3;
    if (o->repository) o->way = HTTP_UPLOAD_HUB;
    o->kind = all->dataset ? "datasets" : "models";
    if (!all->to && o->way == HTTP_UPLOAD_HUB) all->to = environment_hub();
    if (!all->to) return command_misused("upload", "--to or --hub is needed");
    if (!words) return command_misused("upload", "a file is needed");
    if (words > 1 && o->way != HTTP_UPLOAD_TUS && o->way != HTTP_UPLOAD_HUB &&
        (!*all->to || all->to[strlen(all->to) - 1] != '/'))
        return command_misused("upload",
                               "several files, but --to is the address of one: end it with /");
    return PL_OK;
}

static void take_secrets(struct options *all)
{
    struct http_upload_options *o = &all->o;
    environment_credentials(o->credential, all->to,
                            o->way == HTTP_UPLOAD_HUB ? all->to : environment_hub());
    o->ca_file = environment_ca_file();
    o->key_id = getenv("AWS_ACCESS_KEY_ID");
    o->secret = getenv("AWS_SECRET_ACCESS_KEY");
    o->session = getenv("AWS_SESSION_TOKEN");
    o->region = getenv("AWS_REGION");
    if (!o->region) o->region = "us-east-1";
}

static int run_upload(int argc, char **argv)
{
    struct options all = { .o = http_upload_options() };
    int words, rc;
    if (options_parse(&command_upload, &all, argc, argv, &words, &rc)) return rc;
    if (check(&all, words)) return 2;
    take_secrets(&all);
    interrupt_catch(NULL);
    for (int i = 1; i <= words && !rc; i++) rc = send_file(&all, argv[i]);
    return rc != 0;
}

const struct command command_upload = {
    .name = "upload",
    .summary = "send checkpoints and shards to a web server, S3 or a hub",
    .synopsis = "--to URL [--tus | --s3] FILE ...\n"
                "--hub USER/NAME [--to URL] FILE ...",
    .about =
        "Sends files to a web server. If the URL ends in /, the file's name is added. "
        "$POTLUCK_TOKEN goes to the server of --to as \"Authorization: Bearer\", and $HF_TOKEN to "
        "the hub; both only over https and to no other host. $SSL_CERT_FILE names the "
        "certificates to trust.\n"
        "\n"
        "With --tus, --s3 and --hub an interrupted upload continues where it stopped, even if "
        "this program was restarted; FILE.upload holds what is needed for that.",
    .rows = rows,
    .run = run_upload,
};
