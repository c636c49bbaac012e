/* run_folder.c - a training folder on the page: its newest checkpoints, and samples drawn from
 * them.
 *
 * Each scan lists the folder; publish adds new files to the server and removes deleted ones. Of
 * many samples 24 are shown, evenly spread over the steps, so that progress is visible from the
 * first to the newest. */
#include "run_folder.h"
#include "data/files/file.h"
#include "data/files/json.h"
#include "ref/small.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES_MAX 100000            /* of a folder that are read */
#define PICTURES_BYTES_MAX (16 << 20) /* of a pictures.json: some thousand, with their codes */
#define NEAREST_BYTES_MAX 4096
#define CAPTIONS_SHOWN 64

/* "checkpoint-000120.safetensors" is 120, "000120" is 120, anything else -1. */
static int64_t step_of(const char *name, const char *before, const char *after)
{
    const char *at = name + strlen(before);
    char *end;
    long long step;
    if (strncmp(name, before, strlen(before)) || strspn(at, "0123456789") == 0) return -1;
    errno = 0;
    step = strtoll(at, &end, 10);
    return errno || strcmp(end, after) ? -1 : step;
}

static void keep_checkpoint(struct run_folder *f, const char *folder, const char *name,
                            int64_t step)
{
    char path[PATH_MAX];
    struct stat st;
    size_t at = 0;
    /* Insertion into a short list, newest first. */
    while (at < f->checkpoints && f->checkpoint_step[at] > step) at++;
    if (at == FOLDER_CHECKPOINTS || strlen(name) >= sizeof f->checkpoint[0]) return;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return;
    if (f->checkpoints < FOLDER_CHECKPOINTS) f->checkpoints++;
    for (size_t i = f->checkpoints - 1; i > at; i--) {
        memcpy(f->checkpoint[i], f->checkpoint[i - 1], sizeof f->checkpoint[i]);
        f->checkpoint_step[i] = f->checkpoint_step[i - 1];
        f->checkpoint_bytes[i] = f->checkpoint_bytes[i - 1];
    }
    snprintf(f->checkpoint[at], sizeof f->checkpoint[at], "%s", name);
    f->checkpoint_step[at] = step;
    f->checkpoint_bytes[at] = (uint64_t)st.st_size;
}

static int ascending(const void *a_, const void *b_)
{
    const int64_t *a = a_, *b = b_;
    return (*a > *b) - (*a < *b);
}

static int read_samples(struct run_folder *f, const char *folder)
{
    char path[PATH_MAX];
    struct dirent *e;
    struct stat st;
    int64_t *steps = NULL;
    size_t n = 0, capacity = 0;
    DIR *dir;
    snprintf(path, sizeof path, "%s/samples", folder);
    if (!(dir = opendir(path))) return PL_OK;
    while ((e = readdir(dir)) && n < ENTRIES_MAX) {
        int64_t step = step_of(e->d_name, "", "");
        if (step < 0) continue;
        snprintf(path, sizeof path, "%s/samples/%s/sheet.png", folder, e->d_name);
        if (stat(path, &st) || !S_ISREG(st.st_mode)) continue; /* still being drawn */
        if (pl_grow(&steps, n, &capacity, 64)) {
            free(steps);
            closedir(dir);
            return PL_ENOMEM;
        }
        steps[n++] = step;
    }
    closedir(dir);
    if (n) qsort(steps, n, sizeof *steps, ascending);
    f->samples = n < FOLDER_SAMPLES ? n : FOLDER_SAMPLES;
    for (size_t i = 0; i < f->samples; i++)
        /* Index i (n - 1) / 23: the first and the last are always in. */
        f->sample_step[i] = steps[n <= FOLDER_SAMPLES ? i : i * (n - 1) / (FOLDER_SAMPLES - 1)];
    free(steps);
    return PL_OK;
}

/* How many of the step's samples are nearest to their own reference image; 0 of 0 if that was
 * not counted. */
