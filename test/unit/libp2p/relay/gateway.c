/* gateway.c - what a router may answer when it is asked for a forwarded port, and what we make of
 * it. libnatpmp and libminiupnpc are replaced by a scripted router. [RFC 6886; UPnP
 * InternetGatewayDevice 1] */
#include "net/libp2p/relay/gateway.h"
#include "test/unit/unit.h"

#include <arpa/inet.h>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <natpmp.h>

#define PORT 4001
#define URL "http://192.168.1.1:5000/ctl"
#define SERVICE "urn:schemas-upnp-org:service:WANIPConnection:1"

/* What the router answers, and what it was asked. */
static struct {
    int no_gateway;
    int natpmp;          /* its status; 0: it maps */
    const char *address; /* outside, by both protocols */
    uint16_t natpmp_port;
    int asked_for_mapping; /* NAT-PMP's second request */
    uint16_t natpmp_inside, natpmp_outside;
    uint32_t natpmp_lease;
    int mappings; /* requests for one */

    int found; /* by UPNP_GetValidIGD */
    const char *url;
    int discoveries;
    int conflicts;  /* outside ports that others use, from the first one on */
    int permanent;  /* 1: no lease but an endless one */
    int upnp_error; /* of any mapping */
    int attempts;   /* mappings that UPnP was asked for */
    char outside[8], inside[8], client[16], lease[8], deleted[8];
} router;

int initnatpmp(natpmp_t *p, int forcegw, in_addr_t forcedgw)
{
    memset(p, 0, sizeof *p);
    return router.no_gateway ? NATPMP_ERR_CANNOTGETGATEWAY : 0;
}
int closenatpmp(natpmp_t *p) { return 0; }
int getnatpmprequesttimeout(natpmp_t *p, struct timeval *timeout)
{
    *timeout = (struct timeval){ 0 };
    return 0;
}
int sendpublicaddressrequest(natpmp_t *p)
{
    router.asked_for_mapping = 0;
    return 2;
}
int sendnewportmappingrequest(natpmp_t *p, int protocol, uint16_t inside, uint16_t outside,
                              uint32_t lease)
{
    assert_int_equal(protocol, NATPMP_PROTOCOL_TCP);
    router.asked_for_mapping = 1;
    router.mappings++;
    router.natpmp_inside = inside;
    router.natpmp_outside = outside;
    router.natpmp_lease = lease;
    return 12;
}
int readnatpmpresponseorretry(natpmp_t *p, natpmpresp_t *r)
{
    memset(r, 0, sizeof *r);
    if (router.natpmp) return router.natpmp;
    if (router.asked_for_mapping) r->pnu.newportmapping.mappedpublicport = router.natpmp_port;
    else assert_int_equal(inet_pton(AF_INET, router.address, &r->pnu.publicaddress.addr), 1);
    return 0;
}

struct UPNPDev *upnpDiscover(int delay, const char *interface, const char *daemon, int port,
                             int ipv6, unsigned char ttl, int *error)
{
    static struct UPNPDev device;
    router.discoveries++;
    return router.found < 0 ? NULL : &device;
}
#if MINIUPNPC_API_VERSION >= 18
int UPNP_GetValidIGD(struct UPNPDev *list, struct UPNPUrls *urls, struct IGDdatas *data,
                     char *inside, int inside_n, char *outside, int outside_n)
#else
int UPNP_GetValidIGD(struct UPNPDev *list, struct UPNPUrls *urls, struct IGDdatas *data,
                     char *inside, int inside_n)
#endif
{
    if (!router.found) return 0;
    urls->controlURL = (char *)(uintptr_t)router.url;
    strcpy(data->first.servicetype, SERVICE);
    snprintf(inside, (size_t)inside_n, "192.168.1.7");
    return router.found;
}
void FreeUPNPUrls(struct UPNPUrls *urls) {}
void freeUPNPDevlist(struct UPNPDev *list) {}
int UPNP_GetExternalIPAddress(const char *url, const char *service, char *address)
{
    assert_string_equal(url, router.url);
    assert_string_equal(service, SERVICE);
    if (!router.address) return 501;
    strcpy(address, router.address);
    return UPNPCOMMAND_SUCCESS;
}
int UPNP_AddPortMapping(const char *url, const char *service, const char *outside,
                        const char *inside, const char *client, const char *description,
                        const char *protocol, const char *remote, const char *lease)
{
    router.attempts++;
    assert_string_equal(protocol, "TCP");
    assert_null(remote);
    snprintf(router.outside, sizeof router.outside, "%s", outside);
    snprintf(router.inside, sizeof router.inside, "%s", inside);
    snprintf(router.client, sizeof router.client, "%s", client);
    snprintf(router.lease, sizeof router.lease, "%s", lease);
    if (router.conflicts) return router.conflicts--, 718;
    if (router.permanent && strcmp(lease, "0")) return 725;
    return router.upnp_error;
}
int UPNP_DeletePortMapping(const char *url, const char *service, const char *outside,
                           const char *protocol, const char *remote)
{
    snprintf(router.deleted, sizeof router.deleted, "%s", outside);
    return UPNPCOMMAND_SUCCESS;
}

