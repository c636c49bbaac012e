/* golden_clip.h - the parts of golden/clip that run the model: golden_clip_model.c. */
#ifndef PL_GOLDEN_CLIP_H
#define PL_GOLDEN_CLIP_H

#include "test/conform/golden/golden.h"

void clip_golden_names(struct golden *g, const char *path);
void clip_golden_weights(struct golden *g, const char *path);
void clip_golden_io(struct golden *g, const struct st_file *f, const json_t *config,
                    const char *stem);
void clip_golden_rerank(struct golden *g, const struct st_file *f, const json_t *config);

#endif
