/* yamux.c - any bytes from the other side, while ours opens, writes, accepts, finishes and
 * releases streams as the bytes say. The first byte says who dialled. */
#include "net/libp2p/muxing/yamux.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct side {
    struct yamux y;
    struct bytes out;
    unsigned choice; /* changes with what arrives */
    size_t live;
};

static void use(struct side *s, struct yamux_stream *t)
{
    static const uint8_t zeros[5000];
    if (!t->user) return; /* released by an earlier callback */
    switch (s->choice++ % 7) {
    case 0: yamux_took(&s->y, t, bytes_length(&t->in), &s->out); break;
    case 1: yamux_took(&s->y, t, bytes_length(&t->in) / 2, &s->out); break;
    case 2: yamux_write(&s->y, t, zeros, sizeof zeros, &s->out); break;
    case 3: yamux_expect(&s->y, t, 1000000, &s->out); break;
    case 4: yamux_finish(t, &s->out); break;
    case 5: yamux_release(&s->y, t, &s->out); break;
    default: break;
    }
}

static void on_opened(void *context, struct yamux_stream *t) { t->user = context; }

static void on_change(void *context, struct yamux_stream *t) { use(context, t); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct yamux_events events = { on_opened, on_change, on_change };
    struct side s = { .choice = n ? data[0] : 0 };
    double now = 1;
    int rc = PL_OK;
    if (!n) return 0;
    yamux_init(&s.y, data[0] & 1, &events, &s, now);
    for (int i = 0; i < 3; i++) {
        struct yamux_stream *t;
        if (!yamux_open(&s.y, &t, &s.out)) t->user = &s;
    }
    for (size_t at = 1; at < n && !rc; at += 61) { /* in pieces that fit no frame */
        s.y.send_budget = data[at] * 300u;
        rc = yamux_receive(&s.y, data + at, n - at < 61 ? n - at : 61, &s.out, NULL);
        if (!rc) rc = yamux_pump(&s.y, &s.out);
        now += data[at] * 0.1;
        if (!rc && now >= yamux_due(&s.y)) rc = yamux_tick(&s.y, now, &s.out, NULL);
    }
    yamux_clear(&s.y);
    bytes_clear(&s.out);
    return 0;
}
