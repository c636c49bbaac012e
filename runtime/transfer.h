/* transfer.h - copies that overlap with computation, and several devices, for every backend: those
 * without them copy at once and are one device. See the end of struct pl_backend. */
#ifndef PL_TRANSFER_H
#define PL_TRANSFER_H

#include "../ref/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As the table's entries of the same names. On a backend without them a copy is complete when the
 * call returns, and memory of the host is pl_alloc's. */
void *pl_host_alloc(const struct pl_backend *be, size_t bytes);
void pl_host_free(const struct pl_backend *be, void *p);
int pl_get_begin(const struct pl_backend *be, uint64_t *ticket, void *host, const void *device,
                 size_t bytes);
int pl_put_begin(const struct pl_backend *be, uint64_t *ticket, void *device, const void *host,
                 size_t bytes);
int pl_copy_end(const struct pl_backend *be, uint64_t ticket);
int pl_copy_join(const struct pl_backend *be);

/* A backend without devices is one device: number 0. */
int pl_device_count(const struct pl_backend *be);
int pl_set_devices(const struct pl_backend *be, const int *numbers, int count);
int pl_use_device(const struct pl_backend *be, int index);
int pl_peer_copy(const struct pl_backend *be, float *y, const float *x, int index, size_t n,
                 int add);

#ifdef __cplusplus
}
#endif
#endif
