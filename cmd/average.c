/* average.c - `potluck average`: tensors of a file averaged with a group of peers. */
#include "net/hivemind/swarm/averaging.h"
#include "cmd/doctor/preflight.h"
#include "cmd.h"
#include "cmd/options/averaging_options.h"
#include "cmd/common/compute.h"
#include "cmd/options/join_options.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/common/json_event.h"
#include "cmd/common/outputs.h"
#include "cmd/common/plural.h"

#include "net/hivemind/messages/msgpack.h"
#include "ref/small.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct requests {
    struct compute compute;
    struct join_options join;
    const char *tensors, *compression, *out;
    int64_t threshold, expect, rounds;
    double weight, timeout, share_s, chunk;
    struct averager_options averager;
    int load, json, no_check, differs_reported;
};

static int take_bits(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct requests *w = options;
    return take_group_bits(&w->averager.bits, value, err);
}

static int take_robust(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct requests *w = options;
    double validators; /* tensors from a file cannot be recomputed */
    if (!robust_named(&w->averager.clip, &w->averager.verify, &validators, value)) return PL_OK;
    return pl_fail(err, PL_EUSE,
                   "'%.40s' is not one of none, centered-clip[:RADIUS], "
                   "btard",
                   value);
}

#define OPTIONS struct requests
static const struct option_row rows[] = {
    { "prefix", "P", NULL, OPT_TEXT(averager.prefix),
      "averager prefix: peers with the same prefix find each other" },
    { "tensors", "FILE", NULL, OPT_PATH(tensors), "safetensors file with our tensors" },
    { "out", "FILE", NULL, OPT_PATH(out), "where to write the average" },
    { "weight", "W", "1", OPT_REAL(weight, 0, PART_WEIGHT_MAX),
      "weight of our tensors in the average" },
    { "compression", "C", "run", OPT_NAME(compression, compression_names),
      "how tensors are encoded; run: 8 bits for those of --threshold elements and more, 16 for "
      "others" },
    { "threshold", "N", "65537", OPT_INTEGER(threshold, 0, INT64_MAX),
      "smallest size, in elements, of a tensor that travels in 8 bits with --compression run" },
    { "part-bytes", "N", "524288", OPT_INTEGER(averager.part_bytes, 16, 8 << 20),
      "size of an encoded part; must be the same in the whole group" },
    { "group-size", "N", NULL, OPT_INTEGER(averager.target_size, 2, GROUP_PEERS_MAX),
      "begin a round as soon as this many peers have joined the group (default: wait for all "
      "that join in time)" },
    { "min-group-size", "N", "2", OPT_INTEGER(averager.min_size, 2, GROUP_PEERS_MAX),
      "smallest group that begins a round" },
    { "group-bits", "BITS", NULL, OPT_CALL(take_bits),
      "zeros and ones: only peers with the same bits meet, and each round changes them" },
    { "expect", "N", NULL, OPT_INTEGER(expect, 2, GROUP_PEERS_MAX),
      "begin as soon as this many peers are in the group, not counting auxiliary ones" },
    { "matchmaking-time", "SECONDS", "5", OPT_SECONDS(averager.min_matchmaking_time, 0.1, 3600),
      "how long peers look for each other before a round" },
    { "chunk-timeout", "SECONDS", "10", OPT_SECONDS(chunk, 0.1, 3600),
      "a peer that sends nothing for this long has left the round" },
    { "allreduce-timeout", "SECONDS", "60", OPT_SECONDS(averager.allreduce_timeout, 0.1, 86400),
      "limit of the all-reduce within a round" },
    { "timeout", "SECONDS", "60", OPT_SECONDS(timeout, 0.1, 86400),
      "limit of a whole round; until then a group that fails is followed by a new one" },
    { "bandwidth", "X", NULL, OPT_REAL(averager.bandwidth, 0, 1e15),
      "bandwidth of this peer in Mbit/s. Peers with more bandwidth reduce a larger share, peers "
      "with 0 reduce nothing (default: measured in its own rounds)" },
    { "upload-limit", "SECONDS", "0", OPT_SECONDS(averager.upload_limit, 0, 86400),
      "a slower uplink reduces nothing, and sends only as many of its values as it can in this "
      "time (0: all of them)" },
    { "class", "NAME", "DecentralizedAverager", OPT_TEXT(averager.class_name),
      "Python class of the averager, which is part of its RPC names" },
    { "auxiliary", NULL, NULL, OPT_FLAG(averager.auxiliary),
      "reduce a share for the others; our tensors do not count" },
    { "robust", "METHOD", NULL, OPT_CALL(take_robust),
      "protection from Byzantine peers (default: none)"
      "\n- none: the mean"
      "\n- centered-clip[:RADIUS]: CenteredClip in place of the mean"
      "\n- btard: CenteredClip, and rounds are verified if the whole group asks for it" },
    { "rounds", "N", "1", OPT_INTEGER(rounds, 0, 1000000000), "rounds, one after the other" },
    { "load-state", NULL, NULL, OPT_FLAG(load),
      "start with the tensors of a peer that shares its state" },
    { "share-seconds", "SECONDS", "0", OPT_SECONDS(share_s, 0, 1e9),
      "share our tensors with newcomers, and stay for this long after the last round" },
    { "json", NULL, NULL, OPT_FLAG(json), "print events as lines of JSON" },
    { NULL, NULL, NULL, OPT_HEADING, "The swarm" },
    { NULL, NULL, NULL, OPT_TABLE(join, join_rows), NULL },
    PREFLIGHT_ROW(no_check),
    { NULL, NULL, NULL, OPT_TABLE(compute, compute_rows), NULL },
    { 0 },
};

