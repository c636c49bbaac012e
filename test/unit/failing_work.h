/* failing_work.h - runs a piece of work again and again: first its first allocation fails, then its
 * second, until no allocation is left to fail. Included by one file of each test program. */
#ifndef PL_TEST_FAILING_WORK_H
#define PL_TEST_FAILING_WORK_H

#include "test/unit/failing_memory.h"
#include "ref/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* may_pass: the one that fails may be for something that is not needed in the end. sampled: of many allocations, ever
 * fewer are tried. */
struct failing_work {
    int (*what)(void);
    int may_pass, sampled;
};

static inline void each_failing(void **state)
{
    const struct failing_work *work = *state;
    for (long n = 0;; n += work->sampled ? 1 + n / 6 : 1) {
        int rc;
        fail_at = n;
        calls = 0;
        rc = work->what();
        fail_at = -1;
        if (calls <= n) {
            if (rc) fail_msg("without a failure: %d", rc);
            assert_true(n > 0);
            return;
        }
        if (!work->may_pass && rc == PL_OK)
            fail_msg("allocation %ld of %ld fails unnoticed", n, calls);
    }
}

#define FAILING(function, passes, sample) \
    { \
        .name = #function, .test_func = each_failing, .initial_state = &(struct failing_work) \
        { \
            .what = function, .may_pass = passes, .sampled = sample \
        } \
    }
#define EACH_FAILING(function, passes) FAILING(function, passes, 0)

#endif
