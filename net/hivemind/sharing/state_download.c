/* state_download.c - donors are asked one after the other until one gives a state that can be used.
 *
 *   donors ---ask---> download ---whole---> check ---fits---> witnesses ---agree---> downloaded
 *     ^                  |                    |                  |
 *     +--next donor------+--slow, broken------+--mismatch--------+--refuted
 *
 * A state that has arrived is compared with samples of other donors' states (state_witness.c);
 * where none can give any (hivemind's peers can't), with a second download. A state that no other
 * donor confirms is used only if there is no confirmed one. */
#include "state_download.h"
#include "callers.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

static void try_donor(struct state_download *d);
static void take_state(struct state_download *d, size_t confirmed);

/* Data kept to compare states; meaningless before the next load. */
static void clear_claims(struct state_download *d)
{
    witnesses_clear(&d->witnesses);
    state_load_clear(&d->unconfirmed);
    memset(&d->unconfirmed_donor, 0, sizeof d->unconfirmed_donor);
    while (d->given_count) free(d->given[--d->given_count].samples);
}

static void end_load(struct state_download *d, int status)
{
    /* Everything is cleared before the callback: it may begin another load. */
    state_downloaded *downloaded = d->downloaded;
    struct state_load state = d->load;
    /* An unconfirmed state is another donor's than the last one asked. */
    const struct peer_id donor = d->unconfirmed_donor.length ? d->unconfirmed_donor
                                 : d->at                     ? d->donors[d->at - 1].peer
                                                             : (struct peer_id){ 0 };
    struct pl_err why = d->why;
    state.mismatches = d->mismatches;
    memset(&d->load, 0, sizeof d->load);
    free(d->donors);
    d->donors = NULL;
    clear_claims(d);
    d->count = d->at = d->arrived = d->mismatches = 0;
    d->downloaded = NULL;
    downloaded(d->context, status, &donor, &state, &why);
    state_load_clear(&state);
}

static void judge_state(void *context);

static void next_donor(struct state_download *d, int status)
{
    const struct peer_id *donor = &d->donors[d->at - 1].peer;
    /* States of another model are counted: if all are, it is our model that differs. */
    d->mismatches += status == PL_EUSE;
    dht_blacklist_failed(&d->failures, donor, loop_now(d->peer->loop));
    /* The user sees why each donor was left, since a newcomer that can't join wants to know. */
    if (d->peer->donor_failed)
        d->peer->donor_failed(d->peer->donor_context, donor, status, &d->why);
    rpc_close(d->stream);
    d->stream = NULL;
    /* A state that is half there is worth nothing: donors' snapshots differ. */
    state_load_clear(&d->load);
    try_donor(d);
}

static void load_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct state_download *d = context;
    struct state_load *l = &d->load;
    int rc;
    /* The first message of a donor counts it as one that gives anything at all. */
    d->arrived += !d->pace.bytes;
    d->pace.bytes += n;
    /* Each message is checked against the tensors that we expect, so a donor can't make us
     * hold more than our own model's size. */
    rc = state_load_add(l, data, n, &d->why);
    if (!rc) rc = state_pace_check(&d->pace, loop_now(d->peer->loop), l->bytes_max, &d->why);
    if (rc) next_donor(d, rc);
}

static void check_state(void *context)
{
    struct state_download *d = context;
    /* The caller looks first (is the epoch plausible?), since asking witnesses takes
     * seconds. */
    int rc = d->check ? d->check(d->context, &d->load, &d->why) : PL_OK;
    if (rc == PL_EAGAIN) timer_start(d->peer->loop, &d->next, STATE_CHECK_PAUSE, check_state, d);
    else if (rc) next_donor(d, rc);
    else if (!d->peer->tensors) take_state(d, 1);
    else
        witnesses_ask(&d->witnesses, d->donors, d->count, &d->donors[d->at - 1].peer, &d->failures,
                      judge_state, d);
}

static void load_end(void *context, struct rpc_stream *s)
{
    struct state_download *d = context;
    /* Whole: metadata, and as many tensors with as many values as announced. */
    int rc = state_load_finish(&d->load, &d->why);
    if (rc) {
        next_donor(d, rc);
        return;
    }
    rpc_close(d->stream);
    d->stream = NULL;
    d->load.seconds = loop_now(d->peer->loop) - d->pace.began;
    check_state(d);
}

