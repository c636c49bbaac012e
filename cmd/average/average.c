/* average.c - `potluck average`: tensors of a file averaged with a group of peers. */
#include "net/hivemind/swarm/averaging.h"
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "cmd/common/compute.h"
#include "cmd/common/membership.h"
#include "cmd/common/swarm_messages.h"

#include "net/hivemind/messages/msgpack.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const char usage[] =
    "usage: potluck average --prefix P --tensors IN.safetensors [--join MULTIADDR ...] [--out OUT.safetensors]\n"
    "                       [options]\n"
    "\n"
    "Finds peers that average under the same prefix, and takes the weighted mean of everybody's tensors.\n"
    "Nothing is written unless all of it has come.\n"
    "\n"
    "  --weight W           how much ours count (default: 1)\n"
    "  --compression C      run (8 bits from --threshold elements on, 16 below), none, float16, meanstd16,\n"
    "                       uniform8, quantile8, blockwise8 (default: run)\n"
    "  --threshold N        default 65537\n"
    "  --part-bytes N       of an encoded part; the same in the whole group (default: 524288)\n"
    "  --group-size N       begin as soon as so many are there (default: no such number)\n"
    "  --min-group-size N   default 2\n"
    "  --group-bits B       only those whose bits are the same meet, and each round changes them\n"
    "  --expect N           so many will come, auxiliary ones not counted: when they have, don't wait for others\n"
    "  --matchmaking-time S how long others may take to find us (default: 5)\n"
    "  --chunk-timeout S    give up on a silent groupmate (default: 10)\n"
    "  --allreduce-timeout S  an exchange's limit (default: 60)\n"
    "  --timeout S          the whole round's limit, with new groups if one falls apart (default: 60)\n"
    "  --bandwidth B        tell the group, which then shares out the work by it\n"
    "  --class NAME         of the averager in the names of calls (default: DecentralizedAverager)\n"
    "  --auxiliary          help, with tensors that count nothing\n"
    "  --robust R           against liars: centered-clip[:RADIUS] in place of the mean in what we reduce;\n"
    "                       btard: also verified, where everybody in the group asks for it\n"
    "  --rounds N           one after the other (default: 1)\n"
    "  --load-state         begin with the tensors of a peer that shares them\n"
    "  --share-seconds S    share ours from the beginning, and stay so long afterwards\n"
    "  --join MULTIADDR     a peer of the swarm\n"
    "  --listen MULTIADDR   default /ip4/0.0.0.0/tcp/0\n"
    "  --announce MULTIADDR an address to be told to others instead, behind a router\n"
    "  --identity FILE      our key (default: a new one)\n"
    "  --client-mode        only call others\n"
    "  --out FILE           where the mean goes\n"
    "  --json               lines of JSON\n" PREFLIGHT_USAGE MEMBERSHIP_USAGE COMPUTE_USAGE;

#define ADDRESSES_MAX 64

enum {
    O_PREFIX = 256,
    O_TENSORS,
    O_WEIGHT,
    O_COMPRESSION,
    O_THRESHOLD,
    O_PART,
    O_SIZE,
    O_MIN_SIZE,
    O_EXPECT,
    O_MATCHMAKING,
    O_CHUNK,
    O_ALLREDUCE,
    O_TIMEOUT,
    O_BANDWIDTH,
    O_CLASS,
    O_AUXILIARY,
    O_ROUNDS,
    O_LOAD,
    O_SHARE,
    O_JOIN,
    O_LISTEN,
    O_IDENTITY,
    O_CLIENT,
    O_OUT,
    O_JSON,
    O_ROBUST,
    O_BITS,
    O_NO_CHECK,
    O_ANNOUNCE
};

struct requests {
    struct compute compute;
    const char *tensors, *compression, *out, *identity;
    const char *join[ADDRESSES_MAX], *listen[ADDRESSES_MAX], *announce[ADDRESSES_MAX];
    size_t join_count, listen_count, announce_count;
    int64_t threshold, part_bytes, group_size, min_size, expect, rounds;
    double weight, timeout, share_s, matchmaking, chunk, allreduce;
    struct averager_options averager;
    struct membership membership;
    int load, json, no_check, told_differs;
};

static int add(const char **list, size_t *count, const char *address)
{
    if (*count < ADDRESSES_MAX) {
        list[(*count)++] = address;
        return PL_OK;
    }
    fprintf(stderr, "potluck average: more than %d addresses\n", ADDRESSES_MAX);
    return PL_EUSE;
}

