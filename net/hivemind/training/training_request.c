/* training_request.c - functions that every part of this folder uses: the DHT's clock, storing a
 * record, a warning. How a request goes from the training's thread to the network's:
 *
 *   training's thread                      network's thread (the loop)
 *   request_wait: posts `begin`, sleeps
 *                                          begin: answers at once, or keeps the request
 *                                          ...
 *                                          loop_end: status, then wakes
 *   wakes, returns the status
 *
 * A request that is always answered at once goes by loop_call. This is the bottom layer of the
 * folder: it calls none of the other files. */
#include "training_internal.h"

double training_now(const struct training *c) { return dht_node_time(c->o.node); }

/* Each peer writes under its own subkey of a common dictionary: the hash of its signing key. No
 * other peer can sign for that subkey, so none can overwrite it. [spec hivemind-protocol 2.1] A
 * record that did not arrive is not stored again: the next report replaces it within 30 s. */
void training_store(struct training *c, const struct dht_id *key, const struct bytes *value,
                    double life)
{
    if (!value->failed)
        dht_node_store(c->o.node, key, bytes_at(&c->subkey), bytes_length(&c->subkey),
                       bytes_at(value), bytes_length(value), training_now(c) + life, NULL, NULL);
}

/* Keeps a warning for the training's thread. Beyond five they are dropped: the others have not been
 * read yet. */
void training_warn(struct training *c, const char *text)
{
    if (c->records.warning_count < WARNINGS_MAX)
        pl_fail(&c->records.warnings[c->records.warning_count++], PL_OK, "%s", text);
}
