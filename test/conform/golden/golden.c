/* golden.c - finds golden files, hands each to its area, prints one line a case. */
#include "golden.h"
#include "areas.h"
#include "data/files/file.h"
#include "ref/small.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define JSON_MAX (256u << 20) /* unpacked; the largest golden JSON is a few MB */

static const struct {
    const char *name;
    golden_area_fn *run;
} areas[] = {
#define ENTRY(name) { #name, golden_area_##name },
    GOLDEN_AREAS(ENTRY)
#undef ENTRY
        { NULL, NULL }
};

double golden_tolerance(const struct golden *g, double ref, double fast)
{
    return g->is_ref ? ref : fast;
}

static int wanted(const struct golden *g, const char *what)
{
    char line[512];
    if (!g->filter) return 1;
    snprintf(line, sizeof line, "%s/%s %s", g->area, g->file, what);
    return strstr(line, g->filter) != NULL;
}

void golden_case(struct golden *g, const char *what, double error, double allowed)
{
    int good = error <= allowed; /* false for NaN */
    double share = error == 0 ? 0 : error / allowed;
    if (!wanted(g, what)) return;
    if (good) g->passed++;
    else g->failed++;
    if (good && share > g->worst) {
        g->worst = share;
        snprintf(g->worst_case, sizeof g->worst_case, "%s %s", g->file, what);
    }
    printf("%s %s/%s %s  error %.2g of %.2g\n", good ? "ok  " : "FAIL", g->area, g->file, what,
           error, allowed);
}

void golden_check(struct golden *g, const char *what, int good, const char *format, ...)
{
    char text[400] = "";
    va_list args;
    if (!wanted(g, what)) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (good) g->passed++;
    else g->failed++;
    printf("%s %s/%s %s  %s\n", good ? "ok  " : "FAIL", g->area, g->file, what,
           good ? "equal" : text);
}

void golden_fail(struct golden *g, const char *what, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    g->failed++; /* regardless of the filter: errors are always shown */
    printf("FAIL %s/%s %s  %s\n", g->area, g->file, what, text);
}

double golden_absolute(const float *got, const float *want, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d;
        if (fabsf(want[i]) >= 3e38f) continue;
        d = fabs((double)got[i] - want[i]);
        if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
    }
    return worst;
}

double golden_relative(const float *got, const float *want, size_t n)
{
    double worst = golden_absolute(got, want, n), largest = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(want[i]) < 3e38f && fabs((double)want[i]) > largest)
            largest = fabs((double)want[i]);
    return worst == 0 ? 0 : worst / largest;
}

float *golden_floats(struct golden *g, const struct st_file *f, const char *name, size_t *n)
{
    const struct st_tensor *t = pl_safetensors_find(f, name);
    float *out;
    if (!t) {
        golden_fail(g, name, "no such tensor in the file");
        return NULL;
    }
    out = pl_alloc(t->n, sizeof *out);
    if (!out) golden_fail(g, name, "out of memory");
    else pl_safetensors_to_float(out, t);
    if (n) *n = t->n;
    return out;
}

int32_t *golden_ints(struct golden *g, const struct st_file *f, const char *name, size_t *n)
{
    const struct st_tensor *t = pl_safetensors_find(f, name);
    int32_t *out;
    if (!t || (t->dtype != PL_I32 && t->dtype != PL_I64)) {
        golden_fail(g, name,
                    t ? "%s where I32 or I64 was expected" : "no such tensor in the file%s",
                    t ? pl_dtype_name(t->dtype) : "");
        return NULL;
    }
    out = pl_alloc(t->n, sizeof *out);
    if (!out) {
        golden_fail(g, name, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < t->n; i++) {
        if (t->dtype == PL_I32) memcpy(&out[i], (const char *)t->data + 4 * i, 4);
        else {
            int64_t x;
            memcpy(&x, (const char *)t->data + 8 * i, 8);
            if (x < INT32_MIN || x > INT32_MAX) {
                golden_fail(g, name, "value %lld does not fit 32 bits", (long long)x);
                pl_free(out);
                return NULL;
            }
            out[i] = (int32_t)x;
        }
    }
    if (n) *n = t->n;
    return out;
}

struct st_file *golden_open(struct golden *g, const char *path)
{
    struct st_file *f;
    struct pl_err err;
    if (!pl_safetensors_open(&f, path, &err)) return f;
    golden_fail(g, "opens", "%s", err.text);
    return NULL;
}

json_t *golden_meta(struct golden *g, const struct st_file *f, const char *key)
{
    const char *text = pl_safetensors_meta(f, key);
    json_error_t why;
    json_t *root;
    if (!text) {
        golden_fail(g, key, "no such entry in the file's metadata");
        return NULL;
    }
    root = json_loads(text, JSON_DECODE_ANY, &why);
    if (!root) golden_fail(g, key, "metadata is not JSON: %s", why.text);
    return root;
}

static char *unzip(const char *path, size_t *bytes)
{
    size_t capacity = 1 << 20, used = 0;
    char *buffer = malloc(capacity);
    gzFile in = gzopen(path, "rb");
    int n = 0;
    while (in && buffer) {
        if (capacity - used < 1 << 16) {
            char *more = capacity > JSON_MAX ? NULL : realloc(buffer, 2 * capacity);
            if (!more) break;
            buffer = more;
            capacity *= 2;
        }
        n = gzread(in, buffer + used, (unsigned)(capacity - used - 1));
        if (n <= 0) break;
        used += (size_t)n;
    }
    if (in && gzclose(in) != Z_OK) n = -1;
    if (!in || !buffer || n != 0) {
        free(buffer);
        return NULL;
    }
    *bytes = used;
    return buffer;
}

json_t *golden_json(struct golden *g, const char *file)
{
    char *path = pl_path_join(g->folder, file);
    size_t bytes, length = strlen(file);
    char *text = NULL;
    json_error_t why = { .text = "cannot be read" };
    json_t *root = NULL;
    if (path) {
        if (length > 3 && !strcmp(file + length - 3, ".gz")) text = unzip(path, &bytes);
        else if (pl_file_read((void **)&text, &bytes, path, JSON_MAX, NULL)) text = NULL;
    }
    if (text) root = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (!root) golden_fail(g, file, "%s", why.text);
    free(text);
    free(path);
    return root;
}

long golden_int(struct golden *g, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value)) return (long)json_integer_value(value);
    golden_fail(g, key, "the configuration has no such integer");
    return 0;
}