static int take(struct requests *w, int option, const char *value)
{
    const char *me = "average";
    enum pl_compression unused;
    double validators;
    switch (option) {
    case O_PREFIX: w->averager.prefix = value; return PL_OK;
    case O_TENSORS: w->tensors = value; return PL_OK;
    case O_WEIGHT: return cmd_real(&w->weight, me, "--weight", value, 0, PART_WEIGHT_MAX);
    case O_COMPRESSION:
        w->compression = value;
        if (!compression_named(&unused, value, 1, 1)) return PL_OK;
        fprintf(stderr, "potluck average: --compression: there is no '%.40s'\n", value);
        return PL_EUSE;
    case O_THRESHOLD: return cmd_integer(&w->threshold, me, "--threshold", value, 0, INT64_MAX);
    case O_PART: return cmd_integer(&w->part_bytes, me, "--part-bytes", value, 16, 8 << 20);
    case O_SIZE: return cmd_integer(&w->group_size, me, "--group-size", value, 2, GROUP_PEERS_MAX);
    case O_MIN_SIZE:
        return cmd_integer(&w->min_size, me, "--min-group-size", value, 2, GROUP_PEERS_MAX);
    case O_BITS: return cmd_group_bits(&w->averager.bits, me, value);
    case O_EXPECT: return cmd_integer(&w->expect, me, "--expect", value, 2, GROUP_PEERS_MAX);
    case O_MATCHMAKING:
        return cmd_real(&w->matchmaking, me, "--matchmaking-time", value, 0.1, 3600);
    case O_CHUNK: return cmd_real(&w->chunk, me, "--chunk-timeout", value, 0.1, 3600);
    case O_ALLREDUCE: return cmd_real(&w->allreduce, me, "--allreduce-timeout", value, 0.1, 86400);
    case O_TIMEOUT: return cmd_real(&w->timeout, me, "--timeout", value, 0.1, 86400);
    case O_BANDWIDTH: return cmd_real(&w->averager.bandwidth, me, "--bandwidth", value, 0, 1e15);
    case O_CLASS: w->averager.class_name = value; return PL_OK;
    case O_AUXILIARY: w->averager.auxiliary = 1; return PL_OK;
    case O_ROBUST:
        if (!robust_named(&w->averager.clip, &w->averager.verify, &validators, value))
            return PL_OK; /* tensors from a file are nobody's to compute again */
        fprintf(stderr,
                "potluck average: --robust: '%.40s' is none of none, centered-clip[:RADIUS], "
                "btard\n",
                value);
        return PL_EUSE;
    case O_ROUNDS: return cmd_integer(&w->rounds, me, "--rounds", value, 0, 1000000000);
    case O_LOAD: w->load = 1; return PL_OK;
    case O_SHARE: return cmd_real(&w->share_s, me, "--share-seconds", value, 0, 1e9);
    case O_JOIN: return add(w->join, &w->join_count, value);
    case O_LISTEN: return add(w->listen, &w->listen_count, value);
    case O_ANNOUNCE: return add(w->announce, &w->announce_count, value);
    case O_IDENTITY: w->identity = value; return PL_OK;
    case O_CLIENT: w->averager.client_mode = 1; return PL_OK;
    case O_OUT: w->out = value; return PL_OK;
    case O_JSON: w->json = 1; return PL_OK;
    case O_NO_CHECK: w->no_check = 1; return PL_OK;
    default:
        if (membership_option(&w->membership, option, value)) return PL_OK;
        return compute_option(&w->compute, me, option, value) > 0 ? PL_OK : PL_EUSE;
    }
}

