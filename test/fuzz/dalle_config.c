/* dalle_config.c - any bytes as a transformer's configuration, and any names looked up in the
 * model of an accepted one; what is accepted survives a round trip. */
#include "runtime/dalle_run.h"
#include "data/models/dalle_config.h"
#include "../../data/models/dalle_names.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void find_parameter(const struct pl_dalle_config *c, const char *name)
{
    struct pl_dalle *m;
    if (pl_dalle_open(&m, c, NULL, 0, NULL)) return; /* more elements than there are */
    pl_dalle_find(m, name);
    pl_dalle_find_param(&m->params, name);
    pl_dalle_close(m);
}

/* The input: a name, a zero byte, the JSON. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *zero = bytes ? memchr(data, 0, bytes) : NULL;
    struct pl_dalle_config c, back;
    struct pl_err err;
    json_t *root, *again;
    if (!zero) return 0;
    root = json_loadb((const char *)zero + 1, bytes - (size_t)(zero + 1 - data), 0, NULL);
    if (!root) return 0;
    for (int strict = 0; strict <= 1; strict++) {
        if (pl_dalle_config_from_json(&c, root, strict, "fuzz", &err)) {
            if (!err.text[0] || strchr(err.text, '\n')) abort();
            continue;
        }
        again = pl_dalle_config_to_json(&c);
        if (!again || pl_dalle_config_from_json(&back, again, 1, "fuzz", &err)) abort();
        json_decref(again);
        find_parameter(&c, (const char *)data);
    }
    json_decref(root);
    return 0;
}
