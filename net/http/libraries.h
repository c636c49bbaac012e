/* libraries.h - libcurl and libmicrohttpd, loaded when a page is first fetched or served. Linked
 * in the ordinary way they and the 27 libraries that they bring along take 4 MB of every peer, also
 * of those that never see the web.
 *
 * Sources include this instead of <curl/curl.h> and <microhttpd.h> and call the library's functions
 * by their names; those that are called stand in the lists below, twice. */
#ifndef PL_LIBRARIES_H
#define PL_LIBRARIES_H

#include "../../ref/base.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <microhttpd.h>

/* Before anything else of theirs is called. From any thread, as often as one likes. PL_ENOTFOUND:
 * the sentence names the package. */
int curl_load(struct pl_err *err);
int microhttpd_load(struct pl_err *err);

/* The formatter's layout of X-macros does not come to rest. */
/* clang-format off */
#define CURL_CALLS(X) \
    X(curl_easy_cleanup) X(curl_easy_escape) X(curl_easy_getinfo) X(curl_easy_init) \
    X(curl_easy_perform) X(curl_easy_reset) X(curl_easy_setopt) X(curl_easy_strerror) \
    X(curl_free) X(curl_global_init) X(curl_multi_add_handle) X(curl_multi_cleanup) \
    X(curl_multi_info_read) X(curl_multi_init) X(curl_multi_perform) X(curl_multi_poll) \
    X(curl_multi_remove_handle) X(curl_slist_append) X(curl_slist_free_all) X(curl_url) \
    X(curl_url_cleanup) X(curl_url_get) X(curl_url_set)
#define MICROHTTPD_CALLS(X) \
    X(MHD_add_response_header) X(MHD_create_response_from_buffer) \
    X(MHD_create_response_from_callback) X(MHD_create_response_from_fd64) X(MHD_destroy_response) \
    X(MHD_get_connection_info) X(MHD_get_connection_values) X(MHD_get_daemon_info) \
    X(MHD_lookup_connection_value) X(MHD_queue_response) X(MHD_resume_connection) \
    X(MHD_start_daemon) X(MHD_stop_daemon) X(MHD_suspend_connection)
/* clang-format on */

#define PL_LOADED(name) extern __typeof__(name) *loaded_##name;
CURL_CALLS(PL_LOADED)
MICROHTTPD_CALLS(PL_LOADED)
#undef PL_LOADED

#ifndef PL_LIBRARIES_THEMSELVES
#undef curl_easy_setopt /* macros of curl.h's own */
#undef curl_easy_getinfo
#define curl_easy_cleanup loaded_curl_easy_cleanup
#define curl_easy_escape loaded_curl_easy_escape
#define curl_easy_getinfo loaded_curl_easy_getinfo
#define curl_easy_init loaded_curl_easy_init
#define curl_easy_perform loaded_curl_easy_perform
#define curl_easy_reset loaded_curl_easy_reset
#define curl_easy_setopt loaded_curl_easy_setopt
#define curl_easy_strerror loaded_curl_easy_strerror
#define curl_free loaded_curl_free
#define curl_global_init loaded_curl_global_init
#define curl_multi_add_handle loaded_curl_multi_add_handle
#define curl_multi_cleanup loaded_curl_multi_cleanup
#define curl_multi_info_read loaded_curl_multi_info_read
#define curl_multi_init loaded_curl_multi_init
#define curl_multi_perform loaded_curl_multi_perform
#define curl_multi_poll loaded_curl_multi_poll
#define curl_multi_remove_handle loaded_curl_multi_remove_handle
#define curl_slist_append loaded_curl_slist_append
#define curl_slist_free_all loaded_curl_slist_free_all
#define curl_url loaded_curl_url
#define curl_url_cleanup loaded_curl_url_cleanup
#define curl_url_get loaded_curl_url_get
#define curl_url_set loaded_curl_url_set
#define MHD_add_response_header loaded_MHD_add_response_header
#define MHD_create_response_from_buffer loaded_MHD_create_response_from_buffer
#define MHD_create_response_from_callback loaded_MHD_create_response_from_callback
#define MHD_create_response_from_fd64 loaded_MHD_create_response_from_fd64
#define MHD_destroy_response loaded_MHD_destroy_response
#define MHD_get_connection_info loaded_MHD_get_connection_info
#define MHD_get_connection_values loaded_MHD_get_connection_values
#define MHD_get_daemon_info loaded_MHD_get_daemon_info
#define MHD_lookup_connection_value loaded_MHD_lookup_connection_value
#define MHD_queue_response loaded_MHD_queue_response
#define MHD_resume_connection loaded_MHD_resume_connection
#define MHD_start_daemon loaded_MHD_start_daemon
#define MHD_stop_daemon loaded_MHD_stop_daemon
#define MHD_suspend_connection loaded_MHD_suspend_connection
#endif

#endif
