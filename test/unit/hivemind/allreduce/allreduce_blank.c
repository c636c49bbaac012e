/* allreduce_blank.c - a slow uplink sends its values in some of its parts only: in the others it has
 * no influence on the mean, and takes it over. */
#include "allreduce_world.h"

#define SLOW 1 /* reduces nothing */
#define UPLOAD 0.4

/* mean[0]: over all; [1]: over all but SLOW */
static double mean[2][VALUES];

static void compute_means(const struct world *w)
{
    for (int without = 0; without < 2; without++)
        for (size_t v = 0; v < VALUES; v++) {
            double sum = 0, weight = 0;
            for (size_t i = 0; i < PEERS; i++) {
                if (without && i == SLOW) continue;
                sum += w->peer[i].weight * w->peer[i].values[v];
                weight += w->peer[i].weight;
            }
            mean[without][v] = sum / weight;
        }
}

/* Which of the two means each value is nearer to, the same at all peers. Returns how many values
 * have that without SLOW. */
static size_t count_without(const struct world *w, double tolerance)
{
    size_t without = 0;
    for (size_t v = 0; v < VALUES; v++) {
        int is_without = fabs(w->peer[0].values[v] - mean[1][v]) <
                         fabs(w->peer[0].values[v] - mean[0][v]);
        for (size_t i = 0; i < PEERS; i++)
            if (!(fabs(w->peer[i].values[v] - mean[is_without][v]) < tolerance))
                fail_msg("peer %zu, value %zu: %g, expected %g", i, v, (double)w->peer[i].values[v],
                         mean[is_without][v]);
        without += is_without;
    }
    return without;
}

/* Uncompressed parts, and parts of 8 and 16 bits; reducers that keep their differences, and
 * reducers that keep the messages. */
static void blank_parts_take_the_mean(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        static struct world w;
        struct allreduce_report report;
        size_t without;
        make(&w);
        w.part_bytes = kind % 2 ? 4096 : 512;
        w.peer[SLOW].weight = 20; /* the means differ much */
        w.peer[SLOW].upload = UPLOAD;
        for (size_t v = 0; v < VALUES; v++) w.peer[SLOW].values[v] += 2;
        for (size_t t = 0; kind < 2 && t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
        compute_means(&w);
        begin(&w);
        run(&w);
        for (size_t i = 0; i < PEERS; i++) {
            if (!w.peer[i].over || w.peer[i].status)
                fail_msg("peer %zu: %s", i, w.peer[i].err.text);
            allreduce_report(w.peer[i].x, &report);
            assert_int_equal(report.received, VALUES);
            assert_int_equal(report.senders_lost + report.reducers_lost, 0);
            if (i != SLOW) assert_int_equal(report.withheld, 0);
        }
        without = count_without(&w, kind < 2 ? 1e-5 : 0.05);
        allreduce_report(w.peer[SLOW].x, &report);
        assert_int_equal(report.withheld, without);
        assert_int_equal(report.values_out + report.withheld, VALUES);
        assert_true(fabs((double)without / VALUES - (1 - UPLOAD)) < 0.2);
        end(&w);
    }
}

/* Over many rounds each part has its values as often as any other. */
static void every_part_has_its_turn(void **state)
{
    static struct world w;
    struct allreduce *x;
    size_t parts;
    make(&w);
    begin(&w);
    x = w.peer[SLOW].x;
    parts = x->part_count;
    for (size_t i = 0; i < parts; i++) {
        int sent = 0;
        for (int round = 0; round < 100; round++) {
            x->o.upload = UPLOAD;
            x->o.upload_from = round / 100.;
            sent += !allreduce_is_blank(x, i);
        }
        if (x->parts[i].length > 1 && abs(sent - (int)(100 * UPLOAD)) > 1)
            fail_msg("part %zu: %d times of 100", i, sent);
    }
    x->o.upload = 0;
    end(&w);
}

/* With CenteredClip blank parts pull nowhere, and are answered. */
static void blank_parts_are_not_clipped(void **state)
{
    static struct world w;
    make(&w);
    w.clip = PL_CLIP_USUAL;
    for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
    for (size_t i = 0; i < PEERS; i++) {
        w.peer[i].weight = 1;
        for (size_t v = 0; v < VALUES; v++) w.peer[i].values[v] = i == SLOW ? 9 : 5;
    }
    w.peer[SLOW].upload = 1e-9;
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) {
        assert_int_equal(w.peer[i].over && w.peer[i].status == PL_OK, 1);
        for (size_t v = 0; v < VALUES; v++) assert_true(w.peer[i].values[v] == 5);
    }
    end(&w);
}

/* A single value of a weight is a part of a wrong length; so is one of weight 0 in a verified round,
 * where all values are recomputed. */
static void other_single_values_are_refused(void **state)
{
    for (int verify = 0; verify < 2; verify++) {
        static struct world w;
        struct bytes raw = { 0 };
        struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                                  .method = PL_COMPRESS_NONE,
                                  .weight = !verify,
                                  .elements = 1,
                                  .bytes = sizeof(float) };
        struct allreduce_report report;
        uint8_t *buffer;
        make(&w);
        w.verify = verify;
        for (size_t i = 0; i < PEERS && verify; i++) w.share[i] = 7000;
        w.peer[3].frozen = 1;
        begin(&w);
        run(&w);
        assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
        memset(buffer, 0, m.bytes);
        allreduce_message(w.peer[0].x, w.now, 3, ALLREDUCE_IN, bytes_at(&raw), bytes_length(&raw));
        allreduce_report(w.peer[0].x, &report);
        assert_int_equal(report.senders_lost, 1);
        bytes_clear(&raw);
        w.peer[3].frozen = 0;
        end(&w);
    }
}

/* Answers of NaN: to a part with values no honest reducer gives one, to a blank part hivemind's does
 * where nobody has values. */
static void nobodys_mean_is_no_proof(void **state)
{
    for (int blank = 0; blank < 2; blank++) {
        static struct world w;
        struct bytes raw = { 0 };
        struct part_message m = {
            .code = MSG_AVERAGED_PART, .method = PL_COMPRESS_NONE, .elements = 512, .bytes = 2048
        };
        uint8_t *buffer;
        make(&w);
        w.peer[SLOW].upload = blank ? 1e-9 : 0;
        w.peer[2].frozen = 1;
        begin(&w);
        run(&w);
        assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
        memset(buffer, 0xff, m.bytes);
        allreduce_message(w.peer[SLOW].x, w.now, 2, ALLREDUCE_OUT, bytes_at(&raw),
                          bytes_length(&raw));
        assert_int_equal(lied(&w.peer[SLOW], 2), !blank);
        bytes_clear(&raw);
        w.peer[2].frozen = 0;
        end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blank_parts_take_the_mean),
        cmocka_unit_test(every_part_has_its_turn),
        cmocka_unit_test(blank_parts_are_not_clipped),
        cmocka_unit_test(other_single_values_are_refused),
        cmocka_unit_test(nobodys_mean_is_no_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
