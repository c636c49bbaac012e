/* golden_wire_noise.c - handshakes with fixed keys and every value on the way; a session with a
 * real peer, decrypted. */
#include "golden_wire.h"
#include "../../net/libp2p/multistream.h"
#include "../../net/libp2p/noise.h"
#include "../../net/libp2p/yamux.h"

#include <stdio.h>
#include <string.h>

struct side {
    struct identity me;
    struct bytes identity, fixed_s, fixed_e, payload, out, plain;
    struct secure *secure;
    struct noise_trace seen[16];
    int steps;
};

static void on_trace(void *context, const struct noise_trace *now)
{
    struct side *s = context;
    if (s->steps < (int)PL_COUNT(s->seen)) s->seen[s->steps++] = *now;
}

static int open_side(struct golden *g, struct side *s, const json_t *h, const char *who)
{
    int initiator = !strcmp(who, "initiator");
    struct noise_fixed fixed = { .trace = on_trace, .context = s };
    struct pl_err err;
    char key[60];
    snprintf(key, sizeof key, "%s_identity_private", who);
    if (!wire_member(g, h, key, &s->identity)) return 0;
    snprintf(key, sizeof key, "%s_static_private", who);
    if (!wire_member(g, h, key, &s->fixed_s)) return 0;
    snprintf(key, sizeof key, "%s_ephemeral_private", who);
    if (!wire_member(g, h, key, &s->fixed_e)) return 0;
    snprintf(key, sizeof key, "%s_payload", who);
    if (!wire_member(g, h, key, &s->payload)) return 0;
    if (identity_parse(&s->me, bytes_at(&s->identity), bytes_length(&s->identity), &err)) {
        golden_fail(g, who, "%s", err.text);
        return 0;
    }
    fixed.static_private = bytes_at(&s->fixed_s);
    fixed.ephemeral_private = bytes_at(&s->fixed_e);
    fixed.payload = bytes_at(&s->payload);
    fixed.payload_bytes = bytes_length(&s->payload);
    if (!noise_open_fixed(&s->secure, &s->me, initiator, NULL, &s->out, &fixed)) return 1;
    golden_fail(g, who, "the engine does not open");
    return 0;
}

static void close_side(struct side *s)
{
    if (s->secure) s->secure->close(s->secure);
    identity_clear(&s->me);
    bytes_clear(&s->identity);
    bytes_clear(&s->fixed_s);
    bytes_clear(&s->fixed_e);
    bytes_clear(&s->payload);
    bytes_clear(&s->out);
    bytes_clear(&s->plain);
}

static int equals(const json_t *object, const char *key, const uint8_t *got)
{
    const char *hex = json_string_value(json_object_get(object, key));
    struct bytes want = { 0 };
    int same = hex && !wire_hex(&want, hex) && bytes_length(&want) == 32 &&
               !memcmp(bytes_at(&want), got, 32);
    bytes_clear(&want);
    return same;
}

static void check_trace(struct golden *g, const struct side *s, const json_t *trace,
                        const char *who)
{
    size_t i;
    json_t *step;
    json_array_foreach(trace, i, step) {
        const char *name = json_string_value(json_object_get(step, "step"));
        const struct noise_trace *t = (int)i < s->steps ? &s->seen[i] : NULL;
        char what[100];
        snprintf(what, sizeof what, "%s step %zu (%.20s)", who, i, name ? name : "?");
        golden_check(g, what, t && name && !strcmp(t->step, name) && equals(step, "h", t->h) &&
                     equals(step, "ck", t->ck) && (!t->has_key || equals(step, "k", t->k)) &&
                     t->n == (uint64_t)golden_int(g, step, "n"), "state differs after %s",
                     t ? t->step : "nothing");
    }
}

static int hand_over(struct side *from, struct side *to, struct pl_err *err)
{
    int rc = to->secure->receive(to->secure, bytes_at(&from->out), bytes_length(&from->out),
                                 &to->plain, &to->out, err);
    bytes_take(&from->out, bytes_length(&from->out));
    return rc;
}

static void check_transport(struct golden *g, struct side *a, struct side *b, const json_t *list)
{
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry) {
        const char *who = json_string_value(json_object_get(entry, "from"));
        struct side *from = who && !strcmp(who, "initiator") ? a : b, *to = from == a ? b : a;
        struct bytes plain = { 0 }, wire = { 0 };
        struct pl_err err = { "" };
        char what[80];
        snprintf(what, sizeof what, "transport %zu from %.10s", i, who ? who : "?");
        if (wire_member(g, entry, "plain", &plain) && wire_member(g, entry, "wire", &wire)) {
            int rc;
            from->secure->send(from->secure, bytes_at(&plain), bytes_length(&plain), &from->out);
            wire_same(g, what, &from->out, &wire);
            bytes_take(&from->out, bytes_length(&from->out));
            rc = to->secure->receive(to->secure, bytes_at(&wire), bytes_length(&wire), &to->plain,
                                     &to->out, &err);
            golden_check(g, what, rc == PL_OK, "%s", err.text);
            wire_same(g, what, &to->plain, &plain);
            bytes_take(&to->plain, bytes_length(&to->plain));
        }
        bytes_clear(&plain);
        bytes_clear(&wire);
    }
}

