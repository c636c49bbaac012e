/* golden_allreduce_recording.c - parses a recorded all-reduce and checks what it says about itself:
 * tensors and their hash, members and weights from the leader's message, shares from bandwidths. */
#include "golden_allreduce_recording.h"
#include "ref/byte_order.h"
#include "data/files/file.h"
#include "net/message.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_MAX (1 << 26) /* of a peer; the largest recording has 70,000 */

/* The rule in test/golden/protocol/README.md. */
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
    if (good) pl_copy_little(r->output[k], bytes_at(&raw), sizeof(float), r->values);
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
        if (json_object_get(root, whole)) {
            same = !wire_hex(&want, json_string_value(text)) &&
                   bytes_length(&want) == r->elements[t] * sizeof *x;
            pl_little_endian(want.data + want.begin, sizeof *x, bytes_length(&want) / sizeof *x);
            same = same && !memcmp(bytes_at(&want), x + at, bytes_length(&want));
        }
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
        int member = -1;
        if (wire_member(r->g, p, "peer_id_bytes", &raw) &&
            !peer_id_parse(&id, bytes_at(&raw), bytes_length(&raw))) {
            char text[PEER_ID_TEXT_MAX];
            peer_id_text(text, &id);
            golden_check(r->g, "peer",
                         !json_object_get(p, "peer_id") ||
                             !strcmp(text, protocol_text(p, "peer_id")),
                         "is %s", text);
            member = group_find(&r->group, &id);
        }
        bytes_clear(&raw);
        if (member < 0 || !(r->input[k] = malloc((r->values + 1) * sizeof(float)))) return 0;
        r->member[k] = (size_t)member;
        r->recorded[member] = k;
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
        message_free(begin);
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
        struct recorded_stream *to = &r->streams[r->stream_count];
        to->caller = (size_t)golden_int(r->g, s, "caller");
        to->callee = (size_t)golden_int(r->g, s, "callee");
        to->messages = json_object_get(s, "messages");
        if (strstr(protocol, "rpc_join_group")) read_begin(r, to->messages);
        else if (strstr(protocol, "rpc_aggregate_part")) r->stream_count++;
    }
    return r->group.count > 0;
}

static size_t messages_of(const struct recorded_stream *s, const char *direction)
{
    size_t n = 0, i;
    json_t *m;
    json_array_foreach(s->messages, i, m) n += !strcmp(protocol_text(m, "dir"), direction) &&
                                               !strcmp(protocol_text(m, "type"), "AveragingData");
    return n;
}

/* Shares as every peer computes them. With stated bandwidths hivemind's solver decides: then a peer
 * has as many parts as it was sent. */
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

int allreduce_recording_read(struct recording *r, const json_t *root)
{
    return read_settings(r, root) && read_streams(r, root) && read_peers(r, root) && read_shares(r);
}

void allreduce_recording_clear(struct recording *r)
{
    for (size_t k = 0; k < PEERS_MAX; k++) {
        free(r->input[k]);
        free(r->output[k]);
    }
    free(r->streams);
    group_clear(&r->group);
}
