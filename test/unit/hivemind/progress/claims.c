/* claims.c - which progress records count: leads that only a few claim, leads that no state proves,
 * records of a second key about a peer; and sums of claims, which saturate.
 * One long file: all cases share one ledger and its clock. */
#include "net/hivemind/progress/claims.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/hivemind/records/owner_proof.h"
#include "test/unit/unit.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

#define TARGET 48.0
#define HUGE_EPOCH 4000000000000000000

static struct progress_record at(uint8_t who, int64_t epoch)
{
    const struct peer_id peer = { .length = 34, .bytes = { 0x12, 0x20, who } };
    return (struct progress_record){
        .peer = peer, .epoch = epoch, .samples_per_second = 1, .owner = { who }
    };
}

static struct progress_record client_at(uint8_t who, int64_t epoch)
{
    struct progress_record r = at(who, epoch);
    r.client_mode = 1;
    return r;
}

/* All peers have just reported. Returns how many count. */
static size_t poll(struct claims *c, struct progress_record *records, size_t count, double now)
{
    size_t counted;
    for (size_t i = 0; i < count; i++) records[i].time = now;
    assert_int_equal(claims_update(c, records, count, TARGET, now, &counted), PL_OK);
    return counted;
}

static void meet(struct claims *c, const struct progress_record *with, size_t count)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct group g = { 0 };
    for (size_t i = 0; i < count; i++)
        assert_int_equal(group_add(&g, &with[i].peer, gather, sizeof gather, NULL), PL_OK);
    claims_round(c, &g);
    group_clear(&g);
}

static int by_peer(const void *a_, const void *b_)
{
    const struct progress_record *a = a_, *b = b_;
    return peer_id_compare(&a->peer, &b->peer);
}

static void sort_by_peer(struct progress_record *records, size_t count)
{
    qsort(records, count, sizeof *records, by_peer);
}

static int64_t lead_of(struct progress_record *records, size_t count, int64_t own)
{
    struct claims c = { 0 };
    int64_t lead;
    poll(&c, records, count, 100);
    lead = claims_lead(&c, own, 100);
    claims_clear(&c);
    return lead;
}

/* More than half of the others have to claim it. */
static void the_lead_is_a_majority(void **state)
{
    static const int64_t false_leads[] = { 6, 7, 35, HUGE_EPOCH, INT64_MAX };
    assert_int_equal(lead_of(NULL, 0, 5), -1);
    for (size_t i = 0; i < PL_COUNT(false_leads); i++) {
        struct progress_record two[] = { at(1, 5), at(9, false_leads[i]) };
        struct progress_record three[] = { at(9, false_leads[i]), at(1, 5), at(2, 5) };
        struct progress_record four[] = { at(9, false_leads[i]), at(1, 5), at(2, 5),
                                          at(8, false_leads[i]) };
        assert_int_equal(lead_of(two, 2, 5), 5);
        assert_int_equal(lead_of(three, 3, 5), 5);
        assert_int_equal(lead_of(four, 4, 5), 5);
    }
    struct progress_record late[] = { at(1, 17), at(2, 17), at(9, HUGE_EPOCH) };
    struct progress_record halves[] = { at(1, 5), at(2, 9), at(3, 9) };
    struct progress_record one[] = { at(1, 9) };
    struct progress_record stepping[] = { at(1, 17), at(2, 18) };
    assert_int_equal(lead_of(late, 3, 3), 17); /* a straggler */
    assert_int_equal(lead_of(late, 3, 0), 17); /* a newcomer */
    assert_int_equal(lead_of(halves, 3, 5), 9);
    assert_int_equal(lead_of(one, 1, 5), 9);
    assert_int_equal(lead_of(stepping, 2, 16), 17);
}

/* A peer in step with its groupmates stays with them, however many strangers claim more, or less; a
 * single groupmate's lead is not followed either. */
