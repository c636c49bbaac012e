/* json_event.c - an event as a line: written in one piece, so that threads do not mix their lines,
 * and flushed, since standard output may be a pipe. */
#include "json_event.h"
#include "data/files/json.h"

#include <stdio.h>
#include <stdlib.h>

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
