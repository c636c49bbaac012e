/* golden_wire_yamux.c - yamux: frames, and recorded sessions of them with our engine on our side;
 * the calls they carried are compared with the recording's description. */
#include "golden_wire.h"
#include "net/libp2p/muxing/multistream.h"
#include "net/libp2p/rpc/rpc.h"
#include "net/libp2p/muxing/yamux.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const types[] = { "data", "window", "ping", "goaway" };

static int frame_flags(const json_t *entry)
{
    static const struct {
        const char *name;
        int bit;
    } flags[] = {
        { "SYN", YAMUX_SYN }, { "ACK", YAMUX_ACK }, { "FIN", YAMUX_FIN }, { "RST", YAMUX_RST }
    };
    int bits = 0;
    size_t i;
    json_t *flag;
    json_array_foreach(json_object_get(entry, "flags"), i,
                       flag) for (size_t k = 0; k < PL_COUNT(flags);
                                  k++) if (json_is_string(flag) &&
                                           !strcmp(json_string_value(flag), flags[k].name))
        bits |= flags[k].bit;
    return bits;
}

/* The frame's bytes; recordings leave out long bodies of zeros. */
int golden_wire_frame_bytes(struct golden *g, const json_t *entry, struct bytes *raw)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    struct yamux_frame f = { .flags = (uint16_t)frame_flags(entry) };
    uint8_t *body;
    if (json_object_get(entry, "hex")) return wire_member(g, entry, "hex", raw);
    for (size_t i = 0; type && i < PL_COUNT(types); i++)
        if (!strcmp(types[i], type)) f.type = (uint8_t)i;
    f.stream = (uint32_t)golden_int(g, entry, "stream");
    f.length = (uint32_t)golden_int(g, entry, "length");
    if (f.length > YAMUX_WINDOW_MAX || yamux_frame_put(raw, &f) ||
        !(body = bytes_reserve(raw, f.length)))
        return 0;
    memset(body, 0, f.length);
    raw->end += f.length;
    return 1;
}

static void check_frame(struct golden *g, const json_t *entry, const struct bytes *raw,
                        const char *what)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    const char *hex = json_string_value(json_object_get(entry, "body"));
    struct cursor c = { bytes_at(raw), bytes_length(raw) };
    struct bytes out = { 0 }, body = { 0 };
    struct yamux_frame f;
    int rc = yamux_frame_get(&c, &f);
    golden_check(g, what,
                 !rc && type && !strcmp(types[f.type], type) && f.flags == frame_flags(entry) &&
                     f.stream == (uint32_t)golden_int(g, entry, "stream") &&
                     f.length == (uint32_t)golden_int(g, entry, "length") &&
                     golden_int(g, entry, "version") == 0,
                 "read otherwise");
    if (!rc && hex)
        golden_check(g, what,
                     !wire_hex(&body, hex) && bytes_length(&body) == c.left &&
                         !memcmp(bytes_at(&body), c.at, c.left),
                     "another body");
    if (!rc) {
        yamux_frame_put(&out, &f);
        bytes_add(&out, c.at, c.left);
        wire_same(g, what, &out, raw);
    }
    bytes_clear(&out);
    bytes_clear(&body);
}

/* Whether we dialled in this recording: the dialer's streams are odd. */
static int we_dialled(struct golden *g, const json_t *frames)
{
    size_t i;
    json_t *frame;
    json_array_foreach(frames, i, frame)
    {
        const char *dir = json_string_value(json_object_get(frame, "dir"));
        long id = golden_int(g, frame, "stream");
        if (id && dir && frame_flags(frame) & YAMUX_SYN)
            return !strcmp(dir, "out") == (id % 2 == 1);
    }
    return 1;
}

/* Our engine on our side of a recorded session: it opens the streams that we opened, reads
 * everything received, and must find no fault in any frame. */
struct session {
    struct yamux y;
    struct bytes out;
    size_t opened, taken;
};

static void on_opened(void *context, struct yamux_stream *s)
{
    struct session *session = context;
    (void)s;
    session->opened++;
}

