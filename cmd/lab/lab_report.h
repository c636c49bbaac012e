/* lab_report.h - the report of some runs: one HTML file with its figures inside, as SVG. */
#ifndef PL_LAB_REPORT_H
#define PL_LAB_REPORT_H

#include "ref/base.h"

/* Reads run.json and log.jsonl of each folder. figures: a folder for each figure as a file of its
 * own, as SVG and PNG; or NULL. *png: 0 if there is no library that makes PNGs; err then says so,
 * and the rest is done. */
int lab_report(const char *out, const char *figures, const char *const *folder, int count, int *png,
               struct pl_err *err);

#endif