static void groupmates_decide_the_lead(void **state)
{
    struct progress_record all[] = { at(1, 5), at(2, 5), at(7, 35), at(8, 35), at(9, 35) };
    struct claims c = { 0 };
    assert_int_equal(poll(&c, all, 5, 100), 5);
    assert_int_equal(claims_lead(&c, 5, 100), 35); /* no groupmates yet: as for a straggler */
    meet(&c, all, 2);
    assert_int_equal(claims_lead(&c, 5, 100), 5);
    sort_by_peer(all, 5);
    all[0].epoch = all[1].epoch = 7; /* these have stepped without us */
    assert_int_equal(poll(&c, all, 5, 101), 5);
    assert_int_equal(claims_lead(&c, 5, 101), 7);
    sort_by_peer(all, 5);
    for (int i = 2; i < 5; i++) all[i].epoch = 3; /* strangers hold no straggler back */
    assert_int_equal(poll(&c, all, 5, 102), 5);
    assert_int_equal(claims_lead(&c, 5, 102), 7);
    claims_doubt(&c, 5, 102); /* nor does a download that failed */
    assert_int_equal(claims_lead(&c, 5, 102), 7);
    assert_true(claims_can_be_shown(&c, 5, 102));
    sort_by_peer(all, 5);
    for (int i = 0; i < 5; i++) all[i].epoch = i < 2 ? 5 : 35;
    assert_int_equal(poll(&c, all, 3, 140), 3); /* two strangers have gone */
    meet(&c, all, 1);
    all[1].epoch = 35;
    assert_int_equal(poll(&c, all, 3, 141), 3);
    assert_int_equal(claims_lead(&c, 5, 141), 5);
    sort_by_peer(all, 3);
    all[1].epoch = 5;
    assert_int_equal(poll(&c, all, 3, 142), 3);
    meet(&c, all + 2, 1);
    assert_int_equal(claims_lead(&c, 5, 142), 5);
    sort_by_peer(all, 3);
    all[1].epoch = 35;
    all[0] = all[1];
    assert_int_equal(poll(&c, all, 1, 150), 1); /* a groupmate that has left has no say */
    assert_int_equal(claims_lead(&c, 5, 150), 35);
    claims_clear(&c);
}

/* Four that have averaged split into two pairs: the pair that is behind sees the other one ahead, and
 * asks for its state. Strangers, however many, move neither pair. */
static void split_pairs_see_each_other(void **state)
{
    struct progress_record all[] = {
        at(1, 5), at(2, 5), at(3, 5), at(7, 35), at(8, 35), at(9, 35)
    };
    struct claims c = { 0 };
    poll(&c, all, 6, 100);
    meet(&c, all, 3);
    meet(&c, all, 1);
    assert_int_equal(claims_lead(&c, 5, 100), 5);
    all[1].epoch = 6;
    poll(&c, all, 6, 101);
    assert_int_equal(claims_lead(&c, 5, 101), 5); /* one of them is no majority */
    sort_by_peer(all, 6);
    all[2].epoch = 6;
    poll(&c, all, 6, 102);
    assert_int_equal(claims_lead(&c, 5, 102), 6);
    sort_by_peer(all, 6);
    for (int i = 3; i < 6; i++) all[i].epoch = 0; /* strangers hold nobody back, either */
    poll(&c, all, 6, 103);
    assert_int_equal(claims_lead(&c, 5, 103), 6);
    claims_clear(&c);
}

/* A lead that no state shows does not count for a while, longer each time; the same peer's claims
 * of our epoch do, and a state that has been shown clears it. */
static void unconfirmed_lead_is_doubted(void **state)
{
    struct progress_record r[] = { at(9, 35) };
    struct claims c = { 0 };
    double now = 100, life = CLAIMS_DOUBT_MIN;
    poll(&c, r, 1, now);
    for (int i = 0; i < 8; i++, life = fmin(2 * life, CLAIMS_DOUBT_MAX)) {
        assert_int_equal(claims_lead(&c, 5, now), 35);
        claims_doubt(&c, 5, now);
        assert_int_equal(claims_lead(&c, 5, now), -1);
        assert_false(claims_can_be_shown(&c, 5, now));
        poll(&c, r, 1, now += 0.99 * life);
        assert_int_equal(claims_lead(&c, 5, now), -1);
        r[0].epoch = 5;
        poll(&c, r, 1, now);
        assert_int_equal(claims_lead(&c, 5, now), 5);
        r[0].epoch = i % 2 ? 35 : 6; /* always one more */
        poll(&c, r, 1, now += 0.02 * life);
        assert_int_equal(claims_lead(&c, 5, now), r[0].epoch);
        r[0].epoch = 35;
        poll(&c, r, 1, now);
    }
    claims_doubt(&c, 5, now);
    claims_shown(&c, 34);
    assert_int_equal(claims_lead(&c, 5, now), -1);
    claims_shown(&c, 35);
    assert_int_equal(claims_lead(&c, 5, now), 35);
    claims_doubt(&c, 5, now);
    now += 1.01 * CLAIMS_DOUBT_MIN; /* from the beginning */
    assert_int_equal(claims_lead(&c, 5, now), 35);
    claims_clear(&c);
}

