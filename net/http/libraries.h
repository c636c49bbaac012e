/* libraries.h - libcurl and libmicrohttpd, loaded when a page is first fetched or served. Linked
 * in the ordinary way they and the 27 libraries that they bring along take 4 MB of every peer, also
 * of those that never see the web.
 *
 * Sources include this instead of <curl/curl.h> and <microhttpd.h> and call the library's functions
 * as members of `curl` and `MHD`: curl.easy_init(). The lists below name those that are called. */
#ifndef PL_LIBRARIES_H
#define PL_LIBRARIES_H

#include "../../ref/base.h"

#include <curl/curl.h>
#include <microhttpd.h>

/* Before anything else of theirs is called. From any thread, as often as one likes. PL_ENOTFOUND:
 * the sentence names the package. */
int curl_load(struct pl_err *err);
int microhttpd_load(struct pl_err *err);

/* The formatter's layout of X-macros does not come to rest. */
/* clang-format off */
#define CURL_CALLS(X) \
    X(easy_cleanup) X(easy_escape) X(easy_getinfo) X(easy_init) X(easy_perform) X(easy_reset) \
    X(easy_setopt) X(easy_strerror) X(free) X(global_init) X(multi_add_handle) X(multi_cleanup) \
    X(multi_info_read) X(multi_init) X(multi_perform) X(multi_poll) X(multi_remove_handle) \
    X(slist_append) X(slist_free_all) X(url) X(url_cleanup) X(url_get) X(url_set)
#define MICROHTTPD_CALLS(X) \
    X(add_response_header) X(create_response_from_buffer) X(create_response_from_callback) \
    X(create_response_from_fd64) X(destroy_response) X(get_connection_info) \
    X(get_connection_values) X(get_daemon_info) X(lookup_connection_value) X(queue_response) \
    X(resume_connection) X(start_daemon) X(stop_daemon) X(suspend_connection)
/* clang-format on */

#define PL_CURL_CALL(name) __typeof__(curl_##name) *name;
#define PL_MHD_CALL(name) __typeof__(MHD_##name) *name;
extern struct curl {
    CURL_CALLS(PL_CURL_CALL)
} curl;
extern struct MHD {
    MICROHTTPD_CALLS(PL_MHD_CALL)
} MHD;

#endif
