/* generate_job.h - drawing, ranking and writing the pictures of many captions in bounded memory. */
#ifndef PL_CMD_GENERATE_JOB_H
#define PL_CMD_GENERATE_JOB_H

#include "cmd/demo/reference_images.h"
#include "data/models/rerank.h"

struct generate_job {
    struct image_sampler *sampler;
    struct pl_rerank *rank;                    /* NULL: no CLIP, all are kept as they were drawn */
    const struct reference_images *references; /* decoded; NULL: nearest images are not counted */
    const char *out;                           /* a folder that is there */
    char **caption;
    size_t count;
    int64_t n, keep; /* pictures a caption; of those, how many stay (0: all) */
    struct pl_generate_options draw;
    int quiet;
};

int generate_job_run(struct generate_job *job, struct pl_err *err);

#endif
