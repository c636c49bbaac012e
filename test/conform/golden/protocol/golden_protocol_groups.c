/* golden_protocol_groups.c - how groups are named, found, cut up, and what their leaders refuse. */
#include "golden_protocol.h"
#include "net/hivemind/matchmaking/matchmaking.h"
#include "net/message.h"
#include "net/hivemind/messages/tensor_message.h"
#include "ref/partition.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- names, gather, group bits ---------------------------------------------------------------- */

static void same_text(struct golden *g, const char *what, const char *got, const char *want)
{
    if (!want) want = "(nothing)";
    golden_check(g, what, !strcmp(got, want), "\"%.80s\", expected \"%.80s\"", got, want);
}

static void check_names(struct golden *g, const json_t *c)
{
    const char *prefix = protocol_text(c, "prefix"),
               *classes[] = { "DecentralizedAverager", "GradientAverager",
                              "TrainingStateAverager" };
    const json_t *names = json_object_get(c, "rpc_names"), *declare = json_object_get(c, "declare"),
                 *withdraw = json_object_get(c, "withdraw");
    char key[GROUP_KEY_MAX] = "", name[GROUP_NAME_MAX], download[GROUP_KEY_MAX];
    struct bytes raw = { 0 }, want = { 0 };
    struct dht_id id, expected;
    struct pl_err err = { "" };
    if (group_key(key, prefix, protocol_text(c, "group_bits"), &err))
        golden_fail(g, "key", "%s", err.text);
    same_text(g, "key", key, protocol_text(c, "group_key"));
    if (protocol_id(g, c, "dht_id", &expected) && !dht_id_of_text(&id, key))
        golden_check(g, "id of the key", dht_id_equal(&id, &expected), "another id");
    snprintf(download, sizeof download, "%s.all_averagers", prefix);
    same_text(g, "key of the state", download, protocol_text(c, "download_key"));
    for (size_t i = 0; i < json_array_size(names); i++) {
        if (i / 3 >= PL_COUNT(classes) ||
            group_rpc_name(name, prefix, classes[i / 3], (enum averager_rpc)(i % 3), &err))
            continue;
        same_text(g, "name of a call", name, json_string_value(json_array_get(names, i)));
    }
    if (wire_member(g, declare, "subkey_value", &raw) &&
        wire_member(g, declare, "subkey_on_wire", &want)) {
        struct bytes subkey = { 0 };
        mp_bin(&subkey, bytes_at(&raw), bytes_length(&raw));
        wire_same(g, "subkey of a declaration", &subkey, &want);
        bytes_clear(&subkey);
    }
    if (json_object_get(c, "download_dht_id") && protocol_id(g, c, "download_dht_id", &expected) &&
        !dht_id_of_text(&id, download))
        golden_check(g, "id of the state's key", dht_id_equal(&id, &expected), "another id");
    golden_check(g, "values of declarations",
                 !strcmp(protocol_text(declare, "value_on_wire"), "c3") &&
                     !strcmp(protocol_text(withdraw, "value_on_wire"), "c2"),
                 "not true and false");
    golden_check(g, "withdrawal",
                 nextafter(protocol_real(json_object_get(declare, "expiration")), INFINITY) ==
                     protocol_real(json_object_get(withdraw, "expiration")),
                 "is not the next float");
    bytes_clear(&raw);
    bytes_clear(&want);
}

/* The numbers behind the bits: seen through bits that are long enough to show them whole. */
static void check_sample(struct golden *g, const json_t *c, size_t size, size_t target)
{
    static const char wide[] = "000000000000000000000000";
    const json_t *sample = json_object_get(c, "sample");
    const json_t *buckets = json_object_get(c, "num_buckets");
    size_t count = 1;
    char bits[GROUP_BITS_MAX + 1];
    struct dht_id id;
    while (count < size) count *= 2;
    if (target) count = target;
    golden_check(g, "buckets", !buckets || json_integer_value(buckets) == (json_int_t)count, "%zu",
                 count);
    if (!sample || !protocol_id(g, c, "group_id", &id)) return;
    for (size_t i = 0; i < size; i++)
        golden_check(g, "sample",
                     !group_next_bits(bits, wide, id.bytes, size, i, target) &&
                         json_array_size(sample) == size &&
                         (json_int_t)strtoul(bits, NULL, 2) ==
                             json_integer_value(json_array_get(sample, i)),
                     "number %zu is %s", i, bits);
}

