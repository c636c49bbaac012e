/* torch_reader.h - shared by torch_open.c, which reads files, and torch_tensor.c, which reads
 * tensors. */
#ifndef PL_TORCH_READER_H
#define PL_TORCH_READER_H

#include "zip_archive.h"
#include "data/files/mapping.h"
#include "pickle.h"
#include "torch.h"

#define TORCH_NAME_MAX 1000 /* bytes of a tensor's name */

/* Memory of an open file: its mapping, and an arena for names, copies and metadata. */
struct torch_owner {
    struct pl_mapping map;
    void **owned;
    size_t owned_count, owned_capacity;
    uint64_t copied;
};

/* Where a storage of the older format is in the file. */
struct storage_location {
    const char *key;
    size_t key_bytes;
    const uint8_t *data;
    size_t bytes;
    size_t element; /* size of an element, from the pickle */
};

struct torch_reader {
    struct st_file *f;
    struct torch_owner *o;
    struct archive *archive;            /* NULL: the older format */
    char *top;                          /* "archive/", the prefix of the members' names */
    struct storage_location *locations; /* of the older format, by key */
    size_t location_count;
    struct pickle *pickle;
    size_t capacity, visits;
    struct pl_err *err;
};

/* ("storage", type, key, device, count[, (key, offset, count) of a view]) */
struct torch_storage {
    enum pl_dtype dtype;
    const struct pickle_value *key;
    int64_t count, view; /* elements; the start of a view */
};
int pl_torch_read_storage(struct torch_storage *s, const struct pickle_value *v, const char *path,
                          struct pl_err *err);

/* By key, for qsort and bsearch. */
int pl_torch_by_key(const void *a, const void *b);

/* Takes ownership of memory until the file is closed; NULL: none. */
void *pl_torch_keep(struct torch_owner *o, size_t bytes);
int pl_torch_no_memory(struct torch_reader *r);

/* The arguments of the call that builds a tensor, or NULL if `v` is something else. */
const struct pickle_value *pl_torch_tensor_arguments(const struct pickle_value *v);
/* Adds the tensor of these arguments to r->f, named prefix + key. */
int pl_torch_add(struct torch_reader *r, const char *prefix, const struct pickle_value *key,
                 const struct pickle_value *args);

#endif
