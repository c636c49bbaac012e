/* json_event.h - the lines of --json: one event, one line of JSON on standard output. */
#ifndef PL_CMD_JSON_EVENT_H
#define PL_CMD_JSON_EVENT_H

#include <jansson.h>

/* Prints the event, a new reference, at once, for programs that read our output. While nobody
 * reads, it waits; once the command is asked to stop, it drops the event instead. PL_ENOMEM: there
 * was none to print it, or it is NULL; nothing is printed then. */
int json_event_print(json_t *event);

/* {"event": "error", "command": ..., "text": ...}: the last line of a command that fails. */
void json_event_error(const char *cmd, const char *text);

#endif
