/* json.h - reading and building JSON with jansson, also when memory runs out. */
#ifndef PL_JSON_H
#define PL_JSON_H

#include "ref/base.h"

#include <jansson.h>

/* json_loadb() that returns NULL without memory, too; `why` (may be NULL) then says "no memory".
 * pl_json_status() is the status for this thread's last NULL: PL_ENOMEM or PL_EFORMAT. */
json_t *pl_json_load(const char *text, size_t bytes, size_t flags, json_error_t *why);
int pl_json_status(void);

/* An object's whole number from `least` to 2^24, which no size of a model reaches. PL_EFORMAT: it
 * is missing or another one; `where` begins the sentence. */
int pl_json_int(int *out, const json_t *object, const char *key, int least, const char *where,
                struct pl_err *err);

/* Setters and packers leave out what they have no memory for, and few callers ask each of them.
 * pl_json_failed() is 1 if one has done so on this thread since pl_json_begin(). */
void pl_json_begin(void);
int pl_json_failed(void);

/* json_dumps() of values that were read, or built since pl_json_begin(). NULL: root is NULL, or
 * memory has run out meanwhile, and something is missing in them; then all begins anew. The caller
 * frees it with free(). */
char *pl_json_text(const json_t *root, size_t flags);

#endif
