/* multistream.h - agreeing on a protocol, multistream-select 1.0: an engine without sockets.
 * [spec libp2p-wire 4] */
#ifndef PL_MULTISTREAM_H
#define PL_MULTISTREAM_H

#include "net/bytes.h"

#define MULTISTREAM_TOKEN_MAX 1024   /* text and newline, as go-multistream counts it */
#define MULTISTREAM_PROPOSALS_MAX 64 /* a dialer that keeps guessing is sent away */

/* Does the listener serve this protocol? `name` is not zero-terminated. Returns its index, or
 * -1. */
typedef int multistream_find_fn(void *context, const char *name, size_t n);

struct multistream {
    /* the dialer's side: proposals in order of preference; the listener's: how to look one up */
    const char *const *wanted;
    size_t wanted_count;
    multistream_find_fn *find;
    void *context;
    /* private */
    size_t proposed; /* proposals made or received so far */
    int header_seen;
    int agreed; /* index that both agreed on, once PL_OK came */
};

/* Sends the header and, as dialer, the first proposal with it. */
int multistream_dial(struct multistream *m, const char *const *wanted, size_t count,
                     struct bytes *out);
int multistream_listen(struct multistream *m, multistream_find_fn *find, void *context,
                       struct bytes *out);

/* Reads whole tokens from c and not a byte more: the bytes after them belong to the protocol.
 * PL_OK: agreed on m->agreed. PL_EAGAIN: more bytes are needed. PL_ENOTFOUND: the dialer has
 * nothing left to propose. PL_EPROTO: the other side does not speak multistream. */
int multistream_receive(struct multistream *m, struct cursor *c, struct bytes *out);

int multistream_token(struct bytes *out, const char *text, size_t n);

#endif
