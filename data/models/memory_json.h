/* memory_json.h - the memory calculator's models and results as JSON: printed by `potluck calc
 * --json` and read by the page's script. */
#ifndef PL_MEMORY_JSON_H
#define PL_MEMORY_JSON_H

#include "runtime/memory.h"

#include <jansson.h>

/* The caller decrefs them, and asks pl_json_failed() whether all is in them. */
json_t *pl_memory_original_to_json(const struct pl_memory_original *m);
json_t *pl_memory_use_to_json(const struct pl_memory_use *use);
/* {"models": [...], "terms": {name: sentence}}. Each model includes its default plan. */
json_t *pl_memory_models_to_json(void);

#endif
