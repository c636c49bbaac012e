/* attacks.c - does a swarm with Byzantine peers learn? Peers train a linear regression and average
 * their gradients over real connections, while some of them send false values.
 *
 *   attacks            asserts the main results
 *   attacks --table    measures every attack, with and without protection, as in
 *                      paper/security.md: nothing in it is random */
#include "test/unit/hivemind/loopback.h"
#include "test/unit/hivemind/verification/signed_packets.h"
#include "net/hivemind/averaging/averager_internal.h"
#include "net/hivemind/allreduce/allreduce_internal.h"
#include "ref/rng.h"

#include <math.h>

#define D 256     /* parameters, one tensor */
#define BATCH 256 /* samples a peer and a round: the gradient's noise is then as large as itself */
#define RATE 0.5
#define LABEL_NOISE 0.1
#define HISTORY 64
#define PATIENCE 180.0 /* s for one round of all peers */

enum attack {
    HONEST,
    FLIP,
    FLIP_10,
    SCALED,
    RANDOM,
    NOT_A_NUMBER,
    STALE,
    HEAVY,
    SHIFT,
    ACCUSE,
    ATTACKS,
    /* in messages of verification, not in the values that are averaged */
    ACCUSE_ALL = ATTACKS,
    COMMIT_WRONGLY,
    EQUIVOCATE,
    FALL_SILENT
};
static const char *const names[ATTACKS] = {
    "none",
    "the opposite",
    "the opposite, times 10",
    "times 100",
    "random, 10 times as long",
    "not a number",
    "that of the first round",
    "the opposite, of the largest weight",
    "the truth, but answer with the opposite, times 10, of what they reduce",
    "the truth, but accuse the peers that they validate falsely"
};

static const struct schema_tensor model[1] = {
    { .type = { .dtype = PL_F32, .dims = 1, .size = { D } } }
};
static const double weight_max = 64, usual_weight = 16;

struct trainer {
    float value[D], grad[D], first[D], *tensor[1];
    enum attack attack;
    int applied;
    struct pl_rng lots;
};
static struct trainer trainers[PEERS];
static struct pl_backend byzantine_be; /* what they reduce with */
static struct pl_rng places;           /* in the group that is being put together */
static uint64_t groups;                /* so far */
static double silence =
    3; /* s until a silent groupmate is given up, where Byzantine peers make groups fail */
enum { MEAN, CLIP, BTARD, WAYS };
static double truth[D];
static struct pl_rng noise; /* of those who send some */

/* The gradient of 0.5 (x (value - truth) + noise)^2 over a batch of standard normal x: the peer's
 * own batch of that round, so that any peer with the same parameters can compute it again. */
static void gradient(float *grad, const float *value, size_t peer, int round)
{
    double x[D], sum[D] = { 0 };
    struct pl_rng rng;
    pl_rng_init(&rng, 2 + peer, (uint64_t)round);
    for (int b = 0; b < BATCH; b++) {
        double error = LABEL_NOISE * pl_rng_normal(&rng);
        for (int k = 0; k < D; k++) {
            x[k] = pl_rng_normal(&rng);
            error += x[k] * (value[k] - truth[k]);
        }
        for (int k = 0; k < D; k++) sum[k] += error * x[k] / BATCH;
    }
    for (int k = 0; k < D; k++) grad[k] = (float)sum[k];
}

/* Byzantine peers validate nobody, or accuse every peer that they validate. */
static int recompute(void *context, const struct peer_id *peer, const struct verifier_claim *claim,
                     float *const *tensor)
{
    const struct trainer *judge = context;
    if (judge->attack && judge->attack != ACCUSE) return PL_ENOTFOUND;
    for (size_t i = 0; i < count; i++)
        if (peer_id_equal(peer, &peers[i].me.id))
            gradient(tensor[0], judge->value, i, (int)claim->epoch);
    if (judge->attack) tensor[0][0] += 100;
    return PL_OK;
}

static void lie(struct trainer *l, struct peer *p)
{
    double length = 0;
    for (int k = 0; k < D; k++) length += (double)l->grad[k] * l->grad[k];
    length = sqrt(length / D);
    for (int k = 0; k < D; k++) switch (l->attack) {
        case FLIP: l->grad[k] *= -1; break;
        case FLIP_10: l->grad[k] *= -10; break;
        case SCALED: l->grad[k] *= 100; break;
        case RANDOM: l->grad[k] = (float)(10 * length * pl_rng_normal(&noise)); break;
        case NOT_A_NUMBER: l->grad[k] = k % 2 ? NAN : INFINITY; break;
        case STALE: l->grad[k] = l->first[k]; break;
        case HEAVY: l->grad[k] *= -1; break;
        case HONEST:
        case SHIFT:
        case ACCUSE: break;
        case ACCUSE_ALL:
        case COMMIT_WRONGLY:
        case EQUIVOCATE:
        case FALL_SILENT: break;
        }
    if (l->attack == HEAVY) p->step.weight = weight_max;
}

