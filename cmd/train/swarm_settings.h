/* swarm_settings.h - the settings of a training in a swarm, and what its algorithm means for it. */
#ifndef PL_CMD_SWARM_SETTINGS_H
#define PL_CMD_SWARM_SETTINGS_H

#include "cmd/options/averaging_options.h"
#include "cmd/options/join_options.h"
#include "cmd/dash/own_page.h"
#include "net/hivemind/records/run_manifest.h"
#include "ref/outer/outer.h"
#include "train_job.h"

#include <string.h>

struct train_swarm {
    const char *run;           /* NULL: train alone */
    const char *name;          /* of this peer on the page, before its key; NULL: none */
    struct join_options *join; /* how to get in; borrowed, as the next */
    const struct averaging_options *averaging;
    struct own_page page;
    int64_t average_state_every;    /* epochs */
    int delay;                      /* enum pl_collaborative_delay */
    const char *algorithm;          /* see net/hivemind/optimizer_options.h, as the next five */
    const char *algorithm_settings; /* given, or the next */
    char settings[2 * MANIFEST_TEXT_MAX + 1];
    int powersgd_rank; /* 0: the run's */
    int64_t inner_steps;
    double outer_lr, outer_momentum;
    int min_peers;                       /* of the first common step */
    double slow;                         /* least time of a micro-batch, s */
    const struct run_manifest *manifest; /* our options, borrowed; NULL: none is published */
    int json, no_check;
    /* private */
    const struct train_job *job;
    const struct train_hooks *hooks;
};

static inline int train_is_powersgd(const struct train_swarm *w)
{
    return !strncmp(w->algorithm, "powersgd", 8);
}
/* The algorithm of ref/outer that has a state here. NULL: gradients, and PowerSGD, whose state is
 * the averager's. */
static inline const struct pl_outer_algorithm *train_outer(const struct train_swarm *w)
{
    return !strcmp(w->algorithm, "gradients") || train_is_powersgd(w) ? NULL
                                                                      : pl_outer_find(w->algorithm);
}
/* 1: peers make inner steps of their own; 0: they agree on a gradient. */
static inline int train_has_local_steps(const struct train_swarm *w)
{
    const struct pl_outer_algorithm *a = train_outer(w);
    return a && !a->sends_gradients;
}
/* 1: peers take each other's messages as they are. */
static inline int train_gathers(const struct train_swarm *w)
{
    const struct pl_outer_algorithm *a = train_outer(w);
    return a && !a->is_reduced;
}
/* Inner steps between two exchanges; 1 where gradients travel. */
int64_t train_period(const struct train_swarm *w);
/* PL_EUSE with a sentence for --algorithm-settings that make no sense. */
int train_settings(const struct train_swarm *w, struct pl_err *err);
/* Each peer that gathers messages makes their mean, and all need the same one. So --robust
 * centered-clip becomes the setting `clip` there, which the manifest tells newcomers. PL_EUSE with
 * a sentence. */
int train_share_clip(struct train_swarm *w, struct averaging_options *a, struct pl_err *err);
/* The state of w->algorithm over the trainer's parameters; *outer is NULL for gradients. */
int train_swarm_open_outer(struct pl_outer **outer, const struct train_swarm *w,
                           struct pl_trainer *trainer, struct pl_err *err);

#endif