double golden_real(struct golden *g, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value)) return json_number_value(value);
    golden_fail(g, key, "the configuration has no such number");
    return 0;
}

static void *up(const struct golden *g, const void *host, size_t bytes)
{
    void *p = g->be->alloc(bytes);
    if (p && g->be->put(p, host, bytes)) {
        g->be->free(p);
        p = NULL;
    }
    return p;
}

float *golden_up(const struct golden *g, const float *host, size_t n)
{
    return up(g, host, n * sizeof *host);
}

int32_t *golden_up_ints(const struct golden *g, const int32_t *host, size_t n)
{
    return up(g, host, n * sizeof *host);
}

int golden_down(const struct golden *g, float *host, const float *device, size_t n)
{
    return g->be->get(host, device, n * sizeof *host);
}

static int is_companion(const char *name)
{
    return name[0] == '.' || pl_ends_with(name, ".md") || pl_ends_with(name, ".py");
}

static int not_hidden(const struct dirent *d) { return d->d_name[0] != '.'; }

static void run_area(struct golden *g, golden_area_fn *run, golden_report *report, void *context)
{
    struct dirent **entries;
    struct golden_total total = { .area = g->area };
    long passed = g->passed, failed = g->failed;
    int n = scandir(g->folder, &entries, not_hidden, alphasort);
    g->worst = 0;
    g->worst_case[0] = 0;
    for (int i = 0; i < n; i++) {
        char *name = entries[i]->d_name, stem[NAME_MAX + 1];
        char *path = pl_path_join(g->folder, name);
        struct stat st;
        snprintf(stem, sizeof stem, "%s", name);
        for (int cut = 0; cut < 2;
             cut++) { /* x.safetensors, x.json.gz, x.io.safetensors stays x.io */
            static const char *const ends[] = { ".gz", ".safetensors", ".json" };
            for (size_t k = 0; k < PL_COUNT(ends); k++)
                if (pl_ends_with(stem, ends[k])) stem[strlen(stem) - strlen(ends[k])] = 0;
        }
        g->file = stem;
        if (path && !stat(path, &st) && S_ISREG(st.st_mode) && !is_companion(name) &&
            !run(g, path, stem))
            golden_fail(g, name, "not a kind of file this area knows");
        fflush(stdout);
        free(path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    total.passed = g->passed - passed;
    total.failed = g->failed - failed;
    total.worst = g->worst;
    total.worst_case = g->worst_case;
    if (report && total.passed + total.failed) report(context, &total);
}

static golden_area_fn *find_area(const char *name, const char **found)
{
    for (size_t i = 0; areas[i].name; i++)
        if (!strcmp(areas[i].name, name)) {
            *found = areas[i].name;
            return areas[i].run;
        }
    return NULL;
}

/* The last part of the path, "." and a trailing slash resolved. */
static int base_name(char *out, const char *folder)
{
    char *real = realpath(folder, NULL);
    if (!real) return PL_EIO;
    snprintf(out, NAME_MAX + 1, "%.*s", NAME_MAX, strrchr(real, '/') + 1);
    free(real);
    return PL_OK;
}

int golden_run(const struct pl_backend *be, const char *folder, const char *filter,
               golden_report *report, void *context, long *failed, struct pl_err *err)
{
    struct golden g = { .be = be, .is_ref = !strcmp(be->name, "ref"), .filter = filter };
    struct dirent **entries;
    golden_area_fn *run;
    char name[NAME_MAX + 1];
    int n;
    *failed = 0;
    if (base_name(name, folder)) return pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
    n = scandir(folder, &entries, not_hidden, alphasort);
    if (n < 0) return pl_fail(err, PL_EIO, "%s: %s", folder, strerror(errno));
    if ((run = find_area(name, &g.area))) {
        g.folder = folder;
        run_area(&g, run, report, context);
    }
    for (int i = 0; i < n; i++) {
        char *path = run ? NULL : pl_path_join(folder, entries[i]->d_name);
        struct stat st;
        if (path && !stat(path, &st) && S_ISDIR(st.st_mode)) {
            golden_area_fn *sub = find_area(entries[i]->d_name, &g.area);
            g.folder = path;
            if (sub) run_area(&g, sub, report, context);
            else {
                g.area = "?";
                g.file = entries[i]->d_name;
                golden_fail(&g, "", "no golden area has this name");
            }
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
    if (g.passed + g.failed == 0 && g.area && !filter)
        return pl_fail(err, PL_EFORMAT, "%s: nothing to replay for area '%s'", folder, g.area);
    if (g.passed + g.failed == 0)
        return filter ? pl_fail(err, PL_ENOTFOUND, "%s: no case's line contains '%.80s'", folder,
                                filter)
                      : pl_fail(err, PL_EFORMAT,
                                "%s: no golden area here (its name, or its folders' "
                                "names, say the area)",
                                folder);
    printf("%ld passed, %ld failed, 0 skipped\n", g.passed, g.failed);
    *failed = g.failed;
    return PL_OK;
}
