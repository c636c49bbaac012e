/* multiaddr.c - self-describing addresses. [spec libp2p-wire 3]
 *
 *   /ip4/1.2.3.4/tcp/9  =  04 01020304  06 0009        code, then a value of known length
 *   /p2p/12D3...        =  a503 26 <38 bytes>           code, length, value
 *
 * One table of protocols drives parsing, printing and reading of text. The length of a protocol
 * that is not in the table is unknown, so an address that contains one cannot be read any
 * further. */
#include "multiaddr.h"
#include "net/bytes.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { NOTHING, IP4, IP6, PORT, NAME, PATH, PEER };

enum {
    C_IP4 = 4,
    C_TCP = 6,
    C_IP6 = 41,
    C_DNS = 53,
    C_DNS4 = 54,
    C_DNS6 = 55,
    C_DNSADDR = 56,
    C_CIRCUIT = 290,
    C_P2P = 421
};

static const struct protocol {
    const char *name;
    unsigned code;
    enum kind kind;
} protocols[] = {
    { "ip4", C_IP4, IP4 },
    { "tcp", C_TCP, PORT },
    { "ip6", C_IP6, IP6 },
    { "dns", C_DNS, NAME },
    { "dns4", C_DNS4, NAME },
    { "dns6", C_DNS6, NAME },
    { "udp", 273, PORT },
    { "p2p-circuit", C_CIRCUIT, NOTHING },
    { "unix", 400, PATH },
    { "p2p", C_P2P, PEER },
    { "quic-v1", 461, NOTHING },
    { "ws", 477, NOTHING },
    /* never dialed, but peers that we keep addresses of may have them */
    { "dnsaddr", C_DNSADDR, NAME },
    { "tls", 448, NOTHING },
    { "quic", 460, NOTHING },
    { "wss", 478, NOTHING },
    { "ipfs", C_P2P, PEER }, /* p2p's old name: read, never printed (the first match prints) */
};

static const struct protocol *by_code(uint64_t code)
{
    for (size_t i = 0; i < PL_COUNT(protocols); i++)
        if (protocols[i].code == code) return &protocols[i];
    return NULL;
}

/* One part: its protocol and a view of its value. */
static int next_part(struct cursor *c, const struct protocol **p, const uint8_t **value, size_t *n)
{
    struct peer_id id;
    uint64_t code;
    if (get_varint(c, &code) || !(*p = by_code(code))) return PL_EFORMAT;
    *n = 0;
    *value = NULL;
    switch ((*p)->kind) {
    case NOTHING: return PL_OK;
    case IP4: *n = 4; break;
    case IP6: *n = 16; break;
    case PORT: *n = 2; break;
    case NAME:
    case PATH:
        if (get_delimited(c, value, n, 255) || *n == 0 || memchr(*value, 0, *n)) return PL_EFORMAT;
        if ((*p)->kind == NAME && memchr(*value, '/', *n)) return PL_EFORMAT;
        return PL_OK;
    case PEER:
        if (get_delimited(c, value, n, PEER_ID_MAX) || peer_id_parse(&id, *value, *n))
            return PL_EFORMAT;
        return PL_OK;
    }
    return get_bytes(c, value, *n) ? PL_EFORMAT : PL_OK;
}

int multiaddr_parse(struct multiaddr *a, const uint8_t *bytes, size_t n)
{
    struct cursor c = { bytes, n };
    const struct protocol *p;
    const uint8_t *value;
    size_t length;
    if (n > MULTIADDR_MAX) return PL_ELIMIT;
    if (n == 0) return PL_EFORMAT;
    while (c.left)
        if (next_part(&c, &p, &value, &length)) return PL_EFORMAT;
    memcpy(a->bytes, bytes, n);
    a->length = (uint16_t)n;
    return PL_OK;
}

/* As go-multiaddr prints it. The C library shows the last four bytes of ::102:304, too, in the form
 * of IPv4, which only ::ffff:1.2.3.4 has. */
static void ip6_text(char *out, size_t capacity, const uint8_t *ip)
{
    static const uint8_t zeros[12];
    if (!memcmp(ip, zeros, sizeof zeros) && (ip[12] || ip[13]))
        snprintf(out, capacity, "::%x:%x", ip[12] << 8 | ip[13], ip[14] << 8 | ip[15]);
    else inet_ntop(AF_INET6, ip, out, (socklen_t)capacity);
}