static int shifting_clip(double *v, struct pl_clip_result *result, const float *x,
                         const double *weight, int n, size_t d, const struct pl_clip *clip)
{
    int rc = ref_centered_clip(v, result, x, weight, n, d, clip);
    for (size_t k = 0; k < d; k++) v[k] *= -10;
    return rc;
}
static int shifting_delta(float *delta, const float *sum, float weight, const struct pl_coded *x,
                          size_t n)
{
    int rc = ref_average_delta(delta, sum, weight, x, n);
    for (size_t i = 0; i < n; i++) delta[i] -= 11 * sum[i] / weight;
    return rc;
}

/* A Byzantine peer's messages when a round is verified. */
static enum fate tell_otherwise(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                size_t *n)
{
    const struct trainer *l = r->v.random.context;
    uint8_t accusation[ACCUSATION_BYTES] = { ACCUSES_REPORT };
    if (l->attack == ACCUSE_ALL && stage == VERIFIER_ACCUSE) {
        while (r->v.parts[accusation[4]].reducer != (int)r->v.self) accusation[4]++;
        for (size_t i = 0; i < r->v.count; i++)
            memcpy(body + i * sizeof accusation, accusation, sizeof accusation);
        return CHANGED;
    }
    if (l->attack == COMMIT_WRONGLY && stage == VERIFIER_COMMIT) {
        memset(body + COMMIT_DIGESTS(r->v.count), 7, r->v.count * PL_HASH_BYTES);
        return CHANGED;
    }
    if (l->attack == EQUIVOCATE && stage == VERIFIER_REVEAL && to % 2) {
        body[0] ^= 1;
        return SPLIT;
    }
    return l->attack == FALL_SILENT && stage % VERIFIER_PHASES >= VERIFIER_REPORT ? DROPPED : SAME;
}

