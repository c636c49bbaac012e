/* golden.h - replaying folders of golden values against a backend. One file per area,
 * golden_<area>.c, exports golden_area_<area>; golden.c finds files, prints the lines and
 * counts. */
#ifndef PL_GOLDEN_H
#define PL_GOLDEN_H

#include "data/files/safetensors.h"
#include "ref/backend.h"

#include <jansson.h>

struct golden {
    const struct pl_backend *be;
    int is_ref;         /* 1: the reference's tolerances hold, else the fast ones */
    const char *area;   /* "dalle", ... */
    const char *folder; /* the folder of the files */
    const char *filter; /* only lines that contain it are run or shown; NULL: all */
    long passed, failed;
    /* private */
    const char *file;     /* base name of the file at hand */
    double worst;         /* largest error of the area, as a share of the error allowed, */
    char worst_case[200]; /* and where it was seen */
};

/* How an area fared. */
struct golden_total {
    const char *area;
    long passed, failed;
    double worst;           /* 0: all equal */
    const char *worst_case; /* empty: no case with an error */
};
typedef void golden_report(void *context, const struct golden_total *total);

/* The ref tolerance or the fast one, whichever the backend answers to. */
double golden_tolerance(const struct golden *g, double ref, double fast);

/* One line each: "ok   dalle/attn_full plain.y  error 1.2e-07 of 5e-06". NaN fails. */
void golden_case(struct golden *g, const char *what, double error, double allowed);
/* For comparisons without a number: pass or fail by `good`, with an explanation when it fails. */
__attribute__((format(printf, 4, 5))) void golden_check(struct golden *g, const char *what,
                                                        int good, const char *format, ...);
__attribute__((format(printf, 3, 4))) void golden_fail(struct golden *g, const char *what,
                                                       const char *format, ...);

/* max |got - want| / max |want| over n values (0 if both are all zero; infinite on NaN). |want| >=
 * 3e38 marks a masked logit, which is excluded. */
double golden_relative(const float *got, const float *want, size_t n);
double golden_absolute(const float *got, const float *want, size_t n);

/* Tensors of a golden file as float32, or NULL after a golden_fail line that names what is missing;
 * *n, if given, receives the element count; free with pl_free. */
float *golden_floats(struct golden *g, const struct st_file *f, const char *name, size_t *n);
int32_t *golden_ints(struct golden *g, const struct st_file *f, const char *name, size_t *n);

/* Opens a golden file; NULL after a golden_fail line. Close it with pl_safetensors_close. */
struct st_file *golden_open(struct golden *g, const char *path);
/* The JSON in the metadata entry `key` ("config"), or NULL after a golden_fail line. */
json_t *golden_meta(struct golden *g, const struct st_file *f, const char *key);
/* A whole JSON file (also gzipped, *.json.gz) of the area's folder. */
json_t *golden_json(struct golden *g, const char *file);
/* Integer and real members; a golden_fail line and 0 if absent. */
long golden_int(struct golden *g, const json_t *object, const char *key);
double golden_real(struct golden *g, const json_t *object, const char *key);

/* Host values to backend memory and back. NULL without memory. */
float *golden_up(const struct golden *g, const float *host, size_t n);
int32_t *golden_up_ints(const struct golden *g, const int32_t *host, size_t n);
int golden_down(const struct golden *g, float *host, const float *device, size_t n);

/* An area's entry: called once per file that is not a README or a script; `path` is the whole path.
 * Returns 1 if the file is one of its kinds (also if it failed), 0 if it cannot use it, which the
 * caller reports as a failure. Areas may open sibling files of g->folder. */
typedef int golden_area_fn(struct golden *g, const char *path, const char *stem);

/* Replays `folder`: an area's folder (its base name is the area's), or a folder of such folders.
 * Prints the lines and the closing count; `report`, if given, is called after each area. `failed`:
 * how many cases did. PL_ENOTFOUND if no case's line contains the filter. */
int golden_run(const struct pl_backend *be, const char *folder, const char *filter,
               golden_report *report, void *context, long *failed, struct pl_err *err);

#endif
