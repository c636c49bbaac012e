/* trainer.c - a peer with the collaborative optimizer of `potluck train --run` on a toy: any
 * tensors of a file, each pulled to those of another file, as hivemind_trainer.py does with
 * --targets. Prints lines of JSON, with checksums and a sample of the parameters. */
#include "net/hivemind/swarm/averaging.h"
#include "net/hivemind/training/collaborative.h"
#include "../../ref/rng.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct toy {
    const struct pl_backend *be;
    struct named_tensors start, target;
    struct pl_optimizer *optimizer;
    struct pl_optimizer_tensor *tensors;
    struct optimizer_state state;
    float *value, *grad;
    float *delayed_value, *aside_grad; /* of a delayed step */
    size_t total;
    int64_t samples;
    struct pl_rng rng;
    /* wishes */
    const char *model, *targets, *save;
    double lr, noise, step_seconds, seconds;
    int64_t batch, warmup, seed;
};

/* 0.5 mean((p - target - jitter)^2), jitter of deviation noise / sqrt(batch). */
static int batch(void *context, int64_t *samples, double *loss, struct pl_err *err)
{
    struct toy *t = context;
    double began = pl_seconds(), left;
    (void)err;
    *loss = 0;
    for (size_t k = 0; k < t->start.count; k++) {
        size_t n = t->start.elements[k], at = t->tensors[k].offset;
        for (size_t i = 0; i < n; i++) {
            double jitter = t->noise * pl_rng_normal(&t->rng) / sqrt((double)t->batch);
            double d = t->value[at + i] - t->target.tensor[k][i] - jitter;
            *loss += 0.5 * d * d / (double)n;
            t->grad[at + i] += (float)((double)t->batch * d / (double)n);
        }
    }
    *samples = t->batch;
    t->samples += t->batch;
    if ((left = began + t->step_seconds - pl_seconds()) > 0) {
        struct timespec nap = { (time_t)left, (long)((left - (double)(time_t)left) * 1e9) };
        nanosleep(&nap, NULL);
    }
    return PL_OK;
}

static int mean(void *context)
{
    struct toy *t = context;
    return t->be->scale(t->grad, (float)(1 / (double)(t->samples ? t->samples : 1)), t->total);
}

static double rate(void *context, int64_t epoch)
{
    const struct toy *t = context;
    return t->lr * fmin(1, (double)epoch / (double)t->warmup);
}

static void drop(void *context)
{
    struct toy *t = context;
    memset(t->grad, 0, t->total * sizeof *t->grad);
    t->samples = 0;
}

static int step(void *context, int64_t epoch, struct pl_err *err)
{
    struct toy *t = context;
    int rc = pl_optimizer_step(t->optimizer, t->value, t->grad, t->warmup ? rate(t, epoch) : t->lr);
    drop(t);
    return rc ? pl_fail(err, rc, "optimizer: %s", pl_status_name(rc)) : rc;
}

static int set_aside(void *context)
{
    struct toy *t = context;
    memcpy(t->aside_grad, t->grad, t->total * sizeof *t->grad);
    drop(t);
    return PL_OK;
}

static float *aside_grad(void *context) { return ((struct toy *)context)->aside_grad; }

static int step_aside(void *context, int64_t epoch, struct pl_err *err)
{
    struct toy *t = context;
    int rc;
    memcpy(t->delayed_value, t->value, t->total * sizeof *t->value);
    rc = pl_optimizer_step(t->optimizer, t->delayed_value, t->aside_grad,
                           t->warmup ? rate(t, epoch) : t->lr);
    return rc ? pl_fail(err, rc, "optimizer: %s", pl_status_name(rc)) : rc;
}

static int take_in(void *context)
{
    struct toy *t = context;
    memcpy(t->value, t->delayed_value, t->total * sizeof *t->value);
    return PL_OK;
}

static int moved(void *context, int64_t epoch) { return (void)context, (void)epoch, PL_OK; }

