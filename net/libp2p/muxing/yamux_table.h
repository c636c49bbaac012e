/* yamux_table.h - what yamux_session.c needs of the table of streams. */
#ifndef PL_YAMUX_TABLE_H
#define PL_YAMUX_TABLE_H

#include "yamux.h"

/* NULL: no stream has this ID (any more). */
struct yamux_stream *yamux_table_find(const struct yamux *y, uint32_t id);
/* With a whole window either way. NULL: no memory. */
struct yamux_stream *yamux_table_add(struct yamux *y, uint32_t id);
/* Frees it; all sums are as if it had never been. */
void yamux_table_remove(struct yamux *y, struct yamux_stream *s);
/* n more bytes wait in the stream, or with a minus fewer. */
void yamux_table_count_waiting(struct yamux *y, const struct yamux_stream *s, size_t n);
/* Drops what waits to be sent; what lies unread. */
void yamux_table_drop_waiting(struct yamux *y, struct yamux_stream *s);
void yamux_table_drop_in(struct yamux *y, struct yamux_stream *s);
/* The other side has acknowledged its SYN, in whatever way. */
void yamux_table_acknowledge(struct yamux *y, struct yamux_stream *s);
/* Into the queue of streams that may send, if it may; out of it. */
void yamux_ready_join(struct yamux *y, struct yamux_stream *s);
void yamux_ready_leave(struct yamux *y, struct yamux_stream *s);

#endif
