/* bf16_weights.cuh - which memory holds parameters, and their working copy in bfloat16. */
#ifndef PL_CUDA_BF16_WEIGHTS_CUH
#define PL_CUDA_BF16_WEIGHTS_CUH

#include <stddef.h>
#include <stdint.h>

/* From now until it is freed, master (n) holds parameters. */
int cuda_weights(const float *master, size_t n);
/* Every operation that writes to memory which may be parameters' says so before it does. */
void cuda_written(const void *p, size_t bytes);
/* Before p is freed. */
void cuda_weights_forget(const void *p);

/* W's values in bfloat16, as they are now; NULL: W is no parameter, or there is no memory for
 * it. */
const uint16_t *cuda_weights_bf16(int *rc, const float *W);

#endif
