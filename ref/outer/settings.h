/* settings.h - an algorithm's settings by the names that files and command lines give them. */
#ifndef PL_OUTER_SETTINGS_H
#define PL_OUTER_SETTINGS_H

#include "outer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PL_ENOTFOUND: there is no such setting. PL_EUSE: err says what is expected. */
int pl_outer_set(struct pl_outer_setup *setup, const char *key, double value, struct pl_err *err);
int pl_outer_set_coding(struct pl_outer_setup *setup, const char *name, struct pl_err *err);
/* "topk=64,share=0.05,coding=e3m0"; empty: nothing is set. PL_EUSE with a sentence. */
int pl_outer_set_all(struct pl_outer_setup *setup, const char *text, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