static int parse(struct requests *w, int argc, char **argv)
{
    static const struct option options[] = {
        { "prefix", required_argument, NULL, O_PREFIX },
        { "tensors", required_argument, NULL, O_TENSORS },
        { "weight", required_argument, NULL, O_WEIGHT },
        { "compression", required_argument, NULL, O_COMPRESSION },
        { "threshold", required_argument, NULL, O_THRESHOLD },
        { "part-bytes", required_argument, NULL, O_PART },
        { "group-size", required_argument, NULL, O_SIZE },
        { "min-group-size", required_argument, NULL, O_MIN_SIZE },
        { "group-bits", required_argument, NULL, O_BITS },
        { "expect", required_argument, NULL, O_EXPECT },
        { "matchmaking-time", required_argument, NULL, O_MATCHMAKING },
        { "chunk-timeout", required_argument, NULL, O_CHUNK },
        { "allreduce-timeout", required_argument, NULL, O_ALLREDUCE },
        { "timeout", required_argument, NULL, O_TIMEOUT },
        { "bandwidth", required_argument, NULL, O_BANDWIDTH },
        { "class", required_argument, NULL, O_CLASS },
        { "auxiliary", no_argument, NULL, O_AUXILIARY },
        { "robust", required_argument, NULL, O_ROBUST },
        { "rounds", required_argument, NULL, O_ROUNDS },
        { "load-state", no_argument, NULL, O_LOAD },
        { "share-seconds", required_argument, NULL, O_SHARE },
        { "join", required_argument, NULL, O_JOIN },
        { "listen", required_argument, NULL, O_LISTEN },
        { "announce", required_argument, NULL, O_ANNOUNCE },
        { "identity", required_argument, NULL, O_IDENTITY },
        { "client-mode", no_argument, NULL, O_CLIENT },
        { "out", required_argument, NULL, O_OUT },
        { "json", no_argument, NULL, O_JSON },
        { "no-check", no_argument, NULL, O_NO_CHECK },
        MEMBERSHIP_OPTIONS,
        COMPUTE_OPTIONS,
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    int option, rc = PL_OK;
    while (!rc && (option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            exit(0);
        }
        rc = option == '?' ? PL_EUSE : take(w, option, optarg);
    }
    if (!w->averager.client_mode && !w->listen_count)
        w->listen[w->listen_count++] = "/ip4/0.0.0.0/tcp/0";
    if (w->averager.client_mode) w->listen_count = w->announce_count = 0;
    if (rc || cmd_no_more("average", argc, argv)) return PL_EUSE;
    if (!w->averager.prefix || !w->tensors)
        return cmd_misused("average", "--prefix and --tensors are needed");
    if (w->averager.client_mode && !w->join_count)
        return cmd_misused("average", "--client-mode only calls others: --join MULTIADDR");
    return PL_OK;
}

/* --- what is said ----------------------------------------------------------------------------- */

static void say(const struct requests *w, json_t *line, const char *text)
{
    char *json = w->json ? json_dumps(line, JSON_COMPACT) : NULL;
    if (w->json && json) puts(json);
    if (!w->json && text) puts(text);
    fflush(stdout);
    free(json);
    json_decref(line);
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
             "round %lld: averaged with %zu peers in %.2f s, %.2f s of it exchange%s",
             (long long)number, r->group.count ? r->group.count - 1 : 0, seconds, r->result.seconds,
             e->senders_lost ? ", without the data of some that fell silent" : "");
    say(w, line, r->result.status ? NULL : text);
    if (r->differs.text[0] && !w->told_differs) {
        w->told_differs = 1;
        fprintf(stderr, "potluck average: %s\n", r->differs.text);
    }
    if (r->left_out.text[0]) fprintf(stderr, "potluck average: %s\n", r->left_out.text);
    if (r->result.status)
        fprintf(stderr, "potluck average: round %lld: %s\n", (long long)number, r->why.text);
    else if (w->averager.verify && !r->result.verified)
        fprintf(stderr,
                "potluck average: round %lld could not be verified: somebody in the group has not "
                "asked for it, or there are fewer than three; centered-clip in what we reduce\n",
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
    return same ? PL_OK : pl_fail(err, PL_EFORMAT, "state: other tensors than ours");
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
    if (rc) fprintf(stderr, "potluck average: %s\n", err.text);
    return rc;
}

/* [epoch or whatever the averager's user keeps]: a bare averager tells its group key. */
static void share(struct swarm *s, struct averager *a, const struct named_tensors *t)
{
    struct bytes metadata = { 0 };
    uint8_t *copy;
    mp_map(&metadata, 1);
    mp_text(&metadata, "group_key");
    mp_text(&metadata, averager_group_key(a));
    if (metadata.failed || !(copy = malloc(bytes_length(&metadata)))) {
        bytes_clear(&metadata);
        return;
    }
    memcpy(copy, bytes_at(&metadata), bytes_length(&metadata));
    swarm_share(s, a, snapshot_of(t, copy, bytes_length(&metadata)), 0);
    bytes_clear(&metadata);
}

static void announce(const struct requests *w, struct swarm *s, struct averager *a)
{
    char hash[2 * SCHEMA_HASH_BYTES + 1], id[PEER_ID_TEXT_MAX], text[80];
    for (int i = 0; i < SCHEMA_HASH_BYTES; i++)
        sprintf(hash + 2 * i, "%02x", averager_schema_hash(a)[i]);
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
        if (membership_renew(&w->membership, s, &err))
            fprintf(stderr, "potluck average: %s; asking again\n", err.text);
        failed = swarm_average(s, a, &step, w->timeout, &r);
        say_round(w, i, &r, pl_seconds() - began, cpu_seconds() - cpu);
        round_clear(&r);
        if (!failed && w->share_s > 0) share(s, a, t);
    }
    if (!rc && !failed && w->out && (rc = named_tensors_write(t, w->out, &err)))
        fprintf(stderr, "potluck average: %s\n", err.text);
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
    struct swarm_options options = { .cmd = "average",
                                     .listen = w->listen,
                                     .listen_count = w->listen_count,
                                     .announce = w->announce,
                                     .announce_count = w->announce_count,
                                     .join = w->join,
                                     .join_count = w->join_count,
                                     .identity = w->identity,
                                     .hold = 1 };
    const struct preflight_join_options asks = { .swarm = &options,
                                                 .json = w->json,
                                                 .off = w->no_check };
    struct preflight_join *check = NULL;
    enum pl_compression *method = calloc(t->count + 1, sizeof *method);
    struct averager *a = NULL;
    struct swarm s;
    char address[MULTIADDR_TEXT_MAX];
    int rc;
    if (!method) return pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t i = 0; i < t->count; i++)
        compression_named(&method[i], w->compression, t->elements[i], (size_t)w->threshold);
    w->averager.be = be;
    w->averager.tensors = t->count;
    w->averager.schema = t->schema;
    w->averager.method = method;
    if ((rc = membership_open(&w->membership, &options.auth, err)) ||
        (rc = swarm_open(&s, &options, err)))
        goto done;
    if (!swarm_address_for_others(&s, address))
        say(w, json_pack("{s:s,s:s}", "event", "listening", "multiaddr", address), address);
    rc = preflight_join(&check, &s, &asks, err);
    if (!rc) rc = swarm_averager(&a, &s, &w->averager, err);
    if (!rc) {
        announce(w, &s, a);
        rc = average(w, &s, a, t, be) ? -1 : 0; /* it has said why */
        err->text[0] = 0;
    }
    swarm_averager_close(&s, a);
    preflight_join_end(check);
    swarm_close(&s);
