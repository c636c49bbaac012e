/* bpe.c - any text through CLIP's cleaning and GPT-2's tokenizer, which give it back; and any
 * bytes as the tokenizer's own files: the first byte says which. */
#include "data/text/bpe.h"
#include "data/text/clean.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int file_of(char path[32], const void *data, size_t bytes)
{
    int fd = memfd_create("fuzz", 0);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    if (fd >= 0 && write(fd, data, bytes) != (ssize_t)bytes) abort();
    return fd;
}

/* A vocabulary of the 256 byte letters and two joined ones. */
static struct bpe *small(void)
{
    char json[8192], path[32], merges[32];
    size_t n = 0, order = 0;
    struct bpe *b;
    n += (size_t)snprintf(json + n, sizeof json - n, "{");
    for (int k = 0; k < 256; k++) {
        int plain = (k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174;
        int letter = plain ? k : 256 + (int)order++;
        n += (size_t)snprintf(json + n, sizeof json - n, "\"\\u%04x\":%d,", letter, k);
    }
    n += (size_t)snprintf(json + n, sizeof json - n,
                          "\"ab\":256,\"\\u0120ab\":257,\"<|endoftext|>\":258}");
    static const char list[] = "#\na b\n\xc4\xa0 ab\n";
    int a = file_of(path, json, n), c = file_of(merges, list, sizeof list - 1);
    if (pl_bpe_open_gpt2(&b, path, merges, NULL)) abort();
    close(a);
    close(c);
    return b;
}

static void try_files(const uint8_t *data, size_t bytes)
{
    const uint8_t *cut = memchr(data, 0, bytes);
    size_t n = cut ? (size_t)(cut - data) : bytes;
    char path[32], merges[32];
    struct bpe *b;
    int a = file_of(path, data, n),
        c = file_of(merges, cut ? cut + 1 : data, cut ? bytes - n - 1 : 0);
    if (!pl_bpe_open_gpt2(&b, path, merges, NULL)) pl_bpe_close(b);
    if (!pl_bpe_open_clip(&b, merges, NULL)) pl_bpe_close(b);
    close(a);
    close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct bpe *b;
    char *text;
    size_t n, count;
    int32_t *ids;
    if (!b) b = small();
    if (!bytes) return 0;
    if (data[0] == 1) {
        try_files(data + 1, bytes - 1);
        return 0;
    }
    if (!pl_clean_text(&text, &n, (const char *)data, bytes)) free(text);
    ids = malloc(bytes * sizeof *ids);
    if (!ids || pl_bpe_encode(ids, bytes, &count, b, (const char *)data, bytes) || count > bytes)
        abort();
    if (pl_bpe_decode(&text, &n, b, ids, count) || n != bytes || memcmp(text, data, n)) abort();
    free(text);
    free(ids);
    return 0;
}
