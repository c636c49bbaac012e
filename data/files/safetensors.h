/* safetensors.h - the checkpoint format with names, shapes and raw little-endian data; golden
 * values use it too. [spec images-and-text 7.1] */
#ifndef PL_SAFETENSORS_H
#define PL_SAFETENSORS_H

#include "ref/dtype.h"
#include "mapping.h"

/* The format's name of an element type: "F32". */
const char *pl_dtype_name(enum pl_dtype t);

struct st_tensor {
    const char *name; /* owned by the file; contains no zero byte */
    enum pl_dtype dtype;
    int dims;
    int64_t shape[8];
    size_t n, bytes;  /* elements; bytes = n * pl_dtype_size(dtype) */
    const void *data; /* in the mapped file: may be unaligned */
};

/* An open file of tensors. weights.h opens other kinds of files as the same struct. */
struct st_file {
    char *path;
    const char *kind; /* "safetensors", "PyTorch zip", ... */
    size_t count;
    /* safetensors: in the order of their data; other kinds: in the file's order */
    struct st_tensor *tensors;
    size_t metas; /* entries of __metadata__ */
    char **meta_key, **meta_value;
    const struct pl_mapping *map; /* private: the mapping that holds tensors, except copies */
    /* private: owns names, copies and metadata, and frees them */
    void *owner;
    void (*drop)(void *owner);
};

/* Maps a file and checks every range: none overlap, none are outside. On error *f is NULL and err
 * names the file, the tensor and what was expected. */
int pl_safetensors_open(struct st_file **f, const char *path, struct pl_err *err);
void pl_safetensors_close(struct st_file *f);

const struct st_tensor *pl_safetensors_find(const struct st_file *f,
                                            /* NULL: no such tensor */
                                            const char *name);
const char *pl_safetensors_meta(const struct st_file *f, const char *key); /* NULL: no such entry */

/* Converts the values to float32 (exact for F16, BF16 and small integers); out has t->n
 * elements. */
void pl_safetensors_to_float(float *out, const struct st_tensor *t);

/* Releases the memory of a tensor that has been copied, so that loading a model does not need twice
 * its size. It is read again if accessed. */
void pl_safetensors_release(const struct st_file *f, const struct st_tensor *t);

/* Writing: tensors are added with their data, which is borrowed until pl_safetensors_write. The
 * file appears complete or not at all (temporary file, fsync, rename). */
struct st_writer;
struct st_writer *pl_safetensors_writer_new(void); /* NULL: no memory */
int pl_safetensors_writer_meta(struct st_writer *w, const char *key, const char *value);
int pl_safetensors_writer_add(struct st_writer *w, const char *name, enum pl_dtype dtype, int dims,
                              const int64_t *shape, const void *data);
int pl_safetensors_write(struct st_writer *w, const char *path, struct pl_err *err);
void pl_safetensors_writer_free(struct st_writer *w);

#endif
