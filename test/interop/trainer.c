/* trainer.c - a peer of the collaborative optimizer, by its public header, on a toy: any tensors of
 * a file, each pulled to those of another file, as hivemind_trainer.py does with --targets. Prints
 * lines of JSON, with checksums and a sample of the parameters. */
#include "net/hivemind/optimizer.h"
#include "net/hivemind/swarm/averaging.h"
#include "../../ref/rng.h"

#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct toy {
    struct named_tensors start, target; /* start's tensors are trained */
    struct pl_collaborative_tensor *tensors;
    float **gradient;
    struct pl_rng rng;
    const char *model, *targets, *save;
    double lr, noise, step_seconds, seconds;
    int64_t batch, warmup, seed;
};

/* 0.5 mean((p - target - jitter)^2), jitter of deviation noise / sqrt(batch); returns it. */
static double batch(struct toy *t)
{
    double began = pl_seconds(), left, loss = 0;
    for (size_t k = 0; k < t->start.count; k++) {
        size_t n = t->start.elements[k];
        for (size_t i = 0; i < n; i++) {
            double jitter = t->noise * pl_rng_normal(&t->rng) / sqrt((double)t->batch);
            double d = t->start.tensor[k][i] - t->target.tensor[k][i] - jitter;
            loss += 0.5 * d * d / (double)n;
            t->gradient[k][i] = (float)(d / (double)n);
        }
    }
    if ((left = began + t->step_seconds - pl_seconds()) > 0) {
        struct timespec nap = { (time_t)left, (long)((left - (double)(time_t)left) * 1e9) };
        nanosleep(&nap, NULL);
    }
    return loss;
}

static double rate(void *context, int64_t epoch)
{
    const struct toy *t = context;
    return t->lr * fmin(1, (double)epoch / (double)t->warmup);
}

static int load_files(struct toy *t, struct pl_err *err)
{
    int rc = named_tensors_read(&t->start, t->model, err);
    if (!rc) rc = named_tensors_read(&t->target, t->targets, err);
    if (rc) return rc;
    if (t->start.count != t->target.count)
        return pl_fail(err, PL_EUSE, "other targets than tensors");
    t->tensors = calloc(t->start.count + 1, sizeof *t->tensors);
    t->gradient = calloc(t->start.count + 1, sizeof *t->gradient);
    for (size_t i = 0; i < t->start.count; i++) {
        const struct pl_wire_type *type = &t->start.schema[i].type;
        if (t->start.elements[i] != t->target.elements[i])
            return pl_fail(err, PL_EUSE, "other targets");
        t->tensors[i] = (struct pl_collaborative_tensor){ .name = t->start.name[i],
                                                          .dims = type->dims,
                                                          .value = t->start.tensor[i] };
        memcpy(t->tensors[i].shape, type->size, (size_t)type->dims * sizeof *type->size);
        t->gradient[i] = pl_alloc(t->start.elements[i], sizeof(float));
    }
    return PL_OK;
}

/* --- what is reported ------------------------------------------------------------------------- */