static struct gateway g;

/* A router that speaks both protocols and maps whatever it is asked for. */
static int begin(void **state)
{
    memset(&router, 0, sizeof router);
    router.address = "8.8.4.4";
    router.natpmp_port = PORT;
    router.found = 1;
    router.url = URL;
    memset(&g, 0, sizeof g);
    g.port = PORT;
    return 0;
}

static void expect(enum gateway_status natpmp, enum gateway_status upnp)
{
    gateway_map(&g);
    assert_int_equal(g.outcome[GATEWAY_NATPMP].status, natpmp);
    assert_int_equal(g.outcome[GATEWAY_UPNP].status, upnp);
    assert_int_equal(gateway_is_mapped(&g), natpmp == GATEWAY_MAPPED || upnp == GATEWAY_MAPPED);
    for (int i = 0; i < GATEWAY_PROTOCOLS; i++) {
        int silent = g.outcome[i].status == GATEWAY_MAPPED ||
                     g.outcome[i].status == GATEWAY_NOT_ASKED;
        assert_int_equal(!g.outcome[i].why[0], silent);
    }
}

static void expect_outside(const char *want)
{
    char text[MULTIADDR_TEXT_MAX];
    multiaddr_text(text, &g.outside);
    assert_string_equal(text, want);
}

/* The same port outside, for the lease; the router may name another. UPnP is not needed. */
static void natpmp_is_enough(void **state)
{
    router.natpmp_port = 60000;
    expect(GATEWAY_MAPPED, GATEWAY_NOT_ASKED);
    expect_outside("/ip4/8.8.4.4/tcp/60000");
    assert_int_equal(router.natpmp_inside, PORT);
    assert_int_equal(router.natpmp_outside, PORT);
    assert_int_equal(router.natpmp_lease, GATEWAY_LEASE);
    assert_int_equal(router.discoveries, 0);
    /* A lifetime of 0 ends it. [RFC 6886 3.4] */
    gateway_unmap(&g);
    assert_int_equal(router.mappings, 2);
    assert_int_equal(router.natpmp_inside, PORT);
    assert_int_equal(router.natpmp_outside, 0);
    assert_int_equal(router.natpmp_lease, 0);
    assert_string_equal(router.deleted, "");
}

/* Addresses of networks like ours, and no port, lead nobody to us. */
static void only_public_addresses_count(void **state)
{
    static const char *const private[] = { "10.0.0.1", "192.168.0.1", "100.64.0.1", "127.0.0.1" };
    for (size_t i = 0; i < PL_COUNT(private); i++) {
        router.address = private[i];
        expect(GATEWAY_PRIVATE, GATEWAY_PRIVATE);
        assert_non_null(strstr(g.outcome[GATEWAY_NATPMP].why, private[i]));
        assert_int_equal(g.outside.length, 0);
    }
    router.address = "8.8.4.4";
    router.natpmp_port = 0;
    expect(GATEWAY_REFUSED, GATEWAY_MAPPED);
}

/* UPnP is asked after each of NAT-PMP's failures but one: without a default gateway there is no
 * router. */
