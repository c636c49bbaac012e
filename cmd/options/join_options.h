/* join_options.h - the options with which a command joins a swarm: addresses, identity, access
 * token. */
#ifndef PL_CMD_JOIN_OPTIONS_H
#define PL_CMD_JOIN_OPTIONS_H

#include "net/hivemind/swarm/membership.h"
#include "options.h"

struct join_options {
    struct option_list join, listen, announce;
    const char *identity;
    int client_mode, relay, no_port_mapping;
    struct membership membership;
};
/* --join, --listen, --announce, --identity, --client-mode, --relay, --no-port-mapping, and
 * membership_rows. */
extern const struct option_row join_rows[];
/* --authority, --token-file, --authority-ca of a struct membership. */
extern const struct option_row membership_rows[];

/* Once parsed: a client listens nowhere, any other peer at least on a free port. */
void join_options_default(struct join_options *o);
/* Everything but the token (membership_open). o is borrowed. */
struct swarm_options join_options_swarm(const struct join_options *o, const char *cmd);

#endif
