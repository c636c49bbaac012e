/* optimizer_pairs.c - five peers train by NoLoCo over loopback: in each epoch a pair and a group of
 * three, drawn anew, so nobody is left over, and all have met after a few epochs. */
#include "loopback_run.h"
#include "net/hivemind/progress/pairs.h"

#define N 16
#define PEERS 5
#define SAMPLES 8
#define INNER 2
#define EPOCHS 8

struct peer {
    struct loopback_peer base;
    float w[N];
    size_t size[EPOCHS + 1]; /* of the group of each epoch; 0: its round has failed */
    uint8_t group[EPOCHS + 1][20];
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
    const int64_t epoch = e->status.epoch;
    if (e->kind == PL_COLLABORATIVE_WARNING) printf("peer %d: %s\n", p->base.number, e->text);
    if (e->kind != PL_COLLABORATIVE_EPOCH || epoch > EPOCHS || e->round.status) return;
    p->size[epoch] = e->round.peers;
    memcpy(p->group[epoch], e->round.group, sizeof p->group[epoch]);
}

static void open_peer(struct peer *p)
{
    const struct pl_collaborative_tensor tensors[] = { { "w", 1, { N }, p->w, 0 } };
    struct pl_collaborative_options o = loopback_options("noloco");
    o.inner_steps = INNER;
    o.target_batch = SAMPLES;
    o.fresh = 1;
    o.matchmaking_time = 3;
    o.step = sgd;
    o.report = report;
    o.context = p;
    for (int i = 0; i < N; i++) p->w[i] = 1 + 0.1f * (float)i;
    loopback_open(&p->base, "pairs", tensors, 1, &o);
}

static int step(struct peer *p, int64_t samples)
{
    float g[N];
    const float *gradient[] = { g };
    for (int i = 0; i < N; i++) g[i] = p->w[i] - 0.3f * (float)((i + p->base.number) % 7);
    return pl_collaborative_step(p->base.c, gradient, samples, 1, &p->base.err);
}

/* Nobody begins an epoch before all have ended the one before, or half a minute has passed: then
 * somebody's round has failed. */
static void *train(void *context)
{
    struct peer *p = context;
    const struct timespec nap = { 0, 50000000 };
    struct pl_collaborative_status s;
    int64_t done = -1;
    p->base.rc = step(p, 1);
    do {
        nanosleep(&nap, NULL);
        pl_collaborative_status(p->base.c, &s);
        if (s.peers < PEERS) p->base.rc = step(p, 0);
    } while (!p->base.rc && s.peers < PEERS);
    while (!p->base.rc && pl_collaborative_epoch(p->base.c) < EPOCHS) {
        const int64_t epoch = pl_collaborative_epoch(p->base.c);
        if (epoch != done) {
            note(&at_epoch[epoch]);
            await_noted(&at_epoch[epoch], PEERS, 30);
            done = epoch;
        }
        nanosleep(&nap, NULL);
        p->base.rc = step(p, SAMPLES);
    }
    return NULL;
}

/* 1: the groups of the round that ended at this epoch are those that were drawn for it. */
static int is_drawn(const struct peer *p, int64_t epoch)
{
    char bits[PEERS][GROUP_BITS_MAX + 1];
    struct peer_id ids[PEERS], own;
    int same = 1;
    for (int r = 0; r < PEERS; r++) {
        for (int k = 0; k < PEERS; k++) {
            const char *text = strrchr(pl_collaborative_address(p[k].base.c), '/') + 1;
            assert_int_equal(peer_id_from_text(&ids[k], text, strlen(text)), PL_OK);
        }
        own = ids[r]; /* pairs_draw sorts them */
        pairs_draw(bits[r], ids, PEERS, &own, 2, epoch - 1);
    }
    for (int r = 0; r < PEERS; r++)
        for (int k = 0; k < r; k++)
            if (p[r].size[epoch] && p[k].size[epoch])
                same &= !memcmp(p[r].group[epoch], p[k].group[epoch], 20) ==
                        !strcmp(bits[r], bits[k]);
    return same;
}

static void five_peers_are_paired_anew(void **state)
{
    struct peer p[PEERS];
    int met[PEERS][PEERS] = { { 0 } }, drawn = 0, whole = 0, strangers = 0;
    (void)state;
    memset(p, 0, sizeof p);
    for (int r = 0; r < PEERS; r++) {
        p[r].base.number = r;
        open_peer(&p[r]);
    }
    for (int r = 0; r < PEERS; r++) loopback_start(&p[r].base, train);
    for (int r = 0; r < PEERS; r++) loopback_wait(&p[r].base);
    for (int t = 1; t <= EPOCHS; t++) {
        int in_pairs = 0, in_threes = 0;
        for (int r = 0; r < PEERS; r++) {
            in_pairs += p[r].size[t] == 2;
            in_threes += p[r].size[t] == 3;
            for (int k = 0; k < r; k++)
                met[r][k] += p[r].size[t] && !memcmp(p[r].group[t], p[k].group[t], 20);
        }
        drawn += is_drawn(p, t);
        whole += in_pairs == 2 && in_threes == 3;
    }
    for (int r = 0; r < PEERS; r++)
        for (int k = 0; k < r; k++) strangers += !met[r][k];
    printf("%d of %d epochs in a pair and a three, %d as drawn, %d of 10 have not met\n", whole,
           EPOCHS, drawn, strangers);
    for (int r = 0; r < PEERS; r++) pl_collaborative_close(p[r].base.c);
    /* On a busy machine a peer may miss a round. */
    assert_true(whole >= EPOCHS / 2);
    assert_true(drawn >= EPOCHS - 1);
    assert_true(strangers <= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(five_peers_are_paired_anew) };
    alarm((unsigned)(2 * LIMIT));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
