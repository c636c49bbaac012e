/* json.h - reading and building JSON with jansson, also when memory runs out. */
#ifndef PL_JSON_H
#define PL_JSON_H

#include <jansson.h>

/* json_loadb() that returns NULL without memory, too; `why` (may be NULL) then says "no memory".
 * pl_json_status() is the status for this thread's last NULL: PL_ENOMEM or PL_EFORMAT. */
json_t *pl_json_load(const char *text, size_t bytes, size_t flags, json_error_t *why);
int pl_json_status(void);

/* json_dumps() that returns NULL without memory, too. The caller frees it with free(). */
char *pl_json_text(const json_t *root, size_t flags);

/* Setters and packers leave out what they have no memory for, and few callers ask each of them.
 * pl_json_failed() is 1 if one has done so on this thread since pl_json_begin(). */
void pl_json_begin(void);
int pl_json_failed(void);

#endif
