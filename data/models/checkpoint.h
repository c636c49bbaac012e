/* checkpoint.h - a training state in one safetensors file: parameters under their official names,
 * the optimizer's arrays, and the progress, so that training resumes exactly. */
#ifndef PL_CHECKPOINT_H
#define PL_CHECKPOINT_H

#include "runtime/optimizer.h"
#include "ref/outer/outer.h"
#include "ref/model/params.h"
#include "data/files/safetensors.h"

#include <jansson.h>

/* The contents of a checkpoint. The optimizer's arrays are stored as "optimizer.<parameter's
 * name>.<state1, absmax1, ...>", in the model's order of elements. */

struct pl_checkpoint {
    const struct pl_params *params; /* all pointers are borrowed */
    struct pl_optimizer *optimizer; /* NULL: parameters only */
    const struct pl_outer
        *outer;         /* state that peers which train together share, such as phi and the outer
                 * momentum: a tensor "outer.state"; NULL: nothing */
    const void *rounds; /* (rounds_n) bytes that this peer keeps from round to round, as PowerSGD's
                         * error: a tensor "rounds.state"; NULL: nothing */
    size_t rounds_n;
    int (*transposed)(const char *name); /* matrices that the file stores transposed; NULL: none */
    json_t *config;                      /* the model's configuration; metadata "config"; or NULL */
    json_t *alias;    /* {"repeated name": "stored name"}; metadata "alias"; or NULL */
    json_t *training; /* step, data position, ...; metadata "training"; or NULL */
};

/* y (columns, rows) = transpose of x (rows, columns), in host memory. */
void pl_checkpoint_transpose(float *y, const float *x, size_t rows, size_t columns);

/* Writes the file, complete or not at all; on failure an older file of that name is unchanged. */
int pl_checkpoint_save(const struct pl_checkpoint *c, const char *path, struct pl_err *err);

/* Maps a name of a file to the index of a parameter; -1 skips the tensor. */
typedef long pl_checkpoint_name_fn(const struct pl_params *params, const char *name);
/* Matches exact names only. */
long pl_checkpoint_exact(const struct pl_params *params, const char *name);

/* Loads every parameter; err names the first one that the file lacks or has in another shape.
 * Dimensions of 1 are ignored in the comparison. */
int pl_checkpoint_load_params(const struct pl_params *params, const struct st_file *f,
                              pl_checkpoint_name_fn *find, struct pl_err *err);
/* Loads every array of the optimizer, but not its step counter. */
int pl_checkpoint_load_optimizer(const struct pl_params *params, struct pl_optimizer *optimizer,
                                 const struct st_file *f, struct pl_err *err);
/* Loads "outer.state". A file that has none is of a training alone, or by gradients: then phi is
 * the parameters x, and there is no momentum yet. */
int pl_checkpoint_load_outer(struct pl_outer *outer, const float *x, const struct st_file *f,
                             struct pl_err *err);
/* The bytes of "rounds.state", the caller's to free; NULL: the file has none. */
int pl_checkpoint_load_rounds(void **rounds, size_t *n, const struct st_file *f,
                              struct pl_err *err);
/* Parses a metadata entry as JSON; NULL with a message if that fails. The caller decrefs. */
json_t *pl_checkpoint_json(const struct st_file *f, const char *key, struct pl_err *err);

/* Finds the newest "checkpoint-<step>.safetensors" in a folder: *path is its path (the caller frees
 * it), or NULL if there is none. */
int pl_checkpoint_newest(char **path, const char *folder, struct pl_err *err);
/* Deletes all but the newest `keep` checkpoints; 0 keeps all. */
int pl_checkpoint_prune(const char *folder, int keep, struct pl_err *err);

#endif
