/* averaging.c - single averaging rounds for programs that only wait for them. [TTT 2.1,
 * communication] [spec hivemind-protocol 4.2, 7]
 *
 *   tensors   of a safetensors file, in the swarm's order
 *   calls     open, average, share, load, close: each posts a request to the network's thread, and
 *             returns when the averager's callback has completed it
 *
 * On the wire a tensor has no name, only its position, and a group forms only among peers whose
 * schema (types and shapes in order) has the same hash. So the order has to travel with the
 * file. */
#include "averaging.h"
#include "data/files/json.h"
#include "data/files/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- tensors ---------------------------------------------------------------------------------- */

/* Also after a failed read: pointers not reached yet are NULL. */
void named_tensors_clear(struct named_tensors *t)
{
    for (size_t i = 0; i < t->count; i++) {
        if (t->name) free(t->name[i]);
        if (t->tensor) pl_free(t->tensor[i]);
    }
    free(t->name);
    free(t->schema);
    free(t->elements);
    free(t->tensor);
    memset(t, 0, sizeof *t);
}

/* Without an order in the file: the alphabet, which every peer gets from the same names. */
static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct st_tensor *const *)a)->name,
                  (*(const struct st_tensor *const *)b)->name);
}

/* The file's tensors in the order of its metadata "param_order", or by name without it: any
 * order will do if all peers have the same. */
static int put_in_order(const struct st_tensor **order, const struct st_file *f, struct pl_err *err)
{
    const char *text = pl_safetensors_meta(f, "param_order");
    json_t *list = text ? pl_json_load(text, strlen(text), 0, NULL) : NULL;
    char *was_named = calloc(f->count + 1, 1);
    int rc = PL_OK;
    if (!was_named || (text && !list && pl_json_status() == PL_ENOMEM))
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
    if (!rc && !list) {
        for (size_t i = 0; i < f->count; i++) order[i] = &f->tensors[i];
        qsort(order, f->count, sizeof *order, by_name);
    }
    /* The metadata is a stranger's text: each name has to be one of the file's tensors, and another
     * one than those before it. */
    for (size_t i = 0; list && i < f->count && !rc; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || !(order[i] = pl_safetensors_find(f, name)) || was_named[order[i] - f->tensors])
            rc = pl_fail(err, PL_EFORMAT, "%s: param_order names no further tensor at %zu", f->path,
                         i);
        else was_named[order[i] - f->tensors] = 1;
    }
    /* Every tensor once, or peers would average different ones. */
    if (!rc && list && json_array_size(list) != f->count)
        rc = pl_fail(err, PL_EFORMAT, "%s: param_order has %zu names, the file %zu tensors",
                     f->path, json_array_size(list), f->count);
    json_decref(list);
    free(was_named);
    return rc;
}

/* A float32 copy of a tensor of the file, with its schema. */
static int copy_tensor(struct named_tensors *t, const struct st_tensor *from)
{
    size_t i = t->count;
    /* The schema hash covers shape and type of each tensor in order; peers whose hashes differ form
     * no group. [spec hivemind-protocol 4.2] */
    t->schema[i] = (struct schema_tensor){ .type = { .dtype = PL_F32, .dims = from->dims } };
    for (int d = 0; d < from->dims; d++) t->schema[i].type.size[d] = from->shape[d];
    t->elements[i] = from->n;
    t->name[i] = strdup(from->name);
    t->tensor[i] = pl_alloc_unset(from->n, sizeof(float));
    t->count++;
    if (!t->name[i] || !t->tensor[i]) return PL_ENOMEM;
    /* Averaging computes in float32, whatever the file stores. */
    pl_safetensors_to_float(t->tensor[i], from);
    return PL_OK;
}

