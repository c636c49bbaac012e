/* loopback_run.h - a run of the collaborative optimizer over loopback, by the public header: what
 * every peer of a small training in one process needs. Included by one file of each test program. */
#ifndef PL_TEST_LOOPBACK_RUN_H
#define PL_TEST_LOOPBACK_RUN_H

#include "test/unit/net/await.h"
#include "net/hivemind/optimizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define LIMIT 120.0 /* s, of a test */

/* Begins a test's own struct of a peer, which is the context of its options. */
struct loopback_peer {
    int number; /* the first, 0, is the others' initial peer */
    int rc;
    struct pl_collaborative *c;
    struct pl_err err;
    pthread_t thread;
};

static char loopback_address[256]; /* of the first peer that was opened alone */

/* Options of a swarm whose machine may be busy; "none": equal bit for bit after a round. */
static struct pl_collaborative_options loopback_options(const char *algorithm)
{
    return (struct pl_collaborative_options){ .algorithm = algorithm,
                                              .compression = "none",
                                              .matchmaking_time = 2,
                                              .averaging_timeout = 30,
                                              .allreduce_timeout = 10 };
}

/* Joins the first peer, unless it is the first. */
static void loopback_open(struct loopback_peer *p, const char *run,
                          const struct pl_collaborative_tensor *tensors, size_t count,
                          const struct pl_collaborative_options *o)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const char *join = loopback_address;
    const struct pl_collaborative_run r = { .name = run,
                                            .listen = listen,
                                            .listen_count = 1,
                                            .initial_peers = &join,
                                            .initial_peer_count = p->number > 0 };
    if (pl_collaborative_open(&p->c, &r, tensors, count, o, &p->err)) fail_msg("%s", p->err.text);
    if (!p->number)
        snprintf(loopback_address, sizeof loopback_address, "%s", pl_collaborative_address(p->c));
}

static inline void loopback_start(struct loopback_peer *p, void *(*train)(void *peer))
{
    assert_int_equal(pthread_create(&p->thread, NULL, train, p), 0);
}

static inline void loopback_wait(struct loopback_peer *p)
{
    pthread_join(p->thread, NULL);
    if (p->rc) fail_msg("peer %d: %s", p->number, p->err.text);
}

#endif
