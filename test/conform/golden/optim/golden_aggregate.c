/* golden_aggregate.c - the area of averaging: which file holds what, by its stem's beginning. See
 * test/golden/aggregate/README.md. */
#include "golden_aggregate.h"
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *begins;
    golden_area_fn *run;
} kinds[] = {
    { "partition", golden_partition },
    { "load_balance", golden_load_balance },
    { "allreduce", golden_allreduce },
    { "powersgd", golden_powersgd },
    { "centered_clip", golden_centered_clip },
    { "btard", golden_btard },
    { "onebit", golden_onebit },
    { "dgc", golden_dgc },
};

int golden_area_aggregate(struct golden *g, const char *path, const char *stem)
{
    for (size_t i = 0; i < PL_COUNT(kinds); i++)
        if (!strncmp(stem, kinds[i].begins, strlen(kinds[i].begins)))
            return kinds[i].run(g, path, stem);
    return 0;
}

static int has_size(struct golden *g, const char *name, size_t got, size_t n)
{
    if (n == SIZE_MAX || got == n) return 1;
    golden_fail(g, name, "%zu values where %zu were expected", got, n);
    return 0;
}

float *agg_floats(struct golden *g, const struct st_file *f, const char *name, size_t n)
{
    size_t count;
    float *x = golden_floats(g, f, name, &count);
    if (x && !has_size(g, name, count, n)) {
        pl_free(x);
        return NULL;
    }
    return x;
}

double *agg_doubles(struct golden *g, const struct st_file *f, const char *name, size_t n,
                    size_t *count)
{
    const struct st_tensor *t = pl_safetensors_find(f, name);
    double *x;
    float *narrow = NULL;
    if (!t) {
        golden_fail(g, name, "no such tensor in the file");
        return NULL;
    }
    if (!has_size(g, name, t->n, n)) return NULL;
    if (count) *count = t->n;
    x = pl_alloc(t->n, sizeof *x);
    if (x && t->dtype == PL_F64) memcpy(x, t->data, t->bytes);
    else if (x && (narrow = golden_floats(g, f, name, NULL)))
        for (size_t i = 0; i < t->n; i++) x[i] = narrow[i];
    pl_free(narrow);
    if (!x) golden_fail(g, name, "out of memory");
    return x;
}

double agg_relative(const double *got, const double *want, size_t n)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs(got[i] - want[i]);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
        largest = fmax(largest, fabs(want[i]));
    }
    return worst == 0 ? 0 : worst / largest;
}

void agg_compare(struct golden *g, const struct st_file *f, const char *name, const double *got,
                 size_t n, double allowed)
{
    double *want = agg_doubles(g, f, name, n, NULL);
    if (want) golden_case(g, name, agg_relative(got, want, n), allowed);
    pl_free(want);
}

double *agg_list(struct golden *g, const json_t *object, const char *key, size_t n, size_t *count)
{
    const json_t *list = json_object_get(object, key);
    size_t size = json_array_size(list);
    double *x;
    if (!json_is_array(list) || (n && size != n)) {
        golden_fail(g, key, "no list of %zu numbers", n);
        return NULL;
    }
    x = pl_alloc(size, sizeof *x);
    for (size_t i = 0; x && i < size; i++) {
        const json_t *v = json_array_get(list, i);
        x[i] = json_is_number(v) ? json_number_value(v) : NAN; /* null stays NaN */
    }
    if (!x) golden_fail(g, key, "out of memory");
    if (count) *count = size;
    return x;
}
