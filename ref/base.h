/* base.h - shared by every folder: status codes, error messages, checked sizes, allocation. Needs
 * libc only. */
#ifndef PL_BASE_H
#define PL_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_VERSION "0.1.0"

/* Status: 0 is success, negative values name the kind of error. Programming errors are assertions,
 * never a status. */
enum {
    PL_OK = 0,
    PL_ENOMEM = -1,  /* the machine has no memory left */
    PL_EDEVICE = -2, /* the accelerator is missing or failed */
    PL_EIO = -3,     /* the operating system refused: file, socket */
    PL_EFORMAT = -4, /* bytes from outside break their format */
    PL_ELIMIT = -5,  /* bytes from outside exceed a named limit */
    PL_EPROTO = -6,  /* a message that no honest peer sends now */
    PL_EUSE = -7,    /* an option or argument from the user makes no sense */
    PL_EAGAIN = -8,  /* not finished: call again with more bytes or later */
    PL_ENOTFOUND = -9
};

/* The one sentence a user reads: names the file or peer, the place, and what was expected. Callers
 * that do not need it may pass NULL. */
struct pl_err {
    char text[512];
};

/* Fills err (if any) and returns the status, so that refusing is one statement. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int pl_fail(struct pl_err *err, int status, const char *format, ...);

/* A few words for a status, for callers without a sentence. Never NULL. */
const char *pl_status_name(int status);

/* n * size if it fits into size_t and is at most PTRDIFF_MAX; otherwise returns PL_ELIMIT. */
int pl_size_mul(size_t *out, size_t n, size_t size);

/* Zeroed, 64-byte aligned memory for n elements of `size` bytes (n may be 0). NULL: no memory, or
 * the product overflows. Release with pl_free. */
void *pl_alloc(size_t n, size_t size);
/* The same, uninitialized, for callers that write all of it. */
void *pl_alloc_unset(size_t n, size_t size);
void pl_free(void *p);

/* Joins two path parts; NULL only without memory. The caller frees with free(). */
char *pl_path_join(const char *dir, const char *name);

/* Monotonic seconds, for rates and progress, never for protocol time. */
double pl_seconds(void);

#define PL_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#ifdef __cplusplus
}
#endif
#endif
