/* averager_walk.h - what is known of an averager on a walk: its search and state (averaging.c), its
 * exchange (exchange.c). */
#ifndef PL_AVERAGER_WALK_H
#define PL_AVERAGER_WALK_H

#include "walk.h"
#include "net/hivemind/averaging/averager.h"

/* A bare averager's values stay between its rounds; an optimizer's parameters and gradients do
 * not. */
enum averager_kind { AVERAGER_BARE, AVERAGER_STATE, AVERAGER_GRADIENT };

struct averager_walk {
    struct walk *w;
    const char *prefix, *class_name;
    enum averager_kind kind;
    char rpc[AVERAGER_RPCS][GROUP_NAME_MAX], key[GROUP_KEY_MAX];
    struct state_load state;              /* downloaded */
    const struct tensor_message *tensors; /* that it averages: the first ones of a state */
    size_t count;
    uint8_t schema[SCHEMA_HASH_BYTES];
    int has_schema;
    double begins;       /* its declared time */
    int declared;        /* whether we have seen any */
    int search_over;     /* it has ended before that: a trainer that is alone needs no group */
    struct bytes gather; /* ours */
    struct group group;
};

/* A code as the protocol names it. */
const char *walk_code(int code);

/* Stores our progress record in the run, if the peer is its only trainer; or withdraws it. */
void walk_report(struct walk *w, int is_leaving);
/* With the group that has been found. */
void walk_exchange(struct averager_walk *a);
/* A part for a group that there is not. */
void walk_stray_part(struct averager_walk *a);

#endif
