/* lab_report.h - the report of some runs: one HTML file with its figures inside, as SVG. */
#ifndef PL_LAB_REPORT_H
#define PL_LAB_REPORT_H

#include "ref/base.h"

/* Reads run.json and log.jsonl of each folder. */
int lab_report(const char *out, const char *const *folder, int count, struct pl_err *err);

#endif
