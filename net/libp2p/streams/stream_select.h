/* stream_select.h - from a Yamux stream to a protocol's handler. */
#ifndef PL_STREAM_SELECT_H
#define PL_STREAM_SELECT_H

#include "stream_internal.h"

/* Yamux's events; their context is the connection. */
void stream_on_opened(void *connection, struct yamux_stream *mux);
void stream_on_readable(void *connection, struct yamux_stream *mux);
void stream_on_writable(void *connection, struct yamux_stream *mux);
/* Begins negotiation on the streams that wait for one, as far as Yamux allows. */
void streams_start_pending(struct connection *c);
/* Responses have been taken: reads on where requests were held. */
void streams_release_held(struct connection *c);
/* For a stream's timer: no protocol was negotiated in time. */
void stream_on_late(void *stream);

#endif
