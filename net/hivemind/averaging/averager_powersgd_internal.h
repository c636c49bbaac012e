/* averager_powersgd_internal.h - rounds of PowerSGD: two all-reduces of one group, and the
 * mathematics before, between and after them (averager_powersgd.c). */
#ifndef PL_AVERAGER_POWERSGD_INTERNAL_H
#define PL_AVERAGER_POWERSGD_INTERNAL_H

#include "net/hivemind/allreduce/allreduce.h"
#include "net/hivemind/powersgd/factors.h"
#include "net/hivemind/powersgd/rank_votes.h"

struct averager;

/* BEGIN -> P -> PROJECT -> Q -> FINISH; without compressed tensors P is left out. */
enum powersgd_stage { POWERSGD_BEGIN, POWERSGD_P, POWERSGD_PROJECT, POWERSGD_Q, POWERSGD_FINISH };

struct averager_powersgd {
    struct factors
        *factors; /* NULL: the averager does not compress, or does not know its rank yet */
    enum powersgd_stage stage;
    int status;                     /* of the last computation */
    double began;                   /* s: phase P */
    struct allreduce_report report; /* of phase P */
    /* The run's rank is being asked for; see averager_ask_rank. */
    averager_rank *answered; /* NULL: it is not */
    void *context;
    struct rank_votes votes;
    struct timer limit;
};

void averager_powersgd_close(struct averager *a);
/* A group is there, and the step has its trigger: in place of averager_round_begin. */
void averager_powersgd_begin(struct averager *a);
/* An all-reduce has ended well, and its memory is free again. 1: the round goes on. */
int averager_powersgd_reduced(struct averager *a);
/* A computation has ended. 1: the round goes on; 0: it has ended, with powersgd.status. */
int averager_powersgd_computed(struct averager *a);

#endif
