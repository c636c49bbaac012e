/* show.c - `potluck show`: the contents of a shard, a checkpoint, a tokenizer. */
#include "cmd/cmd.h"
#include "show.h"
#include "data/torch/torch.h"
#include "ref/small.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define HEAD_BYTES 9 /* a safetensors file's length of its header, and the brace this begins with */

/* The name counts too: a damaged checkpoint gets the error of its reader, not "unknown file". */
static int is_checkpoint(const char *path, const uint8_t head[HEAD_BYTES])
{
    return head[8] == '{' || pl_ends_with(path, ".safetensors") ||
           pl_torch_begins(head, HEAD_BYTES - 1);
}

/* Tells the kind by the first bytes, and hands the file to its reader. */
static int show_file(const char *path, const struct show_options *show, struct pl_err *err)
{
    struct pl_source *source;
    uint8_t head[HEAD_BYTES] = { 0 };
    int rc = pl_source_file(&source, path, err);
    size_t n = rc || source->size > HEAD_BYTES ? HEAD_BYTES : (size_t)source->size;
    if (rc) return rc;
    if (n == 0) rc = pl_fail(err, PL_EFORMAT, "%s: an empty file", path);
    else rc = pl_source_read(source, 0, head, n, err);
    if (!rc && !memcmp(head, "PAR1", 4)) rc = show_parquet(source, show, err);
    else if (!rc && pl_ends_with(path, ".jsonl")) rc = show_log(path, show, err);
    else if (!rc && pl_ends_with(path, ".model")) rc = show_tokens(path, show, err);
    else if (!rc && is_checkpoint(path, head)) rc = show_safetensors(path, show, err);
    else if (!rc)
        rc = pl_fail(err, PL_EFORMAT,
                     "%s: expected a Parquet table, a checkpoint (safetensors or "
                     "PyTorch's), a tokenizer (*.model) or a training's log.jsonl",
                     path);
    pl_source_close(source);
    return rc;
}

#define OPTIONS struct show_options
static const struct option_row rows[] = {
    { "rows", "N", "5", OPT_INTEGER(rows, 0, INT64_MAX), "print the first N rows of a table" },
    { "caption", "TEXT", NULL, OPT_TEXT(caption),
      "of a shard, print only rows whose caption contains TEXT, with all image tokens; of a "
      "tokenizer, print how it splits TEXT" },
    { "json", NULL, NULL, OPT_FLAG(json),
      "print every row, tensor or token as a line of JSON and nothing else; bytes are "
      "hexadecimal" },
    { 0 },
};

static int run_show(int argc, char **argv)
{
    struct show_options show = { .caption = NULL };
    struct pl_err err;
    int words, rc;
    if (options_parse(&command_show, &show, argc, argv, &words, &rc)) return rc;
    if (words != 1) {
        command_misused("show", "one file is needed");
        return 2;
    }
    signal(SIGPIPE,
           SIG_DFL); /* of a large file, head shows the beginning, and nothing else is read */
    rc = show_file(argv[1], &show, &err);
    if (rc) {
        fflush(stdout);
        command_failed("show", "%s", err.text);
    }
    return rc != 0;
}

const struct command command_show = {
    .name = "show",
    .summary = "print what a shard, a checkpoint, a tokenizer or a log contains",
    .synopsis = "FILE [--rows N] [--caption TEXT] [--json]",
    .about =
        "Prints what a file contains: a shard or any other flat Parquet table, a checkpoint "
        "(safetensors, PyTorch's zip or older format, TorchScript), or a T5 tokenizer (*.model). "
        "Draws the loss curve of a training's log.jsonl.",
    .rows = rows,
    .run = run_show,
};
