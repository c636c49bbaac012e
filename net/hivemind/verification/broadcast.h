/* broadcast.h - signed messages from every peer of a group to every other, stage by stage, such
 * that all honest peers end each stage with the same ones. [BTARD 3.1] [Bracha 1987, echo]
 *
 *   1. each peer sends its signed message of the stage to all others
 *   2. a peer that has all messages sends a signed list of their hashes
 *   3. a peer that has all messages and all lists, each equal to its own, enters the next stage
 *
 * A peer that lacks something for a quarter of the time limit sends NEED to all. Any peer that has
 * it forwards it with its signature. So a sender that leaves out some receivers changes nothing. If
 * two lists differ, both sides show the messages that they received: two signed messages of one
 * sender prove equivocation. The proof goes to all.
 *
 * The last stage has no lists: its messages are equal, and a peer that has them all is done. It
 * first forwards them to all that may lack some.
 *
 * Why honest peers stay together: a peer that has begun a stage had all lists of the one before,
 * ours included, and ours was equal to its own. So its message of the stage is about the messages
 * that we hold.
 *
 * No socket, no clock: bytes and seconds come in as arguments, packets lie in `out`. */
#ifndef PL_BROADCAST_H
#define PL_BROADCAST_H

#include "equivocation.h"

struct broadcast_options {
    const struct group *group; /* borrowed, and `me` */
    const struct identity *me;
    uint8_t round[PL_HASH_BYTES]; /* hash of all that honest peers of a round have in common */
    const struct equivocation_rules *rules; /* borrowed: the stages, and which are of pairs */
    /* 1: a body of this stage may have that length. */
    int (*fits)(void *context, int stage, size_t n);
    void *context;
};

/* A packet is a sequence of frames: be32 length, kind, the round, then the contents. */
enum frame_kind {
    FRAME_MESSAGE, /* a signed message with its body */
    FRAME_HEAD,    /* a message without its body: the receiver holds another one of that sender */
    FRAME_PROOF,   /* of equivocation, see equivocation.h */
    FRAME_NEED     /* stage, (count) messages, (count) lists: 1 for each that is missing; a pair's
                    * message only its sender can send again */
};
#define FRAME_START (1 + PL_HASH_BYTES) /* kind and round */

struct cell {
    struct bytes message; /* as it was signed; empty: none yet */
    uint8_t hash[PL_HASH_BYTES];
    size_t head; /* bytes before the body */
};

struct packet {
    size_t to; /* SIZE_MAX: all other peers */
    struct bytes data;
    struct packet *next;
};
void packets_free(struct packet *l); /* all of the list */

struct broadcast {
    struct broadcast_options o;
    size_t count, self;
    struct equivocation_scope scope; /* proofs are checked against it */
    struct cell *cell;               /* (2 stages, count): messages, then lists */
    struct bytes *pair;              /* (count): our own of a stage of pairs, for each peer */
    uint8_t *forwarded;              /* (2 stages, count, count): receiver, sender */
    uint8_t *needs;     /* (count, 2 count): messages and lists that a peer lacks in need_stage */
    int *need_stage;    /* (count): of its last NEED; -1: none */
    uint8_t *guilty;    /* (count): a proof against it has been seen */
    uint8_t *elsewhere; /* (count): it has sent frames of another round under this group's ID */
    size_t *frames;     /* (count): received from a peer */
    int stage;          /* that we are in: we have sent its message */
    int is_patient;     /* others may be long at work: nothing is late */
    double since;       /* s: when the stage's last new message came, or the stage began */
    double asked;       /* s: last request for missing messages; or the stage's beginning */
    struct packet *out, **out_end;
    int failed; /* PL_ENOMEM */
};

/* frames of one peer: for each stage and groupmate a message, a list, heads of both; and questions,
 * some hundred where a gradient is waited for */
#define BROADCAST_FRAMES_MAX(stages, count) (8 * (size_t)(stages) * (count) + 1000)

/* Shares of the time limit, which is how long a stage may last without anything new. After each
 * quarter of it we ask for the missing messages, however much else comes meanwhile: a Byzantine
 * peer could send us something just before each question, while others that have it already wait
 * for us. In the last quarter a message is taken only when a third peer forwards it: so a message
 * taken at the last moment still reaches the others before they give up. */
#define BROADCAST_ASK 0.25
#define BROADCAST_LATE 0.75

int broadcast_open(struct broadcast *b, const struct broadcast_options *o);
void broadcast_close(struct broadcast *b); /* zeros may be closed */

/* Sends our message of the next stage to all. */
void broadcast_send(struct broadcast *b, double now, int stage, const void *body, size_t n);
/* Sends a message of a stage of pairs to one peer; no list contains it. */
void broadcast_send_pair(struct broadcast *b, double now, int stage, size_t to, const void *body,
                         size_t n);
/* Packet data that a peer has sent. limit: s of the stage; 0: none. */
void broadcast_receive(struct broadcast *b, double now, double limit, size_t peer,
                       const uint8_t *data, size_t n);
/* To be called after broadcast_receive and in time: sends the list once everything is there, and
 * asks for missing messages every `every` s; 0: never. */
void broadcast_tick(struct broadcast *b, double now, double every);

/* The packets in `out` are on their way. */
void broadcast_sent(struct broadcast *b);

/* A message without its head; NULL: there is none. */
const uint8_t *broadcast_body(const struct broadcast *b, int stage, size_t peer, size_t *n);
int broadcast_is_full(const struct broadcast *b, int stage); /* all messages are there */
/* And all lists, equal to ours: the stage is the same for all honest peers. */
int broadcast_is_common(const struct broadcast *b, int stage);
/* 1: this peer's list is there, and equal to ours. */
int broadcast_agrees(const struct broadcast *b, int stage, size_t peer);
/* Forwards all messages of a stage to all peers that may lack them. */
void broadcast_push(struct broadcast *b, int stage);
/* A peer's message to us alone (stage `pair`) contradicts what it has sent to all (stage `common`):
 * the proof goes to all. */
void broadcast_prove(struct broadcast *b, size_t peer, int pair, int common);

#endif
