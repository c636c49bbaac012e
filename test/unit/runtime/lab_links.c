/* lab_links.c - laws of the fluid network: the time of a transfer, fair shares, bytes that are
 * neither lost nor made. */
#include "runtime/lab/lab_links.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* up, down, latency */
static const struct lab_link three[3] = { { 100, 1000, 0.5, 0 },
                                          { 300, 200, 0.25, 0 },
                                          { 300, 600, 0, 0 } };

static void is_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * want)) fail_msg("%.12g, not %.12g", got, want);
}

/* Runs until the transfer with this tag has arrived. */
static double arrival(struct lab_net *net, uint64_t tag)
{
    struct lab_transfer t;
    for (double next; isfinite(next = lab_net_next(net));) {
        lab_net_advance(net, next);
        while (lab_net_take(net, &t))
            if (t.tag == tag) return net->now;
    }
    return NAN;
}

static void one_transfer_takes_bytes_by_the_slower_link(void **state)
{
    struct lab_net net;
    (void)state;
    assert_int_equal(lab_net_open(&net, three, 3), PL_OK);
    lab_net_send(&net, 0, 1, 1000, 7);
    is_near(arrival(&net, 7), 10 + 0.75);
    lab_net_send(&net, 2, 1, 1000, 8);
    is_near(arrival(&net, 8), 10.75 + 5 + 0.25);
    is_near(net.traffic[0].peak_up, 100);
    is_near(net.traffic[1].peak_down, 200);
    is_near(net.traffic[1].received, 2000);
    assert_true(isinf(lab_net_next(&net)));
    lab_net_close(&net);
}

/* Peer 0's uplink grants 50 to each of two; peer 2's transfer to 1 takes what they leave. */
static void shares_are_max_min_fair(void **state)
{
    struct lab_net net;
    (void)state;
    lab_net_open(&net, three, 3);
    lab_net_send(&net, 0, 1, 1000, 1);
    lab_net_send(&net, 0, 2, 1000, 2);
    lab_net_send(&net, 2, 1, 1000, 3);
    lab_net_next(&net);
    is_near(net.transfer[0].rate, 50);
    is_near(net.transfer[1].rate, 50);
    is_near(net.transfer[2].rate, 150);
    is_near(arrival(&net, 3), 1000 / 150.0 + 0.25);
    is_near(arrival(&net, 2), 20 + 0.5);
    is_near(net.traffic[2].busy, 20);
    lab_net_close(&net);
}

/* A transfer that begins later halves the rate of the first one from then on. */
static void rates_follow_what_begins_and_ends(void **state)
{
    struct lab_net net;
    struct lab_transfer t;
    (void)state;
    lab_net_open(&net, three, 3);
    lab_net_send(&net, 0, 2, 1000, 1); /* alone: 10 s */
    lab_net_advance(&net, 4);
    assert_int_equal(lab_net_take(&net, &t), 0);
    lab_net_send(&net, 0, 1, 200, 2); /* 50 a second from here: 8 s; the first then has 2 s left */
    is_near(arrival(&net, 2) - 0.5 - 0.25, 4 + 4);
    is_near(arrival(&net, 1), 12 + 0.5);
    lab_net_close(&net);
}

static void a_peer_that_leaves_frees_the_links(void **state)
{
    struct lab_net net;
    (void)state;
    lab_net_open(&net, three, 3);
    lab_net_send(&net, 0, 1, 1000, 1);
    lab_net_send(&net, 0, 2, 1000, 0x102);
    lab_net_advance(&net, lab_net_next(&net) / 2); /* 10 s: half of each */
    lab_net_cut_peer(&net, 1);
    is_near(net.traffic[0].cancelled, 500);
    is_near(arrival(&net, 0x102), 10 + 5 + 0.5);
    lab_net_send(&net, 0, 2, 1000, 0x103);
    lab_net_cut_tag(&net, 0x100, 0xff00);
    assert_true(isinf(lab_net_next(&net)));
    lab_net_close(&net);
}

static void loss_costs_goodput(void **state)
{
    struct lab_link lossy[2] = { { 100, 100, 0, 0.2 }, { 100, 100, 0, 0 } };
    struct lab_net net;
    (void)state;
    lab_net_open(&net, lossy, 2);
    lab_net_send(&net, 0, 1, 800, 1);
    is_near(arrival(&net, 1), 10);
    lab_net_close(&net);
}

static void profiles_have_names(void **state)
{
    struct lab_link link, other;
    (void)state;
    for (int i = 0; lab_link_names[i]; i++) {
        assert_int_equal(lab_link_named(&link, lab_link_names[i], i), PL_OK);
        assert_true(link.up > 0 && link.down >= link.up && link.loss < 1);
    }
    lab_link_named(&link, "mixed", 1);
    lab_link_named(&other, "fibre", 0);
    assert_memory_equal(&link, &other, sizeof link);
    assert_int_equal(lab_link_named(&link, "pigeon", 0), PL_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_transfer_takes_bytes_by_the_slower_link),
        cmocka_unit_test(shares_are_max_min_fair),
        cmocka_unit_test(rates_follow_what_begins_and_ends),
        cmocka_unit_test(a_peer_that_leaves_frees_the_links),
        cmocka_unit_test(loss_costs_goodput),
        cmocka_unit_test(profiles_have_names),
    };
    return cmocka_run_group_tests_name("lab_links", tests, NULL, NULL);
}