/* Returns 1 if an earlier download agrees with this state; remembers this state in both cases. Two
 * donors whose states have the same samples for a seed that neither knew confirm each other. So a
 * second download replaces a witness; hivemind's donors cannot be witnesses. */
static int was_given(struct state_download *d)
{
    struct state_claim c = state_claim_of(d->peer, &d->load, d->own_seed);
    int same = 0;
    if (!c.samples) return 0;
    for (size_t i = 0; i < d->given_count; i++)
        /* Agreement means nearly equal values: a donor trains on while the other one is
         * asked. */
        same |= state_claims_match(&c, &d->given[i], d->peer->elements, d->peer->tensors) ==
                STATE_AGREES;
    if (d->given_count < STATE_TWICE_TRIES) d->given[d->given_count++] = c;
    else free(c.samples);
    return same;
}

static void take_state(struct state_download *d, size_t confirmed)
{
    /* A donor whose state was taken is no longer on the list of failures. */
    dht_blacklist_answered(&d->failures, &d->donors[d->at - 1].peer);
    /* The number of donors with the same parameters, the chosen donor included. The caller reports
     * it. */
    d->load.confirmed = confirmed;
    d->unconfirmed_donor.length = 0;
    end_load(d, PL_OK);
}

/* A donor that was silent as a witness would hold up the next load, too. */
static void note_silent_witnesses(struct state_download *d)
{
    for (size_t i = 0; i < d->witnesses.count; i++)
        if (d->witnesses.asked[i].is_silent)
            dht_blacklist_failed(&d->failures, &d->witnesses.asked[i].peer,
                                 loop_now(d->peer->loop));
}

/* A state confirmed by samples or by a second download is taken; one that more donors contradict is
 * not. An unconfirmed state is taken only if there is no confirmed one. */
static void judge_state(void *context)
{
    struct state_download *d = context;
    struct state_claim claims[STATE_WITNESSES + 1];
    enum state_verdict verdict = STATE_UNCONFIRMED;
    size_t count = 1, agree = 1, other = 0, confirmed = 0;
    /* Ours first, then each witness that has answered; the verdict counts donors, not
     * epochs. */
    claims[0] = state_claim_of(d->peer, &d->load, d->witnesses.seed);
    for (size_t i = 0; i < d->witnesses.count; i++)
        if (d->witnesses.asked[i].claim.samples) claims[count++] = d->witnesses.asked[i].claim;
    if (claims[0].samples)
        verdict = state_claims_judge(&agree, &other, claims, count, d->peer->elements,
                                     d->peer->tensors);
    free(claims[0].samples);
    note_silent_witnesses(d);
    witnesses_clear(&d->witnesses);
    /* More donors agree with one another on other samples than agree with this state. */
    if (verdict == STATE_REFUTED) {
        next_donor(d, pl_fail(&d->why, PL_EPROTO,
                              "state: %zu other donors agree on other parameters", other));
        return;
    }
    /* At least as many donors agree with this state as with any other, and at least one of them is
     * not its donor. */
    if (verdict == STATE_CONFIRMED) confirmed = agree;
    else if (d->load.bytes <= STATE_TWICE_MAX && was_given(d)) confirmed = 2;
    /* A large model is not downloaded twice, and a single donor leaves no choice. */
    else if (d->load.bytes > STATE_TWICE_MAX || d->count == 1) confirmed = 1;
    if (confirmed) {
        take_state(d, confirmed);
        return;
    }
    /* The first unconfirmed state is kept, while others are tried. */
    if (!d->unconfirmed.count) {
        d->unconfirmed = d->load;
        d->unconfirmed_donor = d->donors[d->at - 1].peer;
        memset(&d->load, 0, sizeof d->load);
    } else state_load_clear(&d->load);
    /* Three different states, none confirmed: no fourth is tried. */
    if (d->given_count == STATE_TWICE_TRIES) d->at = d->count;
    try_donor(d);
}

/* Any trouble on the stream is the donor's, as far as a newcomer can tell. */
static void load_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct state_download *d = context;
    next_donor(d, pl_fail(&d->why, status == PL_EUSE ? PL_EIO : status, "state: %.400s", why));
}

