/* torch_reader.h - what torch.c, which knows the files, and torch_tensor.c, which knows the
 * tensors, share. */
#ifndef PL_TORCH_READER_H
#define PL_TORCH_READER_H

#include "zip_archive.h"
#include "data/files/mapping.h"
#include "pickle.h"
#include "torch.h"

#define TORCH_NAME_MAX 1000 /* bytes of a tensor's name */

/* What an open file holds on to: its bytes, and memory for names, copies and remarks. */
struct torch_owner {
    struct pl_mapping map;
    void **kept;
    size_t kept_count, kept_room;
    uint64_t copied;
};

/* Where a storage of the older stream lies. */
struct torch_place {
    const char *key;
    size_t key_bytes;
    const uint8_t *data;
    size_t bytes;
    size_t element; /* bytes of one, as the pickle says */
};

struct torch_reader {
    struct st_file *f;
    struct torch_owner *o;
    struct archive *archive;    /* NULL: the older stream */
    char *top;                  /* "archive/" before the members' names */
    struct torch_place *places; /* of the older stream, by key */
    size_t place_count;
    struct pickle *pickle;
    size_t room, visits;
    struct pl_err *err;
};

/* ("storage", type, key, device, count[, (key, offset, count) of a view]) */
struct torch_storage {
    enum pl_dtype dtype;
    const struct pickle_value *key;
    int64_t count, view; /* elements; where a view begins */
};
int pl_torch_read_storage(struct torch_storage *s, const struct pickle_value *v, const char *path,
                          struct pl_err *err);

/* By key, for qsort and bsearch. */
int pl_torch_by_key(const void *a, const void *b);

/* Memory that lives as long as the open file; NULL: none. */
void *pl_torch_keep(struct torch_owner *o, size_t bytes);
int pl_torch_no_memory(struct torch_reader *r);

/* The arguments of the call that makes a tensor, or NULL if `v` is none. */
const struct pickle_value *pl_torch_tensor_arguments(const struct pickle_value *v);
/* The tensor of these arguments into r->f, called prefix and key. */
int pl_torch_add(struct torch_reader *r, const char *prefix, const struct pickle_value *key,
                 const struct pickle_value *args);

#endif
