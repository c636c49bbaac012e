/* collaborative_internal.h - what the loop of a learner among others (together.c) shares with its delayed
 * updates (collaborative_delay.c). */
#ifndef PL_COLLABORATIVE_INTERNAL_H
#define PL_COLLABORATIVE_INTERNAL_H

#include "collaborative.h"

#include <pthread.h>

/* What a step was made of. */
struct step_account {
    int64_t samples, batches;
    double loss;         /* sum over samples */
    double batch_losses; /* sum over local batches, as the run's page wants it */
    double began;
};

/* The step that is on its way while local batches go on. */
enum flight { FLIGHT_NONE, FLIGHT_LEAVING, FLIGHT_ROUND, FLIGHT_STEP };
struct delayed {
    enum flight at;
    float **host;    /* its gradient, in the swarm's order: the round's until it has ended */
    uint64_t ticket; /* of the copy that brings it there; 0: none is under way */
    struct step_account account;
    struct collaboration_round round;
    int64_t epoch; /* that it steps from */
    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    int is_done; /* under the lock: the step's thread has nothing more to do */
    int status;  /* what the thread came to, the gradient's way down or the step */
    struct pl_err why;
};

struct loop_state {
    struct swarm *s;
    struct collaborative_learner *l;
    const struct collaborative_options *o;
    struct collaboration *c;
    float **host; /* gradients or parameters, in the swarm's order */
    int64_t epoch, troubles;
    int has_mixed; /* others' numbers are in our parameters */
    int told_behind, told_unshown;
    struct step_account now;
    struct delayed delayed;
};

int collaborative_correct(struct loop_state *t);
/* Numbers went bad: what was accumulated is forgotten, and we are where the parameters are. */
void collaborative_trouble(struct loop_state *t, const char *text);
int collaborative_is_hopeless(struct loop_state *t);
/* After the optimizer's step: the next epoch, what newcomers are given, the records, the event. */
int collaborative_stepped(struct loop_state *t, const struct step_account *a,
                          const struct collaboration_round *round);

int delayed_open(struct loop_state *t);
/* Whatever happens meanwhile: joins the thread, and forgets the step. */
void delayed_close(struct loop_state *t);
/* The target batch is there: our gradient leaves for its round. An earlier step is waited for. */
int delayed_depart(struct loop_state *t, struct pl_err *err);
/* Before a batch is reported, or the swarm is asked anything: our gradient has left. */
int delayed_left(struct loop_state *t, struct pl_err *err);
/* Between two local batches: puts in what has come back. wait: until nothing is on its way. */
int delayed_return(struct loop_state *t, int wait, struct pl_err *err);

#endif
