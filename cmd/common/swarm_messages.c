/* swarm_messages.c - messages for people: that joining takes longer than expected, and the
 * addresses by which others join, the most reachable first. */
#include "swarm_messages.h"
#include "net/libp2p/peer/peerstore.h"

#define MESSAGE_AFTER 3.0 /* s; longer waits need an explanation */

static void print_wait(void *context, const char *text) { fprintf(stderr, "potluck: %s\n", text); }

int cmd_membership_open(struct membership *m, struct auth **auth, struct pl_err *err)
{
    m->report = print_wait;
    return membership_open(m, auth, err);
}

int cmd_wait_joined(const char *cmd, struct swarm *s, struct pl_err *err)
{
    int rc = swarm_wait_joined(s, MESSAGE_AFTER, err);
    if (rc != PL_EAGAIN) return rc;
    fprintf(stderr, "potluck %s: no bootstrap peer has accepted us within %g s; still waiting\n",
            cmd, MESSAGE_AFTER);
    return swarm_wait_joined(s, 0, err);
}

void cmd_show_addresses(struct swarm *s, FILE *out, const char *head, const char *before)
{
    struct multiaddr addresses[SWARM_ADDRESSES_MAX];
    size_t count = swarm_addresses(s, addresses, SWARM_ADDRESSES_MAX);
    int farther = 0;
    if (!count) return;
    fputs(head, out);
    for (int scope = SCOPE_PUBLIC; scope >= SCOPE_LOOPBACK; scope--)
        for (size_t i = 0; i < count; i++) {
            char text[MULTIADDR_TEXT_MAX];
            if ((int)multiaddr_scope(&addresses[i]) != scope) continue;
            multiaddr_text(text, &addresses[i]);
            fprintf(out, "%s%s%s\n", before, text,
                    scope == SCOPE_LOOPBACK && farther ? "   # on this machine alone" : "");
            farther |= scope > SCOPE_LOOPBACK;
        }
    fflush(out);
}
