/* conform_report.h - the results of `potluck conform`, as JSON and as a page that a porter can
 * publish: machine, operations, errors against their bounds, speed compared with ref and fast. */
#ifndef PL_CMD_CONFORM_REPORT_H
#define PL_CMD_CONFORM_REPORT_H

#include "ref/backend.h"
#include "test/conform/golden/golden.h"
#include "test/conform/pairs/pair.h"

#include <jansson.h>

struct conform_report {
    json_t *root;                        /* the whole report */
    json_t *operations, *cases, *golden; /* its lists; borrowed */
    json_t *clauses;                     /* the list of a peer's report; borrowed */
};

/* Whether the name says how to write it: .json or .html, in a folder that can be written to. */
int conform_report_path(const char *path, struct pl_err *err);

/* Describes the machine, the backend and the tests to be run. */
int conform_report_open(struct conform_report *r, const struct pl_backend *be,
                        const struct pair_options *options, struct pl_err *err);
/* The same of a peer: its address, the run and the prefix that are tested (NULL: none). */
int conform_report_open_peer(struct conform_report *r, const char *address, const char *run,
                             const char *prefix, struct pl_err *err);
/* A clause of the walk; result is passed, failed or skipped; why may be NULL, and may quote a
 * peer's message. */
void conform_report_clause(struct conform_report *r, const char *section, const char *what,
                           const char *result, const char *why);
/* Callbacks of pair_all and golden_run; context is the report. */
void conform_report_case(void *context, const struct pair_outcome *outcome);
void conform_report_operation(void *context, const struct pair_total *total);
void conform_report_golden(void *context, const struct golden_total *total);
/* Writes it, complete or not at all. */
int conform_report_write(const struct conform_report *r, const char *path, struct pl_err *err);
void conform_report_close(struct conform_report *r);

/* The page of a report's JSON, freed with free(); NULL without memory. */
char *conform_page(const json_t *report);

#endif
