/* vqgan_file.h - a VQGAN's weights and configuration in a safetensors file, and its configuration as
 * JSON in the original's words. */
#ifndef PL_VQGAN_FILE_H
#define PL_VQGAN_FILE_H

#include "../ref/model/vqgan.h"
#include "safetensors.h"

#include <jansson.h>

/* {"embed_dim", "n_embed", "ddconfig": {"ch", "ch_mult", ...}}; a Gumbel model has "kl_weight".
 * Checked: PL_EFORMAT or PL_EUSE with a sentence that begins with `where`. */
int pl_vqgan_config_parse(struct pl_vqgan_config *config, const json_t *json, const char *where,
                          struct pl_err *err);
/* The caller decrefs; NULL without memory. */
json_t *pl_vqgan_config_json(const struct pl_vqgan_config *config);

/* Opens a model from a file that holds its configuration in the metadata entry "config" (alone, or
 * as "model" of that). Names that the model lacks are ignored; a missing one, or one of another
 * shape, is an error that names it. */
int pl_vqgan_open(struct pl_vqgan *m, const char *path, const struct pl_backend *be, int with_grad,
                  struct pl_err *err);
/* Weights as float16, rounded to nearest even (values beyond its range are refused), or float32. */
int pl_vqgan_save(const struct pl_vqgan *m, const char *path, int half, struct pl_err *err);

#endif