static void failures_of_natpmp(void **state)
{
    static const struct {
        int rc;
        enum gateway_status status;
    } failures[] = { { NATPMP_ERR_NOTAUTHORIZED, GATEWAY_REFUSED },
                     { NATPMP_ERR_OUTOFRESOURCES, GATEWAY_REFUSED },
                     { NATPMP_ERR_NETWORKFAILURE, GATEWAY_PRIVATE },
                     { NATPMP_ERR_NOGATEWAYSUPPORT, GATEWAY_SILENT } };
    router.found = 0;
    for (size_t i = 0; i < PL_COUNT(failures); i++) {
        router.natpmp = failures[i].rc;
        expect(failures[i].status, GATEWAY_SILENT);
        assert_int_equal(router.mappings, 0);
        assert_int_equal(router.discoveries, i + 1);
    }
    router.discoveries = 0;
    router.no_gateway = 1;
    expect(GATEWAY_ABSENT, GATEWAY_ABSENT);
    assert_int_equal(router.discoveries, 0);
}

static void only_upnp(void) { router.natpmp = NATPMP_ERR_NOGATEWAYSUPPORT; }

/* The mapping is renewed at the same router, with the same port, and deleted in the end. */
static void upnp_maps_and_renews(void **state)
{
    char lease[8];
    only_upnp();
    router.conflicts = 2;
    snprintf(lease, sizeof lease, "%d", GATEWAY_LEASE);
    for (int i = 0; i < 2; i++) {
        expect(GATEWAY_SILENT, GATEWAY_MAPPED);
        expect_outside("/ip4/8.8.4.4/tcp/4003");
        assert_string_equal(router.outside, "4003");
        assert_string_equal(router.inside, "4001");
        assert_string_equal(router.client, "192.168.1.7");
        assert_string_equal(router.lease, lease);
        assert_int_equal(router.discoveries, 1);
        assert_int_equal(router.attempts, 3 + i);
    }
    gateway_unmap(&g);
    assert_string_equal(router.deleted, "4003");
    assert_int_equal(router.mappings, 0);
}

/* Four ports are tried, and behind the last one come those that anybody may use. */
static void ports_in_use(void **state)
{
    only_upnp();
    router.conflicts = 4;
    expect(GATEWAY_SILENT, GATEWAY_REFUSED);
    assert_int_equal(router.attempts, 4);
    router.conflicts = 3;
    g.port = UINT16_MAX - 1;
    expect(GATEWAY_SILENT, GATEWAY_MAPPED);
    expect_outside("/ip4/8.8.4.4/tcp/1025");
}

/* Some routers have permanent mappings only. [IGD 2.4.16: error 725] */
static void routers_without_leases(void **state)
{
    only_upnp();
    router.permanent = 1;
    expect(GATEWAY_SILENT, GATEWAY_MAPPED);
    expect_outside("/ip4/8.8.4.4/tcp/4001");
    assert_string_equal(router.lease, "0");
    assert_int_equal(router.attempts, 2);
}

/* After a refusal the router is looked for again. */
static void refusals_of_upnp(void **state)
{
    only_upnp();
    router.upnp_error = 606;
    expect(GATEWAY_SILENT, GATEWAY_REFUSED);
    assert_non_null(strstr(g.outcome[GATEWAY_UPNP].why, "606"));
    assert_int_equal(router.attempts, 1);
    router.upnp_error = 0;
    router.address = NULL;
    expect(GATEWAY_SILENT, GATEWAY_REFUSED);
    router.address = "unknown";
    expect(GATEWAY_SILENT, GATEWAY_REFUSED);
    assert_int_equal(router.discoveries, 3);
    assert_int_equal(router.attempts, 1);
    router.found = 2; /* a router without a connection */
    expect(GATEWAY_SILENT, GATEWAY_SILENT);
    router.found = -1;
    expect(GATEWAY_SILENT, GATEWAY_SILENT);
}

/* Any machine of the network may answer, with a URL of any length. */
static void long_urls_are_refused(void **state)
{
    static char url[GATEWAY_URL_MAX + 1];
    only_upnp();
    memset(url, 'u', GATEWAY_URL_MAX);
    router.url = url;
    expect(GATEWAY_SILENT, GATEWAY_REFUSED);
    assert_int_equal(router.attempts, 0);
    url[GATEWAY_URL_MAX - 1] = 0;
    expect(GATEWAY_SILENT, GATEWAY_MAPPED);
}

#define TEST(f) cmocka_unit_test_setup(f, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(natpmp_is_enough),   TEST(only_public_addresses_count),
        TEST(failures_of_natpmp), TEST(upnp_maps_and_renews),
        TEST(ports_in_use),       TEST(routers_without_leases),
        TEST(refusals_of_upnp),   TEST(long_urls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