static void clients_have_no_state(void **state)
{
    struct progress_record r[] = { client_at(1, 9), client_at(2, 9), at(3, 5) };
    struct claims c = { 0 };
    poll(&c, r, 3, 100);
    assert_int_equal(claims_lead(&c, 5, 100), 9);
    assert_false(claims_can_be_shown(&c, 5, 100));
    r[0].client_mode = r[1].client_mode = r[2].client_mode = 0;
    poll(&c, r, 3, 100);
    assert_true(claims_can_be_shown(&c, 5, 100));
    claims_clear(&c);
}

/* Peers that died at epoch 3 are most of those listed. Without an answer to a ping they have no say, until
 * they report again. Strangers that are silent, too, gain nothing: they only lose their own say. */
static void silent_peers_do_not_count_for_the_lead(void **state)
{
    struct progress_record r[] = { at(1, 3), at(2, 3),        at(3, 3),         at(4, 9),
                                   at(5, 9), client_at(6, 3), at(9, HUGE_EPOCH) };
    struct peer_id asked[CLAIMS_PINGS];
    struct claims c = { 0 };
    size_t counted;
    for (size_t i = 0; i < PL_COUNT(r); i++) r[i].time = i < 3 ? 60.0 - (double)i : 99;
    assert_int_equal(claims_update(&c, r, PL_COUNT(r), TARGET, 100, &counted), PL_OK);
    assert_int_equal(claims_lead(&c, 0, 100), 3);
    assert_int_equal(claims_to_ping(&c, asked, 3, 100), 0);
    assert_int_equal(claims_to_ping(&c, asked, 9, 100), 3); /* but no client */
    for (int i = 0; i < 3; i++) assert_int_equal(asked[i].bytes[2], 3 - i);
    assert_int_equal(claims_to_ping(&c, asked, 9, 101), 0); /* no peer twice in a row */
    claims_silent(&c, &asked[0], 100);
    assert_int_equal(claims_lead(&c, 0, 102), 3);
    claims_silent(&c, &asked[1], 100);
    claims_silent(&c, &asked[2], 100);
    assert_int_equal(claims_lead(&c, 0, 102), 9); /* of 3, 9, 9 and the false one */
    assert_int_equal(claims_to_ping(&c, asked, HUGE_EPOCH, 102), 2);
    assert_int_equal(claims_lead(&c, 0, 102), 9); /* these have answered */
    sort_by_peer(r, PL_COUNT(r));
    poll(&c, r, 3, 103); /* they live */
    assert_int_equal(claims_lead(&c, 0, 103), 3);
    claims_silent(&c, &r[0].peer, 100); /* it has reported since then */
    assert_int_equal(claims_lead(&c, 0, 103), 3);
    claims_clear(&c);
}

/* However many are behind, few are pinged at a time. */
static void pings_are_bounded(void **state)
{
    enum { MANY = 3 * CLAIMS_PINGS };
    struct progress_record r[MANY];
    struct peer_id asked[CLAIMS_PINGS];
    struct claims c = { 0 };
    for (int i = 0; i < MANY; i++) r[i] = at((uint8_t)i, 3);
    poll(&c, r, MANY, 100);
    for (int i = 0; i < 3; i++)
        assert_int_equal(claims_to_ping(&c, asked, 9, 100 + i), CLAIMS_PINGS);
    assert_int_equal(claims_to_ping(&c, asked, 9, 103), 0);
    assert_int_equal(claims_to_ping(&c, asked, 9, 100 + CLAIMS_SILENT), CLAIMS_PINGS);
    claims_clear(&c);
}

