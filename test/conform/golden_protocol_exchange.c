/* golden_protocol_exchange.c - recorded all-reduces: each peer once more, by our engine, among the
 * recorded messages of the others. */
#include "golden_protocol.h"
#include "data/files/file.h"
#include "net/hivemind/averaging/allreduce.h"
#include "net/hivemind/messages/message.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS_MAX 64
#define TENSORS_MAX 256
#define VALUES_MAX (1 << 26) /* of a peer; the largest recording has 70,000 */
#define BIN \
    1.1 /* widths of an 8-bit bin that two encodings of nearly the same values may be apart */

struct stream {
    size_t caller, callee;
    const json_t *messages;
};

struct recording {
    struct golden *g;
    size_t peers, tensors, values;
    struct group group;
    size_t place[PEERS_MAX];    /* of recorded peer k in the group */
    size_t recorded[PEERS_MAX]; /* the reverse */
    double weight[PEERS_MAX], share[PEERS_MAX];
    float *input[PEERS_MAX], *output[PEERS_MAX]; /* (values) */
    size_t elements[TENSORS_MAX];
    enum pl_compression method[TENSORS_MAX];
    struct stream *streams;
    size_t stream_count, part_bytes;
};

/* --- reading ---------------------------------------------------------------------------------- */

/* The rule in the README beside the goldens. */
static void make(float *x, size_t n, uint64_t seed, double scale)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)((i + 1) * 2654435761u + seed * 40503u);
        u = (u ^ u >> 15) * 2246822519u;
        u ^= u >> 13;
        x[i] = (float)(((double)(u >> 8) / 0x1p24 - 0.5) * scale);
    }
}

static int read_outputs(struct recording *r, const json_t *root, size_t k)
{
    const json_t *lists = json_array_get(json_object_get(root, "outputs"), k);
    const char *file = json_string_value(json_array_get(json_object_get(root, "output_files"), k));
    struct bytes raw = { 0 };
    char path[4096];
    void *data;
    size_t n, i;
    json_t *hex;
    int good;
    if (file) {
        snprintf(path, sizeof path, "%s/%s", r->g->folder, file);
        if (pl_file_read(&data, &n, path, r->values * sizeof(float), NULL)) return 0;
        bytes_add(&raw, data, n);
        free(data);
    }
    json_array_foreach(lists, i, hex) wire_hex(&raw, json_string_value(hex));
    good = bytes_length(&raw) == r->values * sizeof(float) &&
           (r->output[k] = malloc(r->values * sizeof(float))) != NULL;
    if (good) memcpy(r->output[k], bytes_at(&raw), bytes_length(&raw));
    bytes_clear(&raw);
    return good;
}

static int read_settings(struct recording *r, const json_t *root)
{
    const json_t *s = json_object_get(root, "settings"), *shapes = json_object_get(s, "shapes");
    long threshold = golden_int(r->g, s, "threshold");
    size_t t, d;
    json_t *shape, *size;
    r->tensors = json_array_size(shapes);
    r->part_bytes = (size_t)golden_int(r->g, s, "part_size_bytes");
    if (r->tensors > TENSORS_MAX) return 0;
    json_array_foreach(shapes, t, shape)
    {
        r->elements[t] = 1;
        json_array_foreach(shape, d, size)
        {
            json_int_t n = json_integer_value(size);
            if (n < 0 || n > VALUES_MAX || r->elements[t] * (size_t)n > VALUES_MAX) return 0;
            r->elements[t] *= (size_t)n;
        }
        if ((r->values += r->elements[t]) > VALUES_MAX) return 0;
        r->method[t] = json_object_get(s, "nocomp")          ? PL_COMPRESS_NONE
                       : r->elements[t] >= (size_t)threshold ? PL_COMPRESS_UNIFORM8
                                                             : PL_COMPRESS_FLOAT16;
    }
    return 1;
}

/* The first values of each tensor, as far as the recording shows them: whole as hex text, or a few
 * as numbers. */
