/* json_event.h - the lines of --json: one event, one line of JSON on standard output. */
#ifndef PL_CMD_JSON_EVENT_H
#define PL_CMD_JSON_EVENT_H

#include <jansson.h>

/* Prints the event as one line and flushes it. Takes over the reference. If the pipe is full, it
 * waits until the reader continues; once the command is asked to stop, the event is dropped.
 * PL_ENOMEM: event is NULL, or there is no memory for the line; nothing is printed. */
int json_event_print(json_t *event);

/* {"event": "error", "command": ..., "text": ...}: the last line of a command that fails. */
void json_event_error(const char *cmd, const char *text);

#endif
