/* byzantine.c - peers that break the rules. Each runs the code of an honest peer, so that others
 * accept it, and lies where its kind requires: the functions below replace the real ones (ld's
 * --wrap). They know more than any attacker could: the records of all other peers. */
#include "plan.h"
#include "threads.h"

#include "net/hivemind/averaging/averager.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/hivemind/progress/progress.h"
#include "net/hivemind/verification/verifier_internal.h"
#include "runtime/reducer.h"

#include <math.h>
#include <string.h>

#define FLOOD 40            /* records at once */
#define FLOOD_BYTES 900     /* of each */
#define NESTED_BYTES 200000 /* of a record that is nothing but beginnings of signatures */
#define SEEN_MAX 64         /* records of others that are known */
#define LOOKUPS 300         /* at once */

static int is_kind(enum byzantine kind)
{
    const struct sim_peer *p = sim_peer_here();
    return p && p->index >= plan.honest && plan.kinds[p->index] == kind;
}

static struct sim_random *numbers(void) { return &sim_peer_here()->random; }

/* --- progress --------------------------------------------------------------------------------- */

int __real_progress_write(struct bytes *out, const struct progress_record *r);
int __wrap_progress_write(struct bytes *out, const struct progress_record *r);
int __wrap_progress_write(struct bytes *out, const struct progress_record *r)
{
    struct progress_record lie = *r;
    if (is_kind(BYZANTINE_EPOCH_FAR)) lie.epoch = 4000000000000000000;
    if (is_kind(BYZANTINE_EPOCH_NEAR)) lie.epoch += 1 + (int64_t)sim_random_below(numbers(), 30);
    if (is_kind(BYZANTINE_SAMPLES)) {
        lie.samples = INT64_MAX;
        lie.samples_per_second = 1e300;
    }
    return __real_progress_write(out, &lie);
}

/* --- records ---------------------------------------------------------------------------------- */

struct dht_task *__real_dht_node_store(struct dht_node *n, const struct dht_id *key,
                                       const void *subkey, size_t subkey_n, const void *value,
                                       size_t value_n, double expiration, dht_stored *stored,
                                       void *context);
struct dht_task *__wrap_dht_node_store(struct dht_node *n, const struct dht_id *key,
                                       const void *subkey, size_t subkey_n, const void *value,
                                       size_t value_n, double expiration, dht_stored *stored,
                                       void *context);

static struct seen {
    struct dht_id key;
    uint8_t subkey[1024];
    size_t n;
} seen[SEEN_MAX];
static size_t seen_count;

static void note_record(const struct dht_id *key, const void *subkey, size_t n)
{
    struct seen *s = &seen[seen_count % SEEN_MAX];
    if (!subkey || n > sizeof s->subkey) return;
    for (size_t i = 0; i < seen_count && i < SEEN_MAX; i++)
        if (seen[i].n == n && !memcmp(seen[i].subkey, subkey, n) &&
            !memcmp(&seen[i].key, key, sizeof *key))
            return;
    s->key = *key;
    s->n = n;
    memcpy(s->subkey, subkey, n);
    seen_count++;
}

static void ignore_stored(void *context, int status) { (void)context, (void)status; }
static void ignore_got(void *context, int status, const struct dht_result *r)
{
    (void)context, (void)status, (void)r;
}

static void store_flood(struct dht_node *n, const struct dht_id *key)
{
    uint8_t text[FLOOD_BYTES] = { 0 };
    for (int i = 0; i < FLOOD; i++) {
        struct bytes subkey = { 0 }, value = { 0 };
        struct dht_id any = *key;
        for (int k = 0; k < 20; k++) text[k] = (uint8_t)('a' + sim_random_below(numbers(), 26));
        if (i % 2) memcpy(&any, text, sizeof any);
        if (!mp_str(&subkey, (const char *)text, 20) && !mp_bin(&value, text, sizeof text))
            __real_dht_node_store(n, &any, i % 4 ? bytes_at(&subkey) : NULL,
                                  i % 4 ? bytes_length(&subkey) : 0, bytes_at(&value),
                                  bytes_length(&value), dht_node_time(n) + 1e6, ignore_stored,
                                  NULL);
        bytes_clear(&subkey);
        bytes_clear(&value);
    }
}

