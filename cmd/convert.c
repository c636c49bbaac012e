/* convert.c - `potluck convert`: a checkpoint from one kind of file to another. */
#include "cmd.h"
#include "data/models/weights.h"
#include "cmd/common/plural.h"

#include <stdio.h>
#include <sys/stat.h>

static int run_convert(int argc, char **argv)
{
    struct st_file *f;
    struct stat from, to;
    struct pl_err err;
    int words, rc;
    if (options_parse(&command_convert, NULL, argc, argv, &words, &rc)) return rc;
    if (words != 2) {
        command_misused("convert", "two files are needed: one to read and one to write");
        return 2;
    }
    if (!stat(argv[1], &from) && !stat(argv[2], &to) && from.st_ino == to.st_ino &&
        from.st_dev == to.st_dev) {
        command_failed("convert", "%s: both are the same file", argv[1]);
        return 2;
    }
    rc = pl_weights_open(&f, argv[1], &err);
    if (!rc) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < f->count; i++) bytes += f->tensors[i].bytes;
        rc = pl_weights_save(f, argv[2], &err);
        if (!rc)
            printf("%s: %zu tensor%s, %llu bytes, from %s\n", argv[2], f->count, PLURAL(f->count),
                   (unsigned long long)bytes, f->kind);
        pl_safetensors_close(f);
    }
    if (rc) command_failed("convert", "%s", err.text);
    return command_status(rc);
}

const struct command command_convert = {
    .name = "convert",
    .summary = "convert a checkpoint between safetensors and PyTorch formats",
    .synopsis = "FROM TO",
    .about =
        "Writes the tensors and metadata of FROM (safetensors, PyTorch's zip or older format, "
        "TorchScript) to TO, whose extension names the format: .safetensors, or .pt .pth .bin "
        ".ckpt for PyTorch's zip, which torch.load(TO, weights_only=True) reads. Other objects in "
        "FROM are left out. Views become tensors of their own.",
    .run = run_convert,
};