static void check_values(struct recording *r, const json_t *root, const char *whole,
                         const char *first, size_t k, const float *x)
{
    const json_t *texts = json_array_get(json_object_get(root, whole), k);
    const json_t *lists = json_array_get(json_object_get(root, first), k);
    for (size_t t = 0, at = 0; t < r->tensors; at += r->elements[t++]) {
        const json_t *text = json_array_get(texts, t), *list = json_array_get(lists, t);
        struct bytes want = { 0 };
        size_t i;
        json_t *value;
        int same = 1;
        if (json_object_get(root, whole))
            same = !wire_hex(&want, json_string_value(text)) &&
                   bytes_length(&want) == r->elements[t] * sizeof *x &&
                   !memcmp(bytes_at(&want), x + at, bytes_length(&want));
        if (json_object_get(root, first))
            same = same && json_array_size(list) == (r->elements[t] < 8 ? r->elements[t] : 8);
        json_array_foreach(list, i, value)
            same = same && i < r->elements[t] && (float)json_number_value(value) == x[at + i];
        golden_check(r->g, whole, same, "peer %zu, tensor %zu differs", k, t);
        bytes_clear(&want);
    }
}

/* Every member of the group has the schema of the tensors. */
static void check_schema_hash(struct recording *r, const json_t *root, const json_t *peer)
{
    const json_t *shapes = json_object_get(json_object_get(root, "settings"), "shapes");
    struct schema_tensor *tensors = calloc(r->tensors + 1, sizeof *tensors);
    uint8_t hash[DHT_ID_BYTES];
    struct dht_id want;
    if (tensors && json_object_get(peer, "schema_hash") &&
        protocol_id(r->g, peer, "schema_hash", &want)) {
        for (size_t t = 0; t < r->tensors; t++) {
            const json_t *shape = json_array_get(shapes, t);
            tensors[t].type.dtype = PL_F32;
            tensors[t].type.dims = (int)json_array_size(shape);
            for (size_t d = 0; d < json_array_size(shape) && d < PL_WIRE_DIMS_MAX; d++)
                tensors[t].type.size[d] = json_integer_value(json_array_get(shape, d));
        }
        golden_check(r->g, "schema hash",
                     !group_schema_hash(hash, tensors, r->tensors) &&
                         !memcmp(hash, want.bytes, sizeof hash),
                     "another one");
    }
    free(tensors);
}

/* The settings' list repeats what the peers say of themselves. */
static void check_settings(struct recording *r, const json_t *root, size_t k, const json_t *peer)
{
    const json_t *of = json_array_get(json_object_get(json_object_get(root, "settings"), "peers"),
                                      k);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)of, key, value)
        golden_check(r->g, "settings", json_equal(value, json_object_get(peer, key)),
                     "peer %zu has another %s", k, key);
}

static int read_peers(struct recording *r, const json_t *root)
{
    const json_t *peers = json_object_get(root, "peers");
    r->peers = json_array_size(peers);
    if (r->peers > PEERS_MAX) return 0;
    for (size_t k = 0; k < r->peers; k++) {
        const json_t *p = json_array_get(peers, k), *scale = json_object_get(p, "scale");
        struct bytes raw = { 0 };
        struct peer_id id;
        int place = -1;
        if (wire_member(r->g, p, "peer_id_bytes", &raw) &&
            !peer_id_parse(&id, bytes_at(&raw), bytes_length(&raw))) {
            char text[PEER_ID_TEXT_MAX];
            peer_id_text(text, &id);
            golden_check(r->g, "peer",
                         !json_object_get(p, "peer_id") ||
                             !strcmp(text, protocol_text(p, "peer_id")),
                         "is %s", text);
            place = group_find(&r->group, &id);
        }
        bytes_clear(&raw);
        if (place < 0 || !(r->input[k] = malloc((r->values + 1) * sizeof(float)))) return 0;
        r->place[k] = (size_t)place;
        r->recorded[place] = k;
        r->weight[k] = protocol_real(json_object_get(p, "weight"));
        for (size_t t = 0, at = 0; t < r->tensors; at += r->elements[t++])
            make(r->input[k] + at, r->elements[t],
                 (uint64_t)json_integer_value(json_array_get(json_object_get(p, "seeds"), t)),
                 scale ? protocol_real(scale) : 2.0);
        if (!read_outputs(r, root, k)) return 0;
        check_schema_hash(r, root, p);
        check_settings(r, root, k, p);
        if (json_object_get(root, "inputs") || json_object_get(root, "inputs_first8"))
            check_values(r, root, "inputs", "inputs_first8", k, r->input[k]);
        if (json_object_get(root, "outputs_first8"))
            check_values(r, root, "outputs", "outputs_first8", k, r->output[k]);
    }
    return 1;
}

