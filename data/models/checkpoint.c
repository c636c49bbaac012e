/* checkpoint.c - saves and loads parameters, optimizer state and progress as one safetensors file;
 * finds and prunes the numbered checkpoints of a folder. */
#include "checkpoint.h"
#include "data/files/json.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTER_NAME "outer.state"
#define ROUNDS_NAME "rounds.state"
/* Names of the optimizer's arrays: prefix, parameter, array. */
#define STATE_NAME_MAX (PL_NAME_MAX + 40)

static void state_name(char *name, const struct pl_params *p, const struct pl_optimizer_state *s)
{
    snprintf(name, STATE_NAME_MAX, "optimizer.%s.%s", p->list[s->tensor].name, s->name);
}

static int add_json(struct st_writer *w, const char *key, json_t *value)
{
    char *text = pl_json_text(value, JSON_COMPACT);
    int rc;
    if (!value) return PL_OK;
    if (!text) return PL_ENOMEM;
    rc = pl_safetensors_writer_meta(w, key, text);
    free(text);
    return rc;
}

void pl_checkpoint_transpose(float *y, const float *x, size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) y[c * rows + r] = x[r * columns + c];
}

/* Copies a parameter to host memory, in the file's layout; the caller frees *to, also after an
 * error. */
static int copy_param(void **to, const struct pl_checkpoint *c, size_t index, int transposed)
{
    const struct pl_param *t = &c->params->list[index];
    float *plain = pl_alloc(t->n, sizeof *plain), *other;
    int rc = (*to = plain) ? pl_params_get(c->params, index, plain) : PL_ENOMEM;
    if (rc || !transposed) return rc;
    if (!(other = pl_alloc(t->n, sizeof *other))) return PL_ENOMEM;
    pl_checkpoint_transpose(other, plain, (size_t)t->shape[0], (size_t)t->shape[1]);
    *to = other;
    pl_free(plain);
    return PL_OK;
}

/* Copies everything to host memory first, so that the file is a snapshot of one moment. */
int pl_checkpoint_save(const struct pl_checkpoint *c, const char *path, struct pl_err *err)
{
    const struct pl_params *p = c->params;
    size_t states = c->optimizer ? pl_optimizer_state_count(c->optimizer) : 0;
    void **copy = calloc(p->count + states + 2, sizeof *copy);
    struct st_writer *w = pl_safetensors_writer_new();
    int rc = copy && w ? PL_OK : PL_ENOMEM;
    if (!rc)
        rc = pl_safetensors_writer_meta(w, "format",
                                        "pt"); /* readers of PyTorch tensors expect this */
    if (!rc) rc = add_json(w, "config", c->config);
    if (!rc) rc = add_json(w, "alias", c->alias);
    if (!rc) rc = add_json(w, "training", c->training);
    for (size_t i = 0; !rc && i < p->count; i++) {
        const struct pl_param *t = &p->list[i];
        int transposed = c->transposed && t->dims == 2 && c->transposed(t->name);
        int64_t other_way[2] = { t->shape[1], t->shape[0] };
        rc = copy_param(&copy[i], c, i, transposed);
        if (!rc)
            rc = pl_safetensors_writer_add(w, t->name, PL_F32, t->dims,
                                           transposed ? other_way : t->shape, copy[i]);
    }
    for (size_t i = 0; !rc && i < states; i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(c->optimizer, i);
        int64_t n = (int64_t)s.n;
        char name[STATE_NAME_MAX];
        void *to = copy[p->count + i] = pl_alloc(s.n, s.element_size);
        state_name(name, p, &s);
        rc = to ? pl_optimizer_state_get(c->optimizer, i, to) : PL_ENOMEM;
        if (!rc)
            rc = pl_safetensors_writer_add(w, name, s.element_size == 1 ? PL_U8 : PL_F32, 1, &n,
                                           to);
    }
    if (!rc && c->outer) {
        int64_t n = (int64_t)pl_outer_state_bytes(c->outer);
        void *to = copy[p->count + states] = pl_alloc((size_t)n, 1);
        rc = to ? pl_outer_save(c->outer, to) : PL_ENOMEM;
        if (!rc) rc = pl_safetensors_writer_add(w, OUTER_NAME, PL_U8, 1, &n, to);
    }
    if (!rc && c->rounds) {
        const int64_t n = (int64_t)c->rounds_n;
        rc = pl_safetensors_writer_add(w, ROUNDS_NAME, PL_U8, 1, &n, c->rounds);
    }
    if (rc) pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    else rc = pl_safetensors_write(w, path, err);
    for (size_t i = 0; copy && i < p->count + states + 1; i++) pl_free(copy[i]);
    free(copy);
    pl_safetensors_writer_free(w);
    return rc;
}

