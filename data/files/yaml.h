/* yaml.h - YAML configurations, as models were published with, converted to JSON values
 * (jansson). */
#ifndef PL_YAML_H
#define PL_YAML_H

#include "ref/base.h"

#include <jansson.h>

#define YAML_BYTES_MAX (1 << 20)
#define YAML_NODES_MAX 100000 /* values; those repeated by an alias count each time */
#define YAML_DEPTH_MAX 64

/* Converts the first document of `text`: mappings with scalar keys, lists, and scalars; plain
 * scalars that look like a number, true, false or null become those. err begins with `where`. The
 * caller decrefs *out. */
int pl_yaml_parse(json_t **out, const char *text, size_t bytes, const char *where,
                  struct pl_err *err);
/* The same for a file. JSON is a subset of YAML, so this reads either. */
int pl_yaml_read(json_t **out, const char *path, struct pl_err *err);

#endif
