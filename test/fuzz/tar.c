/* tar.c - any bytes as a tar archive. */
#include "data/files/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tar t = { data, bytes, 0, "fuzz" };
    struct tar_file file;
    unsigned sum = 0;
    while (!pl_tar_next(&t, &file, NULL))
        for (size_t i = 0; i < file.bytes; i += 101) sum += file.data[i];
    return sum == 1 ? 0 : 0;
}
