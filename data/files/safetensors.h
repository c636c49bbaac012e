/* safetensors.h - the checkpoint format of names, shapes and raw little-endian data; goldens come
 * in it too. [spec images-and-text 7.1] */
#ifndef PL_SAFETENSORS_H
#define PL_SAFETENSORS_H

#include "ref/dtype.h"
#include "mapping.h"

/* The format's name of an element type ("F32"); the type of a name, or -1. */
const char *pl_dtype_name(enum pl_dtype t);
int pl_dtype_parse(const char *name);

struct st_tensor {
    const char *name; /* owned by the file; no zero bytes inside */
    enum pl_dtype dtype;
    int dims;
    int64_t shape[8];
    size_t n, bytes;  /* elements; bytes = n * pl_dtype_size(dtype) */
    const void *data; /* inside the mapping: may be unaligned */
};

/* An open file of tensors. Files of other kinds come as the same thing: weights.h opens any. */
struct st_file {
    char *path;
    const char *kind; /* "safetensors", "PyTorch zip", ... */
    size_t count;
    /* safetensors: in order of their data; others: as the file lists them */
    struct st_tensor *tensors;
    size_t metas; /* entries of __metadata__ */
    char **meta_key, **meta_value;
    const struct pl_mapping *map; /* private: where tensors lie, but for copies */
    /* private: what holds names, data and remarks, and how to let go of it */
    void *owner;
    void (*drop)(void *owner);
};

/* Maps a file and checks every range (no overlap, none outside). On error *f is NULL and err names
 * the file, the tensor and what was expected. */
int pl_safetensors_open(struct st_file **f, const char *path, struct pl_err *err);
void pl_safetensors_close(struct st_file *f);

const struct st_tensor *pl_safetensors_find(const struct st_file *f,
                                            const char *name);             /* NULL: not there */
const char *pl_safetensors_meta(const struct st_file *f, const char *key); /* NULL: not there */

/* The values widened or narrowed to float32 (exact for F16, BF16 and small integers); out has
 * t->n elements. */
void pl_safetensors_to_float(float *out, const struct st_tensor *t);

/* Gives back the memory of a tensor that has been copied: of a file as large as the model, nothing
 * stays beside the model. It is read again if somebody looks. */
void pl_safetensors_release(const struct st_file *f, const struct st_tensor *t);

/* Writing: tensors are added with their data, which is borrowed until pl_safetensors_write; then the file
 * appears whole or not at all (temporary file beside it, fsync, rename). */
struct st_writer;
struct st_writer *pl_safetensors_writer_new(void); /* NULL: no memory */
int pl_safetensors_writer_meta(struct st_writer *w, const char *key, const char *value);
int pl_safetensors_writer_add(struct st_writer *w, const char *name, enum pl_dtype dtype, int dims,
                              const int64_t *shape, const void *data);
int pl_safetensors_write(struct st_writer *w, const char *path, struct pl_err *err);
void pl_safetensors_writer_free(struct st_writer *w);

#endif
