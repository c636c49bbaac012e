/* device.h - an OpenCL device with shared virtual memory: memory, scratch, and kernel launches.
 *
 * Coarse-grained shared virtual memory (OpenCL 2.0) gives pointers that host and device can do
 * arithmetic with, which the backend's contract requires; a cl_mem is a handle, and `x + offset`
 * would mean nothing. */
#ifndef OCL_DEVICE_H
#define OCL_DEVICE_H

#include "ref/backend.h"

/* Opens the first suitable device; note says which, or why there is none (PL_EDEVICE). */
int ocl_open(char *note, size_t size);

void *ocl_alloc(size_t bytes);
void ocl_free(void *p);
int ocl_put(void *device, const void *host, size_t bytes);
int ocl_get(void *host, const void *device, size_t bytes);
int ocl_sync(void);

/* Device memory for the duration of one call, cached. A function that calls another file's
 * operation uses another slot than that file. NULL with *rc set. */
enum ocl_slot { OCL_SUMS, OCL_LAYER, OCL_BOOKS, OCL_SLOTS };
void *ocl_scratch(int *rc, enum ocl_slot slot, size_t bytes);

/* Starts a kernel with n work-items, its first argument. `letters` has one letter for each of the
 * others:
 *   p  pointer to device memory; NULL becomes a valid pointer, and a flag argument says so
 *   i  int    z  size_t    f  double, for a float    v  const float[4]    s  struct ocl_conv * */
int ocl_run(const char *kernel, size_t n, const char *letters, ...);
/* The same in two dimensions: groups of edge x edge, no first argument. */
int ocl_run_tiles(const char *kernel, int groups_x, int groups_y, int edge, const char *letters,
                  ...);

/* struct conv of images.cl. */
struct ocl_conv {
    int C, H, W, O, K, stride, top, left, H_out, W_out;
};

/* Work-items of a reduction: each leaves a partial sum. */
#define OCL_PARTS 256
/* The sum of OCL_PARTS doubles in device memory. */
int ocl_sum_parts(double *sum, const double *part);

/* Every operation on device memory. */
#define DECLARE(name, type) type ocl_##name;
PL_OPERATIONS(DECLARE)
#undef DECLARE

#endif
