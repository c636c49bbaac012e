/* dash_folder.h - `potluck dash --folder`: a training on this machine, in addition to the swarm's
 * records: its log, its checkpoints, and pictures that are drawn from them as they come. */
#ifndef PL_CMD_DASH_FOLDER_H
#define PL_CMD_DASH_FOLDER_H

#include "net/http/dashboard/run_folder.h"

#include <sys/types.h>

struct dash_folder {
    const char *folder, *captions; /* captions NULL: nothing is drawn */
    const char *nearest;           /* shards that drawings are compared with; NULL: they are not */
    int64_t total_steps;           /* of the run, as the user says; 0: as the training does */
    struct run_folder now;
    long at;         /* in the log, behind the last line that was read */
    double time;     /* of that line */
    double step_s;   /* that a step takes, running mean; 0: not known yet */
    double held_out; /* last loss on held-out pairs; NAN: none yet */
    int64_t samples; /* of all steps up to that line */
    double seconds;  /* that they took */
    struct dash_line {
        int64_t step, samples; /* of this step; step 0: no line yet */
        int64_t all_samples;   /* of all steps so far */
        double all_seconds;    /* that they took */
        double loss, rate;
        double held_out; /* as of then */
    } last;
    int64_t drawn; /* step of the last checkpoint that was sampled; -1: none */
    pid_t sampler; /* the process that samples pictures; 0: none runs */
};

void dash_folder_begin(struct dash_folder *f, const char *folder, const char *captions,
                       const char *nearest, int64_t total_steps);
/* Looks for checkpoints and pictures. Starts a process that samples pictures from a new checkpoint,
 * unless one still runs. */
int dash_folder_poll(struct dash_folder *f, struct http_server *s, struct dashboard *d,
                     struct pl_err *err);
/* Converts new log lines into reports of a single peer, for training without a swarm. */
int dash_folder_log(struct dash_folder *f, struct dashboard *d, struct pl_err *err);
/* Waits briefly for the last checkpoint's pictures; nothing else runs at this point. */
int dash_folder_finish(struct dash_folder *f, struct http_server *s, struct dashboard *d,
                       struct pl_err *err);
/* Images and checkpoints next to an exported page. */
int dash_folder_export(const struct dash_folder *f, const char *to, struct pl_err *err);
void dash_folder_end(struct dash_folder *f);

#endif