int named_tensors_read(struct named_tensors *t, const char *path, struct pl_err *err)
{
    struct st_file *f;
    const struct st_tensor **order = NULL;
    int rc = pl_safetensors_open(&f, path, err);
    memset(t, 0, sizeof *t);
    if (rc) return rc;
    order = calloc(f->count + 1, sizeof *order);
    t->name = calloc(f->count + 1, sizeof *t->name);
    t->schema = calloc(f->count + 1, sizeof *t->schema);
    t->elements = calloc(f->count + 1, sizeof *t->elements);
    t->tensor = calloc(f->count + 1, sizeof *t->tensor);
    if (!order || !t->name || !t->schema || !t->elements || !t->tensor)
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    if (!rc) rc = put_in_order(order, f, err);
    /* The file is mapped and may be larger than memory, so it is copied tensor by tensor. */
    for (size_t i = 0; !rc && i < f->count; i++)
        if ((rc = copy_tensor(t, order[i])))
            pl_fail(err, rc, "%s: no memory for %s", path, order[i]->name);
    free(order);
    pl_safetensors_close(f);
    if (rc) named_tensors_clear(t);
    return rc;
}

/* Writes the order along, so that any reader of the file averages in the same one. */
int named_tensors_write(const struct named_tensors *t, const char *path, struct pl_err *err)
{
    struct st_writer *w = pl_safetensors_writer_new();
    json_t *names;
    char *text;
    int rc;
    pl_json_begin();
    names = json_array();
    rc = w && names ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; !rc && i < t->count; i++) {
        rc = pl_safetensors_writer_add(w, t->name[i], PL_F32, t->schema[i].type.dims,
                                       t->schema[i].type.size, t->tensor[i]);
        json_array_append_new(names, json_string(t->name[i]));
    }
    /* A safetensors file has no order of its own: its header is a map by name. */
    text = pl_json_text(names, JSON_COMPACT);
    if (!rc) rc = text ? pl_safetensors_writer_meta(w, "param_order", text) : PL_ENOMEM;
    if (rc) pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    else rc = pl_safetensors_write(w, path, err);
    free(text);
    json_decref(names);
    pl_safetensors_writer_free(w);
    return rc;
}

/* The wire's compression types, by hivemind's names for them. [spec hivemind-protocol 6]
 *
 *   float16     each value as a half: 2 bytes
 *   meanstd16   the same of (x - mean) / deviation, for values beyond a half's range
 *   uniform8    256 evenly spaced steps around the mean, as wide as 6 deviations
 *   quantile8   256 steps that hold equally many values each
 *   blockwise8  blocks of 4096 values, each scaled by its largest, in a fixed code of 256 values */
int compression_named(enum pl_compression *method, const char *name, size_t elements,
                      size_t threshold)
{
    static const struct {
        const char *name;
        enum pl_compression method;
    } names[] = {
        { "none", PL_COMPRESS_NONE },           { "float16", PL_COMPRESS_FLOAT16 },
        { "meanstd16", PL_COMPRESS_MEANSTD16 }, { "uniform8", PL_COMPRESS_UNIFORM8 },
        { "quantile8", PL_COMPRESS_QUANTILE8 }, { "blockwise8", PL_COMPRESS_BLOCKWISE8 },
    };
    /* hivemind's SizeAdaptive compression of the reference run: 8 bits for tensors of 2^16 + 1
     * values or more, where the code book costs little; float16 for the rest. [spec
     * hivemind-protocol 10] */
    if (!strcmp(name, "run")) {
        *method = elements >= threshold ? PL_COMPRESS_UNIFORM8 : PL_COMPRESS_FLOAT16;
        return PL_OK;
    }
    for (size_t i = 0; i < PL_COUNT(names); i++)
        if (!strcmp(name, names[i].name)) {
            *method = names[i].method;
            return PL_OK;
        }
    return PL_EUSE;
}

/* Validators in a round of BTARD, on average. Each recomputes a peer's gradient while the group
 * waits, so a quarter costs a quarter of a batch's time a round. */
#define VALIDATORS 0.25

