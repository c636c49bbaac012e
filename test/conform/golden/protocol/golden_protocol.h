/* golden_protocol.h - the kinds of recordings of hivemind's protocol, shared between their
 * files. */
#ifndef PL_GOLDEN_PROTOCOL_H
#define PL_GOLDEN_PROTOCOL_H

#include "test/conform/golden/golden.h"
#include "test/conform/golden/wire/golden_wire.h"
#include "net/hivemind/records/dht_id.h"
#include "net/hivemind/messages/msgpack.h"

/* A value as the recordings write it ({"int": 1}, {"tuple": [...]}, ...) to msgpack, appended.
 * 1, or 0 after a golden_fail line. */
int protocol_value(struct golden *g, const json_t *value, struct bytes *out);
/* Integers too large for jansson are strings in trees from protocol_json. */
json_t *protocol_json(struct golden *g, const char *path);
/* {"float64": "0x1p+0"}, its text alone, or a plain number. */
double protocol_real(const json_t *value);
const char *protocol_text(const json_t *object, const char *key); /* "" if there is none */
/* A member's 40 hex digits; 0 after a golden_fail line. */
int protocol_id(struct golden *g, const json_t *object, const char *key, struct dht_id *id);
void protocol_hex(char *hex, const void *data, size_t n); /* hex holds 2 n + 1 characters */

typedef void protocol_run(struct golden *g, const json_t *root);
protocol_run protocol_dht_ids, protocol_msgpack, protocol_protobuf, protocol_routing_table,
    protocol_timed_storage, protocol_dht_calls, protocol_signatures, protocol_schema, protocol_auth,
    protocol_progress, protocol_matchmaking, protocol_schema_hash, protocol_partition,
    protocol_join_rejections, protocol_allreduce, protocol_state_download, protocol_training_trace;

#endif