static void open_donor(struct state_download *d)
{
    static const struct rpc_stream_events events = { load_message, load_end, load_failed, NULL };
    const struct peer_id *donor = &d->donors[d->at - 1].peer;
    /* A donor may keep us waiting between messages as long as a groupmate between parts. */
    const double limit = d->peer->silence_max;
    state_pace_begin(&d->pace, loop_now(d->peer->loop));
    if (d->peer->tensors) state_load_expect(&d->load, d->peer->schema, d->peer->tensors);
    else state_load_expect_any(&d->load, d->peer->any_bytes, d->peer->any_tensors);
    d->stream = rpc_open(d->peer->host, donor, d->peer->download, state_load_message_max(&d->load),
                         limit, &events, d);
    if (!d->stream) {
        pl_fail(&d->why, PL_ENOMEM, "state: no memory");
        try_donor(d);
        return;
    }
    rpc_deadline(d->stream, limit);
    /* DownloadRequest has no fields: an empty message, then the end of our side.
     * [spec hivemind-protocol 7] */
    rpc_send(d->stream, "", 0);
    rpc_end(d->stream);
}

static void on_donor_admitted(void *context, int status)
{
    struct state_download *d = context;
    d->task = NULL;
    if (!status) open_donor(d);
    else
        next_donor(d, pl_fail(&d->why, PL_EPROTO,
                              "state: the donor has shown no valid access "
                              "token"));
}

static void ask_donor(void *context)
{
    struct state_download *d = context;
    const struct peer_id *donor;
    /* No donor is left. An unconfirmed state is better than none: without a state the newcomer
     * could not train at all. */
    if (d->at == d->count && d->unconfirmed.count) {
        d->load = d->unconfirmed;
        memset(&d->unconfirmed, 0, sizeof d->unconfirmed);
        d->load.confirmed = 1;
        end_load(d, PL_OK);
        return;
    }
    if (d->at == d->count) {
        int mismatch = d->mismatches && d->mismatches == d->arrived;
        end_load(d, mismatch ? PL_EUSE : d->count ? PL_EIO : PL_ENOTFOUND);
        return;
    }
    donor = &d->donors[d->at++].peer;
    /* Parameters come from members of a moderated run alone. */
    if (!caller_needs_token(d->peer->node, donor, d->peer->client_mode)) {
        open_donor(d);
        return;
    }
    d->task = dht_node_admit(d->peer->node, donor, on_donor_admitted, d);
    if (!d->task) on_donor_admitted(d, PL_EAGAIN);
}

/* From the loop: donors that fail at once must not call each other deeper and deeper. */
static void try_donor(struct state_download *d)
{
    timer_start(d->peer->loop, &d->next, 0, ask_donor, d);
}

static void on_donors(void *context, int status, const struct dht_result *r)
{
    struct state_download *d = context;
    d->task = NULL;
    pl_fail(&d->why, PL_ENOTFOUND, "state: no peer shares one under %.100s", d->peer->key);
    if (!status && r->type == DHT_FOUND_DICTIONARY)
        d->donors = donors_read(&d->count, &r->dictionary, host_id(d->peer->host), &d->failures,
                                loop_now(d->peer->loop));
    try_donor(d);
}

void state_download_init(struct state_download *d, const struct state_peer *p)
{
    *d = (struct state_download){ .peer = p,
                                  .witnesses = { .peer = p },
                                  .failures = DONOR_FAILURES };
}

int state_download_begin(struct state_download *d, state_check *check, state_downloaded *downloaded,
                         void *context)
{
    if (d->downloaded) return PL_EUSE;
    d->task = dht_node_get(d->peer->node, &d->peer->id, 1, on_donors, d);
    if (!d->task) return PL_ENOMEM;
    /* This seed is never sent: it samples states that were downloaded, so no donor can
     * prepare for it. */
    RAND_bytes(d->own_seed, STATE_SEED);
    d->check = check;
    d->downloaded = downloaded;
    d->context = context;
    return PL_OK;
}

void state_download_clear(struct state_download *d)
{
    if (d->task) dht_node_cancel(d->task);
    clear_claims(d);
    rpc_close(d->stream);
    state_load_clear(&d->load);
    free(d->donors);
    dht_blacklist_close(&d->failures);
    timer_stop(&d->next);
    memset(d, 0, sizeof *d);
}
