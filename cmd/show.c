/* show.c - `potluck show`: what is inside a shard, a checkpoint, a tokenizer. */
#include "cmd.h"
#include "show.h"
#include "../data/file.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: potluck show FILE [--rows N] [--caption TEXT] [--json]\n"
    "\n"
    "Looks inside a file: a shard or any other flat Parquet table, a checkpoint (safetensors, PyTorch's\n"
    "zip or older stream, TorchScript), a T5 tokenizer (*.model).\n"
    "\n"
    "  --rows N        the first N rows of a table (default 5; 0: none)\n"
    "  --caption TEXT  only rows whose caption contains TEXT, with all their codes; of a tokenizer, how\n"
    "                  it splits TEXT\n"
    "  --json          every row, tensor or token as a line of JSON and nothing else; bytes in hex\n";

static int is_tokenizer(const char *path)
{
    size_t n = strlen(path);
    return n > 6 && !strcmp(path + n - 6, ".model");
}

void show_text(const char *text, size_t n, int json)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (json && (c == '"' || c == '\\')) printf("\\%c", c);
        else if (c < 32 || c == 127) printf(json ? "\\u%04x" : "\\x%02x", c);
        else putchar(c);
    }
}

int cmd_show(int argc, char **argv)
{
    static const struct option options[] = {
        { "rows", required_argument, NULL, 'r' },
        { "caption", required_argument, NULL, 'c' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    struct show_options show = { .rows = 5 };
    struct pl_source *source;
    struct pl_err err;
    uint8_t head[4] = { 0 };
    const char *path;
    int c, rc;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'r':
            if (cmd_integer(&show.rows, "show", "--rows", optarg, 0, INT64_MAX)) return 2;
            break;
        case 'c': show.caption = optarg; break;
        case 'j': show.json = 1; break;
        case 'h': fputs(usage, stdout); return 0;
        default: cmd_misused(usage); return 2;
        }
    }
    if (optind + 1 != argc) {
        cmd_misused(usage);
        return 2;
    }
    path = argv[optind];
    rc = pl_source_file(&source, path, &err);
    if (!rc && source->size >= 4) rc = pl_source_read(source, 0, head, 4, &err);
    if (!rc && !memcmp(head, "PAR1", 4)) rc = show_parquet(source, &show, &err);
    else if (!rc && is_tokenizer(path)) rc = show_tokens(path, &show, &err);
    else if (!rc) rc = show_safetensors(path, &show, &err);
    if (rc) {
        fflush(stdout);
        fprintf(stderr, "potluck show: %s\n", err.text);
    }
    pl_source_close(source);
    return rc != 0;
}
