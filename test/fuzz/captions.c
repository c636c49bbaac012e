/* captions.c - lists, JSON lines, tar archives and Parquet tables of pictures with captions, read
 * as `prepare` reads them: the first byte says which; the first pictures are decoded. */
#include "data/pairs/captions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PICTURES 8

static char folder[] = "/tmp/potluck-fuzz-captions-XXXXXX";

static void leave(void) { rmdir(folder); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = { "list.tsv", "metadata.jsonl", "x.tar", "x.parquet" };
    static int begun;
    struct captions c;
    struct pl_err err;
    char path[100];
    FILE *f;
    int kind;
    if (!begun && !mkdtemp(folder)) abort();
    if (!begun++) atexit(leave);
    if (!bytes) return 0;
    kind = data[0] % 4;
    snprintf(path, sizeof path, "%s/%s", folder, names[kind]);
    if (!(f = fopen(path, "wb"))) abort();
    fwrite(data + 1, 1, bytes - 1, f);
    fclose(f);
    if (!pl_captions_read(&c, kind == 1 ? folder : path, &err)) {
        for (size_t i = 0; i < c.count && i < PICTURES && kind >= 2; i++) {
            struct pl_image image;
            uint64_t n;
            if (!pl_captions_picture(&image, &n, &c, i, &err)) pl_image_clear(&image);
        }
        pl_captions_clear(&c);
    }
    unlink(path);
    return 0;
}
