/* json_event.c - an event as a line: written in one piece, so that threads do not mix their lines,
 * and flushed, since standard output may be a pipe. */
#include "json_event.h"
#include "interrupt.h"
#include "data/files/json.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void json_event_error(const char *cmd, const char *text)
{
    /* A path in the text may be no UTF-8, which JSON cannot hold. */
    json_t *words = json_string(text);
    json_event_print(json_pack("{s:s,s:s,s:o}", "event", "error", "command", cmd, "text",
                               words ? words : json_string("see standard error")));
}

/* Writing to a full pipe that nobody reads would never return, and no signal would be heard. */
static int can_be_written(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    while (poll(&out, 1, 100) <= 0)
        if (interrupt_waits()) return 0;
    return 1;
}

int json_event_print(json_t *event)
{
    char *text = pl_json_text(event, JSON_COMPACT);
    int rc = text ? PL_OK : PL_ENOMEM;
    if (text && can_be_written()) {
        puts(text);
        fflush(stdout);
    }
    free(text);
    json_decref(event);
    return rc;
}