static void on_readable(void *context, struct yamux_stream *s)
{
    struct session *session = context;
    session->taken += bytes_length(&s->in);
    yamux_took(&session->y, s, bytes_length(&s->in), &session->out);
}

void golden_wire_replay(struct golden *g, const char *what, const json_t *entry)
{
    static const struct yamux_events events = { on_opened, on_readable, on_readable };
    struct session session = { .opened = 0 };
    struct pl_err err = { "" };
    size_t i, opened = 0, body = 0;
    json_t *frame;
    int rc = PL_OK;
    yamux_init(&session.y, we_dialled(g, json_object_get(entry, "frames")), &events, &session, 0);
    json_array_foreach(json_object_get(entry, "frames"), i, frame)
    {
        const char *dir = json_string_value(json_object_get(frame, "dir"));
        int in = dir && !strcmp(dir, "in"), syn = frame_flags(frame) & YAMUX_SYN;
        long id = golden_int(g, frame, "stream");
        struct bytes raw = { 0 };
        struct yamux_stream *s;
        char name[200];
        snprintf(name, sizeof name, "%.120s frame %zu", what ? what : "session", i);
        if (!in && (!dir || strcmp(dir, "out"))) golden_fail(g, name, "goes neither in nor out");
        if (!golden_wire_frame_bytes(g, frame, &raw)) break;
        check_frame(g, frame, &raw, name);
        if (in) {
            if (id && syn) opened++;
            body += bytes_length(&raw) - 12;
            if (!rc)
                rc = yamux_receive(&session.y, bytes_at(&raw), bytes_length(&raw), &session.out,
                                   &err);
        } else if (id && syn) {
            session.y.next_id = (uint32_t)id;
            yamux_open(&session.y, &s, &session.out);
        }
        bytes_clear(&raw);
    }
    golden_check(g, what ? what : "session",
                 rc == PL_OK && session.opened == opened && session.taken == body,
                 "%s; %zu streams of %zu, %zu bytes of %zu", err.text, session.opened, opened,
                 session.taken, body);
    yamux_clear(&session.y);
    bytes_clear(&session.out);
}

/* --- what a recorded call carried ------------------------------------------------------------- */

struct call {
    uint32_t id;
    int theirs;             /* the stream was opened by the other side */
    int cut;                /* the recording leaves bodies out */
    struct bytes bodies[2]; /* bodies, out and in */
};

/* The first stream of a recording; a call has one. */
static void read_call(struct golden *g, struct call *call, const json_t *frames)
{
    size_t i;
    json_t *frame;
    json_array_foreach(frames, i, frame)
    {
        const char *dir = json_string_value(json_object_get(frame, "dir"));
        int in = dir && !strcmp(dir, "in");
        struct bytes raw = { 0 };
        struct yamux_frame f;
        struct cursor c;
        if (!golden_wire_frame_bytes(g, frame, &raw)) continue;
        c = (struct cursor){ bytes_at(&raw), bytes_length(&raw) };
        if (!yamux_frame_get(&c, &f) && f.stream) {
            if (!call->id) {
                call->id = f.stream;
                call->theirs = in;
            }
            call->cut |= !json_object_get(frame, "hex");
            if (f.stream == call->id && f.type == YAMUX_DATA)
                bytes_add(&call->bodies[in], c.at, c.left);
        }
        bytes_clear(&raw);
    }
}

static int is_hex(const char *text)
{
    size_t n = strlen(text);
    return n && n % 2 == 0 && strspn(text, "0123456789abcdef") == n;
}

static int is_number(json_int_t want, const uint8_t *data, size_t n) /* { int64 = 1; } */
{
    struct cursor c = { data, n };
    uint64_t key, x;
    if (!n) return want == 0;
    return !get_varint(&c, &key) && key == 8 && !get_varint(&c, &x) && !c.left &&
           x == (uint64_t)want;
}

static int is_bytes(const json_t *want, const uint8_t *data, size_t n)
{
    struct bytes raw = { 0 };
    int same = !wire_hex(&raw, json_string_value(want)) && bytes_length(&raw) == n &&
               (!n || !memcmp(bytes_at(&raw), data, n));
    bytes_clear(&raw);
    return same;
}

