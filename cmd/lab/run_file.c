/* run_file.c - reads a run; every key is checked, so that a misspelled one is reported. */
#include "run_file.h"

#include "data/files/json.h"
#include "data/files/yaml.h"
#include "ref/outer/settings.h"
#include "ref/rng.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MBIT 125000.0 /* bytes a second */
#define RNG_CHURN 3   /* stream of the seed */

enum kind { INTEGER, WIDE, REAL }; /* int, int64_t or uint64_t, double */

struct row {
    const char *key;
    enum kind kind;
    size_t at;
    double low, high;
};

#define RUN(field) offsetof(struct lab_run, field)

static const struct row top[] = {
    { "peers", INTEGER, RUN(setup.peers), 2, LAB_PEERS_MAX },
    { "all_reduce", INTEGER, RUN(setup.all_reduce), 0, 1 },
    { "groups", INTEGER, RUN(setup.groups), 0, LAB_PEERS_MAX / 2 },
    { "steps", WIDE, RUN(setup.steps), 1, 1e9 },
    { "evaluate", WIDE, RUN(setup.evaluate), 1, 1e9 },
    { "seed", WIDE, RUN(setup.seed), 0, 1e15 },
    { "batch", WIDE, RUN(batch), 1, 4096 },
    { "pairs", WIDE, RUN(pairs), 1, 1e6 },
    { "held_out", WIDE, RUN(held_out), 1, 1e5 },
    { "lr", REAL, RUN(setup.lr), 0, 1e3 },
    { "warmup", WIDE, RUN(setup.warmup), 0, 1e9 },
    { "decay", REAL, RUN(decay), 0, 1 },
    { NULL, INTEGER, 0, 0, 0 },
};
/* Reading state; the first error is kept. */
struct reading {
    struct lab_run *run;
    const char *path;
    struct pl_err *err;
    int rc;
};