/* 1: "method" or "method:NUMBER". */
static int is_method(double *number, const char *name, const char *method)
{
    size_t n = strlen(method);
    char *end;
    /* "btardx" is not a method: the name must end there, or a colon must follow. */
    if (strncmp(name, method, n) || (name[n] && name[n] != ':')) return 0;
    if (!name[n]) return 1;
    *number = strtod(name + n + 1, &end);
    return end != name + n + 1 && !*end && isfinite(*number) && *number >= 0;
}

/* How a group guards against Byzantine peers: not at all, CenteredClip with a radius, or BTARD
 * with a number of validators. */
int robust_named(double *clip, int *verify, double *validators, const char *name)
{
    double radius = PL_CLIP_USUAL;
    *clip = *verify = 0;
    *validators = VALIDATORS;
    if (!strcmp(name, "none")) return PL_OK;
    /* BTARD verifies, and clips too where it cannot verify. */
    if (is_method(validators, name, "btard")) return *verify = 1, PL_OK;
    /* CenteredClip: every difference from the center is cut to the radius, so one peer moves the
     * mean by radius / n at most. A radius of 0 would leave every peer without any say. */
    if (!is_method(&radius, name, "centered-clip") || radius == 0) return PL_EUSE;
    *clip = radius;
    return PL_OK;
}

/* A copy: newcomers download while rounds go on changing the tensors. */
struct state_snapshot *snapshot_of(const struct named_tensors *t, const struct bytes *metadata)
{
    struct state_snapshot *s = state_snapshot_new(t->count);
    int failed = !s || state_snapshot_describe(s, metadata);
    for (size_t i = 0; !failed && i < t->count; i++) {
        float *copy = state_snapshot_add(s, &t->schema[i].type);
        if (copy) memcpy(copy, t->tensor[i], t->elements[i] * sizeof *copy);
        failed = !copy;
    }
    if (!failed) return s;
    state_snapshot_free(s);
    return NULL;
}

/* --- calls that wait -------------------------------------------------------------------------- */

/* Each kind of call has its own structure around the request that ends it. */
struct open_request {
    struct loop_request wait;
    struct swarm *s;
    struct averager **out;
    const struct averager_options *options;
    struct pl_err *err;
};

/* On the network's thread, which alone touches averagers. */
static void begin_open(void *context)
{
    struct open_request *r = context;
    int rc = averager_open(r->out, r->s->host, r->s->node, r->options, r->err);
    loop_end(&r->wait, rc);
}

int swarm_averager(struct averager **a, struct swarm *s, const struct averager_options *o,
                   struct pl_err *err)
{
    struct open_request r = { .s = s, .out = a, .options = o, .err = err };
    return loop_wait(s->loop, &r.wait, begin_open, &r);
}

struct close_request {
    struct loop_request wait;
    struct averager *a;
};

/* The caller may free what the averager has borrowed as soon as its wait ends. */
static void on_closed(void *wait) { loop_end(wait, PL_OK); }

static void begin_close(void *context)
{
    struct close_request *r = context;
    /* Helper threads may still work for it: closed is when they have ended. */
    averager_close(r->a, on_closed, &r->wait);
}

void swarm_averager_close(struct swarm *s, struct averager *a)
{
    struct close_request r = { .a = a };
    if (a) loop_wait(s->loop, &r.wait, begin_close, &r);
}

struct round_request {
    struct loop_request wait;
    struct swarm *s;
    struct averager *a;
    const struct averager_step *step;
    double timeout_s;
    struct round *round;
};

/* The result points into the averager, which goes on: keep copies of its texts and of the group. */
static void on_round(void *context, const struct averager_result *r)
{
    struct round_request *request = context;
    struct round *to = request->round;
    to->result = *r;
    to->result.group = &to->group;
    if (r->status) pl_fail(&to->why, r->status, "%s", r->why);
    to->result.why = to->why.text;
    pl_fail(&to->differs, PL_OK, "%s", r->differs);
    to->result.differs = to->differs.text;
    pl_fail(&to->left_out, PL_OK, "%s", r->left_out);
    to->result.left_out = to->left_out.text;
    for (size_t i = 0; r->group && i < r->group->count; i++)
        group_add(&to->group, &r->group->members[i].peer, r->group->members[i].gathered,
                  r->group->members[i].gathered_n, NULL);
    /* The id names the round: it is the same at all of its members. */
    if (r->group) {
        memcpy(to->group.id, r->group->id, sizeof to->group.id);
        to->group.self = r->group->self;
    }
    loop_end(&request->wait, r->status);
}

