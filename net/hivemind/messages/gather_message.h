/* gather_message.h - how a peer fetches the message of a groupmate, piece by piece. Only potluck's
 * peers know these messages. [spec wire-extensions F]
 *
 *   request   group ID, offset
 *   piece     bytes of the whole, epoch, weight; bytes of the message from that offset on
 *
 * Integers are big-endian. */
#ifndef PL_GATHER_MESSAGE_H
#define PL_GATHER_MESSAGE_H

#include "net/bytes.h"

#define GATHER_GROUP_BYTES 20              /* of a group's ID */
#define GATHER_PIECE ((size_t)1 << 17)     /* bytes of ours a call: a second on a slow uplink */
#define GATHER_PIECE_MIN ((size_t)1 << 16) /* of a groupmate's, but for the last one */
#define GATHER_PIECE_MAX ((size_t)1 << 20)

/* Views of received bytes. */
struct gather_request {
    const uint8_t *group; /* (GATHER_GROUP_BYTES) */
    uint64_t offset;
};
struct gather_piece {
    uint64_t total; /* bytes of the whole message */
    int64_t epoch;  /* in which the message was made */
    double weight;  /* finite, not negative */
    const uint8_t *data;
    size_t n; /* at most GATHER_PIECE_MAX */
};

int gather_request_write(struct bytes *out, const struct gather_request *r);
/* PL_EFORMAT: another length. */
int gather_request_read(struct gather_request *r, const uint8_t *data, size_t n);
int gather_piece_write(struct bytes *out, const struct gather_piece *p);
/* PL_EFORMAT: too short or too long; a negative epoch; a weight that is negative or not finite. */
int gather_piece_read(struct gather_piece *p, const uint8_t *data, size_t n);

#endif
