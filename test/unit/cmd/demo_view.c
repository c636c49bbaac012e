/* demo_view.c - what the demo prints of its swarm, after what its peers have said. */
#include "cmd/demo/demo_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct demo_view v;
static char text[DEMO_VIEW_TEXT];

static void hear(int k, const char *line)
{
    json_t *json = json_loads(line, 0, NULL);
    assert_non_null(json);
    demo_view_hear(&v, k, json);
    json_decref(json);
}

static const char *line_at(double now)
{
    demo_view_line(text, &v, now);
    return text;
}

static void batch(int k, int step, int samples, int due)
{
    char line[256];
    snprintf(
        line, sizeof line,
        "{\"event\":\"batch\",\"epoch\":%d,\"peers\":3,\"global_samples\":999,\"local_samples\":%d,"
        "\"due\":%s,\"loss\":9.5,\"samples_per_second\":25.5}",
        step, samples, due ? "true" : "false");
    hear(k, line);
}

static void stepped(int k, int step, int samples, double loss)
{
    char line[256];
    snprintf(
        line, sizeof line,
        "{\"event\":\"epoch\",\"epoch\":%d,\"peers\":3,\"local_samples\":%d,\"due\":false,\"loss\":%g,"
        "\"samples_per_second\":25.5,\"round_peers\":3,\"seconds\":0.25}",
        step, samples, loss);
    hear(k, line);
}

static void begin(void)
{
    demo_view_begin(&v, 40, 64, 1000);
    for (int k = 0; k < DEMO_PEERS; k++) v.peer[k].kind = k ? "a peer" : "bootstrap";
    for (int k = 1; k < DEMO_PEERS; k++) v.peer[k].state = k == 3 ? NULL : "starting";
}

/* Samples of the batch that is being collected, the phase, the pace: as the peers tell them. */
static void the_line(void **state)
{
    (void)state;
    begin();
    assert_string_equal(line_at(1000), "step 0 of 40, collecting  samples 0 of 64  0 s elapsed; "
                                       "peers: 1 starting, 2 starting, 4 starting");
    hear(1, "{\"event\":\"listening\",\"multiaddr\":\"/ip4/127.0.0.1\"}");
    hear(1, "{\"event\":\"check\",\"level\":\"ok\"}");
    hear(1, "[]");
    hear(4, "{\"event\":\"ready\",\"epoch\":0,\"peers\":3}");
    batch(1, 0, 8, 0);
    batch(1, 0, 16, 0);
    batch(2, 0, 8, 0);
    assert_string_equal(line_at(1002),
                        "step 0 of 40, collecting  samples 24 of 64  3 peers  2 s elapsed; "
                        "peers: 1 training, 2 training, 4 entering");
    batch(2, 0, 16, 0);
    batch(4, 0, 8, 0);
    batch(1, 0, 40, 1);
    hear(1, "{\"event\":\"corrected\",\"epoch\":0,\"peers\":3,\"local_samples\":0}");
    assert_non_null(strstr(line_at(1002), "samples 64 of 64"));
    batch(1, 0, 48, 1);
    assert_string_equal(line_at(1003),
                        "step 0 of 40, averaging  samples 72 of 64  3 peers  3 s elapsed; "
                        "peers: 1 averaging, 2 training, 4 training");
    stepped(1, 1, 48, 5.0);
    batch(1, 1, 8, 0);
    assert_non_null(strstr(line_at(1004), "step 1 of 40, collecting  samples 8 of 64  "));
    stepped(2, 1, 16, 6.0);
    stepped(4, 1, 8, 4.0);
    batch(4, 1, 8, 0);
    assert_string_equal(line_at(1004),
                        "step 1 of 40, collecting  samples 16 of 64  3 peers  loss 5.1111  "
                        "18.0 samples/s  4 s elapsed, 2:36 min left; "
                        "peers: 1 training, 2 training, 4 training");
}

/* Dead peers and peers that catch up add no samples; the pace is the recent one. */
static void those_who_left(void **state)
{
    (void)state;
    begin();
    stepped(1, 10, 32, 5.0);
    stepped(2, 10, 32, 5.0);
    demo_view_mark(&v, 1020);
    stepped(1, 20, 32, 5.0);
    batch(2, 10, 8, 0);
    batch(2, 20, 24, 0);
    batch(1, 20, 16, 0);
    v.peer[2].is_gone = 1;
    v.peer[2].state = "dead";
    demo_view_mark(&v, 1040);
    hear(4, "{\"event\":\"behind\",\"epoch\":20,\"peers\":3,\"local_samples\":24}");
    stepped(1, 30, 64, 4.0);
    batch(1, 30, 8, 0);
    assert_string_equal(line_at(1060),
                        "step 30 of 40, collecting  samples 8 of 64  3 peers  loss 4.0000  "
                        "2.4 samples/s  60 s elapsed, 20 s left; "
                        "peers: 1 training, 2 dead, 4 catching up");
    stepped(1, 40, 64, 3.0);
    assert_string_equal(line_at(1070),
                        "step 40 of 40, done  loss 3.0000  3.2 samples/s  70 s elapsed; "
                        "peers: 1 training, 2 dead, 4 catching up");
}

static void the_table(void **state)
{
    (void)state;
    begin();
    stepped(1, 1, 40, 5.0);
    stepped(2, 1, 24, 6.0);
    batch(1, 1, 16, 0);
    v.peer[0].state = "open";
    v.peer[2].is_gone = 1;
    v.peer[2].state = "dead";
    demo_view_table(text, &v, 1002);
    assert_string_equal(
        text, "step 1 of 40, collecting  samples 16 of 64  3 peers\n"
              "loss 5.3750  32.0 samples/s  2 s elapsed, 78 s left\n"
              "peer                 state        step samples    loss samples/s last step\n"
              "0    bootstrap       open       \n"
              "1    a peer          training        1      16  5.0000      25.5 3 peers, 0.25 s\n"
              "2    a peer          dead            1       0  6.0000       0.0 3 peers, 0.25 s\n"
              "3    a peer          not yet    \n"
              "4    a peer          starting        0       0\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line),
        cmocka_unit_test(those_who_left),
        cmocka_unit_test(the_table),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
