/* parts.c - progress in parts: the sums of sums equal all reports, under each leader; a false
 * sum counts for little, and nobody counts twice. */
#include "net/hivemind/progress/parts.h"
#include "net/hivemind/messages/msgpack.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

#define NOW 1e6
#define EPOCH 40
#define FASTEST 1e4

/* The first bits decide its part, the last ones its place in the order. */
static struct progress_record record(uint16_t first, uint32_t place)
{
    struct progress_record r = { .peer = { .length = 34, .bytes = { 0x12, 0x20 } },
                                 .epoch = EPOCH,
                                 .samples = 100,
                                 .samples_per_second = 1,
                                 .time = NOW,
                                 .owner = { (uint8_t)(first >> 8), (uint8_t)first } };
    memcpy(r.owner + 12, &place, sizeof place);
    memcpy(r.peer.bytes + 2, r.owner, sizeof r.owner);
    return r;
}

/* The sum of a part of this many peers that are as the record above. */
static struct progress_record sum_of(uint16_t first, uint32_t place, size_t level, uint32_t peers)
{
    struct progress_record r = record(first, place);
    r.peers = peers;
    r.samples = 100 * (int64_t)peers;
    r.samples_per_second = peers;
    progress_name_part(&r, r.owner, level * RECORD_PART_BITS);
    return r;
}

static void levels_follow_the_size(void **state)
{
    static const struct {
        size_t level, peers, wanted;
    } cases[] = { { 0, 256, 0 },  { 0, 257, 1 },   { 1, 129, 1 },         { 1, 128, 0 },
                  { 0, 4096, 1 }, { 0, 4097, 2 },  { 2, 2049, 2 },        { 2, 2048, 1 },
                  { 2, 100, 0 },  { 0, 65537, 3 }, { 0, SIZE_MAX / 4, 3 } };
    for (size_t i = 0; i < PL_COUNT(cases); i++)
        assert_int_equal(parts_level(cases[i].level, cases[i].peers, PARTS_PEERS), cases[i].wanted);
}

/* hivemind's schema allows no other field: a sum has the same six. */
static void sum_travels_as_a_record(void **state)
{
    const struct progress_record sum = sum_of(0xabcd, 1, 2, 700);
    struct progress_record got;
    struct bytes out = { 0 };
    struct mp_value *v;
    assert_int_equal(progress_write(&out, &sum), PL_OK);
    assert_int_equal(mp_read(&v, bytes_at(&out), bytes_length(&out), NULL), PL_OK);
    assert_int_equal(schema_check(&schema_progress, v, NULL), PL_OK);
    mp_free(v);
    assert_int_equal(progress_read(&got, bytes_at(&out), bytes_length(&out), NULL), PL_OK);
    assert_true(got.peers == 700 && got.clients == 0 && got.samples == 70000);
    assert_int_equal(progress_part_bits(&got), 8);
    assert_true(peer_id_equal(&got.peer, &sum.peer));
    bytes_clear(&out);
}

/* A part has no more clients than peers. */
static void clients_are_among_the_peers(void **state)
{
    for (uint32_t clients = 4; clients <= 6; clients++) {
        struct progress_record sum = sum_of(0xabcd, 1, 1, 5), got;
        struct bytes out = { 0 };
        sum.clients = clients;
        assert_int_equal(progress_write(&out, &sum), PL_OK);
        assert_int_equal(progress_read(&got, bytes_at(&out), bytes_length(&out), NULL), PL_OK);
        assert_true(got.peers == 5 && got.clients == (clients < 5 ? clients : 5));
        bytes_clear(&out);
    }
}

/* An ID that only looks like a part's is a peer's. */
static void odd_parts_are_peers(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct progress_record sum = sum_of(0xabcd, 1, 1, 5), got;
        struct bytes out = { 0 };
        if (i == 0) sum.peers = 0;
        if (i == 1) sum.peer.bytes[18] = 0;
        if (i == 2) sum.peer.bytes[18] = 32;
        assert_int_equal(progress_write(&out, &sum), PL_OK);
        assert_int_equal(progress_read(&got, bytes_at(&out), bytes_length(&out), NULL), PL_OK);
        assert_true(!got.peers && progress_peers(&got) == 1 && !progress_part_bits(&got));
        bytes_clear(&out);
    }
}

/* --- ten thousand peers ----------------------------------------------------------------------- */

#define PEERS 10000
#define BELOW 16 /* parts right below one */
#define BATCH 64.0

/* Each reports at the end of its local batches of 1 to 5 s. */
static struct progress_record report(const struct progress_record *who, double now)
{
    struct progress_record r = *who;
    const double batch = BATCH / who->samples_per_second;
    r.time = now - fmod(now + 7 * batch * who->owner[15], batch);
    r.samples = (int64_t)fmax(0, (r.time - (NOW - 100)) * who->samples_per_second);
    return r;
}

