/* feed_client.h - records as a poll finds them, and the feeds that the page makes of them. */
#ifndef PL_TEST_FEED_CLIENT_H
#define PL_TEST_FEED_CLIENT_H

#include "net/http/dashboard/dashboard.h"
#include "test/unit/http/http_client.h"

static inline struct dashboard_metrics metrics(const char *key, int64_t step, double rate,
                                               int64_t samples, double loss, int64_t mini_steps)
{
    struct dashboard_metrics m = { .record = { step, rate, samples, loss, mini_steps },
                                   .expiration = 1000 + METRICS_LIFE };
    snprintf(m.key, sizeof m.key, "%s", key);
    return m;
}

static inline struct dashboard_progress progress(const char *key, int64_t epoch, int64_t samples,
                                                 double rate, int client)
{
    struct dashboard_progress p = { .record = { .peer = { 2, { (uint8_t)key[0], (uint8_t)key[1] } },
                                                .epoch = epoch,
                                                .samples = samples,
                                                .time = 1000,
                                                .samples_per_second = rate,
                                                .client_mode = client } };
    snprintf(p.key, sizeof p.key, "%s", key);
    return p;
}

static inline double real(const char *json, const char *path)
{
    json_t *root = json_loads(json, 0, NULL), *v = json_object_get(root, path);
    double x = json_is_number(v) ? json_number_value(v) : -1;
    json_decref(root);
    return x;
}

static inline char *feed(int port, const char *path)
{
    char *answer = ask(port, "GET", path), *body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    body = strdup(body + 4);
    free(answer);
    return body;
}

#endif