static int read_begin(struct recording *r, const json_t *messages)
{
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m)
    {
        struct bytes raw = { 0 };
        Hivemind__MessageFromLeader *begin = NULL;
        struct peer_id peer;
        if (strcmp(protocol_text(m, "type"), "MessageFromLeader")) continue;
        if (wire_member(r->g, m, "hex", &raw))
            begin = message_unpack(&hivemind__message_from_leader__descriptor, bytes_at(&raw),
                                   bytes_length(&raw), NULL);
        bytes_clear(&raw);
        if (begin && begin->code == MSG_BEGIN_ALLREDUCE &&
            begin->group_id.len == sizeof r->group.id) {
            group_clear(&r->group);
            memcpy(r->group.id, begin->group_id.data, sizeof r->group.id);
            for (size_t p = 0; p < begin->n_gathered; p++)
                if (!peer_id_parse(&peer, begin->ordered_peer_ids[p].data,
                                   begin->ordered_peer_ids[p].len))
                    group_add(&r->group, &peer, begin->gathered[p].data, begin->gathered[p].len,
                              NULL);
        }
        if (begin) protobuf_c_message_free_unpacked(&begin->base, NULL);
    }
    return r->group.count > 0;
}

static int read_streams(struct recording *r, const json_t *root)
{
    const json_t *streams = json_object_get(root, "streams");
    size_t i;
    json_t *s;
    if (!(r->streams = calloc(json_array_size(streams) + 1, sizeof *r->streams))) return 0;
    json_array_foreach(streams, i, s)
    {
        const char *protocol = protocol_text(s, "protocol");
        struct stream *to = &r->streams[r->stream_count];
        to->caller = (size_t)golden_int(r->g, s, "caller");
        to->callee = (size_t)golden_int(r->g, s, "callee");
        to->messages = json_object_get(s, "messages");
        if (strstr(protocol, "rpc_join_group")) read_begin(r, to->messages);
        else if (strstr(protocol, "rpc_aggregate_part")) r->stream_count++;
    }
    return r->group.count > 0;
}

static size_t messages_of(const struct stream *s, const char *direction)
{
    size_t n = 0, i;
    json_t *m;
    json_array_foreach(s->messages, i, m) n += !strcmp(protocol_text(m, "dir"), direction) &&
                                               !strcmp(protocol_text(m, "type"), "AveragingData");
    return n;
}

/* Shares as everybody computes them; with stated bandwidths, where the original's solver has the
 * last word, as many parts for each peer as it was sent. */
static int read_shares(struct recording *r)
{
    size_t share[PEERS_MAX], at = 0, count;
    int stated = 0;
    struct pl_part *parts;
    double all = 1;
    struct pl_err err;
    if (group_shares(share, &r->group, r->values, &err)) return 0;
    for (size_t i = 0; i < r->group.count; i++) {
        r->share[i] = (double)share[i];
        stated |= r->group.members[i].gather.bandwidth > 0;
    }
    if (!stated) return 1;
    if (pl_partition(&parts, &count, r->elements, r->method, r->tensors, &all, 1, r->part_bytes,
                     &err))
        return 0;
    for (size_t i = 0; i < r->group.count; i++) {
        size_t most = 0;
        r->share[i] = 0;
        for (size_t s = 0; s < r->stream_count; s++)
            if (r->streams[s].callee == r->recorded[i] &&
                messages_of(&r->streams[s], "request") > most)
                most = messages_of(&r->streams[s], "request");
        for (; most && at < count; most--) r->share[i] += (double)parts[at++].length;
    }
    pl_free(parts);
    return at == count;
}

/* --- one peer of it, ours --------------------------------------------------------------------- */

struct replay {
    struct recording *r;
    size_t k; /* recorded peer */
    struct allreduce *x;
    struct allreduce_job *jobs[4 * PEERS_MAX + 64];
    size_t job_count;
    size_t sent[2][PEERS_MAX]; /* messages, by way and place */
    int status, over;
    struct pl_err err;
};

static const struct stream *stream_between(const struct recording *r, size_t caller, size_t callee)
{
    for (size_t s = 0; s < r->stream_count; s++)
        if (r->streams[s].caller == caller && r->streams[s].callee == callee) return &r->streams[s];
    return NULL;
}

/* The i-th AveragingData of a direction; its bytes in raw. 0: there is none. */
static int message_at(struct recording *r, const struct stream *s, const char *direction, size_t i,
                      struct bytes *raw)
{
    size_t k;
    json_t *m;
    if (!s) return 0;
    json_array_foreach(s->messages, k, m)
    {
        if (strcmp(protocol_text(m, "dir"), direction) ||
            strcmp(protocol_text(m, "type"), "AveragingData"))
            continue;
        if (!i--) return wire_member(r->g, m, "hex", raw);
    }
    return 0;
}

