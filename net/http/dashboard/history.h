/* history.h - a run's history: a series of points, and an account for each signing key (the
 * leaderboard), in an SQLite file that survives restarts. Nothing in it grows without bound. */
#ifndef PL_HISTORY_H
#define PL_HISTORY_H

#include "ref/base.h"

#define HISTORY_POINTS_MAX 300000 /* a month of a point every 10 s; the oldest go first */
#define HISTORY_KEYS_MAX 100000   /* ten times the largest swarm that is planned for */
#define HISTORY_KEY_MAX 64        /* characters of a key's name */

struct history;

struct history_point {
    double time;                  /* s since 1970 */
    int64_t step, peers, samples; /* the swarm's */
    double loss, samples_per_second;
    double held_out;     /* loss on held-out pairs; NAN: not measured */
    double sent, failed; /* totals so far: bytes, rounds */
};

/* Totals of the peers' counts, which restart with each peer; the totals outlive the peers. */
enum history_count {
    COUNT_ROUNDS,
    COUNT_FAILED,
    COUNT_RETRIED,
    COUNT_SENT,
    COUNT_RECEIVED,
    COUNT_UNCOMPRESSED,
    HISTORY_COUNTS
};

/* A peer's time since it began, ms, by what it did; the kinds may overlap. */
enum history_span { SPAN_COMPUTED, SPAN_WAITED, SPAN_AVERAGED, SPAN_SHARED, HISTORY_SPANS };
#define HISTORY_SPAN_KEYS 24   /* with the most samples: as many as the page's timeline has rows */
#define HISTORY_SPAN_POINTS 60 /* of each key, as read */
#define HISTORY_SPANS_MAX 100000 /* points that are kept: half a day of these keys, each 10 s */
struct history_span_point {
    char key[HISTORY_KEY_MAX + 1];
    double time;
    int64_t ms[HISTORY_SPANS];
};

#define HISTORY_COUNT_MAX 1000000000000000 /* of one peer, 2^63 / 10^15 peers could claim it */

/* Contributions signed by a key: as the peer counts them since it began, or, for peers that do not
 * count, added up over the steps that were seen. */
struct history_account {
    char key[HISTORY_KEY_MAX + 1], peer[HISTORY_KEY_MAX + 1]; /* peer: its id, "" if not known */
    char name[HISTORY_KEY_MAX + 1]; /* what its owner calls the peer; "": nothing */
    int64_t samples, last_step;
    double seconds;     /* samples / samples a second of their time */
    double first, last; /* seen */
};

/* path NULL: in memory only. A file of another program, or of another run, is refused. */
int history_open(struct history **h, const char *path, const char *run, struct pl_err *err);
void history_close(struct history *h);

/* All writes between the two are one transaction. */
int history_begin(struct history *h, struct pl_err *err);
int history_commit(struct history *h, struct pl_err *err);

int history_add(struct history *h, const struct history_point *p, struct pl_err *err);
/* A peer's report on `step`. Counted once a step: if the step is already there, only a larger
 * number of samples changes it. `peer` may be "". */
int history_report(struct history *h, const char *key, const char *peer, double time, int64_t step,
                   int64_t samples, double samples_per_second, struct pl_err *err);
/* The samples that a peer has processed since it began, and the seconds that this took: its account
 * grows by the difference, however many steps were missed. To be called after history_report. */
int history_count(struct history *h, const char *key, int64_t samples, double seconds,
                  struct pl_err *err);
/* A peer's name from now on. To be called after history_report. */
int history_name(struct history *h, const char *key, const char *name, struct pl_err *err);
/* A peer's counts as it reports them now; a peer that has begun anew is known by a count that is
 * less. */
int history_tally(struct history *h, const char *key, const int64_t count[HISTORY_COUNTS],
                  struct pl_err *err);
/* How a peer has spent its time until now. Nothing is added for other keys than those above, or
 * while its figures stay the same. */
int history_spend(struct history *h, const char *key, double time, const int64_t ms[HISTORY_SPANS],
                  struct pl_err *err);
/* At most `capacity` points, HISTORY_SPAN_POINTS of each key, ordered by key and time. */
int history_spans(struct history *h, struct history_span_point *out, size_t capacity, size_t *count,
                  struct pl_err *err);
/* The sums over all peers. */
int history_totals(struct history *h, int64_t total[HISTORY_COUNTS], struct pl_err *err);
/* Down to the maxima above: call it now and then, outside of a transaction. */
int history_prune(struct history *h, struct pl_err *err);

/* At most `capacity` points in the order of time, each the mean of its part of the whole time. */
int history_points(struct history *h, struct history_point *out, size_t capacity, size_t *count,
                   struct pl_err *err);
/* The accounts with the most samples. */
int history_board(struct history *h, struct history_account *out, size_t capacity, size_t *count,
                  struct pl_err *err);
/* How many points and keys there are. */
int history_sizes(struct history *h, int64_t *points, int64_t *keys, struct pl_err *err);

#endif