static void refuse(struct reading *r, const char *key, const char *expected)
{
    char shown[41];
    snprintf(shown, sizeof shown, "%s", key);
    for (char *c = shown; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    if (!r->rc)
        r->rc = pl_fail(r->err, PL_EFORMAT, "%.200s: '%s': expected %s", r->path, shown, expected);
}

static int number(struct reading *r, const char *key, const json_t *j, double low, double high,
                  double *out)
{
    char expected[80];
    double value = json_number_value(j);
    if (json_is_number(j) && value >= low && value <= high) {
        *out = value;
        return 1;
    }
    snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
    refuse(r, key, expected);
    return 0;
}

static const char *text_of(struct reading *r, const char *key, const json_t *j, size_t most)
{
    if (json_is_string(j) && json_string_length(j) > 0 && json_string_length(j) < most)
        return json_string_value(j);
    refuse(r, key, "a text that is not empty, and not long");
    return "";
}

/* 1: the key is one of the table's rows, and has been taken. */
static int take_row(struct reading *r, const struct row *rows, const char *key, const json_t *j)
{
    char *base = (char *)r->run;
    double value = 0;
    for (; rows->key; rows++) {
        if (strcmp(rows->key, key)) continue;
        if (!number(r, key, j, rows->low, rows->high, &value)) return 1;
        if (rows->kind != REAL && value != floor(value)) refuse(r, key, "a whole number");
        else if (rows->kind == REAL) memcpy(base + rows->at, &value, sizeof value);
        else if (rows->kind == WIDE) *(uint64_t *)(void *)(base + rows->at) = (uint64_t)value;
        else *(int *)(void *)(base + rows->at) = (int)value;
        return 1;
    }
    return 0;
}

static void take_outer(struct reading *r, json_t *object)
{
    struct pl_outer_setup *outer = &r->run->setup.outer;
    struct pl_err expected;
    const char *key;
    json_t *j;
    json_object_foreach(object, key, j)
    {
        const double value = json_is_number(j) ? json_number_value(j) : NAN;
        int rc = strcmp(key, "coding")
                     ? pl_outer_set(outer, key, value, &expected)
                     : pl_outer_set_coding(outer, text_of(r, key, j, 20), &expected);
        if (rc) refuse(r, key, rc == PL_ENOTFOUND ? "no such key in 'outer'" : expected.text);
    }
}

static void take_link(struct reading *r, struct lab_link *link, json_t *j, int peer)
{
    const char *key;
    json_t *v;
    double x = 0;
    if (json_is_string(j)) {
        if (lab_link_named(link, json_string_value(j), peer))
            refuse(r, "links", "datacentre, fibre, adsl, mobile, mixed, or up_mbit and down_mbit");
        return;
    }
    if (!json_is_object(j)) refuse(r, "links", "a profile's name, or up_mbit and down_mbit");
    json_object_foreach(j, key, v)
    {
        if (!strcmp(key, "up_mbit") && number(r, key, v, 1e-3, 1e6, &x)) link->up = x * MBIT;
        else if (!strcmp(key, "down_mbit") && number(r, key, v, 1e-3, 1e6, &x))
            link->down = x * MBIT;
        else if (!strcmp(key, "latency_ms") && number(r, key, v, 0, 1e5, &x))
            link->latency = x / 1000;
        else if (!strcmp(key, "loss") && number(r, key, v, 0, 0.9, &x)) link->loss = x;
        else refuse(r, key, "up_mbit, down_mbit, latency_ms or loss");
    }
}

/* One value for all peers, or a list that is dealt out in turn. */
static void take_peers(struct reading *r, json_t *links, json_t *speeds)
{
    struct lab_setup *s = &r->run->setup;
    for (int k = 0; k < s->peers && !r->rc; k++) {
        json_t *link = links, *speed = speeds;
        double ms = 0;
        if (json_is_array(links))
            link = json_array_get(links,
                                  (size_t)k % (json_array_size(links) + !json_array_size(links)));
        if (json_is_array(speeds))
            speed = json_array_get(speeds, (size_t)k % (json_array_size(speeds) +
                                                        !json_array_size(speeds)));
        lab_link_named(&s->link[k], "fibre", k);
        if (links) take_link(r, &s->link[k], link, k);
        if (speeds && number(r, "sample_ms", speed, 1e-3, 1e9, &ms)) s->sample_s[k] = ms / 1000;
        else if (!speeds) s->sample_s[k] = 0.02;
    }
}

static void take_leave(struct reading *r, struct lab_leave *leave, json_t *j)
{
    const char *key;
    json_t *v;
    double peer = -1;
    leave->at = leave->back = INFINITY;
    json_object_foreach(j, key, v)
    {
        if (!strcmp(key, "peer")) number(r, key, v, 0, r->run->setup.peers - 1, &peer);
        else if (!strcmp(key, "at")) number(r, key, v, 0, 1e12, &leave->at);
        else if (!strcmp(key, "back")) number(r, key, v, 0, 1e12, &leave->back);
        else refuse(r, key, "peer, at or back");
    }
    if (peer < 0 || peer != floor(peer) || !isfinite(leave->at) || leave->back <= leave->at)
        refuse(r, "leave", "a peer, at, and maybe back, which is later");
    leave->peer = (int)peer;
}

/* Exponential times of presence and absence, for all peers but the first, which keeps the state. */
static void draw_churn(struct reading *r, json_t *churn)
{
    struct lab_setup *s = &r->run->setup;
    double present = 0, away = 0, until = 0;
    const char *key;
    json_t *v;
    json_object_foreach(churn, key, v)
    {
        if (!strcmp(key, "present_s")) number(r, key, v, 1e-3, 1e12, &present);
        else if (!strcmp(key, "away_s")) number(r, key, v, 1e-3, 1e12, &away);
        else if (!strcmp(key, "until_s")) number(r, key, v, 0, 1e12, &until);
        else refuse(r, key, "present_s, away_s or until_s");
    }
    if (!(present > 0) || !(away > 0)) refuse(r, "churn", "present_s, away_s and until_s");
    for (int k = 1; k < s->peers && !r->rc; k++) {
        struct pl_rng rng;
        double time = 0;
        pl_rng_init(&rng, s->seed, ((uint64_t)k << 8) | RNG_CHURN);
        while (s->leaves < LAB_LEAVES_MAX) {
            struct lab_leave *l = &s->leave[s->leaves];
            l->peer = k;
            l->at = time - present * log(1 - pl_rng_uniform(&rng));
            l->back = time = l->at - away * log(1 - pl_rng_uniform(&rng));
            if (l->at >= until) break;
            s->leaves++;
        }
    }
}

static void take_faults(struct reading *r, json_t *faults)
{
    struct lab_setup *s = &r->run->setup;
    json_t *v, *leave;
    const char *key;
    size_t i;
    json_object_foreach(faults, key, v)
    {
        if (!strcmp(key, "straggle_share")) number(r, key, v, 0, 1, &s->straggle_share);
        else if (!strcmp(key, "straggle_factor")) number(r, key, v, 1, 1e6, &s->straggle_factor);
        else if (!strcmp(key, "fail_share")) number(r, key, v, 0, 1, &s->fail_share);
        else if (!strcmp(key, "churn")) draw_churn(r, v);
        else if (strcmp(key, "leave"))
            refuse(r, key, "straggle_share, straggle_factor, fail_share, churn or leave");
        else if (!json_is_array(v) || json_array_size(v) > LAB_LEAVES_MAX / 2)
            refuse(r, key, "a list, not a long one");
        else
            json_array_foreach(v, i, leave) if (s->leaves < LAB_LEAVES_MAX)
                take_leave(r, &s->leave[s->leaves++], leave);
    }
}

static void take_all(struct reading *r, json_t *root)
{
    struct lab_run *run = r->run;
    json_t *j, *later[4] = { NULL };
    static const char *const objects[4] = { "outer", "links", "sample_ms", "faults" };
    const char *key;
    json_object_foreach(root, key, j)
    {
        int found = take_row(r, top, key, j);
        for (int i = 0; i < 4; i++)
            if (!strcmp(key, objects[i])) {
                later[i] = j;
                found = 1;
            }
        if (found) continue;
        if (!strcmp(key, "name")) {
            strcpy(run->name, text_of(r, key, j, sizeof run->name));
        } else if (!strcmp(key, "model")) strcpy(run->model, text_of(r, key, j, sizeof run->model));
        else if (!strcmp(key, "start")) strcpy(run->start, text_of(r, key, j, sizeof run->start));
        else if (!strcmp(key, "inner")) {
            const char *inner = text_of(r, key, j, 20);
            run->inner = !strcmp(inner, "lamb")   ? PL_LAMB
                         : !strcmp(inner, "muon") ? PL_MUON
                                                  : PL_ADAM;
            if (run->inner == PL_ADAM && strcmp(inner, "adamw"))
                refuse(r, key, "adamw, lamb or muon");
        } else if (!strcmp(key, "algorithm")) {
            run->setup.algorithm = pl_outer_find(text_of(r, key, j, 40));
            if (!run->setup.algorithm)
                refuse(r, key, "an algorithm of paper/algorithms.md, by its name there");
        } else refuse(r, key, "a key of cmd/lab/README.md");
    }
    if (!run->setup.algorithm) refuse(r, "algorithm", "the name of one");
    if (later[0]) take_outer(r, later[0]);
    if (!r->rc) take_peers(r, later[1], later[2]);
    if (!r->rc && later[3]) take_faults(r, later[3]);
}

/* The file's name without folder and ending. */
static void name_after(char *name, const char *path)
{
    const char *slash = strrchr(path, '/'), *dot;
    if (slash) path = slash + 1;
    dot = strrchr(path, '.');
    snprintf(name, LAB_NAME_MAX, "%.*s", dot && dot > path ? (int)(dot - path) : INT_MAX, path);
}

int lab_run_read(struct lab_run *run, const char *path, struct pl_err *err)
{
    struct reading r = { run, path, err, PL_OK };
    json_t *root;
    *run = (struct lab_run){
        .model = "demo", .inner = PL_ADAM, .decay = 0.01, .pairs = 3513, .held_out = 64, .batch = 16
    };
    run->setup = (struct lab_setup){ .peers = 4,
                                     .straggle_factor = 1,
                                     .lr = 0.002,
                                     .warmup = 20,
                                     .steps = 200,
                                     .evaluate = 100,
                                     .seed = 1 };
    pl_outer_defaults(&run->setup.outer);
    name_after(run->name, path);
    if ((r.rc = pl_yaml_read(&root, path, err))) return r.rc;
    if (!json_is_object(root))
        r.rc = pl_fail(err, PL_EFORMAT, "%.200s: expected keys with values", path);
    else take_all(&r, root);
    run->setup.outer.seed = run->setup.seed;
    pl_json_begin();
    if (!r.rc) json_object_set_new(root, "name", json_string(run->name));
    if (!r.rc && !(run->text = pl_json_text(root, JSON_COMPACT | JSON_SORT_KEYS)))
        r.rc = pl_fail(err, PL_ENOMEM, "no memory");
    json_decref(root);
    return r.rc;
}

void lab_run_clear(struct lab_run *run)
{
    free(run->text);
    run->text = NULL;
}
