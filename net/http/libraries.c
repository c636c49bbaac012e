/* libraries.c - loads libcurl and libmicrohttpd by dlopen, at their first use.
 *
 * Linked in the ordinary way, they and the 27 libraries behind them cost every peer 4 MB of
 * memory, though most never open a page. */
#include "libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct curl curl;
struct MHD MHD;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int has_curl, has_microhttpd;

/* Pointers to functions and to data have one size wherever there is dlsym. */
#define FIND(of, name) ((*(void **)&of.name = dlsym(library, #of "_" #name)) == NULL) |
#define FIND_CURL(name) FIND(curl, name)
#define FIND_MHD(name) FIND(MHD, name)

static int missing(const char *package, struct pl_err *err)
{
    const char *why = dlerror();
    return pl_fail(err, PL_ENOTFOUND, "%s is missing (apt-get install %s): %.200s", package,
                   package, why ? why : "it lacks a function");
}

int curl_load(struct pl_err *err)
{
    int rc = PL_OK;
    pthread_mutex_lock(&lock);
    /* All functions or none: a missing one fails here, not in the middle of a download. */
    if (!has_curl) {
        void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
        if (!library || (CURL_CALLS(FIND_CURL) 0) || curl.global_init(CURL_GLOBAL_DEFAULT))
            rc = missing("libcurl4", err);
        else has_curl = 1;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int microhttpd_load(struct pl_err *err)
{
    int rc = PL_OK;
    pthread_mutex_lock(&lock);
    if (!has_microhttpd) {
        void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
        if (!library || (MICROHTTPD_CALLS(FIND_MHD) 0)) rc = missing("libmicrohttpd12", err);
        else has_microhttpd = 1;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
