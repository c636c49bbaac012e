/* device.cuh - what the files around the table share beside launch.cuh: the table's memory
 * operations, copies, devices. */
#ifndef PL_CUDA_DEVICE_CUH
#define PL_CUDA_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#define CUDA_DEVICES_MAX 16 /* twice the largest machine of the usual kind */

/* Takes the first device; `note` says which, or why there is none (PL_EDEVICE). */
int cuda_open(char *note, size_t size);

int cuda_device_count(void);
int cuda_set_devices(const int *numbers, int count);
int cuda_use_device(int index);
void cuda_lock(int on);        /* of the thread's device, as often as wanted */
int cuda_number(void);         /* CUDA's, of the thread's device */
int cuda_number_of(int index); /* the same of the list's */

void *cuda_alloc(size_t bytes);
void *cuda_alloc_uncounted(
    size_t bytes); /* the same, but not zeroed: it comes with no stream's work */
void cuda_free(void *p);
int cuda_set_memory(size_t bytes);
const char *cuda_memory_error(void);
int cuda_failed(const char *why);       /* PL_EDEVICE, and its reason for cuda_memory_trouble */
void cuda_no_host_memory(size_t bytes); /* words for cuda_memory_trouble */
size_t cuda_memory_most(void);
int cuda_sync(void);
int cuda_has_bf16(void); /* the matrix units of every device in the list */

int cuda_copies_open(void); /* of the thread's device, as often as wanted */
void *cuda_host_alloc(size_t bytes);
void cuda_host_free(void *p);
int cuda_download_begin(uint64_t *ticket, void *host, const void *device, size_t bytes);
int cuda_upload_begin(uint64_t *ticket, void *device, const void *host, size_t bytes);
int cuda_copy_end(uint64_t ticket);
int cuda_copy_join(void);
void cuda_reach(
    int other); /* CUDA's number: copies from there to the thread's device go straight */
int cuda_peer_copy(float *y, const float *x, int index, size_t n, int add);

/* Creates what linear.cu needs of cuBLAS on the thread's device, once. */
int cuda_linear_open(void);
void cuda_set_bf16(int on);

#endif