static void check_bits(struct golden *g, const json_t *c)
{
    const char *old = protocol_text(c, "old_bits");
    const json_t *want = json_object_get(c, "new_bits");
    size_t size = (size_t)golden_int(g, c, "group_size"), target = 0;
    char bits[GROUP_BITS_MAX + 1];
    struct dht_id id;
    if (json_is_integer(json_object_get(c, "target_group_size")))
        target = (size_t)golden_int(g, c, "target_group_size");
    if (!protocol_id(g, c, "group_id", &id)) return;
    golden_check(g, "group's size", size == json_array_size(want), "%zu bits for %zu peers",
                 json_array_size(want), size);
    check_sample(g, c, size, target);
    for (size_t i = 0; i < size; i++) {
        int rc = group_next_bits(bits, old, id.bytes, size, i, target);
        same_text(g, "group bits", rc ? "refused" : bits,
                  json_string_value(json_array_get(want, i)));
    }
}

static void check_gather(struct golden *g, const json_t *c)
{
    struct bytes user = { 0 }, want = { 0 }, got = { 0 };
    struct gather sent = { .bandwidth = PL_BANDWIDTH_UNKNOWN }, back;
    struct pl_err err;
    if (!json_is_null(json_object_get(c, "bandwidth")))
        sent.bandwidth = protocol_real(json_object_get(c, "bandwidth"));
    sent.mode = (enum group_mode)golden_int(g, c, "mode");
    if (wire_member(g, c, "hex", &want) && protocol_value(g, json_object_get(c, "user"), &user)) {
        sent.user = bytes_at(&user);
        sent.user_n = bytes_length(&user);
        gather_write(&got, &sent);
        wire_same(g, "gather is written", &got, &want);
        golden_check(g, "gather is read",
                     !gather_read(&back, bytes_at(&want), bytes_length(&want), &err) &&
                         back.mode == sent.mode && back.bandwidth == sent.bandwidth &&
                         back.user_n == sent.user_n && !memcmp(back.user, sent.user, sent.user_n),
                     "differs");
    }
    bytes_clear(&user);
    bytes_clear(&want);
    bytes_clear(&got);
}

void protocol_matchmaking(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *c;
    const char *key;
    json_array_foreach(json_object_get(root, "keys"), i, c) check_names(g, c);
    json_array_foreach(json_object_get(root, "group_bits_after_group"), i, c) check_bits(g, c);
    json_array_foreach(json_object_get(json_object_get(root, "gather"), "examples"), i, c)
        check_gather(g, c);
    json_object_foreach(json_object_get(root, "valid_group_keys"), key, c)
        golden_check(g, "form of a key", group_key_is_valid(key) == json_is_true(c), "%.40s", key);
}

/* --- schema ----------------------------------------------------------------------------------- */

/* The hashed text, from the texts that the recording gives for each tensor. */
static void check_descriptors(struct golden *g, const json_t *list, const struct bytes *want)
{
    struct bytes text = { 0 };
    const char *key;
    size_t i;
    json_t *row, *value;
    if (!list) return;
    mp_list(&text, json_array_size(list));
    json_array_foreach(list, i, row)
    {
        mp_map(&text, json_object_size(row));
        json_object_foreach(row, key, value)
        {
            mp_str(&text, key, strlen(key));
            mp_str(&text, json_is_string(value) ? json_string_value(value) : "",
                   json_string_length(value));
        }
    }
    wire_same(g, "descriptors", &text, want);
    bytes_clear(&text);
}

