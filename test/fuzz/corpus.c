/* corpus.c - any bytes as a file of text: the first says whether as JSON lines, gzipped or
 * plain. */
#define _GNU_SOURCE
#include "data/text/corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int encode(int32_t *ids, size_t capacity, size_t *count, const void *tokenizer,
                  const char *text, size_t n)
{
    (void)tokenizer;
    *count = n;
    for (size_t i = 0; i < n && i < capacity; i++) ids[i] = (unsigned char)text[i];
    return PL_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char link[80];
    static int fd = -1;
    char file[64];
    struct corpus *c;
    int32_t ids[7];
    if (!bytes) return 0;
    if (fd < 0) fd = memfd_create("text", 0);
    if (ftruncate(fd, 0) || pwrite(fd, data + 1, bytes - 1, 0) != (ssize_t)(bytes - 1)) return 0;
    snprintf(file, sizeof file, "/proc/%ld/fd/%d", (long)getpid(), fd);
    if (!link[0]) { /* the name's ending decides */
        snprintf(link, sizeof link, "/tmp/potluck-fuzz-%ld.json", (long)getpid());
        if (symlink(file, link)) abort();
    }
    const char *path[] = { data[0] & 1 ? link : file };
    struct corpus_options o = { .path = path,
                                .paths = 1,
                                .encode = encode,
                                .end = 256,
                                .window = 7,
                                .buffer = 1 + data[0] % 3,
                                .every = data[0] >> 4 };
    if (pl_corpus_open(&c, &o, NULL)) return 0;
    for (int i = 0; i < 64 && !pl_corpus_next(c, ids, NULL); i++) continue;
    pl_corpus_close(c);
    return 0;
}
