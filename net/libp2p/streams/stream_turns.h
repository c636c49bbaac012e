/* stream_turns.h - which request may be read now. */
#ifndef PL_STREAM_TURNS_H
#define PL_STREAM_TURNS_H

#include "stream_internal.h"

/* 1: no request is read on this stream now. */
int turns_must_wait(const struct stream *s);
/* 1: no request is read on the whole connection now. */
int turns_connection_must_wait(const struct connection *c);
/* Puts the stream behind the others of its connection that wait, if the connection is why. */
void turns_hold(struct stream *s);
void turns_leave(struct stream *s);
/* A response is written: after ANSWERS_A_TURN of them the other connections are read first. */
void turns_count_response(struct stream *s);
/* A stream of the connection still waits: it is looked at again when the next second begins. */
void turns_await_second(struct connection *c);

#endif