static void store_nested(struct dht_node *n, const struct dht_id *key)
{
    static const char text[] = "[signature:";
    struct bytes value = { 0 };
    while (bytes_length(&value) < NESTED_BYTES && !bytes_add(&value, text, sizeof text - 1))
        continue;
    __real_dht_node_store(n, key, NULL, 0, bytes_at(&value), bytes_length(&value),
                          dht_node_time(n) + 60, ignore_stored, NULL);
    bytes_clear(&value);
}

/* Overwrites the records that it has seen with "no longer here", in their owners' names. */
static void overwrite_others(struct dht_node *n)
{
    struct bytes value = { 0 };
    mp_bool(&value, 0);
    for (size_t i = 0; i < seen_count && i < SEEN_MAX; i++)
        __real_dht_node_store(n, &seen[i].key, seen[i].subkey, seen[i].n, bytes_at(&value),
                              bytes_length(&value), dht_node_time(n) + 300, ignore_stored, NULL);
    bytes_clear(&value);
}

/* Requests whose answers are never read. */
static void ask_and_not_read(struct dht_node *n)
{
    for (int i = 0; i < LOOKUPS; i++) {
        struct dht_id any;
        for (size_t k = 0; k < sizeof any; k++)
            ((uint8_t *)&any)[k] = (uint8_t)sim_random_next(numbers());
        dht_node_get(n, &any, 1, ignore_got, NULL);
    }
    sim_peer_here()->reads_nothing = (double)sim_now() * 1e-9 > 30;
}

struct dht_task *__wrap_dht_node_store(struct dht_node *n, const struct dht_id *key,
                                       const void *subkey, size_t subkey_n, const void *value,
                                       size_t value_n, double expiration, dht_stored *stored,
                                       void *context)
{
    const struct sim_peer *p = sim_peer_here();
    if (p && p->index < plan.honest) note_record(key, subkey, subkey_n);
    if (is_kind(BYZANTINE_FOR_EVER)) expiration += 1e12;
    if (is_kind(BYZANTINE_FLOOD)) store_flood(n, key);
    if (is_kind(BYZANTINE_NESTED)) store_nested(n, key);
    if (is_kind(BYZANTINE_OVERWRITE)) overwrite_others(n);
    if (is_kind(BYZANTINE_UNREAD)) ask_and_not_read(n);
    return __real_dht_node_store(n, key, subkey, subkey_n, value, value_n, expiration, stored,
                                 context);
}

/* --- rounds ----------------------------------------------------------------------------------- */

void __real_allreduce_message(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                              const uint8_t *data, size_t n);
void __wrap_allreduce_message(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                              const uint8_t *data, size_t n);
void __wrap_allreduce_message(struct allreduce *x, double now, size_t peer, enum allreduce_way way,
                              const uint8_t *data, size_t n)
{
    if (is_kind(BYZANTINE_SILENT)) return;
    if (is_kind(BYZANTINE_SILENT_REDUCER) && way == ALLREDUCE_IN) return;
    __real_allreduce_message(x, now, peer, way, data, n);
}

/* A wrong sum: the differences with the other sign. */
int __real_pl_reducer_reply(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                            const uint8_t *buffer, size_t bytes, struct pl_err *err);
int __wrap_pl_reducer_reply(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                            const uint8_t *buffer, size_t bytes, struct pl_err *err);
int __wrap_pl_reducer_reply(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                            const uint8_t *buffer, size_t bytes, struct pl_err *err)
{
    int rc = __real_pl_reducer_reply(reply, r, method, buffer, bytes, err);
    size_t step = method == PL_COMPRESS_NONE ? 4 : method == PL_COMPRESS_FLOAT16 ? 2 : 1;
    if (is_kind(BYZANTINE_FALSE_SUM))
        for (size_t i = step - 1; i < bytes; i += step) reply[i] ^= 0x80;
    return rc;
}

