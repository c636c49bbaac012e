/* classifier.c - strangers train a model together: a network of one hidden layer tells three
 * spirals of points apart.
 *
 *     cc -o classifier classifier.c $(pkg-config --cflags --libs potluck) -lm
 *     ./classifier                                        the first peer; prints its address
 *     ./classifier /ip4/127.0.0.1/tcp/34567/p2p/12D3...   another peer, anywhere
 *
 * Each peer draws its own points. Together they take steps of 512 of them, with Adam. */
#include <net/hivemind/optimizer.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IN = 2, HIDDEN = 32, CLASSES = 3, BATCH = 32, EPOCHS = 60 };

static struct network {
    float w1[HIDDEN][IN], b1[HIDDEN], w2[CLASSES][HIDDEN], b2[CLASSES];
} net, grad; /* parameters, and the gradient of a batch's mean loss */

static double uniform(void) { return rand() / (double)RAND_MAX; }

/* Draws a point x of a spiral. p = softmax(w2 tanh(w1 x + b1) + b2). Adds the gradient's part;
 * returns -log p[spiral]. */
static double train_on_point(void)
{
    int spiral = rand() % CLASSES;
    double r = uniform(), angle = 4 * r + 2 * 3.14159265 * spiral / CLASSES;
    double x[IN] = { r * cos(angle), r * sin(angle) }, h[HIDDEN], p[CLASSES], sum = 0, loss;
    for (int i = 0; i < HIDDEN; i++)
        h[i] = tanh(net.w1[i][0] * x[0] + net.w1[i][1] * x[1] + net.b1[i]);
    for (int k = 0; k < CLASSES; k++) {
        p[k] = net.b2[k];
        for (int i = 0; i < HIDDEN; i++) p[k] += net.w2[k][i] * h[i];
        sum += p[k] = exp(p[k]);
    }
    loss = log(sum / p[spiral]);
    for (int k = 0; k < CLASSES; k++) {
        p[k] = (p[k] / sum - (k == spiral)) / BATCH; /* dloss / dlogit */
        grad.b2[k] += (float)p[k];
        for (int i = 0; i < HIDDEN; i++) grad.w2[k][i] += (float)(p[k] * h[i]);
    }
    for (int i = 0; i < HIDDEN; i++) {
        double d = 0;
        for (int k = 0; k < CLASSES; k++) d += p[k] * net.w2[k][i] * (1 - h[i] * h[i]);
        grad.b1[i] += (float)d;
        for (int j = 0; j < IN; j++) grad.w1[i][j] += (float)(d * x[j]);
    }
    return loss;
}

static void report(void *context, const struct pl_collaborative_event *e)
{
    (void)context;
    if (e->kind == PL_COLLABORATIVE_EPOCH)
        printf("step %d: loss %.3f, averaged by %zu peers\n", (int)e->status.epoch, e->loss,
               e->round.peers);
    if (e->kind == PL_COLLABORATIVE_WARNING) puts(e->text);
}

int main(int argc, char **argv)
{
    struct pl_collaborative_run run = { .name = "spirals" };
    struct pl_collaborative_tensor tensors[] = { { "w1", 2, { HIDDEN, IN }, net.w1[0], 0 },
                                                 { "b1", 1, { HIDDEN }, net.b1, 1 },
                                                 { "w2", 2, { CLASSES, HIDDEN }, net.w2[0], 0 },
                                                 { "b2", 1, { CLASSES }, net.b2, 1 } };
    const float *gradient[] = { grad.w1[0], grad.b1, grad.w2[0], grad.b2 };
    struct pl_optimizer_options adam = pl_adam_options(0.001, 32);
    struct pl_collaborative_options options = {
        .target_batch = 512, .optimizer = &adam, .lr = 0.02, .matchmaking_time = 2, .report = report
    };
    struct pl_collaborative *c;
    struct pl_err err;
    setvbuf(stdout, NULL, _IOLBF, 0);
    run.initial_peers = (const char *const *)argv + 1;
    run.initial_peer_count = (size_t)argc - 1;
    srand(1); /* all peers begin with the same parameters, then draw points of their own */
    for (int i = 0; i < HIDDEN; i++) {
        for (int j = 0; j < IN; j++) net.w1[i][j] = (float)(4 * uniform() - 2);
        for (int k = 0; k < CLASSES; k++) net.w2[k][i] = (float)(uniform() - 0.5) / 4;
    }
    srand((unsigned)time(NULL) + (unsigned)argc);
    if (pl_collaborative_open(&c, &run, tensors, 4, &options, &err)) return puts(err.text), 1;
    printf("listening on %s\n", pl_collaborative_address(c));
    while (pl_collaborative_epoch(c) < EPOCHS) {
        double loss = 0;
        memset(&grad, 0, sizeof grad);
        for (int n = 0; n < BATCH; n++) loss += train_on_point() / BATCH;
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL); /* a larger model's time */
        if (pl_collaborative_step(c, gradient, BATCH, loss, &err)) return puts(err.text), 1;
    }
    pl_collaborative_close(c);
}