static void check_schema(struct golden *g, const json_t *c)
{
    const json_t *list = json_object_get(c, "tensors");
    size_t n = json_array_size(list);
    struct schema_tensor *tensors = calloc(n + 1, sizeof *tensors);
    struct bytes text = { 0 }, want = { 0 };
    for (size_t t = 0; tensors && t < n; t++) {
        const json_t *row = json_array_get(list, t), *shape = json_object_get(row, "shape");
        int dtype = tensor_dtype_parse(protocol_text(row, "dtype"));
        if (dtype < 0 || json_array_size(shape) > PL_WIRE_DIMS_MAX) {
            golden_fail(g, "tensor", "of a kind that is not known here");
            goto done;
        }
        tensors[t].type.dtype = (enum pl_dtype)dtype;
        tensors[t].type.dims = (int)json_array_size(shape);
        for (int d = 0; d < tensors[t].type.dims; d++)
            tensors[t].type.size[d] = json_integer_value(json_array_get(shape, (size_t)d));
        tensors[t].requires_grad = json_is_true(json_object_get(row, "requires_grad"));
    }
    if (tensors) {
        struct dht_id hash, expected;
        if (!json_is_string(json_object_get(c, "hashed_bytes"))) { /* too long to be shown */
            group_schema_text(&want, tensors, n);
            check_descriptors(g, json_object_get(c, "descriptors"), &want);
            bytes_clear(&want);
        }
        if (json_is_string(json_object_get(c, "hashed_bytes")) &&
            wire_member(g, c, "hashed_bytes", &want)) {
            group_schema_text(&text, tensors, n);
            wire_same(g, "schema", &text, &want);
            check_descriptors(g, json_object_get(c, "descriptors"), &want);
        }
        if (!group_schema_hash(hash.bytes, tensors, n) &&
            protocol_id(g, c, "schema_hash", &expected))
            golden_check(g, "schema hash", dht_id_equal(&hash, &expected), "another one");
    }
done:
    bytes_clear(&text);
    bytes_clear(&want);
    free(tensors);
}

void protocol_schema_hash(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(root, "cases"), i, c) check_schema(g, c);
}

/* --- who reduces what ------------------------------------------------------------------------- */

/* The slowest peer's time, from whole shares [Moshpit SGD]. */
static double slowest(const double *share, const double *bandwidth, size_t n, double total)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        if (bandwidth[i] > 0)
            worst = fmax(worst,
                         ((n > 2 ? (double)(n - 2) : 0) * share[i] / total + 1) / bandwidth[i]);
    return worst;
}

/* With stated bandwidths several assignments are equally good, and hivemind takes the one its
 * solver ends at: ours must be as good. */
static void check_balance(struct golden *g, const json_t *c)
{
    const json_t *list = json_object_get(c, "bandwidths"), *want = json_object_get(c, "fractions");
    size_t n = json_array_size(list), total = (size_t)golden_int(g, c, "vector_size"), sum = 0;
    double *bandwidth = calloc(n + 1, sizeof *bandwidth), *theirs = calloc(n + 1, sizeof *theirs),
           *ours = calloc(n + 1, sizeof *ours), known = 0, stated = 0;
    size_t *share = calloc(n + 1, sizeof *share);
    int same = 1;
    struct pl_err err = { "" };
    if (total > UINT32_MAX) { /* also a negative one */
        golden_fail(g, "vector_size", "is none");
        n = total = 0;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *b = json_array_get(list, i);
        bandwidth[i] = json_is_null(b) ? PL_BANDWIDTH_UNKNOWN : protocol_real(b);
        if (bandwidth[i] > 0) known += bandwidth[i], stated++;
        theirs[i] = json_number_value(json_array_get(want, i));
    }
    if (pl_balance(share, bandwidth, (int)n, total, (size_t)golden_int(g, c, "min_size"), &err))
        golden_fail(g, "shares", "%s", err.text);
    for (size_t i = 0; i < n; i++) {
        ours[i] = (double)share[i];
        sum += share[i];
        same = same && ours[i] == theirs[i];
        if (bandwidth[i] == PL_BANDWIDTH_UNKNOWN) bandwidth[i] = stated > 0 ? known / stated : 1;
    }
    if (!stated || same || n < 3) golden_check(g, "shares", same, "other whole numbers");
    else /* two elements of rounding on either side */
        golden_case(g, "shares as good",
                    fmax(0, slowest(ours, bandwidth, n, (double)total) /
                                    slowest(theirs, bandwidth, n, (double)total) -
                                1),
                    4.0 * (double)n / (double)total + 1e-6);
    golden_check(g, "shares sum", sum == total, "to %zu, expected %zu", sum, total);
    free(bandwidth);
    free(theirs);
    free(ours);
    free(share);
}

