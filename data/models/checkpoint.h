/* checkpoint.h - a training state as one safetensors file: parameters under their official names,
 * the optimizer's arrays beside them, and what else is needed to go on as if nothing had happened. */
#ifndef PL_CHECKPOINT_H
#define PL_CHECKPOINT_H

#include "runtime/optimizer.h"
#include "ref/model/params.h"
#include "data/files/safetensors.h"

#include <jansson.h>

/* Arrays of the optimizer, which have the model's own order of elements, are stored as
 * "optimizer.<parameter's name>.<state1, absmax1, ...>". */

struct pl_checkpoint {
    const struct pl_params *params;  /* borrowed, all of these */
    struct pl_optimizer *optimizer;  /* NULL: parameters alone */
    int (*turned)(const char *name); /* matrices that the file has rows for columns; NULL: none */
    json_t *config;                  /* the model's sizes; metadata "config"; NULL: none */
    json_t *alias;    /* {"repeated name": "name stored here"}; metadata "alias"; NULL: none */
    json_t *training; /* step, data position, ...; metadata "training"; NULL: none */
};

/* y = x (rows, columns) with rows and columns exchanged, host memory. */
void pl_checkpoint_turn(float *y, const float *x, size_t rows, size_t columns);

/* The file appears whole or not at all; an older one of that name survives every failure. */
int pl_checkpoint_save(const struct pl_checkpoint *c, const char *path, struct pl_err *err);

/* Where a file's tensor belongs: returns the index of the parameter called `name` in some spelling,
 * -1 to skip the tensor silently. */
typedef long pl_checkpoint_name_fn(const struct pl_params *params, const char *name);
/* The exact spelling only. */
long pl_checkpoint_exact(const struct pl_params *params, const char *name);

/* Fills every parameter; err names the first that the file lacks or has in another shape. Shapes
 * are compared without dimensions of 1. */
int pl_checkpoint_load_params(const struct pl_params *params, const struct st_file *f,
                              pl_checkpoint_name_fn *find, struct pl_err *err);
/* Fills every array of the optimizer, but not its step counter. */
int pl_checkpoint_load_optimizer(const struct pl_params *params, struct pl_optimizer *optimizer,
                                 const struct st_file *f, struct pl_err *err);
/* The JSON of a metadata entry, or NULL with a sentence. The caller decrefs. */
json_t *pl_checkpoint_json(const struct st_file *f, const char *key, struct pl_err *err);

/* The newest "checkpoint-<step>.safetensors" in a folder: its path (freed by the caller) in *path,
 * NULL if there is none. */
int pl_checkpoint_newest(char **path, const char *folder, struct pl_err *err);
/* Removes all of them but the newest `keep`; 0 keeps all. */
int pl_checkpoint_prune(const char *folder, int keep, struct pl_err *err);

#endif
