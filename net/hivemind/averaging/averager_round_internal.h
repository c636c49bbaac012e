/* averager_round_internal.h - one all-reduce of an averager: groupmates' tokens
 * (averager_admit.c), our streams to reducers (averager_round.c), and theirs to us
 * (averager_parts.c). */
#ifndef PL_AVERAGER_ROUND_INTERNAL_H
#define PL_AVERAGER_ROUND_INTERNAL_H

#include "net/hivemind/allreduce/allreduce.h"
#include "bandwidth.h"
#include "net/hivemind/powersgd/factors.h"
#include "net/hivemind/sharing/callers.h"
#include "net/libp2p/rpc/rpc.h"

struct averager;

/* --- groupmates' tokens, before the round begins (averager_admit.c) --------------------------- */

struct admission {
    struct averager *a;
    struct dht_task *task; /* NULL: answered */
};
struct averager_admission {
    struct admission *list;
    size_t count, left;
};
/* Asks all of the group that are not known yet for their tokens; averager_turn follows when all
 * have answered. */
void averager_admit_group(struct averager *a);
void averager_admit_cancel(struct averager *a);

/* --- the all-reduce (averager_round.c) -------------------------------------------------------- */

/* Ours to a reducer. */
enum out_stream_state {
    OUT_STREAM_CLOSED,
    OUT_STREAM_OPEN,
    OUT_STREAM_FINISHED, /* we have sent everything, the other side has not ended yet */
    OUT_STREAM_DEAD      /* it could not be opened, and the timer must report it to the engine */
};
struct out_stream {
    struct averager *a;
    enum out_stream_state state;
    struct rpc_stream *stream;
    size_t place;
    size_t sent_n; /* bytes of the last message */
};

/* One of several all-reduces of a group, each with tensors of its own: PowerSGD's. */
struct round_phase {
    const struct factors_phase *what; /* NULL: the group has one, of the caller's tensors */
    const char *name, *later;         /* later: of the one that follows, NULL: this is the last */
    double spent;                     /* s of the round's time limit, by earlier ones */
};

struct averager_round {
    struct group group;
    struct round_phase phase;
    struct allreduce *x;            /* NULL: none */
    int status;                     /* of the one that has ended */
    struct allreduce_memory memory; /* its, from one round to the next */
    struct timer timer;
    double began;                        /* s */
    int has_begun;                       /* 1: there has been a round */
    double given;                        /* bytes to the streams, in both ways */
    struct bandwidth_meter uplink;       /* how fast they leave */
    double sampled;                      /* s, when that was measured last */
    double *share;                       /* (group) values that each reduces */
    double upload, upload_from;          /* see allreduce.h */
    struct out_stream *out;              /* (group) */
    struct part_stream **in;             /* (group) */
    struct allreduce_patience *patience; /* (group) */
    struct allreduce_job *done_here;     /* jobs that no helper thread could take */
    struct peer_id *protected_peers;     /* of the newest group; see host_protect */
    size_t protected_count;
};

int averager_round_open(struct averager *a, struct pl_err *err);
void averager_round_close(struct averager *a);
void averager_round_begin(struct averager *a); /* with round.group; ends with averager_turn */
void averager_round_clear(struct averager *a);
void averager_protect(struct averager *a, const struct group *g); /* NULL: ends the protection */
/* Notes in `reliability` how each groupmate has behaved in the round that has ended. */
void averager_note_outcomes(struct averager *a);
void averager_drive(struct averager *a); /* after every event of the round: sets its timer */

/* --- others' streams to us (averager_parts.c) ------------------------------------------------- */

enum part_stream_state {
    PART_STREAM_NEW,     /* nothing has come */
    PART_STREAM_PARKED,  /* its first part waits for our round */
    PART_STREAM_ATTACHED /* to a place in the round */
};
struct part_stream {
    struct caller caller; /* first */
    enum part_stream_state state;
    uint8_t *first; /* PARKED */
    size_t first_n;
    size_t place; /* ATTACHED */
};

struct averager_parts {
    struct caller_list all;
    size_t parked_bytes;
};

void averager_on_part_stream(void *context, struct rpc_stream *s);
void averager_attach_parked(struct averager *a); /* to the round that has begun */
void averager_refuse_parked(struct averager *a); /* no round will take them */
void averager_part_free(struct part_stream *p);
void averager_part_evict(struct caller *part);

#endif