/* The encoder of values to be sent: NaN in every value. */
int __real_pl_wire_encode(uint8_t *buffer, const struct pl_backend *be, enum pl_compression method,
                          const struct pl_wire_type *type, const void *data, struct pl_err *err);
int __wrap_pl_wire_encode(uint8_t *buffer, const struct pl_backend *be, enum pl_compression method,
                          const struct pl_wire_type *type, const void *data, struct pl_err *err);
int __wrap_pl_wire_encode(uint8_t *buffer, const struct pl_backend *be, enum pl_compression method,
                          const struct pl_wire_type *type, const void *data, struct pl_err *err)
{
    size_t n;
    int rc = __real_pl_wire_encode(buffer, be, method, type, data, err);
    if (!rc && is_kind(BYZANTINE_NAN) && !pl_wire_bytes(&n, method, type, NULL))
        memset(buffer, 0xff, n);
    return rc;
}

int __real_averager_begin(struct averager *a, const struct averager_step *s, averager_done *done,
                          void *context);
int __wrap_averager_begin(struct averager *a, const struct averager_step *s, averager_done *done,
                          void *context);
/* "I am an epoch ahead", as the members of a round of the parameters tell it. */
int __wrap_averager_begin(struct averager *a, const struct averager_step *s, averager_done *done,
                          void *context)
{
    struct averager_step lie = *s;
    struct bytes gather = { 0 };
    int rc;
    if (is_kind(BYZANTINE_AHEAD) && s->gather && !mp_int(&gather, plan.furthest + 1)) {
        lie.gather = bytes_at(&gather);
        lie.gather_n = bytes_length(&gather);
    }
    rc = __real_averager_begin(a, &lie, done, context);
    bytes_clear(&gather);
    return rc;
}

/* --- verified rounds -------------------------------------------------------------------------- */

void __real_broadcast_send(struct broadcast *b, double now, int stage, const void *body, size_t n);
void __wrap_broadcast_send(struct broadcast *b, double now, int stage, const void *body, size_t n);
void __real_broadcast_send_pair(struct broadcast *b, double now, int stage, size_t to,
                                const void *body, size_t n);
void __wrap_broadcast_send_pair(struct broadcast *b, double now, int stage, size_t to,
                                const void *body, size_t n);

static void fill(uint8_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = (uint8_t)sim_random_next(numbers());
}

/* Denies what all others have sent; accuses each of a false report; votes against all. */
static void accuse_all(const struct broadcast *b, int stage, uint8_t *body, size_t n)
{
    const size_t count = b->o.group->count;
    if (stage == VERIFIER_COMMIT && n == COMMIT_BYTES(count) && sim_random_happens(numbers(), 0.5))
        for (size_t i = 0; i < count; i++) body[COMMIT_DENIED + i] = i != b->o.group->self;
    if (stage == VERIFIER_ACCUSE)
        for (size_t i = 0; i < count && (i + 1) * ACCUSATION_BYTES <= n; i++)
            if (i != b->o.group->self && sim_random_happens(numbers(), 0.7)) {
                body[i * ACCUSATION_BYTES] = ACCUSES_REPORT;
                body[i * ACCUSATION_BYTES + 4] = (uint8_t)sim_random_below(numbers(), 4);
            }
    if (stage == VERIFIER_OPEN)
        for (size_t i = 0; i < count && i < n; i++) body[i] = VERIFIER_FALSE;
}

/* Falsifies the hash of its aggregates or of the parts that it has sent: one of them, or all. */
static void falsify_hashes(const struct broadcast *b, int stage, uint8_t *body, size_t n)
{
    const size_t count = b->o.group->count;
    if (sim_random_happens(numbers(), 0.5)) return;
    if (stage == VERIFIER_SENT)
        fill(body + PL_HASH_BYTES * sim_random_below(numbers(), 2), PL_HASH_BYTES);
    if (stage != VERIFIER_COMMIT || n != COMMIT_BYTES(count)) return;
    if (sim_random_happens(numbers(), 0.5)) fill(body, PL_HASH_BYTES);
    else fill(body + COMMIT_DIGESTS(count), count * PL_HASH_BYTES);
}

