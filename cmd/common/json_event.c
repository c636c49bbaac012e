/* json_event.c - an event as a line: written in one piece, so that threads do not mix their lines,
 * and flushed, since standard output may be a pipe. */
#include "json_event.h"
#include "data/files/json.h"

#include <stdio.h>
#include <stdlib.h>

void json_event_error(const char *cmd, const char *text)
{
    /* A path in the text may be no UTF-8, which JSON cannot hold. */
    json_t *words = json_string(text);
    json_event_print(json_pack("{s:s,s:s,s:o}", "event", "error", "command", cmd, "text",
                               words ? words : json_string("see standard error")));
}

int json_event_print(json_t *event)
{
    char *text = event ? pl_json_text(event, JSON_COMPACT) : NULL;
    int rc = text ? PL_OK : PL_ENOMEM;
    if (text) puts(text);
    fflush(stdout);
    free(text);
    json_decref(event);
    return rc;
}
