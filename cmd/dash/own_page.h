/* own_page.h - `--dash` of a peer: its run's page, as a process of its own at low priority, so that
 * watchers cost the training nothing but idle time. It is this same program as `potluck dash`. */
#ifndef PL_CMD_OWN_PAGE_H
#define PL_CMD_OWN_PAGE_H

#include "net/hivemind/swarm/membership.h"
#include "cmd/options/options.h"

#include <stdint.h>
#include <sys/types.h>

#define OWN_PAGE_JOIN_MAX 64 /* as many as `potluck dash` takes */

struct own_page {
    int wanted;           /* --dash */
    const char *port;     /* --dash-port; NULL: any free one */
    const char *captions; /* --dash-captions; NULL: nothing is drawn */
    const char *nearest;  /* --dash-nearest; NULL: drawings are not compared */
    const char *run;
    const struct membership *membership; /* of the peer: the page joins as it; NULL: open swarm */
    const char *folder;                  /* of checkpoints and pictures; NULL: none */
    int64_t target_batch, total_steps;   /* 0: not known */
    int json;                            /* its line is an event on standard output */
    pid_t process;                       /* private */
};

/* --dash, --dash-port, --dash-captions, --dash-nearest. */
extern const struct option_row own_page_rows[];
/* Joins by our own address, or, if we have none, by those that we joined by. Its own first line, on
 * standard error, says where it is; with json it is the event "serving" among the peer's. That it
 * could not be started is no reason not to train. */
void own_page_start(struct own_page *p, struct swarm *s, const char *const *join,
                    size_t join_count);
void own_page_end(struct own_page *p);

#endif
