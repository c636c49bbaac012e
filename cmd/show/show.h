/* show.h - the kinds of file that `potluck show` can look into; each prints and returns a
 * status. */
#ifndef PL_SHOW_H
#define PL_SHOW_H

#include "data/files/source.h"

struct show_options {
    int64_t rows;
    const char *caption; /* NULL: any */
    int json;
};

/* Text with unprintable characters escaped, and those that JSON does not allow. */
void show_text(const char *text, size_t n, int json);

int show_parquet(struct pl_source *source, const struct show_options *show, struct pl_err *err);
int show_tokens(const char *path, const struct show_options *show, struct pl_err *err);
/* The loss curve of a training's log. */
int show_log(const char *path, const struct show_options *show, struct pl_err *err);
int show_safetensors(const char *path, const struct show_options *show, struct pl_err *err);

#endif
