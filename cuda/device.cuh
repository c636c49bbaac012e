/* device.cuh - memory operations, copies and devices: what the files that fill the backend's table
 * share. */
#ifndef PL_CUDA_DEVICE_CUH
#define PL_CUDA_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#define CUDA_DEVICES_MAX 16 /* twice the largest common machine */

/* Opens the first device; `note` says which, or why there is none (PL_EDEVICE). */
int cuda_open(char *note, size_t size);

int cuda_device_count(void);
int cuda_set_devices(const int *numbers, int count);
int cuda_use_device(int index);
void cuda_lock(int on);        /* of the thread's device; recursive */
int cuda_number(void);         /* CUDA's number of the thread's device */
int cuda_number_of(int index); /* CUDA's number of a device in the list */

void *cuda_alloc(size_t bytes);
void *cuda_alloc_uncounted(
    size_t bytes); /* the same, not zeroed: zeroing would wait for the stream */
void cuda_free(void *p);
void cuda_on_free(void (*forget)(const void *p)); /* called first, once the device is locked */
int cuda_set_memory(size_t bytes);
const char *cuda_memory_error(void);
int cuda_failed(const char *why);       /* PL_EDEVICE, with a reason for cuda_memory_error */
void cuda_no_host_memory(size_t bytes); /* text for cuda_memory_error */
size_t cuda_memory_most(void);
int cuda_sync(void);
int cuda_has_bf16(void); /* whether every device in the list has tensor cores for bfloat16 */

int cuda_copies_open(void); /* of the thread's device; may be called again */
void *cuda_host_alloc(size_t bytes);
void cuda_host_free(void *p);
int cuda_download_begin(uint64_t *ticket, void *host, const void *device, size_t bytes);
int cuda_upload_begin(uint64_t *ticket, void *device, const void *host, size_t bytes);
int cuda_copy_end(uint64_t ticket);
int cuda_copy_join(void);
void cuda_reach(
    int other); /* CUDA's number; enables peer access from there to the thread's device */
int cuda_peer_copy(float *y, const float *x, int index, size_t n, int add);

/* Creates the thread's device's cuBLAS handle, once. */
int cuda_linear_open(void);
void cuda_set_bf16(int on);

#endif
