/* yaml.h - settings in YAML, the way models were published, as the JSON that our readers know. */
#ifndef PL_YAML_H
#define PL_YAML_H

#include "ref/base.h"

#include <jansson.h>

#define YAML_BYTES_MAX (1 << 20)
#define YAML_NODES_MAX 100000 /* values, those that an alias repeats counted each time */
#define YAML_DEPTH_MAX 64

/* The first document of `text`: mappings with scalar keys, lists, and plain scalars that look like
 * a number, true, false or null become those. `where` begins the sentence. The caller decrefs. */
int pl_yaml_parse(json_t **out, const char *text, size_t bytes, const char *where,
                  struct pl_err *err);
/* A file; JSON is YAML too, so this reads either. */
int pl_yaml_read(json_t **out, const char *path, struct pl_err *err);

#endif
