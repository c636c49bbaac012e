/* training_digest.c - compares our parameters with those of the group that made the last step.
 *
 *   note     a round of gradients, or of changes, has given a mean: its group are the mates
 *   compare  after the step: our digest is stored under a key of this group, signed
 *   check    a little later, or with the next step: the mates' digests are read and judged
 *
 * If most of the mates have parameters in common and ours are others, a state is downloaded. If it
 * is another peer's, a warning names it. Only mates count, each by the key that writes its progress
 * record. What may be compared, and what a false digest can do: digest.h. A download that has not
 * helped is followed by a pause, twice as long each time.
 *
 * hivemind's peers store no digests: in a group with too many of them nothing is judged. Nor is it
 * in a run whose progress is in parts (parts.h), where a peer knows the keys of its own part
 * alone. */
#include "training_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST_WAIT 10.0   /* s: the slowest of the group takes its step within that time */
#define DIGEST_PAUSE_MAX 6 /* at most 2^6 epochs after downloads that have not helped */

/* Ends a check, whatever it waits for; its timer and its request are gone with it. */
static void drop(struct digest_check *k)
{
    if (!k->mates) return;
    timer_stop(&k->timer);
    if (k->task) dht_node_cancel(k->task);
    free(k->mates);
    memset(k, 0, sizeof *k);
}

void training_drop_digests(struct training *c)
{
    for (int i = 0; i < DIGEST_CHECKS; i++) drop(&c->digests.check[i]);
    c->digests.last_epoch = -1;
    c->digests.alone = c->digests.alone_given = 0;
    c->digests.alone_unmeasured = 0;
    c->digests.has_diverged = 0;
}

/* --- steps alone ------------------------------------------------------------------------------ */

/* A step without a mean leads away from the group by its own length, and by that of the step which
 * the group takes meanwhile:  alone += 2 |x(e) - x(e-1)|. Before there is a length to measure, that
 * of the next step stands for it. */
static void count_alone(struct digest_checks *d, int is_alone, int is_measured, double step)
{
    d->alone_unmeasured += is_alone;
    if (!is_measured) return;
    d->alone += 2 * d->alone_unmeasured * step;
    d->alone_unmeasured = 0;
}

/* x becomes the mean of this many peers' x: of the way to the others, this share remains. */
void training_note_corrected(struct training *c, size_t peers)
{
    struct digest_checks *d = &c->digests;
    d->alone -= d->alone_given * (1 - 1 / (double)peers);
    d->alone_given = 0;
}

/* Kept until the step is taken: only then are there parameters to compare. */
void training_note_mates(struct training *c, const struct group *g)
{
    struct digest_checks *d = &c->digests;
    free(d->mates);
    d->mates = g ? malloc(g->count * sizeof *d->mates) : NULL;
    d->mate_count = d->mates ? g->count : 0;
    for (size_t i = 0; i < d->mate_count; i++) d->mates[i] = g->members[i].peer;
}

/* --- the check -------------------------------------------------------------------------------- */

/* A record counts if it is of the same step, if its key is the one that writes this peer's progress
 * record, and if the peer was in the group. */
static int counts(const struct digest_check *k, const struct digest_record *r)
{
    if (r->epoch != k->own.epoch || !claims_is_owner(&k->c->poll.claims, &r->peer, r->owner))
        return 0;
    for (size_t i = 0; i < k->mate_count; i++)
        if (peer_id_equal(&k->mates[i], &r->peer)) return 1;
    return 0;
}

/* Our own record, then those of the mates. Returns how many they are. */
static size_t read_records(const struct digest_check *k, struct digest_record *records,
                           const struct dht_dictionary *found)
{
    size_t count = 1;
    records[0] = k->own;
    for (size_t i = 0; i < found->count; i++) {
        struct digest_record *r = &records[count];
        if (digest_read(r, found->items[i].value, found->items[i].n, NULL)) continue;
        claims_owner(r->owner, &found->items[i]);
        count += (size_t)counts(k, r);
    }
    return count;
}

/* Those that are right know which peer is not; that peer itself learns no more than that it is the
 * one. */
