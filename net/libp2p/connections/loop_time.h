/* loop_time.h - the loop's time is charged to the account that causes it: handlers, and all work on
 * bytes that come (handshakes, decryption, frames). [spec libp2p-wire 16] */
#ifndef PL_LOOP_TIME_H
#define PL_LOOP_TIME_H

#include "host_core.h"

/* Work for an account: its processor time is charged when it is over, also when the work has closed
 * the account. Work within it for another account (a relayed connection's) is charged to that one
 * only. */
struct loop_time {
    struct host_core *core;
    struct handler_charge charge;
    uint64_t began_us, nested_us;
};
void loop_time_begin(struct loop_time *t, struct host_core *core, struct account *a);
/* Returns the microseconds that have passed, including work for other accounts. */
uint64_t loop_time_end(struct loop_time *t);

/* 1: the account's peer or subnet has used its share of the loop, and waits for the next second. */
int loop_time_is_used(struct host_core *core, const struct account *a);
/* s until the next second begins. */
double loop_time_left(const struct host_core *core);

#endif
