/* vqgan_file.h - a VQGAN's weights and configuration in a safetensors file; the configuration has
 * taming-transformers' keys. */
#ifndef PL_VQGAN_FILE_H
#define PL_VQGAN_FILE_H

#include "ref/model/vqgan.h"
#include "data/files/safetensors.h"

#include <jansson.h>

#define VQGAN_IDENTITY_SIZE 9 /* its zero included */

/* Parses {"embed_dim", "n_embed", "ddconfig": {"ch", "ch_mult", ...}}; a Gumbel model has
 * "kl_weight". PL_EFORMAT or PL_EUSE with a message that begins with `where`. */
int pl_vqgan_config_parse(struct pl_vqgan_config *config, const json_t *json, const char *where,
                          struct pl_err *err);
/* The same keys back; the caller decrefs; NULL without memory. */
json_t *pl_vqgan_config_json(const struct pl_vqgan_config *config);

/* From a YAML file, as models were published (model: params: ddconfig: ...), or a JSON file. */
int pl_vqgan_config_read(struct pl_vqgan_config *config, const char *path, struct pl_err *err);
/* The configuration of the model in `f`: from its metadata "config"; else from a .yaml, .yml or
 * .json of its name in the same folder, or a config or model file of these kinds there; else from
 * the tensors' shapes. */
int pl_vqgan_config_find(struct pl_vqgan_config *config, const struct st_file *f,
                         struct pl_err *err);

/* Opens a model from any file that pl_weights_open reads. Extra tensors are ignored; a missing one,
 * or one of another shape, is an error that names it. */
int pl_vqgan_open(struct pl_vqgan *m, const char *path, const struct pl_backend *be, int with_grad,
                  struct pl_err *err);
/* Tells one codec's weights from another's: CRC-32 of the file in hex. Shards and checkpoints carry
 * it. */
int pl_vqgan_identity(char text[VQGAN_IDENTITY_SIZE], const char *path, struct pl_err *err);
/* Saves weights as float16, rounded to nearest even (values beyond its range are refused), or as
 * float32. */
int pl_vqgan_save(const struct pl_vqgan *m, const char *path, int half, struct pl_err *err);

#endif