static int decode(float *x, const struct pl_backend *be, const struct part_message *m)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)m->elements } };
    return pl_wire_decode(x, be, m->method, &type, m->buffer, m->bytes, NULL);
}

static double spread(const float *x, size_t n)
{
    double mean = 0, s = 0;
    for (size_t i = 0; i < n; i++) mean += x[i];
    mean /= (double)(n ? n : 1);
    for (size_t i = 0; i < n; i++) s += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(s / (double)(n - 1)) : 0;
}

/* Two encodings of the same values, but for the rounding of a sum before: within a bin, or a half's
 * last place. */
static void same_part(struct golden *g, const char *what, const struct part_message *got,
                      const struct part_message *want, int exact)
{
    size_t n = want->elements;
    float *a = pl_alloc(n, sizeof *a), *b = pl_alloc(n, sizeof *b);
    double largest = 0, allowed;
    if (got->method != want->method || got->elements != n || got->weight != want->weight) {
        golden_check(g, what, 0, "method %d of %zu values of weight %g, expected %d of %zu of %g",
                     got->method, got->elements, got->weight, want->method, n, want->weight);
    } else if (exact && got->method != PL_COMPRESS_UNIFORM8) {
        golden_check(g, what,
                     got->bytes == want->bytes && !memcmp(got->buffer, want->buffer, got->bytes),
                     "other bytes");
    } else if (a && b && !decode(a, g->be, got) && !decode(b, g->be, want)) {
        for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(b[i]));
        allowed = got->method == PL_COMPRESS_UNIFORM8  ? BIN * 6 * spread(b, n) / PL_CODES + 1e-6
                  : got->method == PL_COMPRESS_FLOAT16 ? ldexp(largest, -10) + 1e-6
                                                       : 2e-6 * largest + 1e-6;
        golden_case(g, what, golden_absolute(a, b, n), allowed);
    }
    pl_free(a);
    pl_free(b);
}

static void on_send(void *context, size_t peer, enum allreduce_way way, const uint8_t *data,
                    size_t n)
{
    struct replay *p = context;
    struct recording *r = p->r;
    size_t other = r->recorded[peer];
    const struct stream *s = way == ALLREDUCE_OUT ? stream_between(r, p->k, other)
                                                  : stream_between(r, other, p->k);
    struct part_message got, want;
    struct bytes raw = { 0 };
    struct pl_err err = { "" };
    char what[80];
    snprintf(what, sizeof what, "peer %zu, %s %zu, message %zu", p->k,
             way == ALLREDUCE_OUT ? "parts to" : "answers to", other, p->sent[way][peer]);
    if (!message_at(r, s, way == ALLREDUCE_OUT ? "request" : "response", p->sent[way][peer]++,
                    &raw) ||
        part_message_read(&want, bytes_at(&raw), bytes_length(&raw), &err) ||
        part_message_read(&got, data, n, &err)) {
        golden_check(r->g, what, 0, "was not recorded; %s", err.text);
    } else {
        golden_check(r->g, what,
                     got.code == want.code && got.group_id_n == want.group_id_n &&
                         (!got.group_id_n ||
                          !memcmp(got.group_id, want.group_id, got.group_id_n)) &&
                         n == bytes_length(&raw),
                     "code %d, expected %d; %zu bytes, expected %zu", got.code, want.code, n,
                     bytes_length(&raw));
        same_part(r->g, what, &got, &want, way == ALLREDUCE_OUT);
    }
    bytes_clear(&raw);
}
static void on_peer(void *context, size_t peer) { (void)context, (void)peer; }
static int is_busy(void *context, size_t peer) { return (void)context, (void)peer, 0; }
static void on_way(void *context, size_t peer, enum allreduce_way way)
{
    (void)context, (void)peer, (void)way;
}
static void on_credit(void *context, size_t peer, size_t n) { (void)context, (void)peer, (void)n; }
static void on_work(void *context, struct allreduce_job *job)
{
    struct replay *p = context;
    p->jobs[p->job_count++] = job;
}
static void on_over(void *context, int status, const struct pl_err *err)
{
    struct replay *p = context;
    p->over = 1;
    p->status = status;
    p->err = *err;
}
static const struct allreduce_port port = { on_peer, on_send, is_busy, on_way, on_way, on_credit,
                                            on_work, on_over, NULL,    NULL,   NULL };

static void work(struct replay *p)
{
    while (p->job_count) {
        struct allreduce_job *job = p->jobs[--p->job_count];
        job->run(job);
        allreduce_done(p->x, 0, job);
    }
}

