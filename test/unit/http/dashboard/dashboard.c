/* dashboard.c - the feeds of a run's page. The tests set the time; the network is the loopback. */
#include "net/http/dashboard/dashboard.h"
#include "net/http/dashboard/feeds.h"
#include "net/http/dashboard/run_folder.h"
#include "data/files/file.h"
#include "test/unit/http/feed_client.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the dashboard ----------------------------------------------------------------------- */

static void is_in(const char *folder, const char *name, const char *words)
{
    char *path = pl_path_join(folder, name), *text;
    assert_int_equal(pl_file_read_text(&text, path, 1 << 20, NULL), PL_OK);
    assert_non_null(strstr(text, words));
    free(text);
    free(path);
}

/* A training on the page's own machine signs nothing. It does not count as a silent peer, and its
 * own pace gives the time that is left. */
static void a_training_here_has_an_end(void **state)
{
    struct dashboard_metrics m = metrics(DASHBOARD_THIS, 40, 8, 16, 2, 1);
    struct dashboard_snapshot snapshot = {
        .time = 1000, .metrics = &m, .metrics_count = 1, .step_s = 2
    };
    struct dashboard_options o = { .run = "alone", .total_steps = 100 };
    struct http_server *s;
    struct dashboard *d;
    char *text;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    text = feed(http_server_port(s), "/api/state.json");
    assert_true(real(text, "schedule_eta") == 120); /* 60 steps of 2 s */
    free(text);
    text = feed(http_server_port(s), "/api/peers.json");
    assert_non_null(strstr(text, "\"state\":\"local\""));
    free(text);
    dashboard_close(d);
    http_server_close(s);
}

static void feeds_say_what_was_seen(void **state)
{
    struct dashboard_metrics m[] = { metrics("aa", 7, 2, 100, 60, 20),
                                     metrics("bb", 7, 1, 50, 20, 20) };
    struct dashboard_progress p[] = { progress("aa", 7, 300, 3, 0), progress("cc", 7, 100, 1, 1) };
    struct dashboard_snapshot snapshot = {
        .time = 1000, .metrics = m, .metrics_count = 2, .progress = p, .progress_count = 2
    };
    struct distance far = { .peer = p[0].record.peer, .rtt_s = 0.25 };
    struct dashboard_options o = { .run = "it's \"our\" <b>run</b>",
                                   .target_batch = 800,
                                   .total_steps = 107 };
    char folder[] = "/tmp/potluck-page-XXXXXX", command[100], *text;
    struct http_server *s;
    struct dashboard *d;
    json_t *list, *used;
    struct resources peer;
    void *data;
    size_t n;
    int port;
    resources_init(&peer, 4096);
    peer.limited = 3;
    peer.system.used[RESOURCE_RECORDS] = 1234;
    snapshot.resources = &peer;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    port = http_server_port(s);
    snapshot.distance = &far;
    snapshot.distance_count = 1;
    assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    text = feed(port, "/api/state.json");
    assert_true(real(text, "loss") == 2); /* (60 + 20) / (20 + 20) */
    assert_true(real(text, "step") == 7);
    assert_true(real(text, "samples") == 400);
    assert_true(real(text, "samples_per_second") == 4);
    assert_true(real(text, "peers") == 2);
    assert_true(real(text, "clients") == 1);
    assert_true(fabs(real(text, "eta") - 100) < 1e-6); /* 400 at 4 a second */
    assert_true(real(text, "schedule_eta") == 20000);
    list = json_loads(text, 0, NULL);
    used = json_object_get(list, "resources");
    assert_int_equal(json_integer_value(json_object_get(used, "limited")), 3);
    assert_int_equal(json_integer_value(
                         json_object_get(json_object_get(used, "system"), "record_bytes")),
                     1234);
    used = json_object_get(json_object_get(used, "limits"), "peer");
    assert_int_equal(json_integer_value(json_object_get(used, "connections")), 8);
    json_decref(list);
    free(text);
    text = feed(port, "/api/peers.json");
    list = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(list), 3); /* both kinds of records met by key */
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "key")), "aa");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "state")),
                        "reachable");
    assert_true(json_real_value(json_object_get(json_array_get(list, 0), "round_trip_ms")) == 250);
    assert_true(json_is_true(json_object_get(json_array_get(list, 0), "answers")));
    assert_true(json_is_null(json_object_get(json_array_get(list, 2), "round_trip_ms")));
    json_decref(list);
    free(text);
    text = feed(port, "/api/board.json");
    list = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(list), 2); /* the peers that signed for samples */
    assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "samples")), 100);
    json_decref(list);
    free(text);
    answers(port, "GET", "/metrics", "potluck_loss{run=\"it's \\\"our\\\" <b>run</b>\"} 2\n");
    answers(port, "GET", "/metrics", "potluck_samples{");
    answers(port, "GET", "/", "<h1>Training transformers together</h1>");
    answers(port, "GET", "/data.js", "\"live\":true");
    snapshot.time = 1030;
    m[0].record.step = 8;
    assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    text = feed(port, "/api/history.json");
    assert_non_null(strstr(text, "\"loss\":[2.0,2.0]"));
    free(text);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(dashboard_export(d, folder, NULL), PL_OK);
    text = pl_path_join(folder, "data.js");
    assert_int_equal(pl_file_read(&data, &n, text, 1 << 20, NULL), PL_OK);
    assert_non_null(strstr(data, "\"live\":false"));
    assert_non_null(strstr(data, "\"history\":{"));
    free(data);
    free(text);
    is_in(folder, "api/history.json",
          "\"loss\":[2.0,2.0]"); /* drawn anew for the copy, not what was freed */
    is_in(folder, "api/board.json", "\"samples\":200");
    is_in(folder, "api/state.json", "\"step\":8");
    is_in(folder, "api/peers.json", "\"reachable\"");
    is_in(folder, "api/files.json", "\"checkpoints\":[]");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    dashboard_close(d);
    http_server_close(s);
}

