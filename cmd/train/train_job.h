/* train_job.h - one peer's whole training: batches in; progress, log, checkpoints and a model out.
 * `potluck train` and `potluck demo` are both this. */
#ifndef PL_CMD_TRAIN_JOB_H
#define PL_CMD_TRAIN_JOB_H

#include "runtime/memory.h"
#include "runtime/trainer.h"

#include <jansson.h>

#define TRAIN_OPTIONS_FILE "options.json" /* a manifest, next to the checkpoints */
#define TRAIN_CODEC_MAX 64                /* characters, as SHARD_CODEC_MAX */
#define TRAIN_DATA_NAME 33                /* half a SHA-256, and the zero */

/* Where samples come from, micro_batch at a time. Order must depend on the position alone. */
struct train_source {
    /* text (B,T), codes (B,I); valid until the next call. */
    int (*next)(void *context, const int32_t **text, const int32_t **codes, struct pl_err *err);
    json_t *(*position)(void *context); /* new reference */
    int (*seek)(void *context, const json_t *position, struct pl_err *err);
    /* For verified rounds, whose samples other peers draw again; NULL: they cannot. Begins anew in
     * the order of another seed; and a name for the data, without a seed: peers with the same name
     * draw the same. */
    int (*shuffle)(void *context, uint64_t seed, struct pl_err *err);
    int (*name)(void *context, char name[TRAIN_DATA_NAME], struct pl_err *err);
    void *context;
};

/* For steps that train_job_run does not make itself: its work after each. */
struct train_rounds; /* train_rounds.h */
struct train_hooks {
    void *state;
    int (*stepped)(void *state, const struct pl_train_report *r, double seconds,
                   struct pl_err *err);
    /* The next step's samples are complete, although the step comes later: resuming from that
     * step's checkpoint replays the batches from here on. */
    void (*gathered)(void *state);
    /* A step of this peer alone is complete (DiLoCo's inner ones): a checkpoint may be taken. */
    void (*moved)(void *state);
    struct train_rounds *rounds; /* of the checkpoint to continue from, and of those to come */
};
struct train_job;
/* Trains until job->steps, with others. */
typedef int train_swarm_fn(void *context, struct pl_trainer *trainer, const struct train_job *job,
                           const struct train_hooks *hooks, struct pl_err *err);

/* Pairs that no peer trains on. */
struct train_held_out {
    int32_t *tokens, *codes; /* (count,T), (count,cells) */
    int count;               /* 0: nothing is measured */
    int every;               /* steps; 0: never */
    double last;             /* loss when it was measured last; NAN: not yet */
};

struct train_job {
    const char *cmd;               /* for messages */
    const char *out;               /* folder for log, checkpoints, curve; made if it is not there */
    const char *published;         /* log to draw the curve over; NULL: none */
    uint64_t steps;                /* to be at when done */
    int target_batch, micro_batch; /* the second divides the first */
    int save_every,
        keep;   /* steps between checkpoints (0: only at the end); how many stay (0: all) */
    int resume; /* go on from the newest checkpoint in `out` */
    int quiet;
    double seconds; /* stop (and save) after this long; 0: no limit */
    struct train_source source;
    struct train_held_out *held_out; /* NULL: none */
    struct pl_outer *outer;          /* of --algorithm, borrowed, in every checkpoint; NULL: none */
    train_swarm_fn *train_swarm;     /* NULL: alone */
    const char *codec; /* the codec of the image tokens, for the checkpoints; NULL, "": not known */
    const char *options; /* for TRAIN_OPTIONS_FILE, with the first checkpoint; NULL: none */
    void *swarm_context;
};

enum train_end { TRAIN_DONE, TRAIN_STOPPED /* Ctrl-C or the time limit: saved, may be resumed */ };

/* Trains until job->steps. Prints progress and one line for each thing a user must know; on error
 * one line and a negative status. SIGINT and SIGTERM are caught meanwhile. */
int train_job_run(enum train_end *end, struct pl_trainer *trainer, const struct train_job *job);

/* Choices of options; each ends with NULL. */
extern const char *const train_optimizers[];  /* lamb8, lamb8_clamp30, lamb32, ... */
extern const char *const train_activations[]; /* in the order of enum pl_activations */
extern const char *const train_configs[];     /* models that have a name */

/* One of train_optimizers; PL_EUSE: none of them. */
int train_optimizer_named(struct pl_optimizer_options *o, const char *name);

/* The memory that the calculator predicts for a training. */
void train_memory_plan(struct pl_memory_plan *plan, const struct pl_dalle_config *config,
                       int micro_batch, enum pl_activations activations,
                       const struct pl_optimizer_options *optimizer);

/* Writes a folder's checkpoint of this step, and removes all but the newest `keep`. codec: that of
 * the image tokens, or NULL. outer: the state of the algorithm that the peers train by, or NULL.
 * rounds: likewise. position: in the data; NULL for a peer without data: a peer that resumes from
 * this checkpoint starts at its own position. *path, if asked for, is the caller's to free. */
int train_job_save(struct pl_dalle *model, struct pl_optimizer *optimizer,
                   const struct pl_outer *outer, struct train_rounds *rounds, uint64_t step,
                   const char *codec, json_t *position, const char *folder, int keep, char **path,
                   struct pl_err *err);

/* Parameters (and, when trainer is given, moments, step and data position) from a checkpoint.
 * source, outer and rounds may be NULL. */
int train_job_load(struct pl_dalle *model, struct pl_trainer *trainer, struct train_source *source,
                   struct pl_outer *outer, struct train_rounds *rounds, const char *path,
                   struct pl_err *err);

/* The codec of the image tokens that a checkpoint was trained on; "" if it names none. */
int train_job_codec(char codec[TRAIN_CODEC_MAX + 1], const char *path, struct pl_err *err);

#endif
