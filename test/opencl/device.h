/* device.h - an OpenCL device with shared virtual memory: memory, scratch, and how a kernel is
 * started.
 *
 * Shared virtual memory (OpenCL 2.0, the coarse kind, which every such device has) gives pointers
 * that both sides can do arithmetic with, which the table's contract takes for granted; a plain
 * cl_mem is a handle, and `x + offset` would lead nowhere. */
#ifndef OCL_DEVICE_H
#define OCL_DEVICE_H

#include "ref/backend.h"

/* Takes the first device that can do it; note says which, or why there is none (PL_EDEVICE). */
int ocl_open(char *note, size_t size);

void *ocl_alloc(size_t bytes);
void ocl_free(void *p);
int ocl_put(void *device, const void *host, size_t bytes);
int ocl_get(void *host, const void *device, size_t bytes);
int ocl_sync(void);

/* Device memory for the length of one call, kept from call to call. Who calls another file's
 * operation holds another slot than that one. NULL with *rc filled. */
enum ocl_slot { OCL_SUMS, OCL_LAYER, OCL_BOOKS, OCL_SLOTS };
void *ocl_scratch(int *rc, enum ocl_slot slot, size_t bytes);

/* Starts a kernel with n work-items, its first argument. A letter for each of the others:
 *   p  pointer to device memory; NULL becomes some valid one, for a flag beside it to say so
 *   i  int    z  size_t    f  double, for a float    v  const float[4]    s  struct ocl_conv * */
int ocl_run(const char *kernel, size_t n, const char *letters, ...);
/* The same in two dimensions: groups of edge x edge, and no first argument. */
int ocl_run_tiles(const char *kernel, int groups_x, int groups_y, int edge, const char *letters,
                  ...);

/* What images.cl calls struct conv. */
struct ocl_conv {
    int C, H, W, O, K, stride, top, left, H_out, W_out;
};

/* As many work-items where one result comes of all elements: each leaves its part. */
#define OCL_PARTS 256
/* The sum of OCL_PARTS doubles that lie in device memory. */
int ocl_sum_parts(double *sum, const double *part);

/* Every operation that works on the table's memory. */
#define DECLARE(name, type) type ocl_##name;
PL_OPERATIONS(DECLARE)
#undef DECLARE

#endif
