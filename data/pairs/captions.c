/* captions.c - collects (picture, caption) pairs from lists, folders, tar archives and Parquet
 * tables, and reads a picture from wherever it is stored. */
#include "captions.h"
#include "data/files/json.h"
#include "data/files/file.h"
#include "data/files/tar.h"
#include "data/text/code_points.h"
#include "ref/small.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 16 /* of nested folders; also ends a loop of links */

#define OWN_FILE ((struct picture_location){ CAPTIONS_FILE, 0, 0, 0 })

static int reserve(struct captions *c)
{
    size_t of_captions = c->capacity, of_locations = c->capacity;
    if (pl_grow(&c->caption, c->count, &of_captions, 64) ||
        pl_grow(&c->location, c->count, &of_locations, 64))
        return PL_ENOMEM;
    return pl_grow(&c->path, c->count, &c->capacity, 64);
}

/* Owns both strings from here on, also on failure; `where` is the file that is read. */
static int add(struct captions *c, char *path, char *caption, struct picture_location location,
               const char *where, struct pl_err *err)
{
    if (!path || !caption || reserve(c)) {
        free(path);
        free(caption);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", where);
    }
    c->path[c->count] = path;
    c->location[c->count] = location;
    c->caption[c->count++] = caption;
    return PL_OK;
}

static int is_utf8(const char *text) { return pl_code_points_valid(text, strlen(text)); }

/* --- lists ---------------------------------------------------------------------------------- */

/* The folder of `path`, with its slash; "" for the current one. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
}

static char *within(const char *folder, const char *name)
{
    return name[0] == '/' ? strdup(name) : pl_path_join(folder, name);
}

static int add_tsv_line(struct captions *c, char *line, const char *folder, const char *path,
                        size_t number, struct pl_err *err)
{
    char *tab = strchr(line, '\t');
    if (!tab || tab == line || !is_utf8(tab))
        return pl_fail(err, PL_EFORMAT, "%s: line %zu: 'picture<TAB>caption' in UTF-8 was expected",
                       path, number);
    *tab = 0;
    return add(c, within(folder, line), strdup(tab + 1), OWN_FILE, path, err);
}

static int add_json_line(struct captions *c, char *line, const char *folder, const char *path,
                         size_t number, struct pl_err *err)
{
    json_t *object = pl_json_load(line, strlen(line), 0, NULL);
    const char *name = json_string_value(json_object_get(object, "file_name"));
    const char *caption = json_string_value(json_object_get(object, "caption"));
    int rc = PL_OK;
    if (!caption) caption = json_string_value(json_object_get(object, "text"));
    if (!name || !caption)
        rc = pl_fail(err, object ? PL_EFORMAT : pl_json_status(),
                     "%s: line %zu: an object with \"file_name\" and \"caption\" or "
                     "\"text\" was expected",
                     path, number);
    else rc = add(c, within(folder, name), strdup(caption), OWN_FILE, path, err);
    json_decref(object);
    return rc;
}

typedef int line_fn(struct captions *c, char *line, const char *folder, const char *path,
                    size_t number, struct pl_err *err);

static int read_lines(struct captions *c, const char *path, line_fn *take, struct pl_err *err)
{
    char *folder = folder_of(path), *text = NULL;
    size_t bytes, number = 1;
    int rc = folder ? pl_file_read((void **)&text, &bytes, path, CAPTIONS_FILE_MAX, err)
                    : pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    for (char *line = text, *next; !rc && line < text + bytes; line = next, number++) {
        char *end = memchr(line, '\n', (size_t)(text + bytes - line));
        size_t n = (size_t)((end ? end : text + bytes) - line);
        next = line + n + 1;
        line[n] = 0;
        if (n && line[n - 1] == '\r') line[--n] = 0;
        if (strlen(line) < n)
            rc = pl_fail(err, PL_EFORMAT, "%s: line %zu: a zero byte", path, number);
        else if (*line) rc = take(c, line, folder, path, number, err);
    }
    free(folder);
    free(text);
    return rc;
}

/* --- folders -------------------------------------------------------------------------------- */

static int ends_in(const char *name, const char *ending)
{
    const char *dot = strrchr(name, '.');
    return dot && !strcasecmp(dot, ending);
}

