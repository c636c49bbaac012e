/* client_request.h - one request of the client (client.h), and its response so far. */
#ifndef PL_HTTP_CLIENT_REQUEST_H
#define PL_HTTP_CLIENT_REQUEST_H

#include "client_options.h"
#include "net/http/libraries.h"

/* One request under way. */
struct request {
    CURL *easy;
    CURLM *multi;                              /* the client's; borrowed, */
    const struct http_client_options *options; /* and these */
    struct http_part *part;                    /* NULL: idle */
    struct attempt *attempt;
    const struct http_file *file;
    char url[HTTP_URL_MAX]; /* the file's, or where a redirect has led */
    int redirects;          /* so far */
    size_t skipped;         /* bytes of a redirect's body */
    long status;            /* of the answer at hand */
    uint64_t first, total;  /* its Content-Range */
    size_t had;             /* bytes of the part when it began */
    double heard, silence;  /* when something came last; the longest wait for something, s */
    double retry_after;     /* s, as the server requests; 0: it says nothing */
    int has_range, bad;     /* bad: the sentence is in why, */
    int fatal;              /* and no other try mends it */
    char tag[HTTP_TAG_MAX], why[200], library[CURL_ERROR_SIZE];
};

/* How a part fares. */
struct attempt {
    int bare;     /* tries in a row without a byte */
    double wait;  /* before the next one, s */
    double after; /* not before this time */
    int is_active;
};

/* Requests the part's missing bytes from r->url. */
void request_send(struct request *r);
/* 1: the answer was a redirect, and its target has been asked. */
int request_follow(struct request *r, CURLcode code);
/* 1: another try may succeed: the network's troubles, a busy server. */
int request_is_passing(const struct request *r, CURLcode code);

#endif
