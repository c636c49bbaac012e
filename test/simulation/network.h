/* network.h - sockets of the virtual computers, as uv.c uses them. Errors are libuv's, negative. */
#ifndef PL_SIMULATION_NETWORK_H
#define PL_SIMULATION_NETWORK_H

#include "simulation.h"

#include <netinet/in.h>
#include <sys/types.h>

struct sim_socket;
/* Something has changed: a connection, bytes, capacity for bytes, an end. Called in an event. */
typedef void sim_socket_fn(void *context);

struct sim_socket *sim_socket_new(struct sim_peer *p);
void sim_socket_watch(struct sim_socket *s, sim_socket_fn *changed, void *context);
int sim_socket_bind(struct sim_socket *s, int port);
int sim_socket_listen(struct sim_socket *s);
struct sim_socket *sim_socket_accept(struct sim_socket *s); /* NULL: no thread waits */
int sim_socket_connect(struct sim_socket *s, uint32_t address, int port);
int sim_socket_connected(const struct sim_socket *s); /* UV_EAGAIN: not yet */
/* Bytes that were taken, or UV_EAGAIN. */
ssize_t sim_socket_send(struct sim_socket *s, const void *data, size_t n);
/* Bytes that had arrived, UV_EAGAIN, or UV_EOF. */
ssize_t sim_socket_receive(struct sim_socket *s, void *data, size_t n);
size_t sim_socket_undelivered(const struct sim_socket *s);
void sim_socket_close(struct sim_socket *s);
void sim_socket_name(const struct sim_socket *s, int remote, struct sockaddr_in *out);

#endif
