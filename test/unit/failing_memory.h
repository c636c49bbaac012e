/* failing_memory.h - one allocation of a test program fails. The linker redirects our allocations to the __wrap_ functions
 * below (LDWRAP in test.mk); those of other libraries are theirs. Included by one file of each test program. */
#ifndef PL_TEST_FAILING_MEMORY_H
#define PL_TEST_FAILING_MEMORY_H

#include <stdlib.h>

static long fail_at = -1, calls; /* the call, counted from 0, that fails; -1: none */

static int fails(void) { return __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) == fail_at; }

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t a, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(a, n);
}
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

#endif
