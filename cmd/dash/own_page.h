/* own_page.h - `--dash` of a peer: its run's page, as a process of its own at low priority, so that
 * watchers cost the training nothing but idle time. It is this same program as `potluck dash`. */
#ifndef PL_CMD_OWN_PAGE_H
#define PL_CMD_OWN_PAGE_H

#include "cmd/common/membership.h"

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
    pid_t process;                       /* private */
};

#define OWN_PAGE_FIRST 1200
#define OWN_PAGE_OPTIONS \
    { "dash", no_argument, NULL, OWN_PAGE_FIRST }, \
        { "dash-port", required_argument, NULL, OWN_PAGE_FIRST + 1 }, \
        { "dash-captions", required_argument, NULL, OWN_PAGE_FIRST + 2 }, \
    { \
        "dash-nearest", required_argument, NULL, OWN_PAGE_FIRST + 3 \
    }

#define OWN_PAGE_USAGE \
    "  --dash           serve the run's page on this machine (potluck dash)\n" \
    "  --dash-port N    where (default: any free port)\n" \
    "  --dash-captions FILE  lines to draw from each new checkpoint of this peer\n" \
    "  --dash-nearest PATH  shards with these captions: how many are drawn nearest to their own picture\n"

/* 1: the option was one of ours and is stored. */
int own_page_option(struct own_page *p, int option, const char *value);
/* Joins by our own address, or, if we have none, by those that we joined by. Its own first line, on
 * standard error, says where it is. That it could not be started is no reason not to train. */
void own_page_start(struct own_page *p, struct swarm *s, const char *const *join,
                    size_t join_count);
void own_page_end(struct own_page *p);

#endif
