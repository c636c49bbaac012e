/* optimizer_internal.h - shared by the parts of the collaborative optimizer: joining and leaving
 * (optimizer_open.c), defaults and checks of options (optimizer_options.c), steps
 * (optimizer_step.c), delayed updates (optimizer_delay.c), inner and outer steps
 * (optimizer_local.c), exchanges that overlap with them (optimizer_overlap.c), messages of an
 * algorithm (optimizer_gather.c), changes of our state (optimizer_update.c), the memory between
 * outer steps (optimizer_outer.c), a caller's plain tensors (optimizer_tensors.c). Calls go down
 * this list only. */
#ifndef PL_OPTIMIZER_INTERNAL_H
#define PL_OPTIMIZER_INTERNAL_H

#include "net/hivemind/training/training.h"
#include "optimizer_tensors.h"
#include "optimizer_trainer.h"
#include "net/hivemind/optimizer.h"
#include "net/hivemind/swarm/membership.h"

#include <pthread.h>
#include <string.h>

/* The accumulation for one step. */
struct step_account {
    int64_t samples, batches;
    double loss;         /* sum over samples */
    double batch_losses; /* sum over local batches, as the dashboard's records have it */
    double began;
};

/* A delayed step, while local batches go on; optimizer_delay.c draws the states. */
enum delayed_state { DELAYED_IDLE, DELAYED_COPYING, DELAYED_ROUND, DELAYED_STEP };
struct delayed {
    enum delayed_state state;
    float **host;    /* its gradient, in the swarm's order: the round's until it has ended */
    uint64_t ticket; /* of the copy that brings it there; 0: none is under way */
    struct step_account account;
    struct training_round round;
    int64_t epoch;   /* that it steps from */
    float *gradient; /* the trainer's, in a buffer of its own */
    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    int is_done; /* under the lock: the step's thread has nothing more to do */
    int status;  /* of the thread: of copying the gradient, or of the step */
    struct pl_err why;
};

/* An exchange while local steps go on; optimizer_overlap.c. */
struct overlapped {
    int is_due;       /* our message is the next action, as soon as the others are ready */
    int is_under_way; /* it has left */
    uint8_t *data;    /* as it travels, and without its head: */
    struct pl_outer_message own;
    struct step_account account; /* of the steps before it */
};

/* Training by an algorithm of ref/outer; optimizer_local.c, optimizer_outer.c. */
struct outer_training {
    struct pl_outer *state; /* the trainer's, or ours; NULL: gradients are averaged */
    struct pl_outer *own;
    int has_local_steps; /* its rounds are of changes of the parameters, not of gradients */
    int gathers;         /* peers take each other's messages */
    int is_split;        /* the user knows that the run is too large for one group */
    int is_new;          /* another peer's state, and no inner step since */
    int overlaps;        /* while local steps go on */
    struct overlapped overlap;
    int64_t samples;    /* accumulated for the next inner step */
    int64_t inner;      /* inner steps since the last outer step, or message */
    double began;       /* when they began */
    int is_undelivered; /* they hold the change of a round that has failed */
    int is_delivered;   /* some peer has the message of a round that has failed for us */
};

/* Our place in the swarm. */
struct collaborative_member {
    struct swarm *swarm;       /* own, or the caller's */
    const struct rsa_key *key; /* signs our records */
    struct swarm own;
    struct rsa_key own_key;
    struct membership membership; /* of a moderated run; zeros: of an open one */
    struct validators validators;
    char address[MULTIADDR_TEXT_MAX];
    int is_client; /* accepts no connections */
};

/* Whether the user knows that others claim to be ahead. */
enum behind_reported { BEHIND_NOT_REPORTED, BEHIND_REPORTED, BEHIND_DOUBTED };

struct pl_collaborative {
    struct pl_collaborative_options o;
    struct pl_collaborative_trainer trainer;
    struct collaborative_tensors *tensors; /* the trainer's, if it is ours; else NULL */
    struct collaborative_member member;
    struct training *training;
    struct pl_backend be; /* averages, in host memory */
    float **host;         /* gradients or parameters, in the swarm's order */
    int64_t epoch;
    double batch_began;
    struct step_account now;
    struct delayed delayed;
    struct outer_training outer;
    int64_t failures; /* local ones in a row */
    int has_mixed;    /* averages with others are in our parameters */
    enum behind_reported behind;
    int failed; /* the status that has ended the training */
};

/* --- optimizer_update.c */

void collaborative_report(struct pl_collaborative *c, struct pl_collaborative_event *e);
void collaborative_warn(struct pl_collaborative *c, const char *text);
/* Gives newcomers our present state. */
void collaborative_share(struct pl_collaborative *c);
/* Downloads a state of the swarm, of epoch `least` or later. PL_EUSE: no peer has one for our
 * model, and most of the others have one for another. */
int collaborative_load(struct pl_collaborative *c, int64_t least, struct pl_err *err);
/* Adds the change that a round of the parameters has made, if one has ended. */
int collaborative_correct(struct pl_collaborative *c);
/* After numbers that are not finite: drops the accumulation and continues from the present
 * parameters. */
void collaborative_recover(struct pl_collaborative *c, const char *why);
/* 1: that has happened too often, and no other peer's numbers can be the reason. */
int collaborative_has_failed(struct pl_collaborative *c);
/* After the optimizer's step: begins the next epoch, shares the state, stores the records,
 * reports the event. */
int collaborative_stepped(struct pl_collaborative *c, const struct step_account *a,
                          const struct training_round *round);