/* The sum of the part that begins with these bits on this level, as its leader has stored it up to
 * 10 s ago, from its members' sums at that time. */
static struct progress_record leader_sum(const struct progress_record *all, uint32_t part,
                                         size_t level, size_t lowest, double now,
                                         struct pl_rng *rng)
{
    struct progress_record *r = calloc(PEERS + 1, sizeof *r), sum = { 0 };
    size_t n = 0, lead = 0;
    now -= 10 * pl_rng_uniform(rng);
    assert_non_null(r);
    if (level < lowest)
        for (uint32_t i = 0; i < BELOW; i++)
            r[n++] = leader_sum(all, part << 4 | i, level + 1, lowest, now, rng);
    for (size_t i = 0; level == lowest && i < PEERS; i++) {
        const uint32_t first = (uint32_t)all[i].owner[0] << 8 | all[i].owner[1];
        if (first >> (16 - 4 * level) == part) r[n++] = report(&all[i], now);
    }
    assert_true(n > 0);
    while (!parts_leads(r, n, &r[lead], EPOCH, now)) lead++;
    for (size_t i = 0; i < n; i++) /* one leads */
        assert_int_equal(parts_leads(r, n, &r[i], EPOCH, now), i == lead);
    sum = r[lead];
    n = parts_take(r, n, &sum, 1, level, EPOCH, now);
    sum = parts_sum(r, n, &sum, level, FASTEST, now);
    free(r);
    return sum;
}

/* What any peer reads: 16 sums. All peers are counted, and the batch is full when it is full. */
static void sums_of_sums_count_all(void **state)
{
    static const struct progress_local mine = { EPOCH, 0, 1, 0 };
    struct progress_record *all = calloc(PEERS, sizeof *all), top[BELOW + 1];
    struct pl_rng rng;
    double samples = 0, speed = 0;
    assert_non_null(all);
    pl_rng_init(&rng, 3, 0);
    for (size_t i = 0; i < PEERS; i++) {
        all[i] = record((uint16_t)pl_rng_below(&rng, 65536), (uint32_t)pl_rng_below(&rng, 1 << 30));
        all[i].samples_per_second = BATCH * pow(5, -pl_rng_uniform(&rng));
        speed += all[i].samples_per_second;
        samples += 100 * all[i].samples_per_second;
    }
    for (size_t lowest = 1; lowest <= 2; lowest++) {
        struct progress_view v;
        size_t n;
        for (uint32_t i = 0; i < BELOW; i++) top[i] = leader_sum(all, i, 1, lowest, NOW, &rng);
        n = parts_take(top, BELOW, &all[0], 0, 0, EPOCH, NOW);
        progress_update(&v, top, n, 1, &mine, 1.2 * samples, NOW);
        assert_int_equal(v.peers, PEERS);
        /* 20 s are left. */
        if (fabs(v.eta - NOW - 0.2 * samples / speed) > 0.2)
            fail_msg("level %zu: %g s", lowest, v.eta - NOW);
    }
    free(all);
}

/* --- who counts ------------------------------------------------------------------------------- */

static size_t take(struct progress_record *r, size_t n, size_t level)
{
    const struct progress_record own = record(0x1200, 77);
    return parts_take(r, n, &own, 0, level, EPOCH, NOW);
}

/* Of another part, of another level, or ours as it was some time ago: none of these count. */
static void only_the_parts_own_records(void **state)
{
    struct progress_record r[] = { record(0x1300, 1),       record(0x2300, 2),
                                   record(0x1200, 77),      sum_of(0x1400, 3, 2, 9),
                                   sum_of(0x1400, 4, 1, 9), sum_of(0x1400, 5, 3, 9),
                                   sum_of(0x2400, 6, 2, 9) },
                           own = record(0x1200, 77);
    size_t n = take(r, PL_COUNT(r) - 1, 1);
    assert_int_equal(n, 2);
    assert_true(!r[0].peers && r[0].owner[0] == 0x13 && r[1].peers == 9);
    own.samples = 123;
    n = parts_take(r, n, &own, 1, 1, EPOCH, NOW);
    assert_int_equal(n, 3);
    assert_int_equal(r[2].samples, 123);
}

/* Two lead a part, as at a change of leaders: one counts, at all readers the same, whatever the
 * order in which they find them. One that has fallen silent gives way. */
static void one_sum_of_a_part(void **state)
{
    struct progress_record a = sum_of(0x1400, 1, 1, 50), b = sum_of(0x1500, 2, 1, 60);
    const struct progress_record *first;
    for (int silent = 0; silent < 3; silent++) {
        struct progress_record r[2] = { a, b }, s[2] = { b, a };
        r[0].time = s[1].time = silent == 1 ? NOW - PARTS_SILENT - 1 : NOW;
        r[1].time = s[0].time = silent == 2 ? NOW - PARTS_SILENT - 1 : NOW;
        first = silent == 1 ? &b : silent == 2 || parts_leads(&b, 1, &a, EPOCH, NOW) ? &a : &b;
        assert_int_equal(take(r, 2, 0), 1);
        assert_int_equal(take(s, 2, 0), 1);
        assert_true(r[0].peers == first->peers && s[0].peers == first->peers);
    }
}