static void check_refusals(struct golden *g, const json_t *h)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(h, "must_be_rejected_by_initiator"), i, entry) {
        const char *why = json_string_value(json_object_get(entry, "why"));
        struct side a = { .steps = 0 };
        struct bytes message = { 0 };
        struct pl_err err;
        if (open_side(g, &a, h, "initiator") && wire_member(g, entry, "message2", &message)) {
            int rc = a.secure->receive(a.secure, bytes_at(&message), bytes_length(&message),
                                       &a.plain, &a.out, &err);
            golden_check(g, why ? why : "refused", rc == PL_EPROTO || !a.secure->established,
                         "was accepted");
        }
        bytes_clear(&message);
        close_side(&a);
    }
}

static void check_handshake(struct golden *g, const json_t *h)
{
    struct side a = { .steps = 0 }, b = { .steps = 0 };
    const json_t *wire = json_object_get(h, "wire");
    struct pl_err err = { "" };
    uint8_t first[32], second[32];
    if (!open_side(g, &a, h, "initiator") || !open_side(g, &b, h, "responder")) goto done;
    for (int i = 0; i < 3; i++) {
        struct side *from = i == 1 ? &b : &a, *to = i == 1 ? &a : &b;
        struct bytes want = { 0 };
        char what[40];
        snprintf(what, sizeof what, "message %d", i + 1);
        if (wire_member(g, json_array_get(wire, (size_t)i), "hex", &want))
            wire_same(g, what, &from->out, &want);
        bytes_clear(&want);
        if (hand_over(from, to, &err)) {
            golden_check(g, what, 0, "%s", err.text);
            goto done;
        }
    }
    check_trace(g, &a, json_object_get(h, "initiator_trace"), "initiator");
    check_trace(g, &b, json_object_get(h, "responder_trace"), "responder");
    golden_check(g, "both know each other", a.secure->established && b.secure->established &&
                 peer_id_equal(&a.secure->remote, &b.me.id) &&
                 peer_id_equal(&b.secure->remote, &a.me.id), "not established");
    noise_keys(a.secure, first, second);
    golden_check(g, "keys", equals(h, "key_initiator_to_responder", first) &&
                 equals(h, "key_responder_to_initiator", second), "differ");
    check_transport(g, &a, &b, json_object_get(h, "transport"));
done:
    close_side(&a);
    close_side(&b);
    check_refusals(g, h);
}

void golden_wire_noise(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *h;
    json_array_foreach(json_object_get(root, "handshakes"), i, h) check_handshake(g, h);
}

/* The engines, given the keys of the recording, must send our bytes and understand theirs. */
void golden_wire_noise_session(struct golden *g, const json_t *root)
{
    static const char *const wanted[] = { "/noise" };
    struct side a = { .steps = 0 };
    struct bytes in = { 0 }, out = { 0 }, ours = { 0 }, plain = { 0 };
    struct noise_fixed fixed = { 0 };
    struct multistream m;
    struct pl_err err = { "" };
    const char *peer = json_string_value(json_object_get(root, "p2pd_peer_id"));
    char text[PEER_ID_TEXT_MAX];
    struct yamux_frame f;
    struct cursor c;
    size_t i, frames = 0;
    json_t *piece;
    int rc;
    json_array_foreach(json_object_get(root, "pieces"), i, piece) {
        const char *dir = json_string_value(json_array_get(piece, 0));
        wire_hex(dir && !strcmp(dir, "in") ? &in : &out,
                 json_string_value(json_array_get(piece, 1)));
    }
    if (!wire_member(g, root, "identity_private", &a.identity) ||
        !wire_member(g, root, "static_private", &a.fixed_s) ||
        !wire_member(g, root, "ephemeral_private", &a.fixed_e) ||
        identity_parse(&a.me, bytes_at(&a.identity), bytes_length(&a.identity), &err))
        goto done;
    fixed.static_private = bytes_at(&a.fixed_s);
    fixed.ephemeral_private = bytes_at(&a.fixed_e);
    multistream_dial(&m, wanted, 1, &ours);
    c = (struct cursor){ bytes_at(&in), bytes_length(&in) };
    rc = multistream_receive(&m, &c, &ours);
    golden_check(g, "negotiation", rc == PL_OK, "status %d", rc);
    if (noise_open_fixed(&a.secure, &a.me, 1, NULL, &ours, &fixed)) goto done;
    rc = a.secure->receive(a.secure, c.at, c.left, &plain, &ours, &err);
    golden_check(g, "every message decrypts", rc == PL_OK, "%s", err.text);
    peer_id_text(text, &a.secure->remote);
    golden_check(g, "the peer", peer && !strcmp(peer, text), "is %s", text);
    golden_check(g, "our first bytes", bytes_length(&ours) <= bytes_length(&out) &&
                 !memcmp(bytes_at(&ours), bytes_at(&out), bytes_length(&ours)), "differ");
    c = (struct cursor){ bytes_at(&plain), bytes_length(&plain) };
    while ((rc = yamux_frame_get(&c, &f)) == PL_OK) {
        const uint8_t *body;
        frames++;
        if (f.type == YAMUX_DATA && (rc = get_bytes(&c, &body, f.length))) break;
    }
    golden_check(g, "frames of streams", rc == PL_EAGAIN && frames > 2, "%zu frames, status %d",
                 frames, rc);
done:
    bytes_clear(&in);
    bytes_clear(&out);
    bytes_clear(&ours);
    bytes_clear(&plain);
    close_side(&a);
}
