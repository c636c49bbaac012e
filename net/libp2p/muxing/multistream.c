/* multistream.c - both sides agree on a protocol by its name. [spec libp2p-wire 4]
 *
 *   dialer                                     listener
 *     /multistream/1.0.0  /noise      --->
 *                                     <---     /multistream/1.0.0
 *                                     <---     /noise        I speak it: the protocol begins
 *                                          or  na            I do not: propose another
 *
 * A token is a varint length, the text, and a newline that counts in the length. */
#include "multistream.h"

#include <string.h>

static const char header[] = "/multistream/1.0.0";

int multistream_token(struct bytes *out, const char *text, size_t n)
{
    bytes_varint(out, n + 1);
    bytes_add(out, text, n);
    return bytes_u8(out, '\n');
}

/* Header and first proposal in one packet; the answers are read one by one. */
int multistream_dial(struct multistream *m, const char *const *wanted, size_t count,
                     struct bytes *out)
{
    *m = (struct multistream){
        .wanted = wanted, .wanted_count = count, .proposed = 1, .agreed = -1
    };
    multistream_token(out, header, strlen(header));
    return multistream_token(out, wanted[0], strlen(wanted[0]));
}

int multistream_listen(struct multistream *m, multistream_find_fn *find, void *context,
                       struct bytes *out)
{
    *m = (struct multistream){ .find = find, .context = context, .agreed = -1 };
    return multistream_token(out, header, strlen(header));
}

/* A token that is not whole yet moves nothing. */
static int get_token(struct cursor *c, const char **text, size_t *n)
{
    const uint8_t *data;
    int rc = get_delimited(c, &data, n, MULTISTREAM_TOKEN_MAX);
    if (rc == PL_EAGAIN) return rc;
    if (rc || *n == 0 || data[*n - 1] != '\n') return PL_EPROTO;
    *text = (const char *)data;
    --*n;
    return PL_OK;
}

static int is(const char *text, size_t n, const char *name)
{
    return n == strlen(name) && !memcmp(text, name, n);
}

/* The dialer: our proposal comes back when it is accepted. */
static int on_answer(struct multistream *m, const char *text, size_t n, struct bytes *out)
{
    const char *asked = m->wanted[m->proposed - 1], *next;
    if (is(text, n, asked)) {
        m->agreed = (int)m->proposed - 1;
        return PL_OK;
    }
    if (!is(text, n, "na")) return PL_EPROTO;
    if (m->proposed == m->wanted_count) return PL_ENOTFOUND;
    next = m->wanted[m->proposed++];
    return multistream_token(out, next, strlen(next)) ? PL_ENOMEM : PL_EAGAIN;
}

/* The listener: accepts protocols that it serves, refuses others, and gives up a dialer that only
 * guesses. */
static int on_proposal(struct multistream *m, const char *text, size_t n, struct bytes *out)
{
    int index = m->find(m->context, text, n);
    if (index >= 0) {
        m->agreed = index;
        return multistream_token(out, text, n);
    }
    if (++m->proposed > MULTISTREAM_PROPOSALS_MAX) return PL_EPROTO;
    return multistream_token(out, "na", 2) ? PL_ENOMEM : PL_EAGAIN;
}

/* Its first byte is the length, so other beginnings belong to another protocol: an ssh or mail
 * server sends a line and waits, and would never complete the long token that its first byte
 * announces. */
static int begins_well(const struct cursor *c)
{
    static const char start[] = "\023/multistream/1.0.0\n";
    return !memcmp(c->at, start, c->left < sizeof start - 1 ? c->left : sizeof start - 1);
}

int multistream_receive(struct multistream *m, struct cursor *c, struct bytes *out)
{
    int rc = PL_EAGAIN;
    while (rc == PL_EAGAIN) {
        const char *text;
        size_t n;
        if (!m->header_seen && c->left && !begins_well(c)) return PL_EPROTO;
        rc = get_token(c, &text, &n);
        if (rc) return rc;
        rc = PL_EAGAIN;
        if (!m->header_seen) {
            if (!is(text, n, header)) return PL_EPROTO;
            m->header_seen = 1;
        } else {
            rc = m->wanted ? on_answer(m, text, n, out) : on_proposal(m, text, n, out);
        }
    }
    return rc;
}
