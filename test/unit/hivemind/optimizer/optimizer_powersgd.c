/* optimizer_powersgd.c - two peers train by PowerSGD over loopback, are stopped and go on from what
 * they have saved: bit for bit as if they had not been stopped. Matchmaking decides anew which of
 * them reduces a part. Without compression that changes no bit of a sum of two, since rounded sums
 * are commutative. Sums of three could change, since they are not associative. */
#include "loopback_run.h"
#include "net/bytes.h"
#include "net/hivemind/optimizer/optimizer_trainer.h"

#include <math.h>

#define ROWS 24
#define COLUMNS 16
#define N (ROWS * COLUMNS)
#define PEERS 2
#define SAMPLES 8 /* of the first peer; the second has one more */
#define SAVED 3   /* epoch */
#define EPOCHS 6
#define TRIES 3 /* on a busy machine a peer may miss a round */

struct saved {
    float w[N];
    struct bytes factors;
};
struct peer {
    struct loopback_peer base;
    float w[N];
    struct saved *saved;
    int64_t groups; /* rounds of both */
};

static int at_epoch[EPOCHS + 1];

static int sgd(void *context, const float *const *gradient, int64_t number, struct pl_err *err)
{
    struct peer *p = context;
    (void)number, (void)err;
    for (int i = 0; i < N; i++) p->w[i] -= 0.3f * gradient[0][i];
    return PL_OK;
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    struct peer *p = context;
    if (e->kind == PL_COLLABORATIVE_EPOCH) p->groups += !e->round.status && e->round.peers == PEERS;
    if (e->kind == PL_COLLABORATIVE_WARNING) printf("peer %d: %s\n", p->base.number, e->text);
}

static void open_peer(struct peer *p, int64_t epoch)
{
    const struct pl_collaborative_tensor tensors[] = { { "w", 2, { ROWS, COLUMNS }, p->w, 0 } };
    struct pl_collaborative_options o = loopback_options("powersgd");
    o.powersgd_rank = 2;
    o.target_batch = PEERS * SAMPLES;
    o.epoch = epoch;
    o.fresh = 1;
    o.average_state_every = 1000;
    o.step = sgd;
    o.report = report;
    o.context = p;
    loopback_open(&p->base, "powersgd", tensors, 1, &o);
}

/* Towards a matrix of full rank, so that two columns never hold the whole gradient. */
static int step(struct peer *p, int64_t samples)
{
    float g[N];
    const float *gradient[] = { g };
    for (int i = 0; i < N; i++)
        g[i] = p->w[i] - 0.1f * (float)((i * 37 + i / COLUMNS * 11 + 5 * p->base.number) % 53 - 26);
    return pl_collaborative_step(p->base.c, gradient, samples, 1, &p->base.err);
}

/* One batch an epoch, once both are there: the same weights in every run. */
static void *train(void *context)
{
    struct peer *p = context;
    const struct timespec nap = { 0, 20000000 };
    int64_t done = -1;
    while (!p->base.rc && pl_collaborative_epoch(p->base.c) < EPOCHS) {
        const int64_t epoch = pl_collaborative_epoch(p->base.c);
        const int is_new = epoch != done;
        if (is_new && epoch == SAVED && !p->saved->factors.data) {
            memcpy(p->saved->w, p->w, sizeof p->w);
            p->base.rc = collaborative_save_factors(p->base.c, &p->saved->factors);
        }
        if (is_new) {
            note(&at_epoch[epoch]);
            if (!await_noted(&at_epoch[epoch], PEERS, LIMIT)) p->base.rc = PL_EIO;
        }
        if (!p->base.rc) p->base.rc = step(p, is_new ? SAMPLES + p->base.number : 0);
        done = epoch;
        nanosleep(&nap, NULL);
    }
    return NULL;
}

/* From the beginning, or from `saved` (epoch SAVED), with its factors or without. 1: all rounds were
 * of both peers. */
static int play(float w[PEERS][N], struct saved saved[PEERS], int64_t epoch, int with_factors)
{
    struct peer p[PEERS];
    int whole = 1;
    memset(p, 0, sizeof p);
    memset(at_epoch, 0, sizeof at_epoch);
    for (int r = 0; r < PEERS; r++) {
        p[r].base.number = r;
        p[r].saved = &saved[r];
        if (epoch) memcpy(p[r].w, saved[r].w, sizeof p[r].w);
        open_peer(&p[r], epoch);
        if (with_factors)
            assert_int_equal(collaborative_load_factors(p[r].base.c, bytes_at(&saved[r].factors),
                                                        bytes_length(&saved[r].factors), 0,
                                                        &p[r].base.err),
                             PL_OK);
    }
    for (int r = 0; r < PEERS; r++) loopback_start(&p[r].base, train);
    for (int r = 0; r < PEERS; r++) {
        loopback_wait(&p[r].base);
        whole &= p[r].groups == EPOCHS - epoch;
        memcpy(w[r], p[r].w, sizeof w[r]);
        pl_collaborative_close(p[r].base.c);
    }
    return whole;
}

static double distance(float a[PEERS][N], float b[PEERS][N])
{
    double most = 0;
    for (int r = 0; r < PEERS; r++)
        for (int i = 0; i < N; i++) most = fmax(most, fabs((double)a[r][i] - (double)b[r][i]));
    return most;
}

static void stopped_peers_go_on(void **state)
{
    struct saved saved[PEERS];
    float whole[PEERS][N], resumed[PEERS][N], without[PEERS][N];
    int good = 0;
    (void)state;
    for (int try = 0; !good && try < TRIES; try++) {
        memset(saved, 0, sizeof saved);
        good = play(whole, saved, 0, 0) && play(resumed, saved, SAVED, 1) &&
               play(without, saved, SAVED, 0);
        for (int r = 0; good && r < PEERS; r++) assert_true(bytes_length(&saved[r].factors) > 0);
        for (int r = 0; r < PEERS; r++) bytes_clear(&saved[r].factors);
    }
    assert_true(good);
    printf("resumed: %g, without the error and the factors: %g\n", distance(whole, resumed),
           distance(whole, without));
    assert_memory_equal(whole, resumed, sizeof whole);
    assert_true(distance(whole, without) > 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(stopped_peers_go_on) };
    alarm((unsigned)(2 * LIMIT));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
