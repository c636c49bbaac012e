/* run_folder.h - the files of a training's folder for the page: checkpoints to download, and
 * pictures drawn from them. */
#ifndef PL_RUN_FOLDER_H
#define PL_RUN_FOLDER_H

#include "dashboard.h"

#define FOLDER_CHECKPOINTS 3 /* the newest ones */
#define FOLDER_SAMPLES 24    /* evenly spread over the steps; the first and the newest always */

struct run_folder {
    char checkpoint[FOLDER_CHECKPOINTS][64]; /* names, newest first; "" where there are fewer */
    int64_t checkpoint_step[FOLDER_CHECKPOINTS];
    uint64_t checkpoint_bytes[FOLDER_CHECKPOINTS];
    size_t checkpoints;
    int64_t sample_step[FOLDER_SAMPLES];
    int64_t sample_own[FOLDER_SAMPLES],
        sample_of[FOLDER_SAMPLES]; /* nearest to their own picture, and all; 0 of 0: unknown */
    size_t samples;
    int64_t real_step; /* newest one with reference images of the same captions; 0: none */
};

/* Reads FOLDER/checkpoint-STEP.safetensors and FOLDER/samples/STEP/sheet.png with
 * nearest.json and real.png. */
int run_folder_read(struct run_folder *f, const char *folder, struct pl_err *err);
/* Publishes the files of *f and updates the page; files in `before` that are not in *f are
 * removed. */
int run_folder_publish(const struct run_folder *f, const struct run_folder *before,
                       const char *folder, struct http_server *s, struct dashboard *d,
                       struct pl_err *err);

#endif
