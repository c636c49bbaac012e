/* memory_json.h - the calculator's models and answers as JSON: what `potluck calc --json` prints
 * and what the page's script reads. */
#ifndef PL_MEMORY_JSON_H
#define PL_MEMORY_JSON_H

#include "runtime/memory.h"

#include <jansson.h>

/* All of them return NULL without memory. */
json_t *pl_memory_original_to_json(const struct pl_memory_original *m);
json_t *pl_memory_use_to_json(const struct pl_memory_use *use);
/* {"models": [...], "terms": {name: sentence}}. Each model carries the plan it starts from. */
json_t *pl_memory_models_to_json(void);

/* Whole below 2^53: a JSON integer, so that counts look like counts. */
json_t *pl_json_number(double x);

#endif
