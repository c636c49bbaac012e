/* memory.c - malloc of the code under test: counted by computer, and failing if the seed says so.
 * OpenSSL's and jansson's memory counts, too, but never fails: how they react is not our subject. */
#include "memory.h"
#include "threads.h"

#include <jansson.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <string.h>

static void count(const void *p, int sign)
{
    struct sim_peer *peer = sim_peer_here();
    size_t n;
    if (!peer || !p) return;
    n = malloc_usable_size((void *)(uintptr_t)p);
    /* Memory that was allocated before the computer began and is freed by it would count twice. */
    peer->bytes = sign > 0 ? peer->bytes + n : peer->bytes > n ? peer->bytes - n : 0;
    if (peer->bytes > peer->bytes_peak) peer->bytes_peak = peer->bytes;
}

static int fails(void)
{
    struct sim_peer *p = sim_peer_here();
    if (!p || p->malloc_failure <= 0 || !sim_random_happens(&sim_order, p->malloc_failure))
        return 0;
    p->malloc_failures++;
    return 1;
}

/* --- the code under test (ld's --wrap) -------------------------------------------------------- */

char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);

void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
    void *p = fails() ? NULL : __real_malloc(n);
    count(p, 1);
    return p;
}

void *__wrap_calloc(size_t items, size_t n);
void *__wrap_calloc(size_t items, size_t n)
{
    void *p = fails() ? NULL : __real_calloc(items, n);
    count(p, 1);
    return p;
}

void *__wrap_realloc(void *old, size_t n);
void *__wrap_realloc(void *old, size_t n)
{
    void *p;
    if (fails()) return NULL;
    count(old, -1);
    p = __real_realloc(old, n);
    count(p ? p : old, 1);
    return p;
}

void *__wrap_aligned_alloc(size_t alignment, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    void *p = fails() ? NULL : __real_aligned_alloc(alignment, n);
    count(p, 1);
    return p;
}

char *__wrap_strdup(const char *s);
char *__wrap_strdup(const char *s)
{
    char *p = fails() ? NULL : __real_strdup(s);
    count(p, 1);
    return p;
}

char *__wrap_strndup(const char *s, size_t n);
char *__wrap_strndup(const char *s, size_t n)
{
    char *p = fails() ? NULL : __real_strndup(s, n);
    count(p, 1);
    return p;
}

void __wrap_free(void *p);
void __wrap_free(void *p)
{
    count(p, -1);
    __real_free(p);
}

/* --- libraries -------------------------------------------------------------------------------- */

static void *counted_malloc(size_t n)
{
    void *p = __real_malloc(n);
    count(p, 1);
    return p;
}

static void *openssl_malloc(size_t n, const char *file, int line)
{
    (void)file, (void)line;
    return n ? counted_malloc(n) : NULL;
}

static void *openssl_realloc(void *old, size_t n, const char *file, int line)
{
    void *p;
    (void)file, (void)line;
    count(old, -1);
    if (!n) {
        __real_free(old);
        return NULL;
    }
    p = __real_realloc(old, n);
    count(p ? p : old, 1);
    return p;
}

static void openssl_free(void *p, const char *file, int line)
{
    (void)file, (void)line;
    __wrap_free(p);
}

void sim_memory_install(void)
{
    /* Memory that was returned to the kernel would be asked for again at once. */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 16 << 20);
    CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free);
    json_set_alloc_funcs(counted_malloc, __wrap_free);
    json_object_seed(1); /* else it asks the system for one */
}