void multiaddr_text(char *text, const struct multiaddr *a)
{
    struct cursor c = { a->bytes, a->length };
    const struct protocol *p;
    const uint8_t *value;
    size_t n, at = 0;
    text[0] = 0;
    while (c.left && !next_part(&c, &p, &value, &n)) {
        char shown[300] = "";
        struct peer_id id;
        switch (p->kind) {
        case NOTHING: break;
        case IP4: inet_ntop(AF_INET, value, shown, sizeof shown); break;
        case IP6: ip6_text(shown, sizeof shown, value); break;
        case PORT: snprintf(shown, sizeof shown, "%u", value[0] * 256u + value[1]); break;
        case NAME:
        case PATH:
            for (size_t i = 0; i < n; i++) /* UTF-8 as it is */
                shown[i] = value[i] >= 32 && value[i] != 127 ? (char)value[i] : '?';
            shown[n] = 0;
            break;
        case PEER:
            if (!peer_id_parse(&id, value, n)) peer_id_text(shown, &id);
            break;
        }
        /* A unix path brings its own slash. */
        at += (size_t)snprintf(text + at, MULTIADDR_TEXT_MAX - at, "/%s%s%s", p->name,
                               p->kind == NOTHING || shown[0] == '/' ? "" : "/", shown);
        if (at >= MULTIADDR_TEXT_MAX) return;
    }
}

static size_t put_varint(uint8_t *to, unsigned x)
{
    size_t n = 0;
    for (; x > 127; x >>= 7) to[n++] = (uint8_t)(x | 128);
    to[n++] = (uint8_t)x;
    return n;
}

/* Allocates nothing: an address that cannot be read is the user's or a stranger's mistake, never a
 * lack of memory. */
static int add(struct multiaddr *a, unsigned code, const void *value, size_t n, int delimited)
{
    uint8_t head[10];
    size_t head_n = put_varint(head, code);
    if (n > MULTIADDR_MAX) return PL_ELIMIT;
    if (delimited) head_n += put_varint(head + head_n, (unsigned)n);
    if (a->length + head_n + n > MULTIADDR_MAX) return PL_ELIMIT;
    memcpy(a->bytes + a->length, head, head_n);
    if (n) memcpy(a->bytes + a->length + head_n, value, n);
    a->length = (uint16_t)(a->length + head_n + n);
    return PL_OK;
}

int multiaddr_add_ip(struct multiaddr *a, int family, const uint8_t *ip)
{
    return family == 4 ? add(a, C_IP4, ip, 4, 0) : add(a, C_IP6, ip, 16, 0);
}

int multiaddr_add_tcp(struct multiaddr *a, uint16_t port)
{
    uint8_t raw[2] = { (uint8_t)(port >> 8), (uint8_t)port };
    return add(a, C_TCP, raw, 2, 0);
}

int multiaddr_add_peer(struct multiaddr *a, const struct peer_id *id)
{
    return add(a, C_P2P, id->bytes, id->length, 1);
}

int multiaddr_add_circuit(struct multiaddr *a) { return add(a, C_CIRCUIT, NULL, 0, 0); }

/* The text up to the next slash. */
static size_t part_length(const char *text) { return strcspn(text, "/"); }

static int add_text(struct multiaddr *a, const struct protocol *p, const char *value, size_t n,
                    struct pl_err *err)
{
    char copy[256];
    uint8_t raw[16];
    struct peer_id id;
    if (n == 0 || n >= sizeof copy)
        return pl_fail(err, PL_EFORMAT, "address: /%s needs a value of 1 to 255 characters",
                       p->name);
    memcpy(copy, value, n);
    copy[n] = 0;
    switch (p->kind) {
    case IP4:
    case IP6:
        if (inet_pton(p->kind == IP4 ? AF_INET : AF_INET6, copy, raw) == 1)
            return add(a, p->code, raw, p->kind == IP4 ? 4 : 16, 0);
        return pl_fail(err, PL_EFORMAT, "address: /%s/%.80s is not an IP address", p->name, copy);
    case PORT: {
        char *end;
        unsigned long port = strtoul(copy, &end, 10);
        if (*end || port > 65535 || strspn(copy, "0123456789") != n)
            return pl_fail(err, PL_EFORMAT, "address: /%s/%.20s is not a port from 0 to 65535",
                           p->name, copy);
        raw[0] = (uint8_t)(port >> 8);
        raw[1] = (uint8_t)port;
        return add(a, p->code, raw, 2, 0);
    }
    case PEER:
        if (peer_id_from_text(&id, copy, n))
            return pl_fail(err, PL_EFORMAT, "address: /p2p/%.80s is not a peer ID", copy);
        return multiaddr_add_peer(a, &id);
    default: return add(a, p->code, copy, n, 1);
    }
}

