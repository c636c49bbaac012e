/* dht_json.h - values of the DHT as JSON, for people and scripts: bytes are {"bytes": "hex"},
 * tuples {"tuple": [...]}, numbers that JSON lacks {"float": "nan"}. */
#ifndef PL_CMD_DHT_JSON_H
#define PL_CMD_DHT_JSON_H

#include "net/hivemind/messages/msgpack.h"

#include <jansson.h>

/* A new reference; NULL only without memory. Bytes that are no msgpack become {"bytes": "hex"}. */
json_t *dht_json_of(const uint8_t *data, size_t n);
/* The other way; PL_EFORMAT for a JSON value that stands for none. */
int dht_json_write(struct bytes *out, const json_t *value);

#endif