/* Linked in place of averager_verify_send. */
void __real_averager_verify_send(void *context, size_t peer, const uint8_t *data, size_t n);
void __wrap_averager_verify_send(void *context, size_t peer, const uint8_t *data, size_t n);
void __wrap_averager_verify_send(void *context, size_t peer, const uint8_t *data, size_t n)
{
    struct averager *a = context;
    struct bytes out = { 0 };
    if (((struct trainer *)a->o.random.context)->attack < ATTACKS) {
        __real_averager_verify_send(context, peer, data, n);
        return;
    }
    rewrite_packet(&out, a->round.x->verify.verifier, peer, tell_otherwise, data, n);
    if (bytes_length(&out))
        __real_averager_verify_send(context, peer, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

/* Any leader of a group draws what any other would have drawn; lots are each peer's own. So the
 * same command gives the same swarm, whichever peer is fastest. Only one group is put together at a
 * time: all of this is the loop's thread's. */
static int draw(void *context, uint8_t *bytes, size_t n)
{
    struct trainer *l = context;
    if (n == DHT_ID_BYTES) pl_rng_init(&places, 3, ++groups); /* a new group's name */
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)pl_rng_below(n == PL_HASH_BYTES ? &l->lots : &places, 256);
    return PL_OK;
}

/* Half the mean square error of the honest peers' parameters. It begins near 0.5. */
static double loss(void)
{
    double sum = 0;
    int honest = 0;
    for (size_t i = 0; i < count; i++) {
        if (trainers[i].attack) continue;
        honest++;
        for (int k = 0; k < D; k++) sum += 0.5 * pow(trainers[i].value[k] - truth[k], 2) / D;
    }
    return sum / honest;
}

static void cancel(void *context) { averager_cancel(((struct peer *)context)->a); }

static void round_of_all(size_t byzantine)
{
    for (size_t i = 0; i < count; i++) {
        struct trainer *l = &trainers[i];
        gradient(l->grad, l->value, i, l->applied);
        peers[i].step.claim = (struct verifier_claim){ l->applied, BATCH };
        if (!l->applied++) memcpy(l->first, l->grad, sizeof l->first);
        lie(l, &peers[i]);
    }
    begin_all();
    for (size_t i = byzantine; i < count; i++)
        assert_true(await_noted(&peers[i].done, 1, PATIENCE));
    for (size_t i = 0; i < byzantine; i++) { /* nobody may want to hear of them any more */
        loop_call(loop, cancel, &peers[i]);
        assert_true(await_noted(&peers[i].done, 1, PATIENCE));
    }
    for (size_t i = 0; i < count; i++) {
        if (peers[i].status && !trainers[i].attack) fail_msg("peer %zu: %s", i, peers[i].err.text);
        for (int k = 0; k < D && (!peers[i].status || trainers[i].attack); k++)
            trainers[i].value[k] -= (float)(RATE * (trainers[i].attack ? trainers[count - 1].grad[k]
                                                                       : trainers[i].grad[k]));
    }
}

#define UNTIL_CAUGHT 0 /* "rounds" */
/* of 5, two pairs can be drawn, one is: an attacker is the target of every fifth */
#define PLENTY 100

/* This many peers, the first of them byzantine, this many rounds. The loss at the end. */
static double train(size_t n, size_t byzantine, enum attack attack, int way, int rounds)
{
    /* A NaN comes out of an attacker's mean too; and verification finds Byzantine
     * peers. Such groups fail until these are in none. Otherwise groups are whole, however slow the
     * machine. */
    int fails = way == BTARD ? attack != HONEST : way == MEAN && attack == NOT_A_NUMBER;
    struct pl_rng rng;
    double end;
    begin_test(NULL);
    numbered = 1;
    groups = 0;
    pl_rng_init(&rng, 1, 1);
    pl_rng_init(&noise, 1, 2);
    byzantine_be = be;
    /* Once: answers are made of CenteredClip's aggregate as they are of a mean. */
    if (way == BTARD) byzantine_be.centered_clip = shifting_clip;
    else byzantine_be.average_delta = shifting_delta;
    for (int k = 0; k < D; k++) truth[k] = pl_rng_normal(&rng);
    for (size_t i = 0; i < n; i++) {
        struct peer *p = add(0, 0);
        struct trainer *l = &trainers[i];
        memset(l, 0, sizeof *l);
        l->attack = i < byzantine ? attack : HONEST;
        l->tensor[0] = l->grad;
        pl_rng_init(&l->lots, 4, i);
        p->options.random = (struct random_source){ draw, l };
        p->timeout = PATIENCE;
        p->options.tensors = 1;
        p->options.schema = model;
        p->options.min_matchmaking_time = fails ? 4 : 20;
        p->options.sender_timeout =
            fails ? silence : 30; /* Byzantine peers that lie to each other leave early */
        p->options.reducer_timeout = 2 * p->options.sender_timeout;
        p->options.allreduce_timeout = 60;
        p->options.part_bytes = 128; /* several parts each */
        p->options.clip = way == CLIP ? PL_CLIP_USUAL : 0;
        p->options.verify = way == BTARD;
        p->options.validation = (struct allreduce_validation){ .validators = 1,
                                                               .recompute = recompute,
                                                               .context = l };
        if (attack == SHIFT && i < byzantine) p->options.be = &byzantine_be;
        p->options.weight_max = weight_max;
        p->options.min_size = fails ? n - byzantine : n;
        p->options.target_size = fails ? 0 : n;
        p->step = (struct averager_step){ .weight = usual_weight,
                                          .tensor = l->tensor,
                                          .expected = n };
    }
    open_all();
    for (int i = 0; i < rounds || (rounds == UNTIL_CAUGHT && i < PLENTY); i++) {
        size_t banned = 0;
        round_of_all(byzantine);
        for (size_t k = byzantine; k < n; k++)
            if ((size_t)peers[k].banned > banned) banned = (size_t)peers[k].banned;
        for (size_t k = 0; k < n; k++) peers[k].step.expected = n - banned;
        if (rounds == UNTIL_CAUGHT && banned == byzantine) break;
    }
    end = loss();
    end_test(NULL);
    return end;
}

static void honest_peers_learn(void **state) { assert_true(train(5, 0, HONEST, MEAN, 4) < 0.05); }

/* The mean goes wherever a single attacker wants it to go. */
static void the_mean_is_lost(void **state)
{
    double one, two;
    assert_true((one = train(5, 1, FLIP_10, MEAN, 4)) > 0.5);
    assert_true((two = train(7, 2, FLIP_10, MEAN, 4)) > 0.5);
    assert_true(isfinite(one) && isfinite(two));
}

static void clipped_it_learns(void **state)
{
    assert_true(train(5, 1, FLIP_10, CLIP, 5) < 0.2);
    assert_true(train(7, 2, FLIP_10, CLIP, 5) < 0.2);
    assert_true(train(5, 1, HEAVY, CLIP, 5) < 0.3);
}

/* Protected or not. In the mean of an attacker it comes out again: a round is lost, and the
 * attacker in no group. */
static void what_is_no_number_is_refused(void **state)
{
    int banned = 0;
    assert_true(train(5, 1, NOT_A_NUMBER, MEAN, 4) < 0.05);
    for (size_t i = 1; i < 5; i++) banned += peers[i].banned;
    assert_true(banned >= 1);
    assert_true(train(7, 2, NOT_A_NUMBER, MEAN, 4) < 0.05);
    assert_true(train(7, 2, NOT_A_NUMBER, CLIP, 4) < 0.1);
}

/* Of n peers, this many; the first are Byzantine. */
static void all_have_banned(size_t n, size_t banned)
{
    for (size_t i = 0; i < n; i++)
        if (!trainers[i].attack && (size_t)peers[i].banned != banned)
            fail_msg("peer %zu has banned %d: %s", i, peers[i].banned, peers[i].caught);
}

/* Honest rounds are verified, and hold; CenteredClip protects; a reducer that answers what it
 * likes is found. */
static void verified_it_learns(void **state)
{
    assert_true(train(5, 0, HONEST, BTARD, 4) < 0.05);
    assert_int_equal(peers[4].verified, 1);
    all_have_banned(5, 0);
    assert_true(train(5, 1, SHIFT, CLIP, 4) > 0.5);
    assert_true(train(5, 1, SHIFT, BTARD, 4) < 0.05);
    all_have_banned(5, 1);
}

/* Validators that are drawn by lot find peers whose values do not follow from their data; false
 * accusers are found by the peers that vote. All others come to the same result. */
static void byzantine_peers_are_drawn_and_banned(void **state)
{
    assert_true(train(7, 2, FLIP_10, BTARD, UNTIL_CAUGHT) < 0.5);
    all_have_banned(7, 2);
    train(5, 1, ACCUSE, BTARD, UNTIL_CAUGHT);
    all_have_banned(5, 1);
}

/* Whatever one or two of seven report about the others: the honest peers stay together and continue
 * to learn. */
static void false_messages_do_not_split_honest_peers(void **state)
{
    static const struct {
        size_t byzantine;
        enum attack attack;
        int banned;
    } cases[] = {
        { 1, ACCUSE_ALL, 1 }, { 2, ACCUSE_ALL, 2 },  { 1, COMMIT_WRONGLY, 1 },
        { 1, EQUIVOCATE, 1 }, { 1, FALL_SILENT, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        size_t byzantine = cases[i].byzantine;
        double left = train(7, byzantine, cases[i].attack, BTARD, 4);
        if (!(left < 0.05)) fail_msg("case %zu: %g is left", i, left);
        all_have_banned(7, cases[i].banned ? byzantine : 0);
        for (size_t k = byzantine; k < 7; k++) assert_int_equal(peers[k].group, 7 - byzantine);
    }
}

static int table(void)
{
    static const struct {
        size_t n, byzantine;
    } swarms[] = { { 5, 1 }, { 7, 2 } };
    const int rounds = 12;
    silence = 10; /* a busy machine's pause is none */
    printf(
        "| byzantine send | 1 of 5: mean | centered-clip | btard | 2 of 7: mean | centered-clip | "
        "btard |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int attack = 0; attack < ATTACKS; attack++) {
        printf("| %s", names[attack]);
        for (size_t i = 0; i < PL_COUNT(swarms); i++)
            for (int way = 0; way < WAYS; way++) {
                printf(" | %.2g",
                       train(swarms[i].n, swarms[i].byzantine, (enum attack)attack, way, rounds));
                fflush(stdout);
            }
        printf(" |\n");
    }
    return 0;
}

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_peers_learn),
        cmocka_unit_test(the_mean_is_lost),
        cmocka_unit_test(clipped_it_learns),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(verified_it_learns),
        cmocka_unit_test(byzantine_peers_are_drawn_and_banned),
        cmocka_unit_test(false_messages_do_not_split_honest_peers),
    };
    if (argc > 1 && !strcmp(argv[1], "--table")) return table();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
