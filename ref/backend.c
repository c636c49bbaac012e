/* backend.c - the reference's table: its operations, and the host's memory as a device's. Every
 * backend starts from this table, so an operation that a backend leaves out is computed here.
 *
 * Allocation, copies and sync are a driver's job on a device; on the host they are malloc and
 * memcpy. Everything that makes training faster without changing it (page-locked memory,
 * asynchronous copies, several devices) stays NULL: callers fall back. */
#include "backend.h"

#include <string.h>

/* The device is the host: alloc zeroes, as every backend's must, so padding is zero everywhere. */
static void *host_alloc(size_t bytes) { return pl_alloc(bytes, 1); }
static void host_free(void *p) { pl_free(p); }
static int host_move(void *to, const void *from, size_t bytes)
{
    if (bytes) memcpy(to, from, bytes);
    return PL_OK;
}
/* Every call has finished when it returns; a device's sync waits for its stream. */
static int host_sync(void) { return PL_OK; }
static int ref_set_threads(int threads)
{
    (void)threads; /* the reference is single-threaded whatever is asked */
    return PL_OK;
}
/* float32 operands, sums in double: nothing less is a reference. */
static int ref_set_precision(enum pl_precision precision)
{
    return precision == PL_FLOAT32 ? PL_OK : PL_EUSE;
}
/* A host's memory has no limit that a backend could set. */
static int host_set_memory(size_t bytes) { return PL_EUSE; }
static const char *host_memory_error(void) { return ""; }

void pl_backend_ref(struct pl_backend *be)
{
    *be = (struct pl_backend){
        .size = sizeof *be,
        .name = "ref",
        .note = "ref: plain C, one thread, sums in double",
        .alloc = host_alloc,
        .free = host_free,
        .put = host_move,
        .get = host_move,
        .sync = host_sync,
        .set_threads = ref_set_threads,
        .set_precision = ref_set_precision,
/* one row of PL_OPERATIONS gives the entry's type, its name, and here ref_NAME */
#define ENTRY(name, type) .name = ref_##name,
        PL_OPERATIONS(ENTRY)
#undef ENTRY
            .set_memory = host_set_memory,
        .memory_error = host_memory_error,
        .many_threads = 1,
    };
}

const char *pl_backend_error(const struct pl_backend *be, int status)
{
    return status == PL_ENOMEM || status == PL_EDEVICE ? be->memory_error() : "";
}
