/* demo_view.h - the demo's swarm as its peers tell of it, line by line of JSON, and the text that
 * shows it. No clock, no terminal: both are the caller's. */
#ifndef PL_CMD_DEMO_VIEW_H
#define PL_CMD_DEMO_VIEW_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define DEMO_PEERS 5        /* the first is the bootstrap peer */
#define DEMO_VIEW_TEXT 2048 /* bytes: capacity for any text below */
#define DEMO_PACE 20.0      /* s: pace is that of the last one or two of them */

struct demo_peer {
    const char *kind;      /* "joins late" */
    const char *state;     /* "training"; NULL: it is not there yet */
    int is_gone;           /* ended, or killed */
    int64_t step, samples; /* its step, and its samples for the next one */
    int64_t peers;         /* that it counts, itself included */
    double loss;           /* mean over its samples of the last step, */
    int64_t loss_samples;  /* their number; 0: none yet */
    double rate;           /* samples a second while it computes */
    int64_t round_peers;   /* of the last step */
    double round_s;
};

struct demo_view {
    int64_t steps, target_batch;
    int is_local; /* 1: local steps; a step is a round of many, and each peer has its own target */
    struct demo_peer peer[DEMO_PEERS];
    double averaging; /* share of the first trainer's time, by its last report */
    int64_t trained;  /* total samples of all peers in completed steps */
    double began;     /* s */
    struct demo_mark {
        double time;
        int64_t step, trained;
    } mark[2]; /* where all stood some time ago, and later */
};

/* The target of a step; with is_local the target of each peer. */
void demo_view_begin(struct demo_view *v, int64_t steps, int64_t target_batch, int is_local,
                     double now);
/* An event of peer `k`: one that a trainer has printed, or demo_view_state's. Others are passed
 * over. */
void demo_view_event(struct demo_view *v, int k, const json_t *line);
/* The event of a process that is "starting", "open", "dead" or "done" now. The caller frees it. */
json_t *demo_view_state(const char *state);
/* The highest step of any peer. */
int64_t demo_view_step(const struct demo_view *v);
/* Remembers the pace; to be called now and then. */
void demo_view_mark(struct demo_view *v, double now);

/* Counts the samples of living peers for the next step; writes no newline at the end. */
void demo_view_line(char text[DEMO_VIEW_TEXT], const struct demo_view *v, double now);
/* The same, and a line for each peer, new lines at all ends. */
void demo_view_table(char text[DEMO_VIEW_TEXT], const struct demo_view *v, double now);

#endif