/* The order changes every few epochs, so no key leads for good. */
static void leaders_change(void **state)
{
    const struct progress_record a = record(0x1400, 1), b = record(0x1500, 2);
    int led = 0;
    for (int64_t epoch = 0; epoch < 100 * PARTS_EPOCHS; epoch += PARTS_EPOCHS) {
        const int leads = parts_leads(&b, 1, &a, epoch, NOW);
        assert_int_equal(parts_leads(&b, 1, &a, epoch + PARTS_EPOCHS - 1, NOW), leads);
        assert_int_equal(parts_leads(&a, 1, &b, epoch, NOW), !leads);
        led += leads;
    }
    assert_true(led > 25 && led < 75);
}

/* --- false sums ------------------------------------------------------------------------------- */

/* 16 parts of 100; one claims a million times as much of everything. */
static void false_sum_is_bounded(void **state)
{
    struct progress_record r[BELOW + 1];
    for (uint16_t i = 0; i < BELOW; i++) r[i] = sum_of((uint16_t)(i << 12), i, 1, 100);
    r[5].peers = 100000000;
    r[5].samples = INT64_MAX;
    r[5].samples_per_second = 1e300;
    assert_int_equal(take(r, BELOW, 0), BELOW);
    for (int i = 0; i < BELOW; i++) {
        const int k = i == 5 ? PARTS_TRUST : 1;
        assert_true(r[i].peers == 100u * (unsigned)k && r[i].samples == 10000 * k);
        assert_true(r[i].samples_per_second == 100 * k);
    }
}

/* While few parts are at an epoch, their samples do not count: the median would be a false sum's own. */
static void samples_of_a_few_parts_wait(void **state)
{
    struct progress_record r[BELOW + 1];
    for (uint16_t i = 0; i < BELOW; i++) {
        r[i] = sum_of((uint16_t)(i << 12), i, 1, 100);
        r[i].epoch += i < 3;
    }
    r[0].samples = INT64_MAX;
    assert_int_equal(take(r, BELOW, 0), BELOW);
    for (int i = 0; i < BELOW; i++) assert_int_equal(r[i].samples, i < 3 ? 0 : 10000);
    assert_true(r[0].samples_per_second == 100);
}

/* One record cannot make a part's sum unreadable, nor be faster than any peer can be seen to be. */
static void sum_has_bounds(void **state)
{
    struct progress_record r[3] = { record(0x1400, 1), record(0x1500, 2), record(0x1600, 3) }, s;
    r[0].samples_per_second = r[1].samples_per_second = 1e308;
    r[0].samples = r[1].samples = INT64_MAX;
    r[1].client_mode = 1;
    s = parts_sum(r, 3, &r[2], 1, FASTEST, NOW);
    assert_true(s.samples_per_second == 2 * FASTEST + 1 && s.samples > INT64_MAX / 2);
    assert_true(s.peers == 3 && s.clients == 1 && !s.client_mode);
    r[1].epoch = r[2].epoch = EPOCH - 1; /* most are there; what the third has is of another step */
    s = parts_sum(r, 3, &r[2], 1, FASTEST, NOW);
    assert_int_equal(s.epoch, EPOCH - 1);
    s = parts_sum(r, 1, &r[1], 1, FASTEST, NOW + 5);
    assert_int_equal(s.epoch, EPOCH);
}

/* A part is covered by the sum of its part right below the run's key, under any leader. */
static void the_sum_of_our_part_covers_us(void **state)
{
    const struct progress_record own = record(0x1200, 77);
    const struct progress_record r[] = { sum_of(0x2200, 1, 1, 9), record(0x1300, 2),
                                         sum_of(0x1f00, 3, 1, 9) };
    assert_false(parts_cover(r, 0, &own));
    assert_false(parts_cover(r, 2, &own));
    assert_true(parts_cover(r, 3, &own));
    assert_true(parts_cover(r + 2, 1, &own));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_follow_the_size),
        cmocka_unit_test(sum_travels_as_a_record),
        cmocka_unit_test(clients_are_among_the_peers),
        cmocka_unit_test(odd_parts_are_peers),
        cmocka_unit_test(sums_of_sums_count_all),
        cmocka_unit_test(only_the_parts_own_records),
        cmocka_unit_test(one_sum_of_a_part),
        cmocka_unit_test(leaders_change),
        cmocka_unit_test(false_sum_is_bounded),
        cmocka_unit_test(samples_of_a_few_parts_wait),
        cmocka_unit_test(sum_has_bounds),
        cmocka_unit_test(the_sum_of_our_part_covers_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
