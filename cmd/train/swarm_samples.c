/* swarm_samples.c - BTARD over a model's gradients: a peer's samples of an epoch follow from its id
 * and the epoch, so any groupmate that has the data can compute its gradient again.
 * [TTT 2.1, security] [BTARD 3]
 *
 *   seed = SHA-256(peer id, epoch)        the order in which the peer draws
 *   g    = mean gradient of the first n samples of that order, n as the peer has claimed */
#include "swarm_trainer.h"

#include <openssl/evp.h>
#include <string.h>

#define PATIENCE 0.5 /* of an all-reduce's time limit: to compute a groupmate's gradient */

/* The order is public, and differs for each peer and epoch: nobody chooses its samples. */
int swarm_samples_shuffle(const struct train_source *source, const struct peer_id *peer,
                          int64_t epoch, struct pl_err *err)
{
    uint8_t text[sizeof peer->bytes + 8], hash[32];
    uint64_t seed = 0;
    memcpy(text, peer->bytes, peer->length);
    for (int i = 0; i < 8; i++) text[peer->length + i] = (uint8_t)((uint64_t)epoch >> 8 * i);
    EVP_Digest(text, peer->length + 8, hash, NULL, EVP_sha256(), NULL);
    for (int i = 0; i < 8; i++) seed = seed << 8 | hash[i];
    return source->shuffle(source->context, seed >> 1, err); /* as JSON's integers are */
}

/* A validator's part in BTARD: the peer's first samples of this epoch, in batches of our own size.
 * It must end well before the all-reduce's time limit, while the whole group waits for it. */
int swarm_samples_recompute(void *context, const struct peer_id *peer, int64_t epoch,
                            uint64_t samples, float **gradient)
{
    struct swarm_trainer *l = context;
    const struct train_job *job = l->w->job;
    uint64_t own_samples = l->t->samples;
    struct pl_dalle_loss own_sum = l->t->sum;
    int rc = l->seconds_a_sample * (double)samples > PATIENCE * l->w->averaging->allreduce_timeout
                 ? PL_EAGAIN
                 : PL_OK;
    *gradient = l->t->model->params.grad;
    if (rc || epoch != l->epoch) return rc ? rc : PL_ENOTFOUND;
    l->shuffled_epoch = -1; /* ours begins anew afterwards */
    rc = pl_trainer_drop(l->t);
    if (!rc) rc = swarm_samples_shuffle(&job->source, peer, epoch, NULL);
    for (uint64_t n = 0, some; !rc && n < samples; n += some) {
        const int32_t *text, *codes;
        some = samples - n;
        if (some > (uint64_t)job->micro_batch) some = (uint64_t)job->micro_batch;
        rc = job->source.next(job->source.context, &text, &codes, NULL);
        if (!rc) rc = pl_trainer_add(l->t, text, codes, (int)some, NULL);
    }
    if (!rc) rc = pl_trainer_mean(l->t);
    l->t->samples = own_samples;
    l->t->sum = own_sum;
    return rc;
}
