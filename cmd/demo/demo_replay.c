/* demo_replay.c - a demo's record, shown again without its swarm. A line of the record is an event
 * with the second it came at; time is read from it, so that the same record always gives the same
 * text, the pace included. */
#include "demo_replay.h"
#include "demo_view.h"
#include "data/files/file.h"
#include "data/files/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_MAX (256 << 20) /* bytes: a demo of a day records some 100 MB */

/* One event; *now becomes its time. Returns 0 if it is not an event. */
static int take_event(struct demo_view *v, const json_t *event, double *now)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    double time = json_number_value(json_object_get(event, "time"));
    json_int_t k = json_integer_value(json_object_get(event, "peer"));
    char text[DEMO_VIEW_TEXT];
    if (!name || k < 0 || k >= DEMO_PEERS || !isfinite(time)) return 0;
    *now = time;
    if (!strcmp(name, "begin")) {
        demo_view_begin(v, json_integer_value(json_object_get(event, "steps")),
                        json_integer_value(json_object_get(event, "target_batch")),
                        json_is_true(json_object_get(event, "is_local")), time);
    } else if (!strcmp(name, "shown")) {
        demo_view_mark(v, time);
        demo_view_line(text, v, time);
        puts(text);
    } else demo_view_event(v, (int)k, event);
    return 1;
}

int demo_replay(const char *path, struct pl_err *err)
{
    struct demo_view view;
    char table[DEMO_VIEW_TEXT];
    const char *record;
    void *data = NULL;
    size_t n = 0, number = 0;
    double now = 0;
    int rc = pl_file_read(&data, &n, path, RECORD_MAX, err);
    if (rc) return rc;
    record = data;
    demo_view_begin(&view, 0, 0, 0, 0);
    for (const char *line = record, *end; !rc && line < record + n; line = end + 1) {
        json_t *event;
        end = memchr(line, '\n', (size_t)(record + n - line));
        if (!end) end = record + n;
        event = pl_json_load(line, (size_t)(end - line), 0, NULL);
        number++;
        if (!event && pl_json_status() == PL_ENOMEM)
            rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
        else if (!take_event(&view, event, &now))
            rc = pl_fail(err, PL_EFORMAT, "%s: line %zu is not an event of a demo", path, number);
        json_decref(event);
    }
    free(data);
    if (rc) return rc;
    demo_view_table(table, &view, now);
    fputs(table, stdout);
    return PL_OK;
}