static void check_rounding(struct golden *g, const json_t *c)
{
    const json_t *list = json_object_get(c, "scores"), *want = json_object_get(c, "allocated");
    size_t n = json_array_size(list), *share = calloc(n + 1, sizeof *share);
    double *score = calloc(n + 1, sizeof *score);
    long total = golden_int(g, c, "vector_size");
    int same = total >= 0 && total <= (long)UINT32_MAX;
    for (size_t i = 0; i < n; i++) score[i] = protocol_real(json_array_get(list, i));
    if (same) pl_balance_round(share, score, (int)n, (size_t)total);
    for (size_t i = 0; i < n; i++)
        same = same && (json_int_t)share[i] == json_integer_value(json_array_get(want, i));
    golden_check(g, "apportionment", same, "other whole numbers");
    free(share);
    free(score);
}

/* "none (float32)", or "Float16 below N elements, Uniform8Bit from there on". */
static enum pl_compression method_for(const char *text, size_t elements)
{
    const char *below = strstr(text, "below ");
    if (!strncmp(text, "none", 4) || !below) return PL_COMPRESS_NONE;
    return elements < strtoull(below + 6, NULL, 10) ? PL_COMPRESS_FLOAT16 : PL_COMPRESS_UNIFORM8;
}

static int same_part(const struct pl_part *p, const json_t *row)
{
    return json_integer_value(json_object_get(row, "tensor")) == (json_int_t)p->tensor &&
           json_integer_value(json_object_get(row, "offset")) == (json_int_t)p->start &&
           json_integer_value(json_object_get(row, "numel")) == (json_int_t)p->length;
}

static void check_partition(struct golden *g, const json_t *c)
{
    const json_t *shapes = json_object_get(c, "shapes"),
                 *want = json_object_get(c, "parts_by_peer"),
                 *counts = json_object_get(c, "parts_by_tensor"),
                 *list = json_object_get(c, "peer_fractions");
    size_t tensors = json_array_size(shapes), peers = json_array_size(list), count = 0, seen = 0;
    size_t *elements = calloc(tensors + 1, sizeof *elements),
           *next = calloc(peers + 1, sizeof *next);
    enum pl_compression *method = calloc(tensors + 1, sizeof *method);
    double *fraction = calloc(peers + 1, sizeof *fraction);
    struct pl_part *parts = NULL;
    struct pl_err err = { "" };
    int rc;
    for (size_t t = 0; t < tensors; t++) {
        size_t d;
        json_t *size;
        elements[t] = 1;
        json_array_foreach(json_array_get(shapes, t), d, size)
        {
            json_int_t n = json_integer_value(size);
            elements[t] *= n < 0 || n > INT32_MAX ? 0
                                                  : (size_t)n; /* no recording's: cuts nothing */
        }
        method[t] = method_for(protocol_text(c, "compression"), elements[t]);
    }
    for (size_t i = 0; i < peers; i++) fraction[i] = protocol_real(json_array_get(list, i));
    rc = pl_partition(&parts, &count, elements, method, tensors, fraction, (int)peers,
                      (size_t)golden_int(g, c, "part_size_bytes"), &err);
    for (size_t p = 0; !rc && p < count; p++) {
        size_t reducer = (size_t)parts[p].reducer;
        if (want)
            seen += (size_t)same_part(&parts[p], json_array_get(json_array_get(want, reducer),
                                                                next[reducer]++));
    }
    for (size_t i = 0; i < peers; i++)
        rc = rc || (want && next[i] != json_array_size(json_array_get(want, i)));
    for (size_t t = 0; !rc && counts && t < tensors; t++) {
        size_t of = 0;
        for (size_t p = 0; p < count; p++) of += (size_t)parts[p].tensor == t;
        golden_check(g, "parts of a tensor",
                     json_array_size(counts) == tensors &&
                         json_integer_value(json_array_get(counts, t)) == (json_int_t)of,
                     "tensor %zu: %zu", t, of);
    }
    golden_check(g, "parts", !rc && (!want || seen == count), "%s; %zu of %zu as recorded",
                 err.text, seen, count);
    pl_free(parts);
    free(elements);
    free(next);
    free(method);
    free(fraction);
}

void protocol_partition(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(root, "load_balancing"), i, c) check_balance(g, c);
    json_array_foreach(json_object_get(root, "apportionment"), i, c) check_rounding(g, c);
    json_array_foreach(json_object_get(root, "partitions"), i, c) check_partition(g, c);
}