static void read_nearest(int64_t *own, int64_t *of, const char *folder, int64_t step)
{
    char path[PATH_MAX], *text;
    json_t *root;
    *own = *of = 0;
    snprintf(path, sizeof path, "%s/samples/%06lld/nearest.json", folder, (long long)step);
    if (pl_file_read_text(&text, path, NEAREST_BYTES_MAX, NULL)) return;
    root = pl_json_load(text, strlen(text), 0, NULL);
    free(text);
    *own = json_integer_value(json_object_get(root, "own"));
    *of = json_integer_value(json_object_get(root, "of"));
    if (*own < 0 || *of < *own) *own = *of = 0;
    json_decref(root);
}

static int has_real(const char *folder, int64_t step)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/samples/%06lld/real.png", folder, (long long)step);
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

int run_folder_read(struct run_folder *f, const char *folder, struct pl_err *err)
{
    struct dirent *e;
    DIR *dir = opendir(folder);
    int rc;
    memset(f, 0, sizeof *f);
    if (!dir) return pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < ENTRIES_MAX && (e = readdir(dir)); i++) {
        int64_t step = step_of(e->d_name, "checkpoint-", ".safetensors");
        if (step >= 0) keep_checkpoint(f, folder, e->d_name, step);
    }
    closedir(dir);
    rc = read_samples(f, folder);
    for (size_t i = 0; i < f->samples; i++)
        read_nearest(&f->sample_own[i], &f->sample_of[i], folder, f->sample_step[i]);
    for (size_t i = f->samples; i && !f->real_step; i--)
        if (has_real(folder, f->sample_step[i - 1])) f->real_step = f->sample_step[i - 1];
    return rc ? pl_fail(err, rc, "%s: out of memory", folder) : PL_OK;
}

/* --- on the page ------------------------------------------------------------------------------ */

static int has_checkpoint(const struct run_folder *f, const char *name)
{
    for (size_t i = 0; i < f->checkpoints; i++)
        if (!strcmp(f->checkpoint[i], name)) return 1;
    return 0;
}

static int has_sample(const struct run_folder *f, int64_t step)
{
    for (size_t i = 0; i < f->samples; i++)
        if (f->sample_step[i] == step) return 1;
    return 0;
}

static void take_back(const struct run_folder *f, const struct run_folder *before,
                      struct http_server *s)
{
    char path[HTTP_PATH_MAX + 64];
    for (size_t i = 0; i < before->checkpoints; i++)
        if (!has_checkpoint(f, before->checkpoint[i])) {
            snprintf(path, sizeof path, "/checkpoints/%s", before->checkpoint[i]);
            http_server_remove(s, path);
        }
    for (size_t i = 0; i < before->samples; i++)
        if (!has_sample(f, before->sample_step[i])) {
            snprintf(path, sizeof path, "/samples/%lld.png", (long long)before->sample_step[i]);
            http_server_remove(s, path);
        }
}

static int put_file(struct http_server *s, const char *folder, const char *name, const char *path,
                    const char *type, const char *download, struct pl_err *err)
{
    char *file = pl_path_join(folder, name);
    int rc = file ? http_server_file(s, path, type, file, download, err)
                  : pl_fail(err, PL_ENOMEM, "%s: out of memory", folder);
    free(file);
    return rc;
}

/* Where pictures are on the contact sheet, as a file states; NULL: that is no place. */
static json_t *sheet_of(const json_t *root, size_t pictures)
{
    static const struct {
        const char *name;
        int64_t least, most;
    } sizes[] = { { "columns", 1, 32 }, { "side", 1, 4096 }, { "gap", 0, 64 } };
    const json_t *stated = json_object_get(root, "sheet");
    json_t *sheet = json_pack("{s:I}", "pictures", (json_int_t)pictures);
    int good = pictures &&
               json_integer_value(json_object_get(stated, "pictures")) >= (json_int_t)pictures;
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        json_t *value = json_object_get(stated, sizes[i].name);
        const json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
        good = good && n >= sizes[i].least && n <= sizes[i].most;
        if (good) json_object_set(sheet, sizes[i].name, value);
    }
    if (good) return sheet;
    json_decref(sheet);
    return NULL;
}

