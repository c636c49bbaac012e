/* golden_dalle.c - which kind a transformer golden is, and what its replays share. */
#include "golden_dalle.h"
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"

#include <assert.h>
#include <string.h>

void replay_open(struct replay *r, struct golden *g, const struct st_file *f)
{
    *r = (struct replay){ .g = g, .f = f, .config = golden_meta(g, f, "config") };
    r->bad = !r->config;
}

void replay_close(struct replay *r)
{
    while (r->count > 0) r->g->be->free(r->held[--r->count]);
    json_decref(r->config);
}

int replay_size(struct replay *r, const char *key)
{
    long value = r->bad ? 1 : golden_int(r->g, r->config, key);
    if (value >= 1 && value <= REPLAY_SIZE) return (int)value;
    if (value) golden_fail(r->g, key, "%ld where 1..%d was expected", value, REPLAY_SIZE);
    r->bad = 1; /* 0: golden_int has reported that it is missing, or it is unusable */
    return 1;
}

const char *replay_text(struct replay *r, const char *key)
{
    const char *text = r->bad ? "" : json_string_value(json_object_get(r->config, key));
    if (text) return text;
    golden_fail(r->g, key, "the configuration has no such string");
    r->bad = 1;
    return "";
}

int replay_dim(struct replay *r, const char *tensor, int dim)
{
    const struct st_tensor *t = r->bad ? NULL : pl_safetensors_find(r->f, tensor);
    if (r->bad) return 1;
    if (t && dim < t->dims && t->shape[dim] >= 1 && t->shape[dim] <= REPLAY_SIZE)
        return (int)t->shape[dim];
    if (t) golden_fail(r->g, tensor, "dimension %d is missing or not in 1..%d", dim, REPLAY_SIZE);
    else golden_fail(r->g, tensor, "no such tensor in the file");
    r->bad = 1;
    return 1;
}

/* Sizes come from the file's configuration: 1 if n floats are no honest one. */
static int too_many(struct replay *r, size_t n)
{
    if (!r->bad && n > REPLAY_FLOATS) {
        golden_fail(r->g, "config", "its sizes ask for a buffer of %zu floats", n);
        r->bad = 1;
    }
    return r->bad;
}

float *replay_host_zeros(struct replay *r, size_t n)
{
    float *p = too_many(r, n) ? NULL : pl_alloc(n, sizeof *p);
    if (!p) replay_did(r, PL_ENOMEM);
    return p;
}

float *replay_host(struct replay *r, const char *tensor, size_t n)
{
    size_t has = 0;
    float *host = r->bad ? NULL : golden_floats(r->g, r->f, tensor, &has);
    if (host && has == n) return host;
    if (host) golden_fail(r->g, tensor, "%zu elements where %zu were expected", has, n);
    r->bad = 1;
    pl_free(host);
    return NULL;
}

static void *hold(struct replay *r, void *p)
{
    assert(r->count < REPLAY_BUFFERS);
    if (p) return r->held[r->count++] = p;
    replay_did(r, PL_ENOMEM);
    return NULL;
}

float *replay_in(struct replay *r, const char *tensor, size_t n)
{
    float *host = replay_host(r, tensor, n), *p = host ? golden_up(r->g, host, n) : NULL;
    pl_free(host);
    return r->bad ? NULL : hold(r, p);
}

float *replay_zeros(struct replay *r, size_t n)
{
    return too_many(r, n) ? NULL : hold(r, r->g->be->alloc(n * sizeof(float)));
}

void *replay_bytes(struct replay *r, const void *host, size_t bytes)
{
    void *p = r->bad ? NULL : hold(r, r->g->be->alloc(bytes));
    if (p) replay_did(r, r->g->be->put(p, host, bytes));
    return p;
}

float *replay_out(struct replay *r, const float *device, size_t n)
{
    float *host = replay_host_zeros(r, n);
    if (host) replay_did(r, golden_down(r->g, host, device, n));
    if (!r->bad) return host;
    pl_free(host);
    return NULL;
}

void replay_rotary(struct replay *r, float **cosine, float **sine, const char *tensor, size_t rows,
                   size_t n, size_t R)
{
    size_t angles = n * R / 2;
    float *table = replay_host(r, tensor, rows * R);
    float *angle = replay_host_zeros(r, angles), *c = replay_host_zeros(r, angles),
          *s = replay_host_zeros(r, angles);
    if (!r->bad) {
        for (size_t i = 0; i < angles; i++) angle[i] = table[2 * i];
        pl_rotary_tables(c, s, angle, angles);
    }
    *cosine = replay_bytes(r, c, angles * sizeof *c);
    *sine = replay_bytes(r, s, angles * sizeof *s);
    pl_free(table);
    pl_free(angle);
    pl_free(c);
    pl_free(s);
}

void replay_did(struct replay *r, int status)
{
    if (r->bad || status == PL_OK) return;
    golden_fail(r->g, "an operation", "%s", pl_status_name(status));
    r->bad = 1;
}

void replay_same_as(struct replay *r, const char *what, const char *tensor, const float *device,
                    size_t n, double allowed)
{
    float *want = replay_host(r, tensor, n), *got = replay_out(r, device, n);
    if (want && got) golden_case(r->g, what, golden_relative(got, want, n), allowed);
    pl_free(want);
    pl_free(got);
}

void replay_same(struct replay *r, const char *tensor, const float *device, size_t n,
                 double allowed)
{
    replay_same_as(r, tensor, tensor, device, n, allowed);
}

/* Files are recognized by their content; their names do not matter. */
static golden_dalle_fn *kind_of(const struct st_file *f)
{
    if (pl_safetensors_meta(f, "facts")) return golden_dalle_masks;
    if (pl_safetensors_find(f, "table")) return golden_dalle_rotary;
    if (pl_safetensors_find(f, "key_mask")) return golden_dalle_attention;
    if (pl_safetensors_find(f, "grid.top_k")) return golden_dalle_filters;
    if (pl_safetensors_meta(f, "config") && strstr(pl_safetensors_meta(f, "config"), "\"case\""))
        return golden_dalle_part;
    return NULL;
}

/* The generator's settings, and how far float32 was from float64 in its run: no values to
 * compare. */
static int is_companion(const char *stem)
{
    return !strncmp(stem, "config", 6) || !strncmp(stem, "float32_error", 13);
}

int golden_area_dalle(struct golden *g, const char *path, const char *stem)
{
    golden_dalle_fn *replay;
    struct st_file *f;
    size_t n = strlen(path);
    int known = 1;
    if (n > 5 && !strcmp(path + n - 5, ".json"))
        return is_companion(stem) || golden_dalle_model(g, NULL, stem);
    if (!(f = golden_open(g, path))) return 1;
    replay = kind_of(f);
    if (replay) replay(g, f);
    else known = golden_dalle_model(g, f, stem);
    pl_safetensors_close(f);
    return known;
}