done:
    membership_close(&w->membership);
    free(method);
    return rc;
}

int cmd_average(int argc, char **argv)
{
    struct requests w = { .compression = "run",
                          .threshold = PL_WIRE_ADAPTIVE,
                          .part_bytes = PL_PART_BYTES,
                          .min_size = 2,
                          .rounds = 1,
                          .weight = 1,
                          .timeout = 60,
                          .matchmaking = 5,
                          .chunk = 10,
                          .allreduce = 60,
                          .averager = { .class_name = "DecentralizedAverager",
                                        .bits = "",
                                        .request_timeout = 3,
                                        .bandwidth = PL_BANDWIDTH_UNKNOWN } };
    struct named_tensors tensors;
    struct pl_backend be;
    struct pl_err err = { "" };
    int rc;
    if (parse(&w, argc, argv)) return 2;
    w.averager.part_bytes = (size_t)w.part_bytes;
    w.averager.target_size = (size_t)w.group_size;
    w.averager.min_size = (size_t)w.min_size;
    w.averager.min_matchmaking_time = w.matchmaking;
    w.averager.sender_timeout = w.chunk;
    w.averager.reducer_timeout = 2 * w.chunk;
    w.averager.allreduce_timeout = w.allreduce;
    if (!w.compute.threads) w.compute.threads = 1; /* the network has helper threads of its own */
    if (compute_open(&be, &w.compute, "average")) return 1;
    if ((rc = named_tensors_read(&tensors, w.tensors, &err))) {
        fprintf(stderr, "potluck average: %s\n", err.text);
        return 1;
    }
    rc = run(&w, &tensors, &be, &err);
    if (rc && err.text[0]) fprintf(stderr, "potluck average: %s\n", err.text);
    named_tensors_clear(&tensors);
    return rc ? 1 : 0;
}