static inline int collaborative_is_powersgd(const struct pl_collaborative_options *o)
{
    return !strcmp(o->algorithm, "powersgd") || !strcmp(o->algorithm, "powersgd_own");
}
/* 1: a common step is along an averaged gradient; 0: along a change of the parameters. */
static inline int collaborative_averages_gradients(const struct pl_collaborative_options *o)
{
    return !strcmp(o->algorithm, "gradients") || collaborative_is_powersgd(o);
}
/* The algorithm by which peers gather each other's messages, or NULL. */
static inline const struct pl_outer_algorithm *collaborative_gathers(
    const struct pl_collaborative_options *o)
{
    const struct pl_outer_algorithm *a = collaborative_averages_gradients(o)
                                             ? NULL
                                             : pl_outer_find(o->algorithm);
    return a && !a->is_reduced ? a : NULL;
}

static inline int collaborative_is_interrupted(const struct pl_collaborative *c)
{
    return c->trainer.is_interrupted && c->trainer.is_interrupted(c->trainer.context);
}

/* --- optimizer_options.c */

void collaborative_set_defaults(struct pl_collaborative_options *o);
/* Of a run and options with their defaults. PL_OK, or PL_EUSE with a sentence. */
int collaborative_check_options(const struct pl_collaborative_run *run,
                                const struct pl_collaborative_options *o, struct pl_err *err);

/* --- optimizer_local.c */

/* A local batch is accumulated: the inner step, if it is complete. */
int local_add_batch(struct pl_collaborative *c, int64_t samples, struct pl_err *err);
/* Waits for peers that have inner steps left: no longer than it pays. Its advice is never WAIT. */
enum training_advice local_wait(struct pl_collaborative *c);
/* The round, and the outer step. */
int local_take_outer_step(struct pl_collaborative *c, struct pl_err *err);

/* After another peer's state has replaced ours: takes part in the round of phi that the others have
 * begun. Without a partner in it they would delay their next outer step. */
void local_join_state_round(struct pl_collaborative *c);

/* --- optimizer_overlap.c */

void overlap_close(struct pl_collaborative *c);
/* The exchange under way, if there is one: its mean becomes state, and its epoch ends. */
int overlap_end(struct pl_collaborative *c, int wait, struct pl_err *err);
/* Does what the algorithm asks for after an inner step; sending waits for overlap_send. */
int overlap_follow(struct pl_collaborative *c, int next, struct pl_err *err);
int overlap_send(struct pl_collaborative *c, struct pl_err *err);
/* The common step of gradients that are applied one step later. */
int overlap_take_step(struct pl_collaborative *c, struct pl_err *err);

/* --- optimizer_gather.c */

#define GATHER_DIGEST_BYTES 8 /* in front of each message */

/* The most peers of a group, and those of a drawn one; 0: groups are not drawn. */
size_t gather_group_size(const struct pl_collaborative *c);
int gather_drawn_group(const struct pl_collaborative *c);
/* 1: healthy peers have equal parameters but for rounding: DeMo's cosine transform may round
 * differently on other hardware. Their digest keeps distances (progress/digest.h). */
static inline int gather_is_nearly_equal(const struct pl_collaborative *c)
{
    return c->outer.state->algorithm == pl_outer_find("demo");
}

/* Our message as it travels, behind the digest of our parameters; the caller frees it. */
uint8_t *gather_message(struct pl_collaborative *c, const struct pl_outer_message *own);
/* After the round: the messages of all, or our own if we are alone, go to the algorithm. own: ours,
 * which is in `data` as it travelled. Returns what comes next; of an exchange that overlaps 1 if
 * there is a mean. */
int gather_end(struct pl_collaborative *c, float *gradient, uint8_t *data,
               const struct pl_outer_message *own, struct training_round *round);
/* g = (sum over our samples) / n, or NaN without samples. */
int gather_gradient(struct pl_collaborative *c, float **gradient, struct pl_err *err);
/* Our message to the group, theirs to us, and the algorithm's result. *round: how it went;
 * is_alone: with ours alone. Returns what comes next, or an error. */
int gather_exchange(struct pl_collaborative *c, float *gradient, const struct pl_outer_message *own,
                    struct training_round *round);
/* The common step of an algorithm that exchanges something of each gradient. */
int gather_take_step(struct pl_collaborative *c, struct pl_err *err);

/* --- optimizer_outer.c */

int local_open(struct pl_collaborative *c, struct pl_err *err);
void local_close(struct pl_collaborative *c);
/* Drops the accumulation for the next inner step. */
void local_drop(struct pl_collaborative *c);
/* Before a state of the swarm replaces ours: *change = x - phi, if a round for it has failed; else
 * NULL. The caller frees it (the backend's memory). After it: x = phi + change. */
int local_keep_change(struct pl_collaborative *c, float **change);
int local_loaded(struct pl_collaborative *c, const float *change);
/* The step number that the local optimizer and its schedule get. */
int64_t local_step_number(const struct pl_collaborative *c);
/* Tells the swarm of the steps that the present period has already: those before a restart, or
 * those of the peer whose state we have. */
void local_report_steps(struct pl_collaborative *c);
/* Into the saved state: a checkpoint knows its epoch by them. */
void local_count_steps(struct pl_collaborative *c);

/* --- optimizer_delay.c */

int delayed_open(struct pl_collaborative *c);
/* Joins the thread, and forgets the step. */
void delayed_close(struct pl_collaborative *c);
/* The target batch is complete: our gradient leaves for its round. Waits for an earlier step. */
int delayed_begin(struct pl_collaborative *c, struct pl_err *err);
/* Waits until our gradient has left: before a batch is reported, or the swarm is asked anything. */
int delayed_wait_copied(struct pl_collaborative *c, struct pl_err *err);
/* Between two local batches: applies finished steps and rounds. wait: until no step is pending. */
int delayed_advance(struct pl_collaborative *c, int wait, struct pl_err *err);

#endif
