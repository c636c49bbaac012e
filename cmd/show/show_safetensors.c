/* show_safetensors.c - a checkpoint: its metadata, and each tensor with its range. */
#include "show.h"
#include "cmd/common/plural.h"
#include "data/models/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define METADATA_MAX 300 /* characters of a value that are shown */
#define NAME_WIDTH 56

static void print_shape(const struct st_tensor *t, const char *between)
{
    for (int i = 0; i < t->dims; i++) printf("%s%lld", i ? between : "", (long long)t->shape[i]);
}

static int print_range(const struct st_tensor *t)
{
    double low = INFINITY, high = -INFINITY, squares = 0;
    size_t strange = 0;
    float *x = pl_alloc(t->n, sizeof *x);
    if (!x) return PL_ENOMEM;
    pl_safetensors_to_float(x, t);
    for (size_t i = 0; i < t->n; i++) {
        if (!isfinite(x[i])) {
            strange++;
            continue;
        }
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
        squares += (double)x[i] * x[i];
    }
    if (t->n > strange)
        printf("  %.4g .. %.4g, rms %.4g", low, high, sqrt(squares / (double)(t->n - strange)));
    if (strange) printf("  %zu NOT FINITE", strange);
    pl_free(x);
    return PL_OK;
}

int show_safetensors(const char *path, const struct show_options *show, struct pl_err *err)
{
    struct st_file *f;
    uint64_t elements = 0, bytes = 0;
    int rc = pl_weights_open(&f, path, err);
    if (rc) return rc;
    for (size_t i = 0; i < f->count; i++) {
        elements += f->tensors[i].n;
        bytes += f->tensors[i].bytes;
    }
    if (!show->json) {
        printf("%s: %s, %zu tensor%s, %llu elements, %llu bytes\n", path, f->kind, f->count,
               PLURAL(f->count), (unsigned long long)elements, (unsigned long long)bytes);
        for (size_t i = 0; i < f->metas; i++) {
            fputs("  (", stdout);
            show_text(f->meta_key[i], strlen(f->meta_key[i]), 0);
            fputs(": ", stdout);
            show_text(f->meta_value[i], strnlen(f->meta_value[i], METADATA_MAX), 0);
            puts(strlen(f->meta_value[i]) > METADATA_MAX ? " ...)" : ")");
        }
    }
    for (size_t i = 0; !rc && i < f->count; i++) {
        const struct st_tensor *t = &f->tensors[i];
        if (show->json) {
            fputs("{\"name\": \"", stdout);
            show_text(t->name, strlen(t->name), 1);
            printf("\", \"dtype\": \"%s\", \"shape\": [", pl_dtype_name(t->dtype));
            print_shape(t, ", ");
            puts("]}");
            continue;
        }
        fputs("  ", stdout);
        show_text(t->name, strlen(t->name), 0);
        printf("%*s %-4s [", strlen(t->name) < NAME_WIDTH ? NAME_WIDTH - (int)strlen(t->name) : 0,
               "", pl_dtype_name(t->dtype));
        print_shape(t, ",");
        putchar(']');
        if (print_range(t)) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
        putchar('\n');
    }
    pl_safetensors_close(f);
    return rc;
}
