/* upload.c - `potluck upload`: checkpoints and shards to where others can fetch them. */
#include "cmd.h"
#include "cmd/common/environment.h"
#include "cmd/common/interrupt.h"
#include "cmd/common/progress_line.h"
#include "net/http/upload/upload.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: potluck upload --to URL [--tus | --s3] FILE ...\n"
    "       potluck upload --hub USER/NAME [--to URL] FILE ...\n"
    "\n"
    "Sends files to a web server. A URL that ends in / gets the file's name behind it. $POTLUCK_TOKEN goes\n"
    "to the server of --to as \"Authorization: Bearer\", $HF_TOKEN to the hub, both over https alone and to no\n"
    "other host; $SSL_CERT_FILE says whose certificates to believe.\n"
    "With --tus, --s3 and --hub an upload that broke goes on in the middle, also after this program was\n"
    "stopped: what it needs for that is in FILE.upload.\n"
    "\n"
    "  --to URL        where to: WebDAV, a presigned S3 address, or whatever takes a PUT\n"
    "  --tus           URL is a server of the tus protocol\n"
    "  --s3            URL is https://ENDPOINT/BUCKET/ or an object there; requests are signed by\n"
    "                  $AWS_ACCESS_KEY_ID, $AWS_SECRET_ACCESS_KEY and, if it is set, $AWS_SESSION_TOKEN, for\n"
    "                  $AWS_REGION (default us-east-1)\n"
    "  --hub REPO      a commit of a repository of a hub (default $HF_ENDPOINT or https://huggingface.co)\n"
    "  --dataset       REPO holds a dataset, not a model\n"
    "  --revision REV  its branch (default main)\n"
    "  --folder DIR    the folder there that the files go to\n"
    "  --tries N       in a row without progress, before giving up (default 6)\n"
    "  --quiet         no progress\n";

struct view {
    struct progress progress;
    const char *file;
};

static int watch(void *context, uint64_t done, uint64_t size)
{
    struct view *v = context;
    progress_show(&v->progress, done == size, "%s: %.1f of %.1f MB", v->file, (double)done / 1e6,
                  (double)size / 1e6);
    return interrupted();
}

struct options {
    const char *to, *folder;
    int quiet;
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

/* What the file is called in a repository. NULL: no memory. */
static char *name_there(const struct options *all, const char *path)
{
    const char *folder = all->folder ? all->folder : "";
    size_t room = strlen(folder) + strlen(name_of(path)) + 2;
    char *out = malloc(room);
    if (out) snprintf(out, room, "%s%s%s", folder, *folder ? "/" : "", name_of(path));
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
    if (rc) fprintf(stderr, "potluck upload: %s\n", err.text);
    else if (all->o.way == HTTP_UPLOAD_HUB)
        printf("%s is %s in %s of %s\n", path, name, all->o.repository, url);
    else printf("%s is at %s\n", path, url);
    free(url);
    free(name);
    return rc;
}

static int parse(struct options *all, int argc, char **argv)
{
    static const struct option options[] = {
        { "to", required_argument, NULL, 't' },
        { "tus", no_argument, NULL, 'u' },
        { "s3", no_argument, NULL, 's' },
        { "hub", required_argument, NULL, 'H' },
        { "dataset", no_argument, NULL, 'd' },
        { "revision", required_argument, NULL, 'r' },
        { "folder", required_argument, NULL, 'f' },
        { "tries", required_argument, NULL, 'n' },
        { "quiet", no_argument, NULL, 'q' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    struct http_upload_options *o = &all->o;
    int64_t tries = o->tries;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 't': all->to = optarg; break;
        case 'u': o->way = HTTP_UPLOAD_TUS; break;
        case 's': o->way = HTTP_UPLOAD_S3; break;
        case 'H':
            o->way = HTTP_UPLOAD_HUB;
            o->repository = optarg;
            break;
        case 'd': o->kind = "datasets"; break;
        case 'r': o->revision = optarg; break;
        case 'f': all->folder = optarg; break;
        case 'q': all->quiet = 1; break;
        case 'n':
            if (cmd_integer(&tries, "upload", "--tries", optarg, 1, 1000)) return PL_EUSE;
            break;
        case 'h': fputs(usage, stdout); exit(0);
        default: return PL_EUSE;
        }
    }
    o->tries = (int)tries;
    if (!all->to && o->way == HTTP_UPLOAD_HUB) all->to = environment_hub();
    if (!all->to) return cmd_misused("upload", "--to or --hub is needed");
    return optind < argc ? PL_OK : cmd_misused("upload", "a file is needed");
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

int cmd_upload(int argc, char **argv)
{
    struct options all = { .o = http_upload_options() };
    int rc = PL_OK;
    all.o.kind = "models";
    all.o.revision = "main";
    if (parse(&all, argc, argv)) return 2;
    if (optind + 1 < argc && all.o.way != HTTP_UPLOAD_TUS && all.o.way != HTTP_UPLOAD_HUB &&
        all.to[strlen(all.to) - 1] != '/') {
        fprintf(stderr,
                "potluck upload: several files, but --to is one file's address: end it in /\n");
        return 2;
    }
    take_secrets(&all);
    interrupt_catch(NULL);
    for (int i = optind; i < argc && !rc; i++) rc = send_file(&all, argv[i]);
    return rc != 0;
}
