/* common.cl - what the other files of kernels share; they are compiled as one program, this one first.
 *
 * A kernel's first argument is how many work-items have something to do; the rest of the last
 * work-group goes home at once. Sums run in double: the devices that this is meant for have it. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF /* a fused multiply-add stands where fma is written, nowhere else */

#define EACH(i, n) \
    ulong i = get_global_id(0); \
    if (i >= n) return

/* Rounded as IEEE 754 asks. OpenCL allows 2.5 ulp for float's own; through double, with more than
 * twice the digits, the second rounding does no harm. */
float divided(float a, float b) { return (float)((double)a / (double)b); }
float root(float x) { return (float)sqrt((double)x); }