/* The false message to be sent instead; the caller frees it. NULL: the true one is sent. */
static uint8_t *false_message(const struct broadcast *b, int stage, const void *body, size_t n)
{
    uint8_t *lie;
    if (!is_kind(BYZANTINE_ACCUSER) && !is_kind(BYZANTINE_HASHES) && !is_kind(BYZANTINE_GARBLER))
        return NULL;
    if (!n || !(lie = __real_malloc(n))) return NULL;
    memcpy(lie, body, n);
    if (is_kind(BYZANTINE_ACCUSER)) accuse_all(b, stage, lie, n);
    else if (is_kind(BYZANTINE_HASHES)) falsify_hashes(b, stage, lie, n);
    else if (sim_random_happens(numbers(), 0.2))
        lie[sim_random_below(numbers(), n)] ^= (uint8_t)(1 + sim_random_below(numbers(), 255));
    return lie;
}

void __wrap_broadcast_send(struct broadcast *b, double now, int stage, const void *body, size_t n)
{
    uint8_t *lie = false_message(b, stage, body, n);
    __real_broadcast_send(b, now, stage, lie ? lie : body, n);
    __real_free(lie);
}

void __wrap_broadcast_send_pair(struct broadcast *b, double now, int stage, size_t to,
                                const void *body, size_t n)
{
    uint8_t *lie = false_message(b, stage, body, n);
    __real_broadcast_send_pair(b, now, stage, to, lie ? lie : body, n);
    __real_free(lie);
}

/* --- state ------------------------------------------------------------------------------------ */

/* Shares a state of an epoch that no peer has trained, with the highest priority. */
void __real_averager_share(struct averager *a, struct state_snapshot *s, double priority);
void __wrap_averager_share(struct averager *a, struct state_snapshot *s, double priority);
void __wrap_averager_share(struct averager *a, struct state_snapshot *s, double priority)
{
    if (is_kind(BYZANTINE_STATE) || is_kind(BYZANTINE_STATE_ENDLESS)) priority = 1e300;
    __real_averager_share(a, s, priority);
}

int __real_training_state_write(struct bytes *out, const struct training_state *t);
int __wrap_training_state_write(struct bytes *out, const struct training_state *t);
int __wrap_training_state_write(struct bytes *out, const struct training_state *t)
{
    struct training_state lie = *t;
    if (is_kind(BYZANTINE_STATE)) lie.epoch += 30;
    return __real_training_state_write(out, &lie);
}

/* The last message again and again. */
int __real_state_source_next(struct state_source *s, struct bytes *out, const struct pl_backend *be,
                             struct pl_err *err);
int __wrap_state_source_next(struct state_source *s, struct bytes *out, const struct pl_backend *be,
                             struct pl_err *err);
int __wrap_state_source_next(struct state_source *s, struct bytes *out, const struct pl_backend *be,
                             struct pl_err *err)
{
    static struct bytes last;
    int rc = __real_state_source_next(s, out, be, err);
    if (!is_kind(BYZANTINE_STATE_ENDLESS)) return rc;
    if (!rc) {
        bytes_clear(&last);
        bytes_add(&last, bytes_at(out), bytes_length(out));
    } else if (rc == PL_ENOTFOUND && bytes_length(&last))
        rc = bytes_add(out, bytes_at(&last), bytes_length(&last)) ? PL_ENOMEM : PL_OK;
    return rc;
}

/* --- batches ---------------------------------------------------------------------------------- */

float byzantine_gradient(void) { return is_kind(BYZANTINE_GRADIENT) ? -100.0f : 1.0f; }
int64_t byzantine_samples(void) { return is_kind(BYZANTINE_WEIGHT) ? 1000000000 : plan.batch; }