static void name_diverged(struct training *c, const struct digest_record *records, size_t count)
{
    struct digest_checks *d = &c->digests;
    char name[PEER_ID_TEXT_MAX];
    struct pl_err text;
    d->loads = 0;
    for (size_t i = 1; i < count; i++) {
        if (!records[i].has_diverged || peer_id_equal(&records[i].peer, &d->named)) continue;
        d->named = records[i].peer;
        peer_id_text(name, &d->named);
        pl_fail(&text, PL_OK, "the parameters of %s have diverged from those of its group", name);
        training_warn(c, text.text);
        return; /* one line a step, whatever strangers claim */
    }
}

/* Pauses of 2, 4, 8, ... epochs: a download costs a whole state, and if the first has not helped,
 * the next one may not either. */
static void note_diverged(struct training *c)
{
    struct digest_checks *d = &c->digests;
    if (c->own.epoch < d->doubted_until) return;
    if (d->loads < DIGEST_PAUSE_MAX) d->loads++;
    d->doubted_until = c->own.epoch + (1 << d->loads);
    d->has_diverged = 1;
    training_warn(c, "our parameters have diverged from those of our group: the state of another "
                     "peer is downloaded");
}

static void on_digests(void *context, int status, const struct dht_result *r)
{
    struct digest_check *k = context;
    const int is_found = !status && r->type == DHT_FOUND_DICTIONARY;
    struct digest_record *records = NULL;
    size_t count;
    k->task = NULL;
    if (is_found) records = malloc((r->dictionary.count + 2) * sizeof *records);
    if (records) {
        count = read_records(k, records, &r->dictionary);
        /* A majority of all groupmates is needed, those without a digest included. */
        if (digest_judge(records, count, k->mate_count) > 0) {
            if (records[0].has_diverged) note_diverged(k->c);
            else name_diverged(k->c, records, count);
        }
    }
    free(records);
    drop(k);
}

static void begin_check(void *context)
{
    struct digest_check *k = context;
    timer_stop(&k->timer);
    k->task = dht_node_get(k->c->o.node, &k->key, 1, on_digests, k);
    if (!k->task) drop(k);
}

/* --- our own ---------------------------------------------------------------------------------- */

static void compare_here(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    struct digest_checks *d = &c->digests;
    struct digest_check *k = &d->check[c->own.epoch % DIGEST_CHECKS],
                        *before = &d->check[(c->own.epoch + 1) % DIGEST_CHECKS];
    /* |x(epoch) - x(epoch - 1)|: the unit in which the group measures how far apart its members
     * are. */
    const int has_last = d->last_epoch == c->own.epoch - 1;
    double step = digest_distance(w->digest, &d->last);
    struct bytes value = { 0 };
    int is_comparable;
    if (!isfinite(step)) step = 0;
    d->last = *w->digest;
    d->last_epoch = c->own.epoch;
    /* Where messages are gathered no later mean would mend what a step alone has changed. */
    count_alone(d, !d->mates && !c->o.gathers, has_last, step);
    if (c->own.epoch % c->o.average_state_every == 0) d->alone_given = d->alone;
    /* A peer that has stored no digest of the step before by now is late. */
    if (before->mates && !before->task) begin_check(before);
    drop(k);
    /* No group, no step to measure by, or progress in parts: nothing to compare with. */
    if (!d->mates || !has_last || c->report.level) return;
    *k = (struct digest_check){ .c = c,
                                .own = { .peer = *host_id(c->o.host),
                                         .epoch = c->own.epoch,
                                         .step = step,
                                         .alone = d->alone,
                                         .x = *w->digest },
                                .mates = d->mates,
                                .mate_count = d->mate_count };
    d->mates = NULL;
    /* Not while our own steps explain what others would take for a divergence. */
    is_comparable = d->alone <= DIGEST_STEPS * step;
    if (!digest_key(&k->key, c->run, c->gradient.result.group) && is_comparable &&
        !digest_write(&value, &k->own))
        training_store(c, &k->key, &value, DIGEST_LIFE);
    bytes_clear(&value);
    /* The others store theirs within about the time of their step. */
    timer_start(c->loop, &k->timer, DIGEST_WAIT, begin_check, k);
}

/* The digest is taken on the training's thread, which owns the parameters: one pass over all of
 * them. The rest is the loop's. */
void training_compare(struct training *c, float *const *parameter)
{
    struct digest digest;
    struct request w = { .c = c, .digest = &digest };
    digest_take(&digest, parameter, c->elements, c->o.tensors);
    loop_call(c->loop, compare_here, &w);
}
