/* checks.h - forms of values that several commands take, as option_check_fn: a mistake is found
 * before a model is built or a peer is called. Those of multiaddrs: net/hivemind/swarm/swarm.h. */
#ifndef PL_CMD_CHECKS_H
#define PL_CMD_CHECKS_H

#include "options.h"

#define RUN_MAX 200 /* characters of a run's name: with a suffix it fits a group key */

option_check_fn check_ip;  /* of either version, without a port */
option_check_fn check_url; /* http:// or https://, and a host */
option_check_fn check_run; /* a run's name: no dot, which ends it in names of groups */

#endif
