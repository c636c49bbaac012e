/* convert.c - `potluck convert`: a checkpoint from one kind of file to another. */
#include "cmd.h"
#include "data/models/weights.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: potluck convert FROM TO\n"
    "\n"
    "Writes the tensors of FROM (safetensors, PyTorch's zip or older stream, TorchScript) and its remarks\n"
    "into TO, whose ending says the kind: .safetensors, or .pt .pth .bin .ckpt for PyTorch's zip, which\n"
    "torch.load(TO, weights_only=True) reads. Nothing but tensors is taken along. Views become tensors of\n"
    "their own.\n";

int cmd_convert(int argc, char **argv)
{
    static const struct option options[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
    struct st_file *f;
    struct stat from, to;
    struct pl_err err;
    int c, rc;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c != 'h') return 2;
        fputs(usage, stdout);
        return 0;
    }
    if (optind + 2 != argc) {
        cmd_misused("convert", "two files are needed: what to read, what to write");
        return 2;
    }
    if (!stat(argv[optind], &from) && !stat(argv[optind + 1], &to) && from.st_ino == to.st_ino &&
        from.st_dev == to.st_dev) {
        fprintf(stderr, "potluck convert: %s: both are the same file\n", argv[optind]);
        return 2;
    }
    rc = pl_weights_open(&f, argv[optind], &err);
    if (!rc) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < f->count; i++) bytes += f->tensors[i].bytes;
        rc = pl_weights_save(f, argv[optind + 1], &err);
        if (!rc)
            printf("%s: %zu tensors, %llu bytes, from %s\n", argv[optind + 1], f->count,
                   (unsigned long long)bytes, f->kind);
        pl_safetensors_close(f);
    }
    if (rc) fprintf(stderr, "potluck convert: %s\n", err.text);
    return rc == PL_EUSE ? 2 : rc != 0;
}
