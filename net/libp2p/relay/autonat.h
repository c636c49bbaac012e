/* autonat.h - can others reach us: a peer is asked to dial us back. [spec libp2p-wire 14] */
#ifndef PL_AUTONAT_H
#define PL_AUTONAT_H

#include "net/libp2p/host/host.h"

#define AUTONAT_MESSAGE_MAX 8192
#define AUTONAT_ADDRESSES_MAX 8 /* of a request, that are tried */
#define AUTONAT_LIMIT 20.0      /* s for dialing a peer back */

enum autonat_status {
    AUTONAT_OK = 0,
    AUTONAT_DIAL_ERROR = 100,
    AUTONAT_REFUSED = 101,
    AUTONAT_BAD_REQUEST = 200,
    AUTONAT_INTERNAL_ERROR = 300
};

struct autonat_message {
    int is_response;
    struct peer_id peer; /* of a request: the peer that asks to be dialed */
    /* a request's; a response's is the one that worked */
    struct multiaddr addresses[AUTONAT_ADDRESSES_MAX];
    size_t address_count;
    int status;
    char text[200];
};
int autonat_put(struct bytes *out, const struct autonat_message *m); /* delimited */
int autonat_get(struct autonat_message *m, const uint8_t *data, size_t n);

/* Dials peers back that ask for it, at the IP address that they ask from and nowhere else. */
extern const struct host_protocol autonat_protocol;

/* Asks a peer to dial us. status PL_OK: it reached us at `at`. PL_EIO: it tried and could not.
 * Others: it did not try (PL_EPROTO: it refused), or did not answer. why: a sentence. */
typedef void autonat_done(void *context, int status, const struct multiaddr *at, const char *why);
struct autonat_question; /* gone once done was called */
/* NULL: no memory, and done is not called. */
struct autonat_question *autonat_ask(struct host *h, const struct peer_id *peer, double timeout_s,
                                     autonat_done *done, void *context);
void autonat_cancel(struct autonat_question *q);

#endif
