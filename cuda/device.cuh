/* device.cuh - what backend.cu takes from device.cu beside launch.cuh: the table's memory
 * operations. */
#ifndef PL_CUDA_DEVICE_CUH
#define PL_CUDA_DEVICE_CUH

#include <stddef.h>

/* Takes the first device; `note` says which, or why there is none (PL_EDEVICE). */
int cuda_open(char *note, size_t size);

void *cuda_alloc(size_t bytes);
void cuda_free(void *p);
int cuda_set_memory(size_t bytes);
const char *cuda_memory_trouble(void);
int cuda_sync(void);

/* Creates what linear.cu needs of cuBLAS. */
int cuda_linear_open(void);
void cuda_set_bf16(int on);

#endif