static int is_picture(const char *name)
{
    return ends_in(name, ".png") || ends_in(name, ".jpg") || ends_in(name, ".jpeg") ||
           ends_in(name, ".webp");
}

/* Replaces line breaks by spaces and trims the ends. */
static void one_line(char *text)
{
    size_t n = strlen(text), skip = strspn(text, " \t\r\n");
    memmove(text, text + skip, n - skip + 1);
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r' || *p == '\t') *p = ' ';
    for (n = strlen(text); n && text[n - 1] == ' '; n--) text[n - 1] = 0;
}

/* Reads the caption of name.png from name.txt; a picture without one is counted. */
static int add_picture(struct captions *c, const char *path, struct pl_err *err)
{
    size_t stem = (size_t)(strrchr(path, '.') - path), bytes;
    char *caption_path = malloc(stem + 5), *text = NULL;
    int rc = PL_OK;
    if (!caption_path) return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    memcpy(caption_path, path, stem);
    memcpy(caption_path + stem, ".txt", sizeof ".txt");
    rc = pl_file_read((void **)&text, &bytes, caption_path, CAPTIONS_CAPTION_MAX, err);
    /* A caption that is there but cannot be read is no missing caption. */
    if (rc == PL_ELIMIT || (rc == PL_EIO && access(caption_path, F_OK) && errno == ENOENT)) {
        c->uncaptioned++;
        rc = PL_OK;
    } else if (!rc) {
        one_line(text);
        if (!*text || !is_utf8(text)) c->uncaptioned++;
        else rc = add(c, strdup(path), strdup(text), OWN_FILE, path, err);
    }
    free(caption_path);
    free(text);
    return rc;
}

/* --- archives -------------------------------------------------------------------------------- */

/* A sample being assembled: consecutive members with the same name. */
struct sample {
    char key[TAR_NAME_MAX];
    char *picture, *caption; /* the member's name, the caption; NULL until found */
    struct picture_location location;
};

/* webdataset's rule: a sample's name ends at the first dot of the file name. */
static size_t key_bytes(const char *name)
{
    const char *slash = strrchr(name, '/'), *file = slash ? slash + 1 : name;
    return (size_t)(file - name) + strcspn(file, ".");
}

/* Turns the collected members into an entry, or counts the sample as uncaptioned. */
static int end_sample(struct captions *c, struct sample *s, const char *archive, struct pl_err *err)
{
    char *path = NULL;
    int rc = PL_OK;
    if (s->picture && s->caption && *s->caption && is_utf8(s->caption)) {
        size_t capacity = strlen(archive) + strlen(s->picture) + 2;
        if ((path = malloc(capacity))) snprintf(path, capacity, "%s/%s", archive, s->picture);
        rc = add(c, path, s->caption, s->location, archive, err);
        s->caption = NULL;
    } else c->uncaptioned += s->picture != NULL;
    free(s->picture);
    free(s->caption);
    memset(s, 0, sizeof *s);
    return rc;
}

/* A member's text, or its "caption" if it is JSON. *text is NULL if it is too long, or none.
 * Returns PL_OK or PL_ENOMEM. */
static int caption_of(char **text, const struct tar_file *file, int is_json)
{
    int rc = PL_OK;
    *text = NULL;
    if (file->bytes > CAPTIONS_CAPTION_MAX) return PL_OK;
    if (is_json) {
        json_t *root = pl_json_load((const char *)file->data, file->bytes, 0, NULL);
        const char *caption = json_string_value(json_object_get(root, "caption"));
        if (caption && !(*text = strdup(caption))) rc = PL_ENOMEM;
        if (!root && pl_json_status() == PL_ENOMEM) rc = PL_ENOMEM;
        json_decref(root);
    } else if (!(*text = strndup((const char *)file->data, file->bytes))) rc = PL_ENOMEM;
    if (*text) one_line(*text);
    return rc;
}

