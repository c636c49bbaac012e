/* state_download.h - the newcomer's side of state sharing: the state that we take over from a
 * donor. [spec hivemind-protocol 7] */
#ifndef PL_STATE_DOWNLOAD_H
#define PL_STATE_DOWNLOAD_H

#include "state_pace.h"
#include "state_witness.h"

#define STATE_CHECK_PAUSE 0.25 /* s: a poll of the DHT takes some round trips */
/* If no other donor can confirm the state (hivemind's cannot), a second donor's state is downloaded
 * and compared: for models of at most this many bytes, and from at most this many donors in all. */
#define STATE_TWICE_MAX (64u << 20)
#define STATE_TWICE_TRIES 3

/* PL_OK and the state of one of the best donors; the callback may take it (and leave zeros).
 * PL_ENOTFOUND: no peer has announced one. PL_EUSE: all that arrived belong to another model.
 * PL_EIO: no donor could be reached, or none gave a state that can be used. */
typedef void state_downloaded(void *context, int status, const struct peer_id *donor,
                              struct state_load *state, const struct pl_err *err);
/* PL_OK: the state that has arrived can be used. PL_EAGAIN: not known yet, call again after
 * STATE_CHECK_PAUSE. Any other status: the next donor is asked. */
typedef int state_check(void *context, const struct state_load *state, struct pl_err *err);

struct state_download {
    const struct state_peer *peer;
    state_check *check;
    state_downloaded *downloaded; /* NULL: no download is under way */
    void *context;
    struct dht_task *task; /* the list of donors, or a donor's token, is being requested */
    struct rpc_stream *stream;
    struct timer next;
    struct donor *donors;
    size_t count, at;
    struct state_load load;
    struct state_pace pace;
    struct pl_err why;
    size_t arrived, mismatches; /* states that came; of another model */
    struct state_witnesses witnesses;
    struct state_load unconfirmed; /* the first such one, while others are asked */
    struct peer_id unconfirmed_donor;
    struct state_claim given[STATE_TWICE_TRIES]; /* those given so far, sampled by own_seed */
    size_t given_count;
    uint8_t own_seed[STATE_SEED];
    struct dht_blacklist failures; /* from one download to the next */
};

/* p is borrowed. */
void state_download_init(struct state_download *d, const struct state_peer *p);
/* One at a time: PL_EUSE if there is one. check may be NULL. The state begins with the peer's
 * tensors, see state_load_expect. */
int state_download_begin(struct state_download *d, state_check *check, state_downloaded *downloaded,
                         void *context);
/* Ends a download without its callback. */
void state_download_clear(struct state_download *d);

#endif