/* A part's sum votes for all of its peers, whichever key has signed it, and is never pinged. */
static void parts_vote_for_their_peers(void **state)
{
    struct progress_record r[4];
    struct peer_id asked[CLAIMS_PINGS];
    struct claims c = { 0 };
    for (uint8_t who = 2; who < 4; who++) {
        for (int i = 0; i < 4; i++) r[i] = at((uint8_t)i, i < 3 ? 9 : 3);
        r[3].owner[0] = who;
        r[3].peers = 3;
        assert_int_equal(poll(&c, r, 4, 100 + who), 4);
        assert_int_equal(claims_lead(&c, 0, 100 + who), 3); /* three against three */
        assert_int_equal(claims_to_ping(&c, asked, 9, 100 + who), 0);
    }
    for (int i = 0; i < 4; i++) r[i] = at((uint8_t)i, i < 3 ? 9 : 3);
    r[3].peers = 2;
    poll(&c, r, 4, 110);
    assert_int_equal(claims_lead(&c, 0, 110), 9);
    claims_clear(&c);
}

/* A record names a peer, and any key may sign it. */
static void one_owner_for_each_peer(void **state)
{
    struct progress_record r[3] = { at(1, 5), at(2, 5) };
    struct claims c = { 0 };
    assert_int_equal(poll(&c, r, 2, 100), 2);
    for (double now = 101; now < 140; now += 13) { /* the owner goes on: no other key is its */
        r[0] = at(1, 5), r[1] = at(2, 5), r[2] = at(1, 35);
        r[2].owner[0] = 9;
        assert_int_equal(poll(&c, r, 3, now), 2);
        for (int i = 0; i < 2; i++) assert_int_equal(r[i].epoch, 5);
    }
    r[0] = at(1, 35), r[1] = at(2, 5);
    r[0].owner[0] = 9;
    assert_int_equal(poll(&c, r, 2, 150), 1); /* it may be late */
    assert_int_equal(r[0].peer.bytes[2], 2);
    r[0] = at(1, 35), r[1] = at(2, 5);
    r[0].owner[0] = 9;
    assert_int_equal(poll(&c, r, 2, 150 + CLAIMS_SILENT), 2); /* it began anew, with another key */
    r[0] = at(3, 35), r[1] = at(3, 5); /* two at first sight: the smaller claim */
    r[0].owner[0] = 9;
    assert_int_equal(poll(&c, r, 2, 300), 1);
    assert_int_equal(r[0].epoch, 5);
    claims_clear(&c);
}

/* Under a new name each time a key counts once, until the first name is forgotten. A part's leader has
 * two records: its own, and the sum. */
static void a_key_has_one_name(void **state)
{
    struct claims c = { 0 };
    struct progress_record r[] = { at(1, 5), at(7, 5) }, sum = at(8, 5);
    assert_int_equal(poll(&c, r, 2, 100), 2);
    sum.owner[0] = 7;
    sum.peers = 40;
    assert_int_equal(poll(&c, &sum, 1, 101), 1);
    for (uint8_t name = 9; name < 12; name++) {
        r[0] = at(1, 5);
        r[1] = at(name, 5);
        r[1].owner[0] = 7;
        assert_int_equal(poll(&c, r, 2, 100 + name), 1);
        assert_int_equal(r[0].peer.bytes[2], 1);
    }
    r[1] = at(7, 6);
    sort_by_peer(r, 2);
    assert_int_equal(poll(&c, r, 2, 120), 2);
    r[1] = at(12, 5);
    r[1].owner[0] = 7;
    assert_int_equal(poll(&c, r + 1, 1, 121 + CLAIMS_DOUBT_MAX), 0);
    assert_int_equal(poll(&c, r + 1, 1, 122 + CLAIMS_DOUBT_MAX), 1);
    claims_clear(&c);
}

/* Three keys write for one peer that is new to us: at epoch 0, at 11, where it is, and far ahead.
 * Without a state of ours the highest counts, so that we ask for one; then the one near our epoch. A
 * common round ends the dispute; a key that is alone is never disputed. */