static int check(struct requests *w)
{
    w->averager.client_mode = w->join.client_mode;
    if (!w->averager.prefix || !w->tensors)
        return command_misused("average", "--prefix and --tensors are needed");
    if (w->join.client_mode && !w->join.join.count)
        return command_misused("average",
                               "--client-mode accepts no connections: --join MULTIADDR is needed");
    join_options_default(&w->join);
    w->averager.sender_timeout = w->chunk;
    w->averager.reducer_timeout = 2 * w->chunk;
    return PL_OK;
}

/* --- output ----------------------------------------------------------------------------------- */

static void say(const struct requests *w, json_t *line, const char *text)
{
    if (!w->json && text) puts(text);
    if (!w->json) json_decref(line), line = NULL;
    json_event_print(line);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec) * 1e-6;
}

static void say_round(struct requests *w, int64_t number, const struct round *r, double seconds,
                      double cpu)
{
    const struct allreduce_report *e = &r->result.report;
    json_t *group = json_array(), *line;
    char text[300], id[PEER_ID_TEXT_MAX];
    const size_t others = r->group.count ? r->group.count - 1 : 0;
    double received = e->values ? (double)e->received / (double)e->values : 0;
    for (size_t i = 0; i < r->group.count; i++) {
        peer_id_text(id, &r->group.members[i].peer);
        json_array_append_new(group, json_string(id));
    }
    line = json_pack("{s:s,s:I,s:f,s:f,s:f,s:o,s:f,s:I,s:I,s:I,s:I,s:i}", "event", "round",
                     "number", (json_int_t)number, "seconds", seconds, "cpu_seconds", cpu,
                     "allreduce_seconds", r->result.seconds, "group", group, "received", received,
                     "senders_lost", (json_int_t)e->senders_lost, "reducers_lost",
                     (json_int_t)e->reducers_lost, "bytes_out", (json_int_t)e->bytes_out,
                     "bytes_in", (json_int_t)e->bytes_in, "attempts", r->result.attempts);
    json_object_set_new(line, "differs",
                        r->differs.text[0] ? json_string(r->differs.text) : json_null());
    json_object_set_new(line, "error", r->result.status ? json_string(r->why.text) : json_null());
    snprintf(text, sizeof text,
             "round %lld: averaged with %zu peer%s in %.2f s, all-reduce %.2f s%s",
             (long long)number, others, PLURAL(others), seconds, r->result.seconds,
             e->senders_lost ? ", without the data of some that timed out" : "");
    say(w, line, r->result.status ? NULL : text);
    if (r->differs.text[0] && !w->differs_reported) {
        w->differs_reported = 1;
        fprintf(stderr, "potluck average: %s\n", r->differs.text);
    }
    if (r->left_out.text[0]) fprintf(stderr, "potluck average: %s\n", r->left_out.text);
    if (r->result.status)
        command_failed("average", "round %lld: %s", (long long)number, r->why.text);
    else if (w->averager.verify && !r->result.verified)
        fprintf(stderr,
                "potluck average: round %lld could not be verified: a peer of the group does not "
                "verify, or the group has fewer than three; we reduced our parts by "
                "centered-clip\n",
                (long long)number);
}

