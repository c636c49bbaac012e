/* safetensors.c - any bytes as a safetensors file, through a memory file. */
#include "data/files/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int fd = memfd_create("fuzz", 0);
    char path[32];
    struct st_file *f;
    struct pl_err err;
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, bytes) == (ssize_t)bytes && !pl_safetensors_open(&f, path, &err)) {
        for (size_t i = 0; i < f->count; i++) {
            /* n was checked by the file's size */
            float *x = malloc((f->tensors[i].n + 1) * sizeof *x);
            if (x) pl_safetensors_to_float(x, &f->tensors[i]);
            free(x);
        }
        pl_safetensors_meta(f, "config");
        pl_safetensors_find(f, "x");
        pl_safetensors_close(f);
    }
    close(fd);
    return 0;
}
