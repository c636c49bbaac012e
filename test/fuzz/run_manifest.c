/* run_manifest.c - any bytes as a run's manifest: what is accepted survives a round trip and is equal
 * to itself; and any bytes as the value of a record with one. */
#include "net/hivemind/records/run_manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct run_manifest m, back;
    static struct manifest_record r;
    struct pl_err err = { "" };
    char *text;
    if (!manifest_record_read(&r, NULL, data, n < 8 ? n : 8, data, n, &err)) abort(); /* forged! */
    manifest_record_clear(&r);
    err.text[0] = 0;
    if (manifest_read(&m, (const char *)data, n, &err)) {
        if (!err.text[0] || strchr(err.text, '\n')) abort();
        return 0;
    }
    /* JSON may have been shorter than the manifest that it stands for. */
    if (manifest_write(&text, &m, &err)) return 0;
    if (manifest_read(&back, text, strlen(text), &err) || manifest_compare(&m, &back, &err))
        abort();
    free(text);
    return 0;
}