int multiaddr_from_text(struct multiaddr *a, const char *text, struct pl_err *err)
{
    int rc;
    a->length = 0;
    if (text[0] != '/')
        return pl_fail(err, PL_EFORMAT, "address '%.80s' does not begin with /", text);
    while (*text == '/' && text[1]) {
        size_t n = part_length(++text);
        const struct protocol *p = NULL;
        for (size_t i = 0; i < PL_COUNT(protocols); i++)
            if (strlen(protocols[i].name) == n && !memcmp(protocols[i].name, text, n))
                p = &protocols[i];
        if (!p)
            return pl_fail(err, PL_EFORMAT, "address: '%.*s' is not a known protocol",
                           n > 40 ? 40 : (int)n, text);
        text += n;
        if (p->kind == NOTHING) {
            if ((rc = add(a, p->code, NULL, 0, 0))) return pl_fail(err, rc, "address: too long");
            continue;
        }
        if (*text != '/') return pl_fail(err, PL_EFORMAT, "address: /%s needs a value", p->name);
        if (p->kind != PATH) text++;
        n = p->kind == PATH ? strlen(text) : part_length(text); /* a path is the rest */
        if ((rc = add_text(a, p, text, n, err)))
            return rc == PL_ELIMIT ? pl_fail(err, rc, "address: too long") : rc;
        text += n;
    }
    if (*text && strcmp(text, "/")) return pl_fail(err, PL_EFORMAT, "address: stray '%.40s'", text);
    return a->length ? PL_OK : pl_fail(err, PL_EFORMAT, "address: empty");
}

/* The addresses that a dialer can use: one IP address or name, TCP, perhaps a relay, perhaps a
 * peer. */
int multiaddr_target(struct multiaddr_target *t, const struct multiaddr *a)
{
    struct cursor c = { a->bytes, a->length };
    const struct protocol *p;
    const uint8_t *value;
    size_t n;
    enum { HOST, TCP, ID, AFTER_ID, LAST_ID, END } want = HOST;
    memset(t, 0, sizeof *t);
    while (c.left) {
        if (next_part(&c, &p, &value, &n)) return PL_EFORMAT;
        if (want == HOST && (p->kind == IP4 || p->kind == IP6)) {
            t->family = p->kind == IP4 ? 4 : 6;
            memcpy(t->ip, value, n);
            want = TCP;
        } else if (want == HOST && p->kind == NAME && p->code != C_DNSADDR) {
            memcpy(t->name, value, n);
            t->name_family = p->code == C_DNS4 ? 4 : p->code == C_DNS6 ? 6 : 0;
            want = TCP;
        } else if (want == TCP && p->code == C_TCP) {
            t->port = (uint16_t)(value[0] << 8 | value[1]);
            want = ID;
        } else if ((want == ID || want == LAST_ID) && p->kind == PEER) {
            peer_id_parse(&t->peer, value, n);
            want = want == ID ? AFTER_ID : END;
        } else if (want == AFTER_ID && p->code == C_CIRCUIT) {
            t->relay = t->peer;
            t->peer.length = 0;
            want = LAST_ID;
        } else {
            return PL_ENOTFOUND;
        }
    }
    return want == HOST || want == TCP ? PL_ENOTFOUND : PL_OK;
}

/* The ID at the end names the expected peer and is no part of the location; peers compare addresses
 * without it. */
void multiaddr_strip_peer(struct multiaddr *a, const struct peer_id *id)
{
    struct multiaddr tail = { 0 };
    multiaddr_add_peer(&tail, id);
    if (a->length > tail.length &&
        !memcmp(a->bytes + a->length - tail.length, tail.bytes, tail.length))
        a->length = (uint16_t)(a->length - tail.length);
}

int multiaddr_equal(const struct multiaddr *a, const struct multiaddr *b)
{
    return a->length == b->length && !memcmp(a->bytes, b->bytes, a->length);
}