/* --- work ------------------------------------------------------------------------------------- */

struct same_shape {
    const struct named_tensors *mine;
};

static int check_state(void *context, const struct state_load *state, struct pl_err *err)
{
    const struct named_tensors *t = ((struct same_shape *)context)->mine;
    int same = state->count == t->count;
    for (size_t i = 0; same && i < t->count; i++)
        same = state->tensors[i].type.dtype == PL_F32 &&
               tensor_elements(&state->tensors[i]) == t->elements[i];
    return same ? PL_OK : pl_fail(err, PL_EFORMAT, "the peer's state has other tensors than ours");
}

static int load(const struct requests *w, struct swarm *s, struct averager *a,
                struct named_tensors *t, const struct pl_backend *be)
{
    struct same_shape shape = { t };
    struct state_load state;
    struct peer_id donor;
    struct pl_err err = { "" };
    char id[PEER_ID_TEXT_MAX] = "";
    double began = pl_seconds();
    int rc = swarm_load(s, a, check_state, &shape, &state, &donor, &err);
    for (size_t i = 0; !rc && i < t->count; i++) {
        const struct tensor_message *m = &state.tensors[i];
        rc = pl_wire_decode(t->tensor[i], be, m->method, &m->type, m->buffer, m->bytes, &err);
    }
    state_load_clear(&state);
    if (!rc) peer_id_text(id, &donor);
    say(w,
        json_pack("{s:s,s:s?,s:f,s:s?}", "event", "state", "donor", rc ? NULL : id, "seconds",
                  pl_seconds() - began, "error", rc ? err.text : NULL),
        rc ? NULL : "took over a state");
    if (rc) command_failed("average", "%s", err.text);
    return rc;
}

/* The epoch, or any value that the averager's user stores; a bare averager reports its group
 * key. */
static void share(struct swarm *s, struct averager *a, const struct named_tensors *t)
{
    struct bytes metadata = { 0 };
    mp_map(&metadata, 1);
    mp_text(&metadata, "group_key");
    mp_text(&metadata, averager_group_key(a));
    swarm_share(s, a, snapshot_of(t, &metadata), 0);
    bytes_clear(&metadata);
}

static void announce(const struct requests *w, struct swarm *s, struct averager *a)
{
    char hash[2 * SCHEMA_HASH_BYTES + 1], id[PEER_ID_TEXT_MAX], text[80];
    pl_hex(hash, averager_schema_hash(a), SCHEMA_HASH_BYTES);
    peer_id_text(id, host_id(s->host));
    snprintf(text, sizeof text, "looking for peers under %.40s", w->averager.prefix);
    say(w,
        json_pack("{s:s,s:s,s:s,s:s}", "event", "ready", "peer_id", id, "schema_hash", hash,
                  "group_key", averager_group_key(a)),
        text);
}

