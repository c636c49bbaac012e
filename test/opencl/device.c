/* device.c - one OpenCL device with one in-order queue: memory, and kernels found by name. */
#define CL_TARGET_OPENCL_VERSION 200
#include "device.h"

#include <CL/cl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GROUP 32 /* work-items per group by default */
#define KERNELS_MAX 96
#define PLATFORMS_MAX 8

static const char *const source[] = {
#include "opencl_kernels.inc"
};

static cl_context context;
static cl_command_queue queue;
static cl_program program;
static void *nothing; /* what a NULL argument points to */
static struct {
    void *p;
    size_t bytes;
} scratch[OCL_SLOTS];
static struct {
    const char *name;
    cl_kernel kernel;
} kernels[KERNELS_MAX];

static int status(cl_int error)
{
    if (error == CL_SUCCESS) return PL_OK;
    return error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES ||
                   error == CL_OUT_OF_HOST_MEMORY
               ? PL_ENOMEM
               : PL_EDEVICE;
}

/* Requires shared virtual memory, doubles, and floats with denormals: results must be bit-exact. */
static int is_able(cl_device_id d)
{
    cl_device_svm_capabilities svm = 0;
    cl_device_fp_config single = 0, twice = 0;
    clGetDeviceInfo(d, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
    clGetDeviceInfo(d, CL_DEVICE_SINGLE_FP_CONFIG, sizeof single, &single, NULL);
    clGetDeviceInfo(d, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof twice, &twice, NULL);
    return (svm & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) && (single & CL_FP_DENORM) && twice;
}

static cl_device_id find_device(char *note, size_t size)
{
    cl_platform_id platform[PLATFORMS_MAX];
    cl_uint platforms = 0, devices;
    cl_device_id d[PLATFORMS_MAX];
    int seen = 0;
    if (clGetPlatformIDs(PLATFORMS_MAX, platform, &platforms) != CL_SUCCESS) platforms = 0;
    for (cl_uint i = 0; i < platforms && i < PLATFORMS_MAX; i++) {
        devices = 0;
        if (clGetDeviceIDs(platform[i], CL_DEVICE_TYPE_ALL, PLATFORMS_MAX, d, &devices) !=
            CL_SUCCESS)
            continue;
        for (cl_uint k = 0; k < devices && k < PLATFORMS_MAX; k++, seen++)
            if (is_able(d[k])) return d[k];
    }
    snprintf(note, size, "%s",
             seen ? "no OpenCL device with shared virtual memory, doubles and denormals"
                  : "no OpenCL device here");
    return NULL;
}

static int build(cl_device_id d, char *note, size_t size)
{
    char log[160] = "";
    cl_int error;
    program = clCreateProgramWithSource(context, (cl_uint)PL_COUNT(source),
                                        (const char **)(uintptr_t)source, NULL, &error);
    if (error == CL_SUCCESS &&
        (error = clBuildProgram(program, 1, &d, "-cl-std=CL2.0", NULL, NULL))) {
        clGetProgramBuildInfo(program, d, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        log[sizeof log - 1] = 0;
    }
    if (error) snprintf(note, size, "OpenCL's compiler: error %d %s", error, log);
    return status(error);
}

int ocl_open(char *note, size_t size)
{
    char name[128] = "";
    cl_device_id d;
    cl_int error;
    if (program) return PL_OK; /* opened before: the library stays loaded */
    if (!(d = find_device(note, size))) return PL_EDEVICE;
    clGetDeviceInfo(d, CL_DEVICE_NAME, sizeof name, name, NULL);
    name[sizeof name - 1] = 0;
    context = clCreateContext(NULL, 1, &d, NULL, NULL, &error);
    if (!error) queue = clCreateCommandQueueWithProperties(context, d, NULL, &error);
    if (error) {
        snprintf(note, size, "%.100s: error %d", name, error);
        return PL_EDEVICE;
    }
    if (build(d, note, size)) return PL_EDEVICE;
    nothing = ocl_alloc(1);
    snprintf(note, size, "opencl: %.120s, float32", name);
    return nothing ? PL_OK : PL_ENOMEM;
}

/* ---- memory ---- */

void *ocl_alloc(size_t bytes)
{
    static const cl_uchar zero;
    void *p = clSVMAlloc(context, CL_MEM_READ_WRITE, bytes ? bytes : 1, 64);
    if (p && clEnqueueSVMMemFill(queue, p, &zero, 1, bytes ? bytes : 1, 0, NULL, NULL)) {
        clSVMFree(context, p);
        p = NULL;
    }
    return p;
}

void ocl_free(void *p)
{
    if (!p) return;
    clFinish(queue); /* a kernel may still use it */
    clSVMFree(context, p);
}

int ocl_put(void *device, const void *host, size_t bytes)
{
    return bytes ? status(clEnqueueSVMMemcpy(queue, CL_TRUE, device, host, bytes, 0, NULL, NULL))
                 : PL_OK;
}

int ocl_get(void *host, const void *device, size_t bytes)
{
    return bytes ? status(clEnqueueSVMMemcpy(queue, CL_TRUE, host, device, bytes, 0, NULL, NULL))
                 : PL_OK;
}

int ocl_copy(float *y, const float *x, size_t n)
{
    return n ? status(clEnqueueSVMMemcpy(queue, CL_FALSE, y, x, n * sizeof *y, 0, NULL, NULL))
             : PL_OK;
}

int ocl_sync(void) { return status(clFinish(queue)); }

void *ocl_scratch(int *rc, enum ocl_slot slot, size_t bytes)
{
    *rc = PL_OK;
    if (scratch[slot].p && bytes <= scratch[slot].bytes) return scratch[slot].p;
    ocl_free(scratch[slot].p);
    scratch[slot].p = ocl_alloc(bytes);
    scratch[slot].bytes = scratch[slot].p ? bytes : 0;
    if (!scratch[slot].p) *rc = PL_ENOMEM;
    return scratch[slot].p;
}

/* ---- kernels ---- */

static cl_kernel find_kernel(const char *name)
{
    cl_int error;
    for (int i = 0; i < KERNELS_MAX; i++) {
        if (!kernels[i].name) {
            kernels[i].kernel = clCreateKernel(program, name, &error);
            if (error) return NULL;
            kernels[i].name = name;
        }
        if (!strcmp(kernels[i].name, name)) return kernels[i].kernel;
    }
    return NULL;
}

static cl_int set(cl_kernel k, cl_uint at, const char *letters, va_list *args)
{
    cl_int error = CL_SUCCESS;
    for (; *letters && !error; letters++, at++) {
        const void *p;
        cl_ulong z;
        float f;
        int i;
        switch (*letters) {
        case 'p':
            p = va_arg(*args, const void *);
            error = clSetKernelArgSVMPointer(k, at, p ? p : nothing);
            break;
        case 'i':
            i = va_arg(*args, int);
            error = clSetKernelArg(k, at, sizeof i, &i);
            break;
        case 'z':
            z = va_arg(*args, size_t);
            error = clSetKernelArg(k, at, sizeof z, &z);
            break;
        case 'f':
            f = (float)va_arg(*args, double);
            error = clSetKernelArg(k, at, sizeof f, &f);
            break;
        case 'v':
            error = clSetKernelArg(k, at, sizeof(cl_float4), va_arg(*args, const float *));
            break;
        case 's':
            error = clSetKernelArg(k, at, sizeof(struct ocl_conv),
                                   va_arg(*args, const struct ocl_conv *));
            break;
        default: error = CL_INVALID_ARG_VALUE;
        }
    }
    return error;
}

int ocl_run(const char *kernel, size_t n, const char *letters, ...)
{
    size_t local = GROUP, global = (n + GROUP - 1) / GROUP * GROUP;
    cl_kernel k = find_kernel(kernel);
    cl_ulong items = n;
    cl_int error;
    va_list args;
    if (!n) return PL_OK;
    if (!k) return PL_EDEVICE;
    va_start(args, letters);
    error = clSetKernelArg(k, 0, sizeof items, &items);
    if (!error) error = set(k, 1, letters, &args);
    va_end(args);
    if (!error) error = clEnqueueNDRangeKernel(queue, k, 1, NULL, &global, &local, 0, NULL, NULL);
    return status(error);
}

int ocl_run_tiles(const char *kernel, int groups_x, int groups_y, int edge, const char *letters,
                  ...)
{
    size_t local[2] = { (size_t)edge, (size_t)edge };
    size_t global[2] = { (size_t)groups_x * (size_t)edge, (size_t)groups_y * (size_t)edge };
    cl_kernel k = find_kernel(kernel);
    cl_int error;
    va_list args;
    if (!k) return PL_EDEVICE;
    va_start(args, letters);
    error = set(k, 0, letters, &args);
    va_end(args);
    if (!error) error = clEnqueueNDRangeKernel(queue, k, 2, NULL, global, local, 0, NULL, NULL);
    return status(error);
}

int ocl_sum_parts(double *sum, const double *part)
{
    double host[OCL_PARTS];
    int rc = ocl_get(host, part, sizeof host);
    *sum = 0;
    for (int i = 0; rc == PL_OK && i < OCL_PARTS; i++) *sum += host[i];
    return rc;
}
