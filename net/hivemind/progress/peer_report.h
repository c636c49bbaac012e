/* peer_report.h - a second record for the dashboard, beyond hivemind's metrics: the results and the
 * cost of a peer's rounds, and its reachability. hivemind's record may hold no other field than its
 * own, so this one is stored under RUN_report, signed by the same key; Python peers store and
 * forward it without reading it. [TTT 2.1: the page shows "the progress of training"] */
#ifndef PL_REPORT_H
#define PL_REPORT_H

#include "net/hivemind/records/schema.h"

#define REPORT_LIFE 600.0     /* s, as that of the metrics */
#define REPORT_VERSION_MAX 40 /* characters: a name, a number, something behind it */
#define REPORT_DEVICE_MAX 60  /* name of the processor or GPU, as given by the backend */
#define REPORT_NAME_MAX 24    /* of what its owner calls it: fits a column of the page */

enum report_reachability {
    REPORT_UNKNOWN,
    REPORT_DIRECT,
    REPORT_RELAYED,
    REPORT_UNREACHABLE,
    REPORT_REACHABILITIES
};

/* All counts since the peer began. */
struct report_record {
    char version[REPORT_VERSION_MAX + 1]; /* printable ASCII; others' letters become '?' */
    char device[REPORT_DEVICE_MAX + 1];   /* likewise; empty: not reported */
    /* Likewise; empty: it has none. Anybody can take any name: only the key tells peers apart. */
    char name[REPORT_NAME_MAX + 1];
    enum report_reachability
        reachability; /* how others call it; a number from the future is REPORT_UNKNOWN */
    int64_t rounds;   /* of gradients and parameters that gave a mean */
    int64_t failed;   /* for which there was a group, or should have been one, and which did not */
    int64_t retried;  /* groups that fell apart and were followed by another try */
    int64_t banned;   /* groupmates that were caught lying, and refused for a while */
    int64_t sent, received; /* bytes of these rounds' messages */
    int64_t uncompressed;   /* `sent`, if each value took four bytes */
    int64_t target_batch;   /* samples that it steps at; 0: not reported */
    int64_t samples;        /* that it has processed; 0: not reported */
    int64_t computed_ms;    /* time in which it has processed them */
    /* Further times, which may overlap: it waited for groups, averaged, sent its state. */
    int64_t waited_ms, averaged_ms, shared_ms;
    double held_out; /* loss on held-out pairs; NAN: not measured */
};
/* A device as its backend names it: as many of the clauses between commas as fit. */
void report_device(char out[REPORT_DEVICE_MAX + 1], const char *note);
int report_write(struct bytes *out, const struct report_record *r);
int report_read(struct report_record *r, const uint8_t *data, size_t n, struct pl_err *err);

#endif
