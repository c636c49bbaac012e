/* spiece.c - any bytes as a spiece.model, and any text split with it. The input: two bytes that say
 * how long the text is, the text, the model. */
#include "data/text/unigram.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct unigram *u;
    struct pl_err err;
    size_t text = bytes < 2 ? 0 : (size_t)(data[0] | data[1] << 8);
    if (bytes < 2 || text > bytes - 2) return 0;
    if (pl_unigram_read(&u, data + 2 + text, bytes - 2 - text, "fuzz", &err)) return 0;
    for (int rules = UNIGRAM_TRANSFORMERS; rules <= UNIGRAM_SENTENCEPIECE; rules++) {
        int32_t ids[256];
        size_t count, length;
        char *back;
        if (pl_unigram_encode(ids, 256, &count, u, (const char *)data + 2, text, rules)) continue;
        if (count > 256) count = 256;
        if (pl_unigram_decode(&back, &length, u, ids, count))
            abort(); /* our own ids always decode */
        free(back);
    }
    pl_unigram_close(u);
    return 0;
}
