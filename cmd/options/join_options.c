/* join_options.c - the rows of join_options.h, and how they become a swarm's options. */
#include "join_options.h"
#include "net/hivemind/moderation/authority_client.h"

#define OPTIONS struct membership
const struct option_row membership_rows[] = {
    { "authority", "URL", NULL, OPT_TEXT_CHECKED(authority, authority_check_url),
      "in a moderated swarm, the server that gives access tokens (https://...); see potluck "
      "authority" },
    { "token-file", "FILE", NULL, OPT_PATH(token_file),
      "the secret that the authority's owner gave us" },
    { "authority-ca", "FILE", NULL, OPT_PATH(ca_file),
      "the authority's certificate, if no public authority signed it" },
    { 0 },
};
#undef OPTIONS

#define OPTIONS struct join_options
const struct option_row join_rows[] = {
    { "join", "MULTIADDR", NULL, OPT_LIST_CHECKED(join, swarm_check_peer_address),
      "address of a bootstrap peer, which may be any peer of the swarm; may be repeated" },
    { "listen", "MULTIADDR", NULL, OPT_LIST_CHECKED(listen, swarm_check_own_address),
      "where to listen; may be repeated (default: /ip4/0.0.0.0/tcp/0, any free port)" },
    { "announce", "MULTIADDR", NULL, OPT_LIST_CHECKED(announce, swarm_check_own_address),
      "address to advertise instead of our own, for a peer behind a router; may be repeated" },
    { "identity", "FILE", NULL, OPT_PATH(identity),
      "private key of our peer ID, created if the file is missing (default: a new key each time)" },
    { "client-mode", NULL, NULL, OPT_FLAG(client_mode),
      "only dial out and accept no connections, for a peer that is not publicly reachable" },
    { "relay", NULL, NULL, OPT_FLAG(relay),
      "relay connections, up to small limits, for peers that are not publicly reachable; they "
      "find us through the DHT" },
    { "no-port-mapping", NULL, NULL, OPT_FLAG(no_port_mapping),
      "do not ask the router to forward our port (NAT-PMP, UPnP)" },
    { NULL, NULL, NULL, OPT_TABLE(membership, membership_rows), NULL },
    { 0 },
};

void join_options_default(struct join_options *o)
{
    if (o->client_mode) o->listen.count = o->announce.count = 0;
    else if (!o->listen.count) o->listen.item[o->listen.count++] = "/ip4/0.0.0.0/tcp/0";
}

struct swarm_options join_options_swarm(const struct join_options *o, const char *cmd)
{
    return (struct swarm_options){ .cmd = cmd,
                                   .listen = o->listen.item,
                                   .listen_count = o->listen.count,
                                   .announce = o->announce.item,
                                   .announce_count = o->announce.count,
                                   .join = o->join.item,
                                   .join_count = o->join.count,
                                   .identity = o->identity,
                                   .relay = o->relay,
                                   .no_port_mapping = o->no_port_mapping };
}