/* One answer: hex text, a number, [marker, hex], or a failure's text with the answer's in it. */
static int is_answer(const json_t *want, int failed, const uint8_t *data, size_t n)
{
    const char *text = json_string_value(want);
    char error[1024];
    if (json_is_integer(want)) return !failed && is_number(json_integer_value(want), data, n);
    if (json_is_array(want))
        return failed == (int)json_integer_value(json_array_get(want, 0)) &&
               is_bytes(json_array_get(want, 1), data, n);
    if (!text) return 0;
    if (is_hex(text)) return !failed && is_bytes(want, data, n);
    rpc_printable(error, sizeof error, data, n);
    error[strcspn(error, "\\'\"?")] = 0; /* from there on the result's text may have escapes */
    return !failed || strstr(text, error) != NULL;
}

/* A call's response against its recorded result: text, [[marker, hex], ...], {"ok": ...}, {"err":
 * ...}. */
static void check_result(struct golden *g, const char *what, const json_t *want, struct cursor c)
{
    struct rpc_unary m;
    struct rpc_frame f;
    size_t more, count = 0, good = 0;
    if (json_is_object(want)) {
        const json_t *err = json_object_get(want, "err");
        want = err ? err : json_object_get(want, "ok");
    }
    if (!want) return;
    if (!rpc_unary_get(&c, &m, RPC_UNARY_MAX, &more)) {
        count = 1;
        good = (size_t)is_answer(want, m.kind == RPC_ERROR, m.data, m.n);
    } else {
        for (; !rpc_frame_get(&c, &f, RPC_MESSAGE_MAX, &more); count++)
            good += (size_t)is_answer(json_is_array(want) ? json_array_get(want, count) : want,
                                      f.marker == RPC_END, f.data, f.n);
    }
    golden_check(g, what,
                 good == count && !c.left &&
                     (!json_is_array(want) || json_array_size(want) == count),
                 "%zu of %zu answers are the result's", good, count);
}

static int take_any(void *context, const char *name, size_t n)
{
    snprintf(context, MULTISTREAM_TOKEN_MAX, "%.*s", (int)n, name);
    return 0;
}

static void check_call(struct golden *g, const char *what, const json_t *entry)
{
    struct call call = { .id = 0 };
    struct multistream listener, dialer;
    struct bytes ours = { 0 };
    char name[MULTISTREAM_TOKEN_MAX];
    const char *wanted[1] = { name };
    read_call(g, &call, json_object_get(entry, "frames"));
    if (call.id) {
        struct bytes *opener = &call.bodies[call.theirs], *other = &call.bodies[!call.theirs];
        struct cursor asked = { bytes_at(opener), bytes_length(opener) };
        struct cursor answered = { bytes_at(other), bytes_length(other) };
        multistream_listen(&listener, take_any, name, &ours);
        if (!multistream_receive(&listener, &asked, &ours)) {
            bytes_take(&ours, bytes_length(&ours));
            multistream_dial(&dialer, wanted, 1, &ours);
            if (!multistream_receive(&dialer, &answered, &ours) && !call.cut)
                check_result(g, what, json_object_get(entry, "result"), answered);
        }
    }
    bytes_clear(&ours);
    bytes_clear(&call.bodies[0]);
    bytes_clear(&call.bodies[1]);
}

void golden_wire_yamux(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, "frames"), i, entry)
    {
        char what[40];
        struct bytes raw = { 0 };
        snprintf(what, sizeof what, "frame %zu", i);
        if (golden_wire_frame_bytes(g, entry, &raw)) check_frame(g, entry, &raw, what);
        else golden_fail(g, what, "cannot be made");
        bytes_clear(&raw);
    }
    json_array_foreach(json_object_get(root, "session"), i, entry)
    {
        const char *what = json_string_value(json_object_get(entry, "what"));
        golden_wire_replay(g, what, entry);
        check_call(g, what ? what : "session", entry);
    }
}