/* One round at a time for each averager: it owns the tensors while it runs. */
static void begin_round(void *context)
{
    struct round_request *r = context;
    struct averager_step step = *r->step;
    int rc;
    /* Deadlines are in DHT time, the clock that all peers of a swarm share. */
    step.deadline = dht_node_time(r->s->node) + r->timeout_s;
    if ((rc = averager_begin(r->a, &step, on_round, r))) {
        r->round->result.status = rc;
        r->round->result.why = r->round->why.text;
        pl_fail(&r->round->why, rc, "averaging: %s",
                rc == PL_ENOMEM ? "no memory" : "a round is under way");
        loop_end(&r->wait, rc);
    }
}

int swarm_average(struct swarm *s, struct averager *a, const struct averager_step *step,
                  double timeout_s, struct round *r)
{
    struct round_request request = {
        .s = s, .a = a, .step = step, .timeout_s = timeout_s, .round = r
    };
    /* The result's texts and its group are copies, so that the caller may keep them. */
    memset(r, 0, sizeof *r);
    return loop_wait(s->loop, &request.wait, begin_round, &request);
}

/* Its texts are arrays; the group's members are allocated. */
void round_clear(struct round *r) { group_clear(&r->group); }

struct share_request {
    struct averager *a;
    struct state_snapshot *snapshot;
    double priority;
};

/* From now on the averager owns the snapshot, and advertises it with this priority. */
static void share_here(void *context)
{
    struct share_request *r = context;
    averager_share(r->a, r->snapshot, r->priority);
}

/* Announced under PREFIX.all_averagers every 30 s; newcomers ask the highest priority first. [spec
 * hivemind-protocol 7] */
void swarm_share(struct swarm *s, struct averager *a, struct state_snapshot *snapshot,
                 double priority)
{
    struct share_request r = { .a = a, .snapshot = snapshot, .priority = priority };
    loop_call(s->loop, share_here, &r);
}

struct load_request {
    struct loop_request wait;
    struct averager *a;
    state_check *check;
    void *check_context;
    struct state_load *state;
    struct peer_id *donor;
    struct pl_err *err;
};

/* Called for each donor's state before it is taken. */
static int on_check(void *context, const struct state_load *state, struct pl_err *err)
{
    struct load_request *r = context;
    return r->check ? r->check(r->check_context, state, err) : PL_OK;
}

/* The last donor is named even if it failed, for the message to the user. */
static void on_loaded(void *context, int status, const struct peer_id *donor,
                      struct state_load *state, const struct pl_err *err)
{
    struct load_request *r = context;
    /* Moved, not copied: the averager has nothing left to free. */
    *r->state = *state;
    memset(state, 0, sizeof *state);
    *r->donor = *donor;
    if (status) *r->err = *err;
    loop_end(&r->wait, status);
}

static void begin_load(void *context)
{
    struct load_request *r = context;
    int rc = averager_load(r->a, on_check, on_loaded, r);
    if (rc) {
        pl_fail(r->err, rc, "state: a download is under way");
        loop_end(&r->wait, rc);
    }
}

/* Tries donors one after the other, the highest priority first, until one gives a state that the
 * check accepts. [spec hivemind-protocol 7] */
int swarm_load(struct swarm *s, struct averager *a, state_check *check, void *context,
               struct state_load *state, struct peer_id *donor, struct pl_err *err)
{
    struct load_request r = {
        .a = a, .check = check, .check_context = context, .state = state, .donor = donor, .err = err
    };
    memset(state, 0, sizeof *state);
    return loop_wait(s->loop, &r.wait, begin_load, &r);
}