static int read_archive(struct captions *c, const char *path, struct pl_err *err)
{
    struct pl_mapping *more = realloc(c->archive, (c->archives + 1) * sizeof *more);
    struct sample s = { 0 };
    struct tar_file file;
    int rc, member = PL_OK, last;
    if (!more) return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    c->archive = more;
    if ((rc = pl_mapping_open(&more[c->archives], path, err))) return rc;
    struct tar t = { more[c->archives].at, more[c->archives].bytes, 0, path };
    size_t archive = c->archives++;
    while (!(rc = pl_tar_next(&t, &file, err))) {
        size_t n = key_bytes(file.name);
        const char *ending = file.name + n;
        int is_json = !strcasecmp(ending, ".json");
        if (strncmp(s.key, file.name, n) || s.key[n]) {
            if ((rc = end_sample(c, &s, path, err))) break;
            snprintf(s.key, sizeof s.key, "%.*s", (int)n, file.name);
        }
        if (is_picture(file.name) && !s.picture) {
            if (!(s.picture = strdup(file.name))) member = PL_ENOMEM;
            s.location = (struct picture_location){ CAPTIONS_TAR, archive, file.at, file.bytes };
        } else if (!strcasecmp(ending, ".txt")) {
            free(s.caption); /* the text file takes precedence over the JSON */
            member = caption_of(&s.caption, &file, 0);
        } else if (is_json && !s.caption) member = caption_of(&s.caption, &file, 1);
        if (member) {
            rc = pl_fail(err, member, "%s: no memory", path);
            break;
        }
    }
    last = end_sample(c, &s, path, err);
    return rc == PL_ENOTFOUND ? last : rc;
}

/* --- tables ----------------------------------------------------------------------------------- */

/* "x.parquet/KEY", or the row's number if there is no key. */
static char *row_path(const char *table, const struct picture_row *row)
{
    size_t capacity = strlen(table) + row->key_bytes + 24;
    char *path = malloc(capacity);
    if (!path) return NULL;
    if (row->key && !memchr(row->key, 0, row->key_bytes) && row->key_bytes < TAR_NAME_MAX)
        snprintf(path, capacity, "%s/%.*s", table, (int)row->key_bytes, row->key);
    else snprintf(path, capacity, "%s/%llu", table, (unsigned long long)row->row);
    return path;
}

