/* dht_message.c - any bytes as requests to a node that stores records, and as responses to a
 * search. The input: a byte for the kind and the sender, then one message. */
#include "net/hivemind/kademlia/dht_search.h"
#include "net/hivemind/kademlia/dht_serve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void serve(struct dht_state *s, enum dht_call call, const uint8_t *data, size_t n)
{
    struct bytes answer = { 0 };
    struct dht_request r;
    struct pl_err err;
    struct peer_id peer = { 34, { 0x12, 0x20 } };
    const struct dht_caller caller = { peer, 1 };
    double now = 1000;
    if (!dht_serve(s, call, now, &caller, data, n, &answer, &r, &err)) {
        struct dht_answer back; /* our own answers are good ones */
        if (bytes_length(&answer) &&
            dht_read_answer(&back, call, r.count, bytes_at(&answer), bytes_length(&answer), &err))
            abort();
        if (bytes_length(&answer)) dht_answer_clear(&back);
        if (r.has_id) {
            struct dht_record *records;
            size_t count;
            struct bytes packed = { 0 };
            if (!dht_state_hand_over(s, now, &r.id, &records, &count, &packed)) free(records);
            bytes_clear(&packed);
            dht_routing_add(&s->routing, &r.id, &peer, now, NULL);
        }
    }
    dht_request_clear(&r);
    bytes_clear(&answer);
}

static const struct validators signatures_only;

static void search(const uint8_t *data, size_t n, size_t count)
{
    struct dht_contact first = { .id = { { 7 } }, .peer = { 34, { 0x12, 0x20 } } };
    struct dht_id key = { { 1 } }, self = { { 2 } };
    struct dht_search s;
    struct dht_answer a;
    struct pl_err err;
    if (dht_read_answer(&a, DHT_FIND, count, data, n, &err)) return;
    dht_search_init(&s, &key, &self, INFINITY, &signatures_only);
    s.time = 1000;
    dht_search_add(&s, &first, 1);
    for (size_t i = 0; i < count; i++) {
        if (!dht_search_next(&s, &first)) break;
        dht_search_answered(&s, &first.id, &a.found[i]);
    }
    dht_result_finish(&s.best, 1000);
    dht_search_clear(&s);
    dht_answer_clear(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct dht_state node;
    static int calls;
    struct dht_id self = { { 9 } };
    struct dht_answer a;
    struct pl_err err;
    if (!n) return 0;
    if (calls++ % 1000 == 0) { /* the state grows; begin anew so that a crash can be repeated */
        if (calls > 1) dht_state_clear(&node);
        dht_state_init(&node, &self, 0, &signatures_only);
    }
    switch (data[0] % 8) {
    case 0:
    case 1:
    case 2: serve(&node, (enum dht_call)(data[0] % 8), data + 1, n - 1); break;
    case 3:
    case 4: search(data + 1, n - 1, (size_t)(data[0] % 8) - 2); break;
    default: {
        enum dht_call call = (enum dht_call)(data[0] % 8 - 5);
        if (!dht_read_answer(&a, call, 1, data + 1, n - 1, &err)) dht_answer_clear(&a);
    }
    }
    return 0;
}