/* The captions of the newest samples, in their order on the contact sheet; empty if unknown.
 * *sheet: how they lie there, one of each caption; NULL: not known, or not one of each. */
static json_t *captions_of(const struct run_folder *f, const char *folder, json_t **sheet)
{
    json_t *list = json_array(), *root, *picture;
    const char *last = NULL;
    char path[PATH_MAX], *text;
    size_t i;
    int repeats = 0;
    *sheet = NULL;
    if (!f->samples) return list;
    snprintf(path, sizeof path, "%s/samples/%06lld/pictures.json", folder,
             (long long)f->sample_step[f->samples - 1]);
    if (pl_file_read_text(&text, path, PICTURES_BYTES_MAX, NULL)) return list;
    root = pl_json_load(text, strlen(text), 0, NULL);
    free(text);
    json_array_foreach(json_object_get(root, "pictures"), i, picture)
    {
        json_t *caption = json_object_get(picture, "caption");
        const char *words = json_string_value(caption);
        if (!words || (last && !strcmp(words, last))) { /* several of one caption */
            repeats = 1;
            continue;
        }
        if (json_array_size(list) == CAPTIONS_SHOWN) break;
        json_array_append(list, caption);
        last = words;
    }
    if (!repeats) *sheet = sheet_of(root, json_array_size(list));
    json_decref(root);
    return list;
}

int run_folder_publish(const struct run_folder *f, const struct run_folder *before,
                       const char *folder, struct http_server *s, struct dashboard *d,
                       struct pl_err *err)
{
    json_t *checkpoints, *samples, *captions, *sheet, *files;
    char path[HTTP_PATH_MAX + 64], name[64];
    int rc = PL_OK;
    take_back(f, before, s);
    pl_json_begin();
    captions = captions_of(f, folder, &sheet); /* first: it reads JSON, which begins anew */
    checkpoints = json_array();
    samples = json_array();
    for (size_t i = 0; i < f->checkpoints && !rc; i++) {
        snprintf(path, sizeof path, "/checkpoints/%s", f->checkpoint[i]);
        if (!has_checkpoint(before, f->checkpoint[i]))
            rc = put_file(s, folder, f->checkpoint[i], path, "application/octet-stream",
                          f->checkpoint[i], err);
        json_array_append_new(checkpoints,
                              json_pack("{s:s, s:s, s:I, s:I}", "name", f->checkpoint[i], "path",
                                        path + 1, "bytes", (json_int_t)f->checkpoint_bytes[i],
                                        "step", (json_int_t)f->checkpoint_step[i]));
    }
    for (size_t i = 0; i < f->samples && !rc; i++) {
        snprintf(path, sizeof path, "/samples/%lld.png", (long long)f->sample_step[i]);
        snprintf(name, sizeof name, "samples/%06lld/sheet.png", (long long)f->sample_step[i]);
        if (!has_sample(before, f->sample_step[i]))
            rc = put_file(s, folder, name, path, "image/png", NULL, err);
        json_array_append_new(samples, json_pack("{s:s, s:I, s:I, s:I}", "path", path + 1, "step",
                                                 (json_int_t)f->sample_step[i], "own",
                                                 (json_int_t)f->sample_own[i], "of",
                                                 (json_int_t)f->sample_of[i]));
    }
    if (!rc && f->real_step && f->real_step != before->real_step) {
        snprintf(name, sizeof name, "samples/%06lld/real.png", (long long)f->real_step);
        http_server_remove(s, "/samples/real.png");
        rc = put_file(s, folder, name, "/samples/real.png", "image/png", NULL, err);
    }
    if (rc) {
        json_decref(checkpoints);
        json_decref(samples);
        json_decref(captions);
        json_decref(sheet);
        return rc;
    }
    files = json_pack("{s:o, s:o, s:o, s:o?, s:s?}", "checkpoints", checkpoints, "samples", samples,
                      "captions", captions, "sheet", sheet, "real",
                      f->real_step ? "samples/real.png" : NULL);
    if (pl_json_failed()) {
        json_decref(files);
        files = NULL;
    }
    return dashboard_files(d, files, err);
}
