/* training_rounds.c - an epoch has two rounds of averaging; this is what they have in common. [TTT
 * 2.1; 3.3] [spec hivemind-protocol 9, steps 4 and 5]
 *
 *   gradients   g = sum_k n_k g_k / sum_k n_k   peer k gives its mean gradient, n_k samples
 *   parameters  x = mean of x_k                 in the background, after the optimizer's step
 *
 * The first (training_gradients.c) makes all peers take the same step. The second
 * (training_parameters.c) removes the differences that still arise: rounding in float16, a lost
 * part, a round that one peer missed.
 *
 *   add: eta is near     training_schedule   look for a group, without a trigger
 *   add: UPDATE          join_round          give the gradient: the all-reduce may begin
 *                        on_gradient         the mean, or the reason of the failure
 *   after the step       training_advance    the next epoch begins, and the parameters' round
 *   between batches      training_correct    x += x_averaged - x_given
 *
 * Neither round waits for the other before its trigger: two peers that wait in opposite orders
 * would wait for each other endlessly. [spec hivemind-protocol 12, "Two rounds"] */
#include "training_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void training_copy_result(struct training_round *to, const struct averager_result *r)
{
    memset(to, 0, sizeof *to);
    to->status = r->status;
    to->peers = r->group ? r->group->count : 1;
    to->seconds = r->seconds;
    to->verified = r->verified;
    to->banned = r->banned;
    /* The averager's texts last as long as its callback: copies. */
    if (r->banned) pl_fail(&to->caught, PL_EPROTO, "%.500s", r->caught);
    if (r->group) memcpy(to->group, r->group->id, sizeof to->group);
    pl_fail(&to->why, r->status, "%.500s", r->why);
}

/* Own epoch + 1, with the samples that were accumulated during a delayed round. If no peer is
 * known to be ahead, this begins the global epoch as well: its estimate is unknown until the
 * next poll. [spec hivemind-protocol 8] */
void training_begin_epoch(struct training *c, int64_t samples)
{
    c->own.epoch++;
    c->own.samples = samples;
    if (samples) c->own.last_epoch_with_samples = c->own.epoch;
    if (c->poll.view.epoch < c->own.epoch) {
        c->poll.view.epoch = c->own.epoch;
        c->poll.view.samples = samples;
        c->poll.view.eta = INFINITY;
    }
}

/* Which of the reporting peers has not come? In a group of limited size, or under one of several
 * keys, most peers are missing for good reasons, so their absence says nothing. */
void training_note_absent(struct training *c, const struct averager_result *r)
{
    const size_t bits = strlen(averager_group_bits(c->a[GRADIENT]));
    const struct liveness *all = &c->poll.liveness;
    const int limited = (c->o.group_size && c->o.group_size <= all->count + all->part_peers) ||
                        bits;
    if (c->poll.others) grid_round(&c->grid, r->group ? r->group->count : 0, bits);
    liveness_note_group(&c->poll.liveness, r->group);
    if (r->group ? !limited : r->status != PL_OK)
        liveness_round(&c->poll.liveness, r->group, c->gradient.triggered_at);
}

/* A leader need not wait for the end of matchmaking once this many peers have joined. */
size_t training_expected(const struct training *c)
{
    return c->gradient.drawn ? c->gradient.drawn : c->poll.others - c->poll.paused + 1;
}

/* By the peers that have reported lately: all see the same records of these. */
static void draw_group(struct training *c, struct averager *a)
{
    const struct liveness *all = &c->poll.liveness;
    const double now = training_now(c);
    char bits[GROUP_BITS_MAX + 1];
    struct peer_id *peers = malloc((all->count + 1) * sizeof *peers);
    size_t count = 1;
    int size;
    if (!peers) return;
    peers[0] = *host_id(c->o.host);
    for (size_t i = 0; i < all->count; i++)
        if (now - all->list[i].reported <= PARTS_SILENT) peers[count++] = all->list[i].peer;
    size = pairs_draw(bits, peers, count, host_id(c->o.host), c->o.drawn_group, c->own.epoch);
    free(peers);
    if (size < 1) return;
    c->gradient.drawn = (size_t)size;
    averager_set_bits(a, bits);
}

/* The averager's next key gets the number of bits that the run's present size needs. With local
 * steps, phi and the outer momentum must be equal at all peers, so these form one group. */
static void fit_grid(struct training *c, struct averager *a)
{
    if (c->o.group_bits || c->o.group_size || c->o.local_steps) return;
    averager_fit_bits(a, grid_bits(grid_peers(&c->grid, c->poll.others + 1), c->own.epoch));
}

int training_begin_round(struct training *c, int which, struct averager_step *s,
                         averager_done *done)
{
    const double now = training_now(c);
    s->scheduled = now + c->o.matchmaking_time;
    s->deadline = now + c->o.averaging_timeout;
    s->patience = TRAINING_PATIENCE;
    if (c->o.drawn_group && which == GRADIENT) draw_group(c, c->a[which]);
    else fit_grid(c, c->a[which]);
    if (!s->expected) s->expected = training_expected(c);
    return averager_begin(c->a[which], s, done, c);
}
