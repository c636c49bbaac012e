/* zip_archive.c - ZIP archives by libzip. It handles the format (both directories, 64-bit sizes,
 * inconsistent headers) but does not tell where a member's bytes are. It reads through our source,
 * however: the position of its last read is the answer. */
#include "zip_archive.h"
#include "data/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#define ALIGNMENT 64      /* PyTorch's */
#define LOCAL_HEADER 30   /* bytes before the name */
#define PADDING_ID 0x4246 /* "FB", the extra field that PyTorch pads with */

struct archive {
    zip_t *zip;
    char *path;
    const uint8_t *data;
    uint64_t bytes, at; /* the source's position */
    uint64_t last_at;   /* where the last read started */
    zip_error_t error;
};

static zip_int64_t source_call(void *context, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    struct archive *a = context;
    switch (command) {
    case ZIP_SOURCE_OPEN: a->at = 0; return 0;
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: return 0;
    case ZIP_SOURCE_READ:
        if (n > a->bytes - a->at) n = a->bytes - a->at;
        a->last_at = a->at;
        memcpy(data, a->data + a->at, n);
        a->at += n;
        return (zip_int64_t)n;
    case ZIP_SOURCE_SEEK: {
        zip_int64_t to = zip_source_seek_compute_offset(a->at, a->bytes, data, n, &a->error);
        if (to < 0) return -1;
        a->at = (uint64_t)to;
        return 0;
    }
    case ZIP_SOURCE_TELL: return (zip_int64_t)a->at;
    case ZIP_SOURCE_STAT: {
        zip_stat_t *st = data;
        zip_stat_init(st);
        st->size = a->bytes;
        st->valid = ZIP_STAT_SIZE;
        return sizeof *st;
    }
    case ZIP_SOURCE_ERROR: return zip_error_to_data(&a->error, data, n);
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, -1);
    default: zip_error_set(&a->error, ZIP_ER_OPNOTSUPP, 0); return -1;
    }
}

int pl_zip_archive_open(struct archive **out, const char *path, const void *data, size_t bytes,
                        struct pl_err *err)
{
    struct archive *a = calloc(1, sizeof *a);
    zip_source_t *source = NULL;
    zip_error_t error;
    int rc = PL_OK;
    *out = NULL;
    if (!a || !(a->path = strdup(path))) {
        free(a);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    a->data = data;
    a->bytes = bytes;
    zip_error_init(&a->error);
    zip_error_init(&error);
    source = zip_source_function_create(source_call, a, &error);
    if (!source || !(a->zip = zip_open_from_source(source, ZIP_RDONLY, &error))) {
        rc = pl_fail(err, PL_EFORMAT, "%s: ZIP archive: %s", path, zip_error_strerror(&error));
        zip_source_free(source);
        pl_zip_archive_close(a);
    } else *out = a;
    zip_error_fini(&error);
    return rc;
}

void pl_zip_archive_close(struct archive *a)
{
    if (!a) return;
    if (a->zip) zip_discard(a->zip);
    zip_error_fini(&a->error);
    free(a->path);
    free(a);
}

size_t pl_zip_archive_count(const struct archive *a)
{
    zip_int64_t n = zip_get_num_entries(a->zip, 0);
    return n > 0 ? (size_t)n : 0;
}

const char *pl_zip_archive_name(const struct archive *a, size_t index)
{
    return zip_get_name(a->zip, index, ZIP_FL_ENC_RAW);
}

long pl_zip_archive_find(const struct archive *a, const char *name)
{
    return (long)zip_name_locate(a->zip, name, ZIP_FL_ENC_RAW);
}

static int complain(const struct archive *a, size_t index, struct pl_err *err)
{
    const char *name = pl_zip_archive_name(a, index);
    return pl_fail(err, PL_EFORMAT, "%s: member %.200s: %s", a->path, name ? name : "(nameless)",
                   zip_strerror(a->zip));
}

static int stat_member(const struct archive *a, size_t index, zip_stat_t *st, struct pl_err *err)
{
    zip_uint64_t want = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(a->zip, index, 0, st)) return complain(a, index, err);
    if ((st->valid & want) != want || st->size > SIZE_MAX / 2)
        return pl_fail(err, PL_EFORMAT, "%s: member %.200s: its size is not known", a->path,
                       pl_zip_archive_name(a, index));
    return PL_OK;
}

int pl_zip_archive_stored(struct archive *a, size_t index, const void **data, size_t *bytes,
                          struct pl_err *err)
{
    zip_stat_t st;
    zip_file_t *file;
    uint8_t first;
    int rc = stat_member(a, index, &st, err), got;
    *data = a->data;
    *bytes = 0;
    if (rc) return rc;
    if (st.comp_method != ZIP_CM_STORE || st.encryption_method != ZIP_EM_NONE ||
        st.size != st.comp_size)
        return pl_fail(err, PL_EFORMAT,
                       "%s: member %.200s is compressed or encrypted, expected stored", a->path,
                       pl_zip_archive_name(a, index));
    if (!st.size) return PL_OK;
    if (!(file = zip_fopen_index(a->zip, index, ZIP_FL_COMPRESSED))) return complain(a, index, err);
    got = zip_fread(file, &first, 1) == 1;
    zip_fclose(file);
    if (!got || a->last_at > a->bytes || st.size > a->bytes - a->last_at)
        return pl_fail(err, PL_EFORMAT, "%s: member %.200s: %llu bytes extend beyond the file",
                       a->path, pl_zip_archive_name(a, index), (unsigned long long)st.size);
    *data = a->data + a->last_at;
    *bytes = (size_t)st.size;
    return PL_OK;
}

