/* golden_python_repr.h - the text that Python prints for a value, to compare results with
 * recordings. */
#ifndef PL_GOLDEN_PYTHON_REPR_H
#define PL_GOLDEN_PYTHON_REPR_H

#include "net/bytes.h"
#include "net/hivemind/kademlia/dht_search.h"

/* Appends zero-terminated text. */
void python_repr_add(struct bytes *out, const char *text);
/* Appends the repr of DHT.get's result: None, a value with its expiration, or a dictionary. */
void python_repr_result(struct bytes *out, const struct dht_result *r);

#endif
