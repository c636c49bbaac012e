/* balance_program.h - the solution at which hivemind's solver ends. [spec hivemind-protocol 5.1]
 *
 * The least time of an exchange is a linear program whose optimum is often not unique; a group has
 * to agree on one, so the solver's path is part of the protocol: a homogeneous self-dual interior
 * point method with predictor and corrector [Andersen & Andersen 2000] from a start of ones, until
 * three residuals are below 1e-8. It is followed here step by step. */
#ifndef PL_BALANCE_PROGRAM_H
#define PL_BALANCE_PROGRAM_H

#include "base.h"

/* A dense matrix of 2 N + 1 rows is factored at each of some seven steps: 0.1 s at 256. Groups have
 * at most a hundred. */
#define PL_BALANCE_PROGRAM_MAX 256

/* N peers with bandwidths b >= 0, one above 0. fraction is each peer's share, before rounding; it
 * sums to 1 within the method's 1e-8. PL_EAGAIN: too many, or numerically hopeless; PL_ENOMEM. */
int pl_balance_program(double *fraction, const double *b, int N);

#endif