/* Signed values may be nonsense. */
static void wild_claims_stay_numbers(void **state)
{
    struct dashboard_metrics m[] = {
        metrics("aa", INT64_MAX, INFINITY, INT64_MAX, NAN, INT64_MAX),
        metrics("bb", 3, 1e300, INT64_MAX, INFINITY, INT64_MAX),
        metrics("cc", 3, 1, 10, 30, 10),
    };
    struct dashboard_progress p[] = { progress("aa", INT64_MAX, INT64_MAX, INFINITY, 0),
                                      progress("bb", 3, INT64_MAX, NAN, 0) };
    struct dashboard_snapshot snapshot = { .time = 1000,
                                           .metrics = m,
                                           .metrics_count = 3,
                                           .progress = p,
                                           .progress_count = 2,
                                           .problem = "a problem" };
    struct dashboard_options o = { .run = "r", .target_batch = 100 };
    struct http_server *s;
    struct dashboard *d;
    json_t *peers;
    char *text;
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    for (int i = 0; i < 3; i++) {
        snapshot.time += 20;
        assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    }
    text = feed(http_server_port(s), "/api/state.json");
    assert_true(real(text, "loss") == 3); /* the sane one's */
    assert_true(real(text, "samples_per_second") >= 0);
    assert_non_null(strstr(text, "a problem"));
    free(text);
    text = feed(http_server_port(s), "/api/peers.json");
    peers = json_loads(text, 0, NULL); /* NaN would not parse */
    assert_int_equal(json_array_size(peers), 3);
    json_decref(peers);
    free(text);
    dashboard_close(d);
    http_server_close(s);
}

static void a_large_swarm(void **state)
{
    enum { PEERS = 10000 };
    struct dashboard_metrics *m = calloc(PEERS, sizeof *m);
    struct dashboard_progress *p = calloc(PEERS, sizeof *p);
    struct dashboard_snapshot snapshot = {
        .time = 1000, .metrics = m, .metrics_count = PEERS, .progress = p, .progress_count = PEERS
    };
    struct dashboard_options o = { .run = "r", .target_batch = 1e6 };
    struct http_server *s;
    struct dashboard *d;
    char *text;
    for (int i = 0; i < PEERS; i++) {
        char key[20];
        snprintf(key, sizeof key, "%08x", (unsigned)i * 2654435761u);
        m[i] = metrics(key, 3, 1, i, 2, 1);
        p[i] = progress(key, 3, i, 1, i % 2);
    }
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    assert_int_equal(dashboard_update(d, &snapshot, NULL), PL_OK);
    text = feed(http_server_port(s), "/api/state.json");
    assert_true(real(text, "peers") == PEERS && real(text, "clients") == PEERS / 2);
    free(text);
    text = feed(http_server_port(s), "/api/peers.json");
    assert_true(strlen(text) < DASHBOARD_ROWS * 400); /* the fastest; counts are of all */
    free(text);
    dashboard_close(d);
    http_server_close(s);
    free(m);
    free(p);
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char *path = pl_path_join(folder, name);
    assert_int_equal(pl_file_write(path, text, strlen(text), NULL), PL_OK);
    free(path);
}

