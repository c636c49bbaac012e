/* http_address.h - addresses for tests of limits that count by network. */
#ifndef PL_TEST_HTTP_ADDRESS_H
#define PL_TEST_HTTP_ADDRESS_H

#include "net/http/server/slots.h"
#include "test/unit/unit.h"

#include <arpa/inet.h>

/* The address that an IPv4 or IPv6 text names. */
static inline struct http_address at(const char *text)
{
    struct sockaddr_in four = { .sin_family = AF_INET };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
    struct http_address a;
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        http_address_of(&a, (struct sockaddr *)&four);
    else {
        assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
        http_address_of(&a, (struct sockaddr *)&six);
    }
    return a;
}

#endif
