/* swarm_messages.h - messages of commands while they join a swarm. */
#ifndef PL_CMD_SWARM_MESSAGES_H
#define PL_CMD_SWARM_MESSAGES_H

#include "net/hivemind/swarm/membership.h"

#include <stdio.h>

/* As membership_open; a wait for a slow authority is explained to the user. */
int cmd_membership_open(struct membership *m, struct auth **auth, struct pl_err *err);

/* As swarm_wait_joined, without a limit; after some seconds the user reads that we still wait. */
int cmd_wait_joined(const char *cmd, struct swarm *s, struct pl_err *err);

/* Prints all our addresses: `head`, then a line for each that begins with `before`, the most widely
 * reachable first. Prints nothing if there is no address. */
void cmd_show_addresses(struct swarm *s, FILE *out, const char *head, const char *before);

#endif
