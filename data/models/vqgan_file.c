/* vqgan_file.c - VQGAN's weights from and to files, optionally as float16. */
#include "vqgan_file.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "checkpoint.h"
#include "weights.h"
#include "../../runtime/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define FILE_MAX ((size_t)1 << 30) /* bytes: the official model has 280 MB */

int pl_vqgan_open(struct pl_vqgan *m, const char *path, const struct pl_backend *be, int with_grad,
                  struct pl_err *err)
{
    struct pl_vqgan_config config;
    struct st_file *f;
    int rc = pl_weights_open(&f, path, err);
    if (rc) return rc;
    rc = pl_vqgan_config_find(&config, f, err);
    if (!rc) {
        rc = pl_vqgan_init(m, &config, be, with_grad);
        if (rc) pl_fail(err, rc, "%s: %s for the model", path, pl_status_name(rc));
        else if ((rc = pl_checkpoint_load_params(&m->params, f, pl_checkpoint_exact, err)))
            pl_vqgan_clear(m);
    }
    pl_safetensors_close(f);
    return rc;
}

int pl_vqgan_identity(char text[VQGAN_IDENTITY_SIZE], const char *path, struct pl_err *err)
{
    void *data;
    size_t bytes;
    int rc = pl_file_read(&data, &bytes, path, FILE_MAX, err);
    if (rc) return rc;
    snprintf(text, VQGAN_IDENTITY_SIZE, "%08lx",
             (unsigned long)crc32_z(crc32(0, NULL, 0), data, bytes));
    free(data);
    return PL_OK;
}

int pl_vqgan_save(const struct pl_vqgan *m, const char *path, int half, struct pl_err *err)
{
    const struct pl_params *p = &m->params;
    void **copy = calloc(p->count, sizeof *copy);
    struct st_writer *w = pl_safetensors_writer_new();
    json_t *json;
    char *text;
    int rc;
    pl_json_begin();
    json = pl_vqgan_config_json(&m->config);
    text = pl_json_text(json, JSON_COMPACT);
    rc = copy && w && text ? PL_OK : PL_ENOMEM;
    if (!rc) rc = pl_safetensors_writer_meta(w, "format", "pt");
    if (!rc) rc = pl_safetensors_writer_meta(w, "config", text);
    for (size_t i = 0; !rc && i < p->count; i++) {
        const struct pl_param *t = &p->list[i];
        float *values = copy[i] = pl_alloc(t->n, sizeof *values);
        rc = values ? pl_params_get(p, i, values) : PL_ENOMEM;
        for (size_t k = 0; !rc && half && k < t->n; k++) {
            /* float16 is shorter, so values not yet converted are not overwritten */
            uint16_t h = pl_half_from_float(values[k]);
            if ((h & 0x7C00) == 0x7C00) {
                rc = pl_fail(err, PL_ELIMIT, "%s: %s holds %g, which float16 does not", path,
                             t->name, values[k]);
                goto done;
            }
            memcpy((char *)copy[i] + 2 * k, &h, sizeof h);
        }
        if (!rc)
            rc = pl_safetensors_writer_add(w, t->name, half ? PL_F16 : PL_F32, t->dims, t->shape,
                                           copy[i]);
    }
    if (rc) pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    else rc = pl_safetensors_write(w, path, err);
done:
    for (size_t i = 0; copy && i < p->count; i++) pl_free(copy[i]);
    free(copy);
    free(text);
    json_decref(json);
    pl_safetensors_writer_free(w);
    return rc;
}