long pl_checkpoint_exact(const struct pl_params *params, const char *name)
{
    return pl_params_find(params, name);
}

static int next_size(const int64_t *shape, int dims, int *at, int64_t *size)
{
    while (*at < dims && shape[*at] == 1) ++*at;
    if (*at == dims) return 0;
    *size = shape[(*at)++];
    return 1;
}

static int same_shape(const struct pl_param *p, const struct st_tensor *t)
{
    int i = 0, k = 0;
    for (;;) {
        int64_t a = 0, b = 0;
        int more = next_size(p->shape, p->dims, &i, &a);
        if (more != next_size(t->shape, t->dims, &k, &b) || a != b) return 0;
        if (!more) return 1;
    }
}

static void shape_text(char *text, size_t capacity, const int64_t *shape, int dims)
{
    size_t at = (size_t)snprintf(text, capacity, "[");
    for (int i = 0; i < dims && at < capacity; i++)
        at += (size_t)snprintf(text + at, capacity - at, "%s%lld", i ? "," : "",
                               (long long)shape[i]);
    if (at < capacity) snprintf(text + at, capacity - at, "]");
}

/* A diverged model is never saved, so a value that is not finite means a damaged file. */
static int all_finite(const float *x, size_t n, const char *name, const char *path,
                      struct pl_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return pl_fail(err, PL_EFORMAT, "%s: %s: value %zu is not finite", path, name, i);
    return PL_OK;
}