static int add_row(struct captions *c, const char *path, const struct picture_row *row,
                   struct pl_err *err)
{
    char *caption;
    if (!row->caption || row->caption_bytes > CAPTIONS_CAPTION_MAX ||
        memchr(row->caption, 0, row->caption_bytes)) {
        c->uncaptioned++;
        return PL_OK;
    }
    if (!(caption = strndup(row->caption, row->caption_bytes)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    one_line(caption);
    if (!*caption || !is_utf8(caption)) {
        free(caption);
        c->uncaptioned++;
        return PL_OK;
    }
    return add(c, row_path(path, row), caption,
               (struct picture_location){ CAPTIONS_TABLE, c->tables - 1, (size_t)row->row, 0 },
               path, err);
}

static int read_table(struct captions *c, const char *path, struct pl_err *err)
{
    char **more = realloc(c->table, (c->tables + 1) * sizeof *more), *copy = strdup(path);
    struct picture_table *t = NULL;
    struct picture_row row;
    int rc;
    if (more) c->table = more;
    rc = more && copy ? pl_picture_table_open(&t, path, err)
                      : pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    if (rc) {
        free(copy);
        return rc;
    }
    c->table[c->tables++] = copy;
    while (!(rc = pl_picture_table_next(t, &row, err)) && !(rc = add_row(c, path, &row, err))) {}
    pl_picture_table_close(t);
    return rc == PL_ENOTFOUND ? PL_OK : rc;
}

/* --- folders and files ------------------------------------------------------------------------ */

static int not_hidden(const struct dirent *d) { return d->d_name[0] != '.'; }

static int read_folder(struct captions *c, const char *path, int depth, struct pl_err *err)
{
    struct dirent **entry;
    int n = depth > DEPTH_MAX ? 0 : scandir(path, &entry, not_hidden, alphasort), rc = PL_OK;
    if (depth > DEPTH_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: more than %d folders deep", path, DEPTH_MAX);
    if (n < 0) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *inner = rc ? NULL : pl_path_join(path, entry[i]->d_name);
        struct stat st;
        if (!rc && !inner) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
        else if (!rc && stat(inner, &st)) { /* a link to nowhere is no picture */
            if (errno != ENOENT) rc = pl_fail(err, PL_EIO, "%s: %s", inner, strerror(errno));
        } else if (!rc) {
            if (S_ISDIR(st.st_mode)) rc = read_folder(c, inner, depth + 1, err);
            else if (S_ISREG(st.st_mode) && is_picture(inner)) rc = add_picture(c, inner, err);
            else if (S_ISREG(st.st_mode) && ends_in(inner, ".tar"))
                rc = read_archive(c, inner, err);
            else if (S_ISREG(st.st_mode) && ends_in(inner, ".parquet")) {
                rc = read_table(c, inner, err);
                if (rc == PL_ENOTFOUND) rc = PL_OK; /* the file describes something else */
            }
        }
        free(inner);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

/* Reads the folder's list if it has one; PL_ENOTFOUND if not. */
static int read_list_of(struct captions *c, const char *folder, const char *name, line_fn *take,
                        struct pl_err *err)
{
    char *path = pl_path_join(folder, name);
    struct stat st;
    int rc = PL_ENOTFOUND;
    if (!path) return pl_fail(err, PL_ENOMEM, "%s: no memory", folder);
    if (!stat(path, &st)) rc = read_lines(c, path, take, err);
    else if (errno != ENOENT) rc = pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    free(path);
    return rc;
}

int pl_captions_read(struct captions *c, const char *path, struct pl_err *err)
{
    struct stat st;
    int rc;
    memset(c, 0, sizeof *c);
    if (stat(path, &st)) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        if (ends_in(path, ".tar")) rc = read_archive(c, path, err);
        else if (ends_in(path, ".parquet")) rc = read_table(c, path, err);
        else rc = read_lines(c, path, add_tsv_line, err);
    } else {
        rc = read_list_of(c, path, "captions.tsv", add_tsv_line, err);
        if (rc == PL_ENOTFOUND) rc = read_list_of(c, path, "metadata.jsonl", add_json_line, err);
        if (rc == PL_ENOTFOUND) rc = read_folder(c, path, 0, err);
    }
    if (!rc && !c->count)
        rc = pl_fail(err, PL_ENOTFOUND, "%s: no image has a caption; images found: %zu", path,
                     c->uncaptioned);
    if (rc) pl_captions_clear(c);
    return rc;
}

void pl_captions_clear(struct captions *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->path[i]);
        free(c->caption[i]);
    }
    for (size_t i = 0; i < c->archives; i++) pl_mapping_close(&c->archive[i]);
    for (size_t i = 0; i < c->tables; i++) free(c->table[i]);
    pl_picture_table_close(c->opened);
    free(c->table);
    free(c->archive);
    free(c->path);
    free(c->caption);
    free(c->location);
    memset(c, 0, sizeof *c);
}

/* Only one table is open at a time: a folder may contain more of them than a process may open
 * files. */
static int picture_of_table(struct pl_image *image, uint64_t *bytes, struct captions *c, size_t i,
                            struct pl_err *err)
{
    const struct picture_location *p = &c->location[i];
    const uint8_t *data;
    size_t n;
    int rc = PL_OK;
    if (!c->opened || c->open != p->holder) {
        pl_picture_table_close(c->opened);
        rc = pl_picture_table_open(&c->opened, c->table[p->holder], err);
        c->open = p->holder;
    }
    if (!rc) rc = pl_picture_table_picture(c->opened, p->at, &data, &n, err);
    if (rc) return rc;
    *bytes = n;
    return pl_image_decode(image, data, n, c->path[i], err);
}

int pl_captions_picture(struct pl_image *image, uint64_t *bytes, struct captions *c, size_t i,
                        struct pl_err *err)
{
    const struct picture_location *p = &c->location[i];
    struct stat st;
    int rc;
    switch (p->in) {
    case CAPTIONS_TAR:
        *bytes = p->bytes;
        return pl_image_decode(image, c->archive[p->holder].at + p->at, p->bytes, c->path[i], err);
    case CAPTIONS_TABLE: return picture_of_table(image, bytes, c, i, err);
    case CAPTIONS_FILE: break;
    }
    rc = pl_image_read(image, c->path[i], err);
    *bytes = rc || stat(c->path[i], &st) ? 0 : (uint64_t)st.st_size;
    return rc;
}