static int load_files(struct toy *t, struct pl_err *err)
{
    struct pl_optimizer_options o = pl_lamb_options();
    struct pl_wire_type *types;
    int rc = named_tensors_read(&t->start, t->model, err);
    if (!rc) rc = named_tensors_read(&t->target, t->targets, err);
    if (rc) return rc;
    if (t->start.count != t->target.count)
        return pl_fail(err, PL_EUSE, "other targets than tensors");
    t->tensors = calloc(t->start.count + 1, sizeof *t->tensors);
    types = calloc(t->start.count + 1, sizeof *types);
    for (size_t i = 0; i < t->start.count; i++) {
        if (t->start.elements[i] != t->target.elements[i])
            return pl_fail(err, PL_EUSE, "other targets");
        t->tensors[i] = (struct pl_optimizer_tensor){ t->total, t->start.elements[i], 0.045, NULL };
        types[i] = t->start.schema[i].type;
        t->total += (t->start.elements[i] + 15) / 16 * 16;
    }
    t->value = pl_alloc(t->total, sizeof(float));
    t->grad = pl_alloc(t->total, sizeof(float));
    t->delayed_value = pl_alloc(t->total, sizeof(float));
    t->aside_grad = pl_alloc(t->total, sizeof(float));
    for (size_t i = 0; i < t->start.count; i++)
        memcpy(t->value + t->tensors[i].offset, t->start.tensor[i],
               t->start.elements[i] * sizeof(float));
    o.decay = 0.045;
    o.min_8bit = 0;
    rc = pl_optimizer_open(&t->optimizer, t->be, &o, t->tensors, t->start.count, err);
    if (!rc)
        rc = optimizer_state_open(&t->state, t->optimizer, &o, t->be, t->tensors, types,
                                  t->start.count, err);
    free(types);
    return rc;
}

/* --- what is said ----------------------------------------------------------------------------- */

static json_t *checksums(const struct toy *t)
{
    json_t *sums = json_object();
    for (size_t k = 0; k < t->start.count; k++) {
        double sum = 0;
        for (size_t i = 0; i < t->start.elements[k]; i++) sum += t->value[t->tensors[k].offset + i];
        json_object_set_new(sums, t->start.name[k], json_real(sum));
    }
    return sums;
}

/* Some of them, evenly spread: enough to see whether two peers agree. */
static json_t *sample(const struct toy *t)
{
    enum { TAKEN = 16 };
    json_t *values = json_array();
    for (size_t k = 0; k < t->start.count; k++)
        for (size_t i = 0; i < TAKEN; i++)
            json_array_append_new(
                values,
                json_real(
                    t->value[t->tensors[k].offset + i * (t->start.elements[k] - 1) / (TAKEN - 1)]));
    return values;
}