static int load_one(const struct pl_params *params, size_t index, const struct st_tensor *t,
                    const char *path, struct pl_err *err)
{
    const struct pl_param *p = &params->list[index];
    float *host;
    int rc;
    if (!same_shape(p, t)) {
        char want[120], got[120];
        shape_text(want, sizeof want, p->shape, p->dims);
        shape_text(got, sizeof got, t->shape, t->dims);
        return pl_fail(err, PL_EFORMAT, "%s: %s has shape %s, expected %s", path, t->name, got,
                       want);
    }
    if (!(host = pl_alloc(p->n, sizeof *host)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    pl_safetensors_to_float(host, t);
    rc = all_finite(host, p->n, t->name, path, err);
    if (!rc && (rc = pl_params_put(params, index, host)))
        pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    pl_free(host);
    return rc;
}

int pl_checkpoint_load_params(const struct pl_params *params, const struct st_file *f,
                              pl_checkpoint_name_fn *find, struct pl_err *err)
{
    unsigned char *seen = calloc(params->count + 1, 1);
    int rc = seen ? PL_OK : pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
    for (size_t i = 0; !rc && i < f->count; i++) {
        long index = find(params, f->tensors[i].name);
        if (index < 0 || seen[index]) continue; /* a shared layer may be listed once per block */
        rc = load_one(params, (size_t)index, &f->tensors[i], f->path, err);
        pl_safetensors_release(f, &f->tensors[i]);
        seen[index] = 1;
    }
    for (size_t i = 0; !rc && i < params->count; i++)
        if (!seen[i])
            rc = pl_fail(err, PL_EFORMAT, "%s: no tensor %s", f->path, params->list[i].name);
    free(seen);
    return rc;
}

int pl_checkpoint_load_optimizer(const struct pl_params *params, struct pl_optimizer *optimizer,
                                 const struct st_file *f, struct pl_err *err)
{
    for (size_t i = 0; i < pl_optimizer_state_count(optimizer); i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(optimizer, i);
        const struct st_tensor *t;
        char name[STATE_NAME_MAX];
        void *aligned;
        int rc;
        state_name(name, params, &s);
        t = pl_safetensors_find(f, name);
        if (!t) return pl_fail(err, PL_EFORMAT, "%s: no tensor %s", f->path, name);
        if (t->n != s.n || t->dtype != (s.element_size == 1 ? PL_U8 : PL_F32))
            return pl_fail(err, PL_EFORMAT, "%s: %s holds %zu of %s, expected %zu of %s", f->path,
                           name, t->n, pl_dtype_name(t->dtype), s.n,
                           s.element_size == 1 ? "U8" : "F32");
        if (!(aligned = pl_alloc(s.n, s.element_size)))
            return pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
        memcpy(aligned, t->data, t->bytes);
        pl_safetensors_release(f, t);
        rc = t->dtype == PL_F32 ? all_finite(aligned, t->n, name, f->path, err) : PL_OK;
        if (!rc && (rc = pl_optimizer_state_put(optimizer, i, aligned)))
            pl_fail(err, rc, "%s: %s", f->path, pl_status_name(rc));
        pl_free(aligned);
        if (rc) return rc;
    }
    return PL_OK;
}

int pl_checkpoint_load_outer(struct pl_outer *outer, const float *x, const struct st_file *f,
                             struct pl_err *err)
{
    const struct st_tensor *t = pl_safetensors_find(f, OUTER_NAME);
    float *phi = pl_outer_get(outer, "phi");
    struct pl_err why = { "" };
    int rc;
    if (!t) return phi ? outer->setup.be->copy(phi, x, outer->n) : PL_OK;
    if (t->dtype != PL_U8)
        return pl_fail(err, PL_EFORMAT, "%s: %s holds %s, expected U8", f->path, OUTER_NAME,
                       pl_dtype_name(t->dtype));
    rc = pl_outer_load(outer, t->data, t->n, &why);
    if (rc) return pl_fail(err, rc, "%s: %s", f->path, why.text);
    pl_safetensors_release(f, t);
    if ((rc = pl_outer_check(outer)) == PL_EFORMAT)
        return pl_fail(err, PL_EFORMAT, "%s: %s is not finite", f->path, OUTER_NAME);
    return rc;
}

int pl_checkpoint_load_rounds(void **rounds, size_t *n, const struct st_file *f, struct pl_err *err)
{
    const struct st_tensor *t = pl_safetensors_find(f, ROUNDS_NAME);
    *rounds = NULL;
    *n = 0;
    if (!t) return PL_OK;
    if (t->dtype != PL_U8)
        return pl_fail(err, PL_EFORMAT, "%s: %s holds %s, expected U8", f->path, ROUNDS_NAME,
                       pl_dtype_name(t->dtype));
    if (!(*rounds = malloc(t->n + 1))) return pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
    memcpy(*rounds, t->data, *n = t->n);
    pl_safetensors_release(f, t);
    return PL_OK;
}

json_t *pl_checkpoint_json(const struct st_file *f, const char *key, struct pl_err *err)
{
    const char *text = pl_safetensors_meta(f, key);
    json_error_t why;
    json_t *root = NULL;
    if (!text) pl_fail(err, PL_EFORMAT, "%s: no metadata entry '%s'", f->path, key);
    else if (!(root = pl_json_load(text, strlen(text), 0, &why)))
        pl_fail(err, pl_json_status(), "%s: metadata '%s' is not JSON: %s", f->path, key, why.text);
    return root;
}

/* The step in "checkpoint-<digits>.safetensors", or -1. */
static long long step_of(const char *name)
{
    static const char front[] = "checkpoint-", back[] = ".safetensors";
    char *end;
    long long step;
    if (strncmp(name, front, sizeof front - 1)) return -1;
    name += sizeof front - 1;
    if (*name < '0' || *name > '9') return -1;
    errno = 0;
    step = strtoll(name, &end, 10);
    return errno || strcmp(end, back) ? -1 : step;
}

static int is_checkpoint(const struct dirent *d) { return step_of(d->d_name) >= 0; }

static int by_step(const struct dirent **a, const struct dirent **b)
{
    long long x = step_of((*a)->d_name), y = step_of((*b)->d_name);
    return x < y ? -1 : x > y;
}

static int list(struct dirent ***entries, int *n, const char *folder, struct pl_err *err)
{
    *n = scandir(folder, entries, is_checkpoint, by_step);
    if (*n >= 0) return PL_OK;
    return pl_fail(err, errno == ENOMEM ? PL_ENOMEM : PL_EIO, "%s: %s", folder, strerror(errno));
}

static void free_list(struct dirent **entries, int n)
{
    for (int i = 0; i < n; i++) free(entries[i]);
    free(entries);
}

int pl_checkpoint_newest(char **path, const char *folder, struct pl_err *err)
{
    struct dirent **entries;
    int n, rc = list(&entries, &n, folder, err);
    *path = NULL;
    if (rc) return rc;
    if (n && !(*path = pl_path_join(folder, entries[n - 1]->d_name)))
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory", folder);
    free_list(entries, n);
    return rc;
}

int pl_checkpoint_prune(const char *folder, int keep, struct pl_err *err)
{
    struct dirent **entries;
    int n, rc = list(&entries, &n, folder, err);
    if (rc) return rc;
    for (int i = 0; keep > 0 && i < n - keep; i++) {
        char *path = pl_path_join(folder, entries[i]->d_name);
        if (!path) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", folder);
        else if (unlink(path)) rc = pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
        free(path);
    }
    free_list(entries, n);
    return rc;
}
