/* socket.h - what a long, slow or lossy path asks of a TCP socket. */
#ifndef PL_SOCKET_H
#define PL_SOCKET_H

#include <stddef.h>

/* bytes that the kernel takes beyond what it has sent: what is written later waits behind them */
#define SOCKET_NOTSENT (128 << 10)

/* Of a connected socket. Where it leads off this machine, it is paced by what the path delivers
 * (BBR), if the kernel has that and lets us: the usual answer to a lost packet, half the window,
 * leaves 2 Mbit/s of a line of 100 with 50 ms and 1 % of loss. What can't be had is left as it
 * is. */
void socket_prepare(int fd);

/* Bytes that the other side has not confirmed yet; 0 where nobody can tell. */
size_t socket_unconfirmed(int fd);

#endif