static void tell(void *context, const struct collaborative_event *e)
{
    static const char *const names[] = { "ready",     "loaded", "step",    "epoch",
                                         "corrected", "behind", "trouble", "end" };
    struct timespec now;
    char round[2 * DHT_ID_BYTES + 1];
    json_t *line;
    char *text;
    if (e->kind == COLLABORATIVE_BATCH) return;
    for (size_t i = 0; i < DHT_ID_BYTES; i++)
        snprintf(round + 2 * i, sizeof round - 2 * i, "%02x", e->round.group[i]);
    clock_gettime(CLOCK_REALTIME, &now);
    line = json_pack("{s:s,s:f,s:I,s:I,s:I,s:I,s:I,s:f,s:s,s:i,s:I,s:f,s:s?,s:s?,s:o,s:o}", "event",
                     names[e->kind], "time", (double)now.tv_sec + (double)now.tv_nsec * 1e-9,
                     "epoch", (json_int_t)e->view.epoch, "global_epoch",
                     (json_int_t)e->view.global_epoch, "peers", (json_int_t)e->view.peers,
                     "global_samples", (json_int_t)e->view.global_samples, "local_samples",
                     (json_int_t)e->samples, "loss", e->loss, "round", round, "round_status",
                     e->round.status, "round_peers", (json_int_t)e->round.peers, "seconds",
                     e->seconds, "why", e->round.status ? e->round.why.text : NULL, "text", e->text,
                     "checksums", checksums(context), "sample", sample(context));
    text = json_dumps(line, JSON_COMPACT);
    puts(text);
    fflush(stdout);
    free(text);
    json_decref(line);
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "run", 1, NULL, 'r' },
                                             { "model", 1, NULL, 'm' },
                                             { "targets", 1, NULL, 't' },
                                             { "join", 1, NULL, 'j' },
                                             { "client-mode", 0, NULL, 'c' },
                                             { "target-batch", 1, NULL, 'T' },
                                             { "batch", 1, NULL, 'b' },
                                             { "step-seconds", 1, NULL, 's' },
                                             { "matchmaking-time", 1, NULL, 'M' },
                                             { "averaging-timeout", 1, NULL, 'A' },
                                             { "epochs", 1, NULL, 'e' },
                                             { "seconds", 1, NULL, 'S' },
                                             { "lr", 1, NULL, 'l' },
                                             { "warmup", 1, NULL, 'w' },
                                             { "noise", 1, NULL, 'n' },
                                             { "seed", 1, NULL, 'd' },
                                             { "compression", 1, NULL, 'C' },
                                             { "listen", 1, NULL, 'L' },
                                             { "save", 1, NULL, 'v' },
                                             { "delay", 1, NULL, 'D' },
                                             { "group-size", 1, NULL, 'g' },
                                             { "group-bits", 1, NULL, 'B' },
                                             { 0 } };
    const char *listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct toy t = { .lr = 0.0025, .noise = 1, .batch = 16, .step_seconds = 0.3, .seed = 1 };
    struct collaborative_options o = { .compression = "run",
                                       .threshold = PL_WIRE_ADAPTIVE,
                                       .target_batch = 128,
                                       .epochs = 1000000,
                                       .average_state_every = 1,
                                       .matchmaking_time = 4,
                                       .averaging_timeout = 60,
                                       .allreduce_timeout = 30,
                                       .load = 1,
                                       .bandwidth = PL_BANDWIDTH_UNKNOWN,
                                       .tell = tell,
                                       .context = &t };
    struct collaborative_learner l = { .context = &t,
                                       .batch = batch,
                                       .mean = mean,
                                       .step = step,
                                       .drop = drop,
                                       .moved = moved,
                                       .set_aside = set_aside,
                                       .aside_grad = aside_grad,
                                       .step_aside = step_aside,
                                       .take_in = take_in,
                                       .beside = 1 };
    struct swarm_options so = { .cmd = "trainer", .listen = listen, .listen_count = 1 };
    const char *join[8];
    struct validators validators = { 0 };
    struct rsa_key key = { 0 };
    struct pl_backend be;
    struct swarm s;
    struct pl_err err = { "" };
    char address[MULTIADDR_TEXT_MAX];
    int64_t epoch = 0;
    int option, rc;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'r': o.run = optarg; break;
        case 'm': t.model = optarg; break;
        case 't': t.targets = optarg; break;
        case 'j':
            if (so.join_count < PL_COUNT(join)) join[so.join_count++] = optarg;
            break;
        case 'c':
            o.client_mode = 1;
            so.listen_count = 0;
            break;
        case 'T': o.target_batch = atoll(optarg); break;
        case 'b': t.batch = atoll(optarg); break;
        case 's': t.step_seconds = atof(optarg); break;
        case 'M': o.matchmaking_time = atof(optarg); break;
        case 'A': o.averaging_timeout = atof(optarg); break;
        case 'e': o.epochs = atoll(optarg); break;
        case 'S': o.seconds = atof(optarg); break;
        case 'l': t.lr = atof(optarg); break;
        case 'w': t.warmup = atoll(optarg); break;
        case 'n': t.noise = atof(optarg); break;
        case 'd': t.seed = atoll(optarg); break;
        case 'C': o.compression = optarg; break;
        case 'L': listen[0] = optarg; break;
        case 'v': t.save = optarg; break;
        case 'g': o.group_size = (size_t)atoll(optarg); break;
        case 'B': o.group_bits = optarg; break;
        case 'D':
            o.delay = !strcmp(optarg, "round")  ? COLLABORATIVE_DELAY_ROUND
                      : !strcmp(optarg, "step") ? COLLABORATIVE_DELAY_STEP
                                                : COLLABORATIVE_DELAY_NONE;
            break;
        default: return 2;
        }
    }
    if (!o.run || !t.model || !t.targets) return 2;
    pl_backend_ref(&be);
    t.be = &be;
    pl_rng_init(&t.rng, (uint64_t)t.seed, 7);
    if (load_files(&t, &err) || rsa_key_make(&key, &err)) {
        fprintf(stderr, "trainer: %s\n", err.text);
        return 1;
    }
    l.state = &t.state;
    l.value = t.value;
    l.grad = t.grad;
    l.peak = t.lr;
    l.rate = t.warmup ? rate : NULL;
    o.key = validators.key = &key;
    validators_add_run(&validators, o.run);
    so.validators = &validators;
    so.join = join;
    rc = swarm_open(&s, &so, &err);
    if (!rc) {
        if (!swarm_address(&s, address))
            printf("{\"event\":\"listening\",\"multiaddr\":\"%s\"}\n", address), fflush(stdout);
        rc = swarm_wait_joined(&s, 0, &err);
        if (!rc) rc = collaborative_run(&s, &l, &o, &be, &epoch, &err);
        swarm_close(&s);
    }
    if (rc) fprintf(stderr, "trainer: %s\n", err.text);
    if (!rc && t.save) {
        for (size_t i = 0; i < t.start.count; i++)
            memcpy(t.start.tensor[i], t.value + t.tensors[i].offset,
                   t.start.elements[i] * sizeof(float));
        named_tensors_write(&t.start, t.save, &err);
    }
    pl_optimizer_close(t.optimizer);
    optimizer_state_close(&t.state);
    rsa_key_clear(&key);
    named_tensors_clear(&t.start);
    named_tensors_clear(&t.target);
    pl_free(t.value);
    pl_free(t.grad);
    pl_free(t.delayed_value);
    pl_free(t.aside_grad);
    free(t.tensors);
    return rc ? 1 : 0;
}