int pl_zip_archive_read(struct archive *a, size_t index, void **data, size_t *bytes, size_t limit,
                        struct pl_err *err)
{
    zip_stat_t st;
    zip_file_t *file;
    char *copy;
    int rc = stat_member(a, index, &st, err);
    *data = NULL;
    *bytes = 0;
    if (rc) return rc;
    if (st.size > limit)
        return pl_fail(err, PL_ELIMIT, "%s: member %.200s: %llu bytes, at most %zu expected",
                       a->path, pl_zip_archive_name(a, index), (unsigned long long)st.size, limit);
    if (!(copy = malloc((size_t)st.size + 1)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", a->path);
    /* Stored members are used in place, without the checksum, which newer writers omit. */
    file = zip_fopen_index(a->zip, index, st.comp_method == ZIP_CM_STORE ? ZIP_FL_COMPRESSED : 0);
    if (!file) rc = complain(a, index, err);
    else if (zip_fread(file, copy, st.size) != (zip_int64_t)st.size)
        rc = pl_fail(err, PL_EFORMAT, "%s: member %.200s is damaged: %s", a->path,
                     pl_zip_archive_name(a, index), zip_file_strerror(file));
    if (file) zip_fclose(file);
    if (rc) free(copy);
    else {
        copy[st.size] = 0;
        *data = copy;
        *bytes = (size_t)st.size;
    }
    return rc;
}

/* -- writing ---------------------------------------------------------------------------------- */

struct archive_out {
    zip_t *zip;
    char *path, *temporary;
    uint64_t at; /* offset of the next local header */
};

int pl_zip_archive_create(struct archive_out **result, const char *path, struct pl_err *err)
{
    struct archive_out *out = calloc(1, sizeof *out);
    size_t n = strlen(path) + 32;
    int code, rc;
    *result = NULL;
    if (!out || !(out->path = strdup(path)) || !(out->temporary = malloc(n))) {
        pl_zip_archive_discard(out);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    snprintf(out->temporary, n, "%s.%ld.part", path, (long)getpid());
    if (!(out->zip = zip_open(out->temporary, ZIP_CREATE | ZIP_TRUNCATE, &code))) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        rc = pl_fail(err, PL_EIO, "%s: %s", path, zip_error_strerror(&error));
        zip_error_fini(&error);
        pl_zip_archive_discard(out);
        return rc;
    }
    *result = out;
    return PL_OK;
}

int pl_zip_archive_add(struct archive_out *out, const char *name, const void *data, size_t bytes,
                       struct pl_err *err)
{
    static const uint8_t zeros[ALIGNMENT];
    zip_source_t *source = zip_source_buffer(out->zip, data, bytes, 0);
    zip_int64_t index = -1;
    uint64_t fixed = LOCAL_HEADER + strlen(name) + 4; /* 4: header of the extra field */
    size_t pad = (size_t)(ALIGNMENT - (out->at + fixed) % ALIGNMENT) % ALIGNMENT;
    if (source) index = zip_file_add(out->zip, name, source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
        zip_source_free(source);
        return pl_fail(err, PL_EIO, "%s: member %.200s: %s", out->path, name,
                       zip_strerror(out->zip));
    }
    if (zip_set_file_compression(out->zip, (zip_uint64_t)index, ZIP_CM_STORE, 0) ||
        zip_file_set_mtime(out->zip, (zip_uint64_t)index, 315532800,
                           0) || /* 1980, so that the same content gives the same bytes */
        zip_file_extra_field_set(out->zip, (zip_uint64_t)index, PADDING_ID, ZIP_EXTRA_FIELD_NEW,
                                 zeros, (zip_uint16_t)pad, ZIP_FL_LOCAL))
        return pl_fail(err, PL_EIO, "%s: member %.200s: %s", out->path, name,
                       zip_strerror(out->zip));
    out->at += fixed + pad + bytes;
    return PL_OK;
}

static int sync_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 || fsync(fd);
    if (fd >= 0) close(fd);
    return rc;
}

int pl_zip_archive_write(struct archive_out *out, struct pl_err *err)
{
    if (zip_close(out->zip))
        return pl_fail(err, PL_EIO, "%s: cannot write: %s", out->path, zip_strerror(out->zip));
    out->zip = NULL;
    if (sync_file(out->temporary) || rename(out->temporary, out->path)) {
        int rc = pl_fail(err, PL_EIO, "%s: cannot write: %s", out->path, strerror(errno));
        unlink(out->temporary);
        return rc;
    }
    return pl_folder_sync(out->path, err);
}

void pl_zip_archive_discard(struct archive_out *out)
{
    if (!out) return;
    if (out->zip) zip_discard(out->zip);
    free(out->path);
    free(out->temporary);
    free(out);
}