static void a_newcomer_among_false_records(void **state)
{
    struct progress_record r[3], mate = at(1, 11);
    struct claims c = { .own = -1 };
    const int64_t reported[] = { 0, 11, HUGE_EPOCH };
#define POLL(now) \
    (r[0] = r[1] = r[2] = mate, r[0].epoch = reported[0], r[1].epoch = reported[1], \
     r[2].epoch = reported[2], r[0].owner[0] = 8, r[2].owner[0] = 9, poll(&c, r, 3, now))
    assert_int_equal(POLL(100), 1);
    assert_true(r[0].epoch == HUGE_EPOCH);
    assert_true(claims_lead(&c, 0, 100) == HUGE_EPOCH);
    c.own = 11;
    assert_int_equal(POLL(101), 1);
    assert_int_equal(r[0].epoch, 11);
    assert_int_equal(claims_lead(&c, 11, 101), 11);
    c.own = 1; /* not settled yet: the record that is nearest changes with us */
    assert_int_equal(POLL(102), 1);
    assert_int_equal(r[0].epoch, 0);
    c.own = 11;
    assert_int_equal(POLL(103), 1);
    meet(&c, &mate, 1);
    c.own = 1;
    assert_int_equal(POLL(104), 1);
    assert_int_equal(r[0].epoch, 11);
#undef POLL
    claims_clear(&c);
}

/* A false record of peer 1 comes first, then its own. By the proof under RUN_identity its own
 * counts, whatever was known before; without a proof the first one would. Proofs are asked for only where
 * keys disagree. */
static void proven_keys_win(void **state)
{
    struct progress_record r[3];
    struct claims c = { .own = 5 };
#define POLL(now, n) \
    (r[0] = r[1] = r[2] = at(1, 5), r[0].owner[0] = 9, r[0].epoch = 35, r[2].owner[0] = 8, \
     r[1].is_proven = is_proven, poll(&c, r, n, now))
    int is_proven = 0;
    assert_int_equal(POLL(100, 1), 1);
    assert_int_equal(r[0].epoch, 35);
    assert_false(c.wants_proofs);
    assert_int_equal(POLL(101, 2), 1);
    assert_int_equal(r[0].epoch, 35);
    assert_true(c.wants_proofs);
    is_proven = 1;
    assert_int_equal(POLL(102, 3), 1);
    assert_int_equal(r[0].epoch, 5);
    assert_false(c.wants_proofs);
    is_proven = 0; /* it is remembered */
    assert_int_equal(POLL(103, 3), 1);
    assert_int_equal(r[0].epoch, 5);
    assert_false(c.wants_proofs);
    assert_int_equal(POLL(104, 1), 0); /* the false one alone */
    assert_true(c.wants_proofs);
    /* It has begun anew: of two keys that are its own the later record counts. */
    r[0] = r[1] = at(1, 5);
    r[1].owner[0] = 7;
    r[1].is_proven = 1;
    r[1].epoch = 6;
    r[1].time = 105;
    r[0].time = 102;
    size_t counted;
    assert_int_equal(claims_update(&c, r, 2, TARGET, 105, &counted), PL_OK);
    assert_int_equal(counted, 1);
    assert_int_equal(r[0].epoch, 6);
#undef POLL
    claims_clear(&c);
}

/* A proof counts for the key and the peer that it names, and for no other. */
static void proofs_are_of_key_and_peer(void **state)
{
    struct identity me;
    struct bytes value = { 0 }, key = { 0 };
    struct progress_record r[3] = { at(1, 5), at(1, 5), at(1, 5) };
    struct dht_item item;
    struct dht_id owner;
    assert_int_equal(identity_make(&me, KEY_ED25519, NULL), PL_OK);
    bytes_add(&key, "an owner's tag", 14);
    assert_int_equal(identity_record_write(&value, &key, &me), PL_OK);
    item = (struct dht_item){ .subkey = (uint8_t *)bytes_at(&key),
                              .subkey_n = bytes_length(&key),
                              .value = (uint8_t *)bytes_at(&value),
                              .n = bytes_length(&value) };
    dht_id_of(&owner, bytes_at(&key), bytes_length(&key));
    r[0].peer = r[1].peer = me.id;
    memcpy(r[1].owner, owner.bytes, sizeof owner.bytes);
    memcpy(r[2].owner, owner.bytes, sizeof owner.bytes);
    claims_prove(r, 3, &item, 1);
    assert_false(r[0].is_proven); /* another key */
    assert_true(r[1].is_proven);
    assert_false(r[2].is_proven); /* another peer */
    claims_prove(r, 3, NULL, 0);
    bytes_clear(&value);
    bytes_clear(&key);
    identity_clear(&me);
}

