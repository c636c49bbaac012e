/* torch.c - any bytes as a PyTorch checkpoint of either kind, and as a bare pickle. */
#include "data/torch/pickle.h"
#include "data/torch/torch.h"

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
    struct pickle *p = pl_pickle_new();
    const struct pickle_value *v;
    if (p && !pl_pickle_read(p, &v, NULL, data, bytes, "fuzz", &err))
        pl_pickle_get(v, "state_dict");
    pl_pickle_free(p);
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, bytes) == (ssize_t)bytes && !pl_torch_open(&f, path, &err)) {
        for (size_t i = 0; i < f->count; i++) {
            float *x = f->tensors[i].n < 1 << 20 ? malloc((f->tensors[i].n + 1) * sizeof *x) : NULL;
            if (x) pl_safetensors_to_float(x, &f->tensors[i]);
            free(x);
        }
        pl_safetensors_close(f);
    }
    close(fd);
    return 0;
}
