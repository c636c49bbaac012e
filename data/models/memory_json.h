/* memory_json.h - the memory calculator's models and results as JSON: printed by `potluck calc
 * --json` and read by the page's script. */
#ifndef PL_MEMORY_JSON_H
#define PL_MEMORY_JSON_H

#include "runtime/memory.h"

#include <jansson.h>

/* All of these return NULL without memory; the caller decrefs. */
json_t *pl_memory_original_to_json(const struct pl_memory_original *m);
json_t *pl_memory_use_to_json(const struct pl_memory_use *use);
/* {"models": [...], "terms": {name: sentence}}. Each model includes its default plan. */
json_t *pl_memory_models_to_json(void);

/* An integer if x is whole and below 2^53, so that counts look like counts. */
json_t *pl_json_number(double x);

#endif