static int average(struct requests *w, struct swarm *s, struct averager *a, struct named_tensors *t,
                   const struct pl_backend *be)
{
    struct averager_step step = { .expected = (size_t)w->expect,
                                  .weight = w->weight,
                                  .tensor = t->tensor };
    struct pl_err err;
    int rc = PL_OK, failed = PL_OK;
    if (w->load) rc = load(w, s, a, t, be);
    if (w->share_s > 0) share(s, a, t);
    for (int64_t i = 0; !rc && i < w->rounds; i++) {
        struct round r;
        double began = pl_seconds(), cpu = cpu_seconds();
        if (membership_renew(&w->join.membership, s, &err))
            fprintf(stderr, "potluck average: %s; asking again\n", err.text);
        failed = swarm_average(s, a, &step, w->timeout, &r);
        say_round(w, i, &r, pl_seconds() - began, cpu_seconds() - cpu);
        round_clear(&r);
        if (!failed && w->share_s > 0) share(s, a, t);
    }
    if (!rc && !failed && w->out && (rc = named_tensors_write(t, w->out, &err)))
        command_failed("average", "%s", err.text);
    if (!rc && w->share_s > 0) {
        struct timespec stay = { (time_t)w->share_s,
                                 (long)((w->share_s - (double)(time_t)w->share_s) * 1e9) };
        nanosleep(&stay, NULL);
    }
    return rc ? rc : failed;
}

static int run(struct requests *w, struct named_tensors *t, const struct pl_backend *be,
               struct pl_err *err)
{
    struct swarm_options options = join_options_swarm(&w->join, "average");
    const struct preflight_join_options asks = { .swarm = &options,
                                                 .json = w->json,
                                                 .off = w->no_check };
    struct preflight_join *check = NULL;
    enum pl_compression *method = calloc(t->count + 1, sizeof *method);
    struct averager *a = NULL;
    struct swarm s;
    char address[MULTIADDR_TEXT_MAX];
    int rc = outputs_check_file(w->out, err);
    options.hold = 1;
    if (!rc && !method) rc = pl_fail(err, PL_ENOMEM, "no memory");
    if (rc) {
        free(method);
        return rc;
    }
    for (size_t i = 0; i < t->count; i++)
        compression_named(&method[i], w->compression, t->elements[i], (size_t)w->threshold);
    w->averager.be = be;
    w->averager.tensors = t->count;
    w->averager.schema = t->schema;
    w->averager.method = method;
    if ((rc = cmd_membership_open(&w->join.membership, &options.auth, err)) ||
        (rc = swarm_open(&s, &options, err)))
        goto done;
    if (!swarm_address_for_others(&s, address))
        say(w, json_pack("{s:s,s:s}", "event", "listening", "multiaddr", address), address);
    rc = preflight_join(&check, &s, &asks, err);
    if (!rc) rc = swarm_averager(&a, &s, &w->averager, err);
    if (!rc) {
        announce(w, &s, a);
        rc = average(w, &s, a, t, be) ? -1 : 0; /* it has reported why */
        err->text[0] = 0;
    }
    swarm_averager_close(&s, a);
    preflight_join_end(check);
    swarm_close(&s);
done:
    membership_close(&w->join.membership);
    free(method);
    return rc;
}

static int run_average(int argc, char **argv)
{
    struct requests w = {
        .averager = { .bits = "", .request_timeout = 3, .bandwidth = PL_BANDWIDTH_UNKNOWN }
    };
    struct named_tensors tensors;
    struct pl_backend be;
    struct pl_err err = { "" };
    int rc;
    if (options_parse(&command_average, &w, argc, argv, NULL, &rc)) return rc;
    if (check(&w)) return 2;
    if (!w.compute.threads) w.compute.threads = 1; /* the network has helper threads of its own */
    if (compute_open(&be, &w.compute, "average")) return 1;
    if ((rc = named_tensors_read(&tensors, w.tensors, &err))) {
        return command_failed("average", "%s", err.text);
    }
    rc = run(&w, &tensors, &be, &err);
    if (rc && err.text[0]) command_failed("average", "%s", err.text);
    named_tensors_clear(&tensors);
    return rc ? 1 : 0;
}

const struct command command_average = {
    .name = "average",
    .summary = "average a file's tensors with a group of peers",
    .synopsis = "--prefix P --tensors FILE [--join MULTIADDR ...] [--out FILE] [OPTION ...]",
    .about =
        "Finds peers that average under the same prefix and computes the weighted mean of all "
        "their tensors. --out is written only if the whole average has arrived. Without --join it "
        "waits for others to join.",
    .rows = rows,
    .run = run_average,
};