/* However many strangers come, those that are known keep their places. */
static void memory_is_bounded(void **state)
{
    enum { MANY = 2 * CLAIMS_MAX };
    struct progress_record *r = calloc(MANY, sizeof *r);
    struct claims c = { 0 };
    assert_non_null(r);
    r[0] = at(255, 5);
    poll(&c, r, 1, 99);
    for (int round = 0; round < 3; round++) {
        size_t n, known = 0;
        for (size_t i = 1; i < MANY; i++) {
            r[i] = at((uint8_t)(i % 255), 35);
            r[i].peer.bytes[3] = (uint8_t)(i >> 8);
            r[i].peer.bytes[4] = (uint8_t)round;
        }
        r[0] = at(255, 5);
        n = poll(&c, r, MANY, 100 + round);
        assert_true(n && n <= CLAIMS_MAX && c.count <= CLAIMS_MAX);
        for (size_t i = 0; i < n; i++) known += r[i].peer.bytes[2] == 255;
        assert_int_equal(known, 1);
    }
    poll(&c, r, 0, 200 + CLAIMS_DOUBT_MAX);
    assert_int_equal(c.count, 0);
    free(r);
    claims_clear(&c);
}

/* --- bounds ----------------------------------------------------------------------------------- */

/* Of a dictionary's items those that can be read, each with the hash of its subkey as owner. */
static void records_are_read_with_their_owners(void **state)
{
    static uint8_t first[] = "first", second[] = "second", broken[] = "\xc1";
    struct progress_record r[4], one = at(7, 3), two = at(8, 4);
    struct bytes a = { 0 }, b = { 0 }, nil = { 0 };
    struct dht_id owner;
    progress_write(&a, &one);
    progress_write(&b, &two);
    mp_nil(&nil);
    {
        const struct dht_item items[] = {
            { .value = a.data, .n = bytes_length(&a), .subkey = first, .subkey_n = 5 },
            { .value = nil.data, .n = bytes_length(&nil), .subkey = first, .subkey_n = 5 },
            { .value = broken, .n = 1, .subkey = first, .subkey_n = 5 },
            { .value = b.data, .n = bytes_length(&b), .subkey = second, .subkey_n = 6 },
            { .value = b.data,
              .n = bytes_length(&b),
              .subkey = first,
              .subkey_n = 5 } /* not given */
        };
        assert_int_equal(claims_read(r, items, 4), 2);
    }
    assert_int_equal(r[0].epoch, 3);
    assert_int_equal(r[1].epoch, 4);
    dht_id_of(&owner, first, 5);
    assert_memory_equal(r[0].owner, owner.bytes, sizeof owner.bytes);
    dht_id_of(&owner, second, 6);
    assert_memory_equal(r[1].owner, owner.bytes, sizeof owner.bytes);
    bytes_clear(&a);
    bytes_clear(&b);
    bytes_clear(&nil);
}

/* From 0 to a target batch between two polls. */
static void speeds_are_bounded(void **state)
{
    static const struct {
        double claimed, counted;
    } speeds[] = {
        { -1, 0 }, { 0, 0 }, { 7, 7 }, { 2 * TARGET, 2 * TARGET }, { 1e300, 2 * TARGET }
    };
    for (size_t i = 0; i < PL_COUNT(speeds); i++) {
        struct progress_record r = at(1, 5);
        struct claims c = { 0 };
        r.samples_per_second = speeds[i].claimed;
        assert_int_equal(poll(&c, &r, 1, 100), 1);
        assert_true(r.samples_per_second == speeds[i].counted);
        claims_clear(&c);
    }
}

/* Another key's record counts from CLAIMS_SILENT after the owner's last report on, not before. */
static void owner_is_believed_until_it_is_silent(void **state)
{
    for (int late = 0; late <= 1; late++) {
        struct progress_record r = at(1, 5);
        struct claims c = { 0 };
        poll(&c, &r, 1, 100);
        r = at(1, 35);
        r.owner[0] = 9;
        assert_int_equal(poll(&c, &r, 1, 100 + CLAIMS_SILENT - !late), late);
        claims_clear(&c);
    }
}