static void folder_is_shown(void **state)
{
    char folder[] = "/tmp/potluck-run-XXXXXX", command[160];
    struct dashboard_options o = { .run = "r" };
    struct run_folder f, none = { .samples = 0 }, later;
    struct http_server *s;
    struct dashboard *d;
    struct pl_err err;
    int port;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "mkdir -p %s/samples/000007 %s/samples/000009 %s/samples/x",
             folder, folder, folder);
    assert_int_equal(system(command), 0);
    put_file(folder, "samples/000007/sheet.png", "a picture");
    put_file(folder, "samples/000007/pictures.json",
             "{\"pictures\": [{\"caption\": \"an <i>apple\"}, {\"caption\": \"an <i>apple\"}, {}, "
             "{\"caption\": \"a cat\"}]}");
    put_file(folder, "samples/000007/nearest.json", "{\"own\": 3, \"of\": 4, \"among\": 99}");
    put_file(folder, "checkpoint-000003.safetensors", "three");
    put_file(folder, "checkpoint-000010.safetensors", "ten");
    put_file(folder, "checkpoint-000001.safetensors", "one");
    put_file(folder, "checkpoint-000002.safetensors", "two");
    put_file(folder, "checkpoint-99999999999999999999.safetensors", "too far");
    put_file(folder, "checkpoint-5.safetensors.part", "half");
    assert_int_equal(run_folder_read(&f, folder, NULL), PL_OK);
    assert_int_equal(f.checkpoints, 3);
    assert_int_equal(f.checkpoint_step[0], 10);
    assert_int_equal(f.checkpoint_step[2], 2);
    assert_int_equal(f.samples, 1); /* 9 is still being drawn */
    assert_int_equal(http_server_open(&s, NULL, 0, NULL), PL_OK);
    assert_int_equal(dashboard_open(&d, s, &o, NULL), PL_OK);
    port = http_server_port(s);
    assert_int_equal(run_folder_publish(&f, &none, folder, s, d, NULL), PL_OK);
    answers(port, "GET", "/checkpoints/checkpoint-000010.safetensors", "\r\n\r\nten");
    answers(port, "GET", "/checkpoints/checkpoint-000010.safetensors", "attachment; filename=");
    answers(port, "GET", "/checkpoints/checkpoint-000001.safetensors", "404");
    answers(port, "GET", "/samples/7.png", "a picture");
    answers(port, "GET", "/api/files.json", "\"path\":\"samples/7.png\"");
    answers(port, "GET", "/api/files.json", "\"own\":3,\"of\":4");
    answers(port, "GET", "/api/files.json", "\"captions\":[\"an <i>apple\",\"a cat\"]");
    answers(port, "GET", "/api/files.json", "\"sheet\":null,\"real\":null");
    put_file(folder, "samples/000007/real.png", "what it is");
    put_file(folder, "samples/000007/pictures.json",
             "{\"pictures\": [{\"caption\": \"a cat\"}, {\"caption\": \"a hat\"}], \"sheet\": "
             "{\"columns\": 2, \"side\": 64, \"gap\": 4, \"pictures\": 2}}");
    assert_int_equal(run_folder_publish(&f, &f, folder, s, d, NULL), PL_OK);
    answers(port, "GET", "/api/files.json",
            "\"sheet\":{\"pictures\":2,\"columns\":2,\"side\":64,\"gap\":4},\"real\":null");
    put_file(folder, "samples/000007/pictures.json",
             "{\"pictures\": [{\"caption\": \"a cat\"}, {\"caption\": \"a hat\"}], \"sheet\": "
             "{\"columns\": 33, \"side\": 64, \"gap\": 4, \"pictures\": 2}}");
    assert_int_equal(run_folder_publish(&f, &f, folder, s, d, NULL), PL_OK);
    answers(port, "GET", "/api/files.json", "\"sheet\":null"); /* no sheet is so wide */
    put_file(folder, "checkpoint-000012.safetensors", "twelve");
    put_file(folder, "samples/000007/nearest.json", "{\"own\": 5, \"of\": 4}"); /* cannot be */
    assert_int_equal(run_folder_read(&later, folder, NULL), PL_OK);
    assert_int_equal(later.sample_of[0], 0);
    assert_int_equal(run_folder_publish(&later, &f, folder, s, d, NULL), PL_OK);
    answers(port, "GET", "/checkpoints/checkpoint-000012.safetensors", "twelve");
    answers(port, "GET", "/samples/real.png", "what it is");
    answers(port, "GET", "/api/files.json", "\"real\":\"samples/real.png\"");
    answers(port, "GET", "/checkpoints/checkpoint-000002.safetensors", "404");
    assert_int_equal(run_folder_read(&f, "/no/such/folder", &err), PL_EIO);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    dashboard_close(d);
    http_server_close(s);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_here_has_an_end),
        cmocka_unit_test(feeds_say_what_was_seen),
        cmocka_unit_test(wild_claims_stay_numbers),
        cmocka_unit_test(a_large_swarm),
        cmocka_unit_test(folder_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
