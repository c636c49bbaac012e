/* transfer.c - a backend without asynchronous copies or several devices gets the synchronous copy
 * and one device, so callers need no second path. */
#include "transfer.h"

void *pl_host_alloc(const struct pl_backend *be, size_t bytes)
{
    return be->host_alloc ? be->host_alloc(bytes) : pl_alloc(bytes, 1);
}

void pl_host_free(const struct pl_backend *be, void *p)
{
    if (be->host_alloc) be->host_free(p);
    else pl_free(p);
}

int pl_get_begin(const struct pl_backend *be, uint64_t *ticket, void *host, const void *device,
                 size_t bytes)
{
    *ticket = 0;
    return be->get_begin ? be->get_begin(ticket, host, device, bytes)
                         : be->get(host, device, bytes);
}

int pl_put_begin(const struct pl_backend *be, uint64_t *ticket, void *device, const void *host,
                 size_t bytes)
{
    *ticket = 0;
    return be->put_begin ? be->put_begin(ticket, device, host, bytes)
                         : be->put(device, host, bytes);
}

int pl_copy_end(const struct pl_backend *be, uint64_t ticket)
{
    return be->copy_end ? be->copy_end(ticket) : PL_OK;
}

int pl_copy_join(const struct pl_backend *be) { return be->copy_join ? be->copy_join() : PL_OK; }

int pl_device_count(const struct pl_backend *be)
{
    return be->device_count ? be->device_count() : 1;
}

int pl_set_devices(const struct pl_backend *be, const int *numbers, int count)
{
    if (be->set_devices) return be->set_devices(numbers, count);
    return count > 1 || (count == 1 && numbers[0] != 0) ? PL_EUSE : PL_OK;
}

int pl_use_device(const struct pl_backend *be, int index)
{
    if (be->use_device) return be->use_device(index);
    return index ? PL_EUSE : PL_OK;
}

int pl_peer_copy(const struct pl_backend *be, float *y, const float *x, int index, size_t n,
                 int add)
{
    if (be->peer_copy) return be->peer_copy(y, x, index, n, add);
    return add ? be->axpy(y, 1, x, n) : be->copy(y, x, n);
}