/* A silent peer's old record, read again, shows no life; a new one does. An unknown peer is ignored. */
static void silence_ends_with_a_new_record(void **state)
{
    const struct peer_id unknown = at(77, 0).peer;
    struct progress_record r[] = { at(1, 5), at(2, 9) };
    struct claims c = { 0 };
    size_t counted;
    poll(&c, r, 2, 100);
    claims_silent(&c, &unknown, 100);
    claims_silent(&c, &r[0].peer, 99); /* has reported since that ping */
    assert_false(c.list[0].is_silent);
    claims_silent(&c, &r[0].peer, 100);
    assert_true(c.list[0].is_silent);
    claims_update(&c, r, 2, TARGET, 101, &counted); /* the same time stamps */
    assert_true(c.list[0].is_silent);
    assert_true(c.list[0].renewed == 100);
    assert_int_equal(claims_lead(&c, 0, 101), 9);
    r[0].time = 90; /* of a clock that was set back: it is another record */
    claims_update(&c, r, 2, TARGET, 102, &counted);
    assert_false(c.list[0].is_silent);
    assert_true(c.list[0].renewed == 102);
    claims_clear(&c);
}

/* 30 s, 60 s, ... 480 s; a living peer reports every 30 s, and is silent after 35. */
static void durations(void **state)
{
    static const double lives[] = { 30, 60, 120, 240, 480, 480 };
    struct progress_record r = at(9, 35);
    struct peer_id asked[CLAIMS_PINGS];
    struct claims c = { 0 };
    double now = 100;
    for (size_t i = 0; i < PL_COUNT(lives); i++) {
        poll(&c, &r, 1, now);
        claims_doubt(&c, 5, now);
        assert_int_equal(claims_lead(&c, 5, now + lives[i] - 0.5), -1);
        assert_int_equal(claims_lead(&c, 5, now + lives[i]), 35);
        now += lives[i];
    }
    assert_int_equal(claims_to_ping(&c, asked, 36, now), 1);
    assert_int_equal(claims_to_ping(&c, asked, 36, now + 34.5), 0);
    assert_int_equal(claims_to_ping(&c, asked, 36, now + 35), 1);
    assert_int_equal(claims_to_ping(&c, asked, 35, now + 99), 0); /* it holds that lead itself */
    claims_clear(&c);
}

/* A peer that leaves and comes back keeps its doubt, for as long as doubts last. Peers at our epoch
 * are not doubted, and a doubted peer not twice. */
static void doubts_outlive_absence(void **state)
{
    struct progress_record r[] = { at(1, 35), at(2, 5) }, back[] = { at(1, 35) };
    struct claims c = { 0 };
    poll(&c, r, 2, 100);
    assert_true(claims_can_be_shown(&c, 5, 100)); /* the first of the list alone */
    claims_doubt(&c, 5, 100);
    assert_int_equal(c.list[0].doubts, 1);
    assert_int_equal(c.list[1].doubts, 0);
    assert_true(c.list[1].doubted_until == 0);
    claims_doubt(&c, 5, 101);
    assert_int_equal(c.list[0].doubts, 1);
    assert_true(c.list[0].doubted_until == 100 + CLAIMS_DOUBT_MIN);
    poll(&c, NULL, 0, 102);
    assert_int_equal(c.count, 2);
    assert_int_equal(claims_lead(&c, 5, 102), -1); /* neither is there */
    poll(&c, back, 1, 103);
    assert_int_equal(claims_lead(&c, 5, 103), -1);
    assert_int_equal(claims_lead(&c, 5, 100 + CLAIMS_DOUBT_MIN), 35); /* over at that moment */
    poll(&c, NULL, 0, 103 + CLAIMS_DOUBT_MAX - 1);
    assert_int_equal(c.count, 1);
    poll(&c, NULL, 0, 103 + CLAIMS_DOUBT_MAX);
    assert_int_equal(c.count, 0);
    claims_clear(&c);
}

