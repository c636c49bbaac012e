/* sigv4.h - Amazon's Signature Version 4: authenticates the sender and the content of a request.
 * [Amazon S3 API, "Authenticating Requests: Using the Authorization Header"] */
#ifndef PL_HTTP_SIGV4_H
#define PL_HTTP_SIGV4_H

#include "ref/base.h"

#define SIGV4_HEADER_MAX 1024

struct sigv4 {
    const char *key_id, *secret, *region, *service;
    const char *when; /* "20130524T000000Z", also in a header of the request */
};

struct sigv4_request {
    const char *method;
    const char *path,
        *query; /* as they stand in the address, percent-encoded; the query's pairs sorted,
                                 * each with its "=", "" without one */
    const char *const *headers; /* "name:value" in lower case, sorted by name, NULL at the end */
    const char *sha256;         /* of the body, hexadecimal, or "UNSIGNED-PAYLOAD" */
};

/* out receives the value of "Authorization". PL_OK, PL_ELIMIT or PL_ENOMEM. */
int sigv4_authorization(char out[SIGV4_HEADER_MAX], const struct sigv4 *key,
                        const struct sigv4_request *request);

#endif
