/* stream_turns.c - request and response take turns, and so do connections.
 *
 * Three things hold back the next request of a stream that the other side has opened:
 *
 *   its own response is not taken yet      until Yamux has sent it
 *   its connection's responses             more than ANSWERS_MAX bytes wait, or ANSWERS_A_TURN were
 *                                          written since the other connections were last read
 *   its peer's handlers                    have used their share of this second (resources.c)
 *
 * So memory for responses is bounded by what peers read, and no peer can keep the loop to
 * itself. The bytes of a request that waits stay in the stream, whose window then stops the
 * sender.
 *
 * Streams that go both ways bound what they write; only their peer's share of time holds them. */
#include "stream_turns.h"

static int too_many_responses(const struct connection *c)
{
    return c->conn.yamux.answers > ANSWERS_MAX || c->streams.answered >= ANSWERS_A_TURN;
}

static int must_wait(const struct connection *c)
{
    return loop_time_is_used(c->of->core, &c->account);
}

int turns_connection_must_wait(const struct connection *c)
{
    return too_many_responses(c) || must_wait(c);
}

int turns_must_wait(const struct stream *s)
{
    if (!s->inbound || !s->mux) return 0;
    if (!s->both_ways && (s->mux->waiting.length || too_many_responses(s->connection))) return 1;
    /* Negotiation costs nearly nothing, and has a time limit of its own. */
    return s->state == STREAM_OPEN && must_wait(s->connection);
}

void turns_count_response(struct stream *s)
{
    if (!s->inbound || s->both_ways || ++s->connection->streams.answered != ANSWERS_A_TURN) return;
    connections_await_turn(s->of->connections);
}

void turns_await_second(struct connection *c)
{
    if (must_wait(c)) connections_await_second(c->of);
}

/* --- the streams that wait -------------------------------------------------------------------- */

void turns_hold(struct stream *s)
{
    struct connection *c = s->connection;
    if (s->is_held || !turns_must_wait(s) || !turns_connection_must_wait(c)) return;
    s->is_held = 1;
    s->next_held = NULL;
    s->prev_held = c->streams.held_last;
    if (c->streams.held_last) c->streams.held_last->next_held = s;
    else c->streams.held = s;
    c->streams.held_last = s;
    if (must_wait(c)) s->of->core->resources.limited++;
    turns_await_second(c);
}

void turns_leave(struct stream *s)
{
    struct connection *c = s->connection;
    if (!s->is_held) return;
    s->is_held = 0;
    if (s->prev_held) s->prev_held->next_held = s->next_held;
    else c->streams.held = s->next_held;
    if (s->next_held) s->next_held->prev_held = s->prev_held;
    else c->streams.held_last = s->prev_held;
}