/* Peers that leave do not take the epoch back that people see; a doubt does, or a long time. */
static void displayed_epoch_does_not_fall(void **state)
{
    struct progress_record two[] = { at(1, 9), at(2, 9) }, one[] = { at(3, 6) };
    struct claims c = { 0 };
    assert_int_equal(claims_displayed(&c, -1, 100), 0);
    poll(&c, two, 2, 100);
    assert_int_equal(claims_displayed(&c, claims_lead(&c, 5, 100), 100), 9);
    poll(&c, one, 1, 101);
    assert_int_equal(claims_lead(&c, 5, 101), 6);
    assert_int_equal(claims_displayed(&c, 6, 101), 9);
    assert_int_equal(claims_displayed(&c, -1, 99 + CLAIMS_DOUBT_MAX), 9);
    assert_int_equal(claims_displayed(&c, 6, 100 + CLAIMS_DOUBT_MAX), 6);
    assert_int_equal(claims_displayed(&c, 8, 101 + CLAIMS_DOUBT_MAX), 8);
    assert_int_equal(claims_displayed(&c, 7, 100 + 2 * CLAIMS_DOUBT_MAX), 8);
    claims_doubt(&c, 5, 1100);
    assert_int_equal(claims_displayed(&c, 6, 1100), 6);
    assert_int_equal(claims_displayed(&c, 5, 1101), 6);
    claims_clear(&c);
}

/* --- sums of claims --------------------------------------------------------------------------- */

static void check_view(struct progress_record *records, size_t count, int soon)
{
    const struct progress_local mine = { 5, 8, 2, 0 };
    struct progress_view v;
    struct claims c = { 0 };
    claims_update(&c, records, count, TARGET, 1000, &count);
    progress_update(&v, records, count, 1, &mine, TARGET, 1000);
    assert_int_equal(v.epoch, 5);
    assert_true(v.samples >= 8);
    assert_true(isfinite(v.eta) && v.eta >= 1000);
    assert_true(v.next_fetch >= 1000 + PROGRESS_FETCH_MIN);
    assert_true(v.next_fetch <= 1000 + PROGRESS_FETCH_MAX);
    assert_int_equal(v.eta == 1000, soon);
    claims_clear(&c);
}

static void sums_saturate(void **state)
{
    static const double any[] = { 0, 0.1, -1, 1e308, -1e308, DBL_MAX, -DBL_MAX, DBL_MIN, 5e-324 };
    assert_true(progress_plus(INT64_MAX, INT64_MAX) == INT64_MAX);
    assert_true(progress_plus(INT64_MAX - 1, 1) == INT64_MAX);
    assert_true(progress_plus(40, 2) == 42);
    for (size_t s = 0; s < PL_COUNT(any); s++)
        for (size_t t = 0; t < PL_COUNT(any); t++) {
            struct progress_record r[] = { at(1, 5), at(8, 5), at(9, 5) };
            r[0].samples = 8;
            for (size_t i = 0; i < 3; i++) r[i].time = 999;
            r[1].samples_per_second = r[2].samples_per_second = any[s];
            r[1].time = r[2].time = any[t];
            /* it seems to have filled the batch alone; 0.1 a second does not, in a record's life */
            check_view(r, 3, any[s] > 0.1 && any[t] < 1000);
            r[0] = at(1, 5), r[1] = at(8, 5), r[2] = at(9, 5);
            r[0].samples = 8, r[1].samples = r[2].samples = INT64_MAX;
            r[1].samples_per_second = r[2].samples_per_second = any[s];
            check_view(r, 3, 1);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lead_is_a_majority),
        cmocka_unit_test(groupmates_decide_the_lead),
        cmocka_unit_test(split_pairs_see_each_other),
        cmocka_unit_test(unconfirmed_lead_is_doubted),
        cmocka_unit_test(clients_have_no_state),
        cmocka_unit_test(silent_peers_do_not_count_for_the_lead),
        cmocka_unit_test(pings_are_bounded),
        cmocka_unit_test(parts_vote_for_their_peers),
        cmocka_unit_test(one_owner_for_each_peer),
        cmocka_unit_test(a_key_has_one_name),
        cmocka_unit_test(a_newcomer_among_false_records),
        cmocka_unit_test(proven_keys_win),
        cmocka_unit_test(proofs_are_of_key_and_peer),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(records_are_read_with_their_owners),
        cmocka_unit_test(speeds_are_bounded),
        cmocka_unit_test(owner_is_believed_until_it_is_silent),
        cmocka_unit_test(silence_ends_with_a_new_record),
        cmocka_unit_test(durations),
        cmocka_unit_test(doubts_outlive_absence),
        cmocka_unit_test(displayed_epoch_does_not_fall),
        cmocka_unit_test(sums_saturate),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