static json_t *checksums(const struct toy *t)
{
    json_t *sums = json_object();
    for (size_t k = 0; k < t->start.count; k++) {
        double sum = 0;
        for (size_t i = 0; i < t->start.elements[k]; i++) sum += t->start.tensor[k][i];
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
                json_real(t->start.tensor[k][i * (t->start.elements[k] - 1) / (TAKEN - 1)]));
    return values;
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    static const char *const names[] = { "ready",     "loaded", "step",    "epoch",
                                         "corrected", "behind", "trouble", "end" };
    struct timespec now;
    char round[2 * sizeof e->round.group + 1];
    json_t *line;
    char *text;
    if (e->kind == PL_COLLABORATIVE_BATCH) return;
    for (size_t i = 0; i < sizeof e->round.group; i++)
        snprintf(round + 2 * i, sizeof round - 2 * i, "%02x", e->round.group[i]);
    clock_gettime(CLOCK_REALTIME, &now);
    line = json_pack("{s:s,s:f,s:I,s:I,s:I,s:I,s:I,s:f,s:s,s:i,s:I,s:f,s:s?,s:s?,s:o,s:o}", "event",
                     names[e->kind], "time", (double)now.tv_sec + (double)now.tv_nsec * 1e-9,
                     "epoch", (json_int_t)e->status.epoch, "global_epoch",
                     (json_int_t)e->status.global_epoch, "peers", (json_int_t)e->status.peers,
                     "global_samples", (json_int_t)e->status.global_samples, "local_samples",
                     (json_int_t)e->samples, "loss", e->loss, "round", round, "round_status",
                     e->round.status, "round_peers", (json_int_t)e->round.peers, "seconds",
                     e->seconds, "why", e->round.status ? e->round.why : NULL, "text", e->text,
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
                                             { "inner-steps", 1, NULL, 'i' },
                                             { "powersgd", 1, NULL, 'p' },
                                             { "powersgd-own", 1, NULL, 'o' },
                                             { 0 } };
    const char *listen[] = { "/ip4/127.0.0.1/tcp/0" }, *join[8];
    struct toy t = { .lr = 0.0025, .noise = 1, .batch = 16, .step_seconds = 0.3, .seed = 1 };
    struct pl_optimizer_options lamb = pl_lamb_options();
    struct pl_collaborative_run run = { .listen = listen,
                                        .listen_count = 1,
                                        .initial_peers = join };
    struct pl_collaborative_options o = { .target_batch = 128,
                                          .optimizer = &lamb,
                                          .matchmaking_time = 4,
                                          .averaging_timeout = 60,
                                          .allreduce_timeout = 30,
                                          .epochs = 1000000,
                                          .report = report,
                                          .context = &t };
    struct pl_collaborative *c = NULL;
    struct pl_err err = { "" };
    double began;
    int option, rc;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'r': run.name = optarg; break;
        case 'm': t.model = optarg; break;
        case 't': t.targets = optarg; break;
        case 'j':
            if (run.initial_peer_count < PL_COUNT(join)) join[run.initial_peer_count++] = optarg;
            break;
        case 'c': run.client_mode = 1; break;
        case 'T': o.target_batch = atoll(optarg); break;
        case 'b': t.batch = atoll(optarg); break;
        case 's': t.step_seconds = atof(optarg); break;
        case 'M': o.matchmaking_time = atof(optarg); break;
        case 'A': o.averaging_timeout = atof(optarg); break;
        case 'e': o.epochs = atoll(optarg); break;
        case 'S': t.seconds = atof(optarg); break;
        case 'l': t.lr = atof(optarg); break;
        case 'w': t.warmup = atoll(optarg); break;
        case 'n': t.noise = atof(optarg); break;
        case 'd': t.seed = atoll(optarg); break;
        case 'C': o.compression = optarg; break;
        case 'L': listen[0] = optarg; break;
        case 'v': t.save = optarg; break;
        case 'g': o.group_size = (size_t)atoll(optarg); break;
        case 'B': o.group_bits = optarg; break;
        case 'i':
            o.algorithm = "diloco";
            o.inner_steps = atoll(optarg);
            break;
        case 'p':
        case 'o':
            o.algorithm = option == 'p' ? "powersgd" : "powersgd_own";
            o.powersgd_rank = atoi(optarg);
            break;
        case 'D':
            o.delay = !strcmp(optarg, "round")  ? PL_DELAY_ROUND
                      : !strcmp(optarg, "step") ? PL_DELAY_STEP
                                                : PL_DELAY_NONE;
            break;
        default: return 2;
        }
    }
    if (!run.name || !t.model || !t.targets) return 2;
    lamb.min_8bit = 0;
    o.lr = t.lr;
    o.schedule = t.warmup ? rate : NULL;
    pl_rng_init(&t.rng, (uint64_t)t.seed, 7);
    rc = load_files(&t, &err);
    if (!rc) rc = pl_collaborative_open(&c, &run, t.tensors, t.start.count, &o, &err);
    if (!rc && pl_collaborative_address(c)) {
        printf("{\"event\":\"listening\",\"multiaddr\":\"%s\"}\n", pl_collaborative_address(c));
        fflush(stdout);
    }
    began = pl_seconds();
    while (!rc && pl_collaborative_epoch(c) < o.epochs &&
           (t.seconds == 0 || pl_seconds() - began < t.seconds)) {
        double loss = batch(&t);
        rc = pl_collaborative_step(c, (const float *const *)t.gradient, t.batch, loss, &err);
    }
    if (!rc) rc = pl_collaborative_finish(c, &err);
    pl_collaborative_close(c);
    if (rc) fprintf(stderr, "trainer: %s\n", err.text);
    if (!rc && t.save && (rc = named_tensors_write(&t.start, t.save, &err)))
        fprintf(stderr, "trainer: %s\n", err.text);
    for (size_t i = 0; t.gradient && i < t.start.count; i++) pl_free(t.gradient[i]);
    free(t.gradient);
    free(t.tensors);
    named_tensors_clear(&t.start);
    named_tensors_clear(&t.target);
    return rc ? 1 : 0;
}