/* Everything that the others sent to this peer, part by part. */
static void feed(struct replay *p, enum allreduce_way way)
{
    struct recording *r = p->r;
    int more = 1;
    for (size_t i = 0; more; i++) {
        more = 0;
        for (size_t place = 0; place < r->group.count; place++) {
            size_t other = r->recorded[place];
            const struct stream *s = way == ALLREDUCE_OUT ? stream_between(r, p->k, other)
                                                          : stream_between(r, other, p->k);
            struct bytes raw = { 0 };
            if (place != r->place[p->k] &&
                message_at(r, s, way == ALLREDUCE_OUT ? "response" : "request", i, &raw)) {
                more = 1;
                allreduce_message(p->x, 0, place, way, bytes_at(&raw), bytes_length(&raw));
                work(p);
            }
            bytes_clear(&raw);
        }
    }
}

/* The largest value that any peer gave in. */
static double largest_input(const struct recording *r)
{
    double largest = 0;
    for (size_t k = 0; k < r->peers; k++)
        for (size_t i = 0; i < r->values; i++) largest = fmax(largest, fabs(r->input[k][i]));
    return largest;
}

/* What others reduced: equal to the last bit to ours + their answer. What we reduced: but for the
 * order of the sum. */
static void check_outputs(struct replay *p, const float *x)
{
    struct recording *r = p->r;
    struct pl_part *parts = NULL;
    size_t count = 0, starts[TENSORS_MAX + 1] = { 0 }, exact = 0, of = 0;
    double worst = 0;
    char what[60];
    for (size_t t = 0; t < r->tensors; t++) starts[t + 1] = starts[t] + r->elements[t];
    pl_partition(&parts, &count, r->elements, r->method, r->tensors, r->share, (int)r->group.count,
                 r->part_bytes, NULL);
    for (size_t i = 0; i < count; i++) {
        size_t at = starts[parts[i].tensor] + parts[i].start, n = parts[i].length;
        if ((size_t)parts[i].owner == r->place[p->k]) {
            worst = fmax(worst, golden_absolute(x + at, r->output[p->k] + at, n));
        } else {
            of += n;
            for (size_t v = 0; v < n; v++) exact += x[at + v] == r->output[p->k][at + v];
        }
    }
    pl_free(parts);
    snprintf(what, sizeof what, "peer %zu, what others reduced", p->k);
    golden_check(r->g, what, exact == of, "%zu of %zu values equal", exact, of);
    snprintf(what, sizeof what, "peer %zu, what it reduced", p->k);
    golden_case(r->g, what, worst, 1e-6 * largest_input(r)); /* some ulp of the terms */
}

static void replay_peer(struct recording *r, size_t k)
{
    struct replay p = { .r = r, .k = k };
    float *x = malloc((r->values + 1) * sizeof *x), *tensor[TENSORS_MAX];
    struct allreduce_options o = { .be = r->g->be,
                                   .group = &r->group,
                                   .tensors = r->tensors,
                                   .elements = r->elements,
                                   .method = r->method,
                                   .tensor = tensor,
                                   .weight = r->weight[k],
                                   .share = r->share,
                                   .part_bytes = r->part_bytes };
    if (!x) return;
    memcpy(x, r->input[k], r->values * sizeof *x);
    for (size_t t = 0, at = 0; t < r->tensors; at += r->elements[t++]) tensor[t] = x + at;
    r->group.self = r->place[k];
    if (allreduce_open(&p.x, &o, &port, &p, 0, &p.err)) {
        golden_fail(r->g, "exchange", "%s", p.err.text);
    } else {
        work(&p);
        feed(&p, ALLREDUCE_IN);
        feed(&p, ALLREDUCE_OUT);
        golden_check(r->g, "end", p.over && p.status == PL_OK, "peer %zu: %s", k,
                     p.over ? p.err.text : "not over");
        if (p.over && p.status == PL_OK) check_outputs(&p, x);
        if (!p.over) allreduce_cancel(p.x, 0), work(&p);
        allreduce_close(p.x);
    }
    free(x);
}

void protocol_allreduce(struct golden *g, const json_t *root)
{
    struct recording r = { .g = g };
    if (read_settings(&r, root) && read_streams(&r, root) && read_peers(&r, root) &&
        read_shares(&r)) {
        for (size_t k = 0; k < r.peers; k++) replay_peer(&r, k);
    } else {
        golden_fail(g, "recording", "cannot be read");
    }
    for (size_t k = 0; k < PEERS_MAX; k++) {
        free(r.input[k]);
        free(r.output[k]);
    }
    free(r.streams);
    group_clear(&r.group);
}
