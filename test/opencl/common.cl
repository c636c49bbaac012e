/* common.cl - what the other kernel files share. All are compiled as one program, this file first.
 *
 * A kernel's first argument is the number of work-items that have work; the rest of the last
 * work-group returns at once. Sums are in double, which the supported devices have. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF /* multiply-adds are fused only where fma is written */

#define EACH(i, n) \
    ulong i = get_global_id(0); \
    if (i >= n) return

/* Division rounded as IEEE 754 requires. OpenCL allows an error of 2.5 ulp for floats; a quotient
 * in double has more than twice the digits, so rounding it again does no harm. */
float divided(float a, float b) { return (float)((double)a / (double)b); }
float root(float x) { return (float)sqrt((double)x); }
