/* train_log.h - the log of a training: a line of JSON for each step, and the loss curve as a
 * picture. */
#ifndef PL_CMD_TRAIN_LOG_H
#define PL_CMD_TRAIN_LOG_H

#include "runtime/trainer.h"

#include <jansson.h>
#include <stdio.h>

struct train_log {
    FILE *file;
    char *path;
};

/* Opens FOLDER/log.jsonl; lines of steps after `step` (of a run that went on from an older
 * checkpoint) are dropped. */
int train_log_open(struct train_log *log, const char *folder, uint64_t step, struct pl_err *err);
/* A line of any kind; takes the entry, which holds "step". */
int train_log_put(struct train_log *log, json_t *entry, struct pl_err *err);
/* step: after the update. */
int train_log_step(struct train_log *log, uint64_t step, const struct pl_train_report *r,
                   double samples_per_second, struct pl_err *err);
/* A line {"event": ..., "step": ..., "text": ...}. */
int train_log_event(struct train_log *log, uint64_t step, const char *event, const char *text,
                    struct pl_err *err);
/* A line {"step", "held_out", "pairs"}: the loss on held-out pairs. */
int train_log_held_out(struct train_log *log, uint64_t step, double loss, int pairs,
                       struct pl_err *err);
/* Leaves no log without a line. */
void train_log_close(struct train_log *log);

/* A curve out of such a log. By steps, because a peer knows but its own share of the samples in
 * one. Freed by train_curve_clear. */
struct train_curve {
    double *step, *image, *text;
    size_t count;
};
int train_curve_read(struct train_curve *c, const char *path, struct pl_err *err);
void train_curve_clear(struct train_curve *c);

/* FOLDER/loss.svg: text and image loss of FOLDER/log.jsonl, and of `published` (another log) if it
 * is not NULL. */
int train_log_plot(const char *folder, const char *published, struct pl_err *err);

#endif
