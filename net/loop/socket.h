/* socket.h - options of TCP sockets for long, slow or lossy paths. */
#ifndef PL_SOCKET_H
#define PL_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>

/* unsent bytes that the kernel may hold: data written later wait behind them */
#define SOCKET_NOTSENT (128 << 10)

/* Prepares a socket that will listen (to: NULL), or will connect to `to`; a destination beyond this
 * machine changes nothing. Where the system paces everybody (BBR is its choice), this one is not:
 * no link within a machine is short of capacity, and every pause is a timer and a wake-up. This has
 * to be set before there is a connection: a connection that was paced once stays paced. Connections
 * accepted from other machines are paced by socket_prepare. */
void socket_begin(int fd, const struct sockaddr *to);

/* Prepares a connected socket. If it leads off this machine, it is paced by the rate that the path
 * delivers (BBR), if the kernel has BBR and lets us use it: the usual answer to a lost packet, half
 * the window, leaves 2 Mbit/s of a line of 100 with 50 ms and 1 % of loss. A setting that the
 * system refuses stays as it is. */
void socket_prepare(int fd);

/* Lets other sockets of this user bind to the same local port. For a listener: call it once it
 * listens, so that its own bind has failed if another process listens there. For a socket that will
 * connect from the listener's port: call it before its bind. 0, or -1: this system has no such
 * sockets. */
int socket_share_port(int fd);

/* Bytes that the other side has not confirmed yet; 0 if the system does not report it. */
size_t socket_unconfirmed(int fd);

#endif
