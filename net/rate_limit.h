/* rate_limit.h - how often each of many strangers may cause some work. An engine: time comes in. */
#ifndef PL_RATE_LIMIT_H
#define PL_RATE_LIMIT_H

#include "ref/base.h"

/* 24 KiB. With more holders at once, the one that has used least is forgotten: it begins anew with
 * a full allowance, which it nearly had. */
#define RATE_HOLDERS_MAX 1024

struct rate_limit {
    double rate;  /* units a second that a holder gets */
    double burst; /* units that it can save up */
    struct rate_holder {
        uint64_t id; /* a hash of a peer ID, a subnet, ...; 0: a free place */
        double left; /* units, at the time: */
        double at;   /* s, on the caller's clock */
    } of[RATE_HOLDERS_MAX];
};

/* 1: the holder had as many units and has used them. 0: it has not, and nothing has changed. */
int rate_limit_take(struct rate_limit *l, uint64_t holder, double units, double now);
/* 1: rate_limit_take would succeed. */
int rate_limit_has(const struct rate_limit *l, uint64_t holder, double units, double now);

#endif
