/* averager_download.c - the state that we take over from a donor. [spec hivemind-protocol 7]
 *
 *   donors ---ask---> download ---whole---> check ---fits---> witnesses ---agree---> loaded
 *     ^                  |                    |                  |
 *     +--next donor------+--slow, broken------+--misfit----------+--refuted
 *
 * An announcement is a claim that costs nothing, so it decides little: the better half of the
 * donors is asked in random order, donors that failed lately come last, and 32 are asked at most. A
 * state that has arrived is compared with samples of other donors' states (averager_witness.c);
 * where none can give any (hivemind's peers can't), with a second download. A state that no other
 * donor confirms is used only if there is no confirmed one. */
#include "averager_internal.h"
#include "net/hivemind/messages/msgpack.h"

#include <openssl/rand.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DONORS_MAX 1024 /* announcements that are read; 32 of them are asked */

/* --- how slowly a state may travel ------------------------------------------------------------ */

void averager_pace_begin(struct state_pace *p, double now)
{
    *p = (struct state_pace){ .began = now, .window_began = now };
}

/* PL_EAGAIN with a sentence: too slow to go on with. most: bytes of the whole. */
int averager_pace_check(struct state_pace *p, double now, size_t most, struct pl_err *err)
{
    double window = now - p->window_began;
    /* Two limits. Over the whole: base + size / mean rate, so a donor that drips can't hold
     * us for hours. Within each window: the least rate, so one that stops is left soon. */
    if (now - p->began > STATE_TIME_BASE + (double)most / STATE_RATE_MEAN)
        return pl_fail(err, PL_EAGAIN, "state: %zu bytes in %.0f s, too slow to wait for the rest",
                       p->bytes, now - p->began);
    if (window < STATE_RATE_WINDOW) return PL_OK;
    if ((double)(p->bytes - p->window_bytes) < STATE_RATE_MIN * window)
        return pl_fail(err, PL_EAGAIN, "state: %zu bytes within %.0f s, expected at least %.0f",
                       p->bytes - p->window_bytes, window, STATE_RATE_MIN * window);
    p->window_began = now;
    p->window_bytes = p->bytes;
    return PL_OK;
}

/* --- taking ----------------------------------------------------------------------------------- */

static void try_donor(struct averager *a);

/* What was kept to compare states with; before the next load it means nothing. */
static void clear_doubts(struct averager *a)
{
    averager_witnesses_clear(a);
    state_load_clear(&a->load.kept);
    memset(&a->load.kept_donor, 0, sizeof a->load.kept_donor);
    while (a->load.given_count) free(a->load.given[--a->load.given_count].samples);
}

static void end_load(struct averager *a, int status)
{
    /* Everything is cleared before the callback: it may begin another load. */
    averager_loaded *loaded = a->load.loaded;
    struct state_load state = a->load.load;
    /* An unconfirmed state is another donor's than the last one asked. */
    const struct peer_id donor = a->load.kept_donor.length ? a->load.kept_donor
                                 : a->load.at              ? a->load.donors[a->load.at - 1].peer
                                                           : (struct peer_id){ 0 };
    struct pl_err why = a->load.why;
    state.misfits = a->load.misfits;
    memset(&a->load.load, 0, sizeof a->load.load);
    free(a->load.donors);
    a->load.donors = NULL;
    clear_doubts(a);
    a->load.count = a->load.at = a->load.arrived = a->load.misfits = 0;
    a->load.busy = 0;
    loaded(a->load.context, status, &donor, &state, &why);
    state_load_clear(&state);
}

static void judge_state(struct averager *a);

static void next_donor(struct averager *a, int status)
{
    const struct peer_id *donor = &a->load.donors[a->load.at - 1].peer;
    /* States of another model are counted: if all are, it is our model that differs. */
    a->load.misfits += status == PL_EUSE;
    averager_doubt(a, donor);
    /* The user sees why each donor was left, since a newcomer that can't join wants to know. */
    if (a->o.donor_failed) a->o.donor_failed(a->o.donor_context, donor, status, &a->load.why);
    rpc_close(a->load.stream);
    a->load.stream = NULL;
    /* A state that is half there is worth nothing: donors' snapshots differ. */
    state_load_clear(&a->load.load);
    try_donor(a);
}

static void load_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct averager *a = context;
    struct state_load *l = &a->load.load;
    int rc;
    (void)s;
    /* The first message of a donor counts it as one that gives anything at all. */
    a->load.arrived += !a->load.pace.bytes;
    a->load.pace.bytes += n;
    /* Each message is checked against the tensors that we expect, so a donor can't make us
     * hold more than our own model's size. */
    rc = state_load_add(l, data, n, &a->load.why);
    if (!rc) rc = averager_pace_check(&a->load.pace, loop_now(a->loop), l->bytes_max, &a->load.why);
    if (rc) next_donor(a, rc);
}

static void check_state(void *context)
{
    struct averager *a = context;
    /* The caller looks first (is the epoch plausible?), since asking witnesses takes
     * seconds. */
    int rc = a->load.check ? a->load.check(a->load.context, &a->load.load, &a->load.why) : PL_OK;
    if (rc == PL_EAGAIN) timer_start(a->loop, &a->load.next, STATE_CHECK_PAUSE, check_state, a);
    else if (rc) next_donor(a, rc);
    else averager_ask_witnesses(a, judge_state);
}

static void load_end(void *context, struct rpc_stream *s)
{
    struct averager *a = context;
    /* Whole: metadata, and as many tensors with as many values as announced. */
    int rc = state_load_finish(&a->load.load, &a->load.why);
    (void)s;
    if (rc) {
        next_donor(a, rc);
        return;
    }
    rpc_close(a->load.stream);
    a->load.stream = NULL;
    a->load.load.seconds = loop_now(a->loop) - a->load.pace.began;
    check_state(a);
}

/* Returns 1 if an earlier download agrees with this state; remembers this state in both cases. Two
 * donors whose states have the same samples for a seed that neither knew confirm each other. So a
 * second download replaces a witness, which hivemind's donors cannot be. */
static int was_given(struct averager *a)
{
    struct state_claim c = averager_claim(a, &a->load.load, a->load.own_seed);
    int same = 0;
    if (!c.samples) return 0;
    for (size_t i = 0; i < a->load.given_count; i++)
        /* Agreement means nearly equal values: a donor trains on while the other one is
         * asked. */
        same |= state_claims_match(&c, &a->load.given[i], a->tensors.elements, a->o.tensors) ==
                STATE_AGREES;
    if (a->load.given_count < STATE_TWICE_TRIES) a->load.given[a->load.given_count++] = c;
    else free(c.samples);
    return same;
}

static void take_state(struct averager *a, size_t confirmed)
{
    /* A donor whose state was taken is as good as any other again. */
    averager_trust(a, &a->load.donors[a->load.at - 1].peer);
    /* The number of donors with the same parameters, the chosen donor included. The caller reports
     * it. */
    a->load.load.confirmed = confirmed;
    a->load.kept_donor.length = 0;
    end_load(a, PL_OK);
}

/* Confirmed by samples, or by a second download, it is taken; one that more donors contradict is
 * not. One that nobody confirms gives way to a confirmed one; if there is none it is taken as it
 * is. */
static void judge_state(struct averager *a)
{
    struct state_claim claims[STATE_WITNESSES + 1];
    enum state_verdict verdict = STATE_UNCONFIRMED;
    size_t count = 1, agree = 1, other = 0;
    /* Ours first, then each witness that has answered; the verdict counts donors, not
     * epochs. */
    claims[0] = averager_claim(a, &a->load.load, a->witnesses.seed);
    for (size_t i = 0; i < a->witnesses.count; i++)
        if (a->witnesses.asked[i].claim.samples) claims[count++] = a->witnesses.asked[i].claim;
    if (claims[0].samples)
        verdict = state_claims_judge(&agree, &other, claims, count, a->tensors.elements,
                                     a->o.tensors);
    free(claims[0].samples);
    averager_witnesses_clear(a);
    /* More donors agree with one another on other samples than agree with this state. */
    if (verdict == STATE_REFUTED) {
        next_donor(a, pl_fail(&a->load.why, PL_EPROTO,
                              "state: %zu other donors agree on other parameters", other));
        return;
    }
    /* At least as many donors agree with this state as with any other, and at least one of them is
     * not its donor. */
    if (verdict == STATE_CONFIRMED) {
        take_state(a, agree);
        return;
    }
    if (a->load.load.bytes <= STATE_TWICE_MAX && was_given(a)) {
        take_state(a, 2);
        return;
    }
    /* A large model is not downloaded twice, and where there is one donor there is no
     * choice. */
    if (a->load.load.bytes > STATE_TWICE_MAX || a->load.count == 1) {
        take_state(a, 1);
        return;
    }
    /* The first unconfirmed state is kept, while others are tried. */
    if (!a->load.kept.count) {
        a->load.kept = a->load.load;
        a->load.kept_donor = a->load.donors[a->load.at - 1].peer;
        memset(&a->load.load, 0, sizeof a->load.load);
    } else state_load_clear(&a->load.load);
    /* Three different states, none confirmed: no fourth is tried. */
    if (a->load.given_count == STATE_TWICE_TRIES) a->load.at = a->load.count;
    try_donor(a);
}

/* Any trouble on the stream is the donor's, as far as a newcomer can tell. */
static void load_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct averager *a = context;
    (void)s;
    next_donor(a, pl_fail(&a->load.why, status == PL_EUSE ? PL_EIO : status, "state: %.400s", why));
}

static void open_donor(struct averager *a)
{
    static const struct rpc_stream_events events = { load_message, load_end, load_failed, NULL };
    const struct peer_id *donor = &a->load.donors[a->load.at - 1].peer;
    /* A donor may keep us waiting between messages as long as a groupmate between parts. */
    double limit = a->o.sender_timeout > 0 ? a->o.sender_timeout : a->o.request_timeout;
    averager_pace_begin(&a->load.pace, loop_now(a->loop));
    state_load_expect(&a->load.load, a->tensors.schema, a->o.tensors);
    a->load.stream = rpc_open(a->host, donor, a->names.rpc[AVERAGER_DOWNLOAD],
                              state_load_message_max(&a->load.load), limit, &events, a);
    if (!a->load.stream) {
        pl_fail(&a->load.why, PL_ENOMEM, "state: no memory");
        try_donor(a);
        return;
    }
    rpc_deadline(a->load.stream, limit);
    /* DownloadRequest has no fields: an empty message, then the end of our side.
     * [spec hivemind-protocol 7] */
    rpc_send(a->load.stream, "", 0);
    rpc_end(a->load.stream);
}

static void on_donor_admitted(void *context, int status)
{
    struct averager *a = context;
    a->load.proof = NULL;
    if (!status) open_donor(a);
    else
        next_donor(a, pl_fail(&a->load.why, PL_EPROTO,
                              "state: the donor has shown no valid access "
                              "token"));
}

static void ask_donor(void *context)
{
    struct averager *a = context;
    const struct peer_id *donor;
    /* Nobody is left to ask. An unconfirmed state is better than none: without one the
     * newcomer could not train at all. */
    if (a->load.at == a->load.count && a->load.kept.count) {
        a->load.load = a->load.kept;
        memset(&a->load.kept, 0, sizeof a->load.kept);
        a->load.load.confirmed = 1;
        end_load(a, PL_OK);
        return;
    }
    if (a->load.at == a->load.count) {
        int misfit = a->load.misfits && a->load.misfits == a->load.arrived;
        end_load(a, misfit ? PL_EUSE : a->load.count ? PL_EIO : PL_ENOTFOUND);
        return;
    }
    donor = &a->load.donors[a->load.at++].peer;
    /* Parameters come from members of a moderated run alone. */
    if (!averager_must_ask(a, donor)) {
        open_donor(a);
        return;
    }
    a->load.proof = dht_node_admit(a->node, donor, on_donor_admitted, a);
    if (!a->load.proof) on_donor_admitted(a, PL_EAGAIN);
}

/* From the loop: donors that fail at once must not call each other deeper and deeper. */
static void try_donor(struct averager *a) { timer_start(a->loop, &a->load.next, 0, ask_donor, a); }

static int by_priority(const void *a_, const void *b_)
{
    /* Descending: the highest epoch first. */
    const struct donor *a = a_, *b = b_;
    return (a->priority < b->priority) - (a->priority > b->priority);
}

static int by_rank(const void *a_, const void *b_)
{
    const struct donor *a = a_, *b = b_;
    /* Rank 0: the better half; 1: the others; 2: donors that failed lately. */
    if (a->rank != b->rank) return a->rank - b->rank;
    if (a->priority != b->priority) return by_priority(a_, b_);
    return (a->lot > b->lot) - (a->lot < b->lot);
}

/* The better half in any order, then the others by priority; those that have failed lately last.
 * A priority is a donor's own claim, so the greatest must not put it first every time; and all
 * newcomers would ask the same one. */
static void order_donors(struct averager *a)
{
    struct donor *d = a->load.donors;
    size_t n = a->load.count;
    double median;
    if (!n) return;
    qsort(d, n, sizeof *d, by_priority);
    /* The priority is the epoch that a donor claims. The median can't be moved by a few
     * claims, and every donor from it up is as good as the others. */
    median = d[n / 2].priority;
    for (size_t i = 0; i < n; i++) {
        d[i].rank = averager_is_doubted(a, &d[i].peer) ? 2 : d[i].priority < median;
        if (d[i].rank == 0) d[i].priority = median; /* equal from here on */
        /* hivemind's newcomers all ask the highest priority first, and time out on one busy
         * donor. [spec hivemind-protocol 12] */
        RAND_bytes((uint8_t *)&d[i].lot, sizeof d[i].lot);
    }
    qsort(d, n, sizeof *d, by_rank);
    /* Each donor may take its whole time limit, so invented ones could keep a newcomer for
     * hours. */
    if (n > DONORS_ASKED_MAX) a->load.count = DONORS_ASKED_MAX;
}

static int read_donor(struct donor *d, const struct dht_item *item, const struct peer_id *self)
{
    struct mp_value *subkey = NULL, *value = NULL;
    /* A record of 30 s that anybody may write: what can't be a donor's is skipped, and the
     * others stay. */
    int good = !mp_read(&subkey, item->subkey, item->subkey_n, NULL) &&
               !mp_read(&value, item->value, item->n, NULL) && subkey->kind == MP_BIN &&
               !peer_id_parse(&d->peer, subkey->bytes, subkey->n) &&
               !peer_id_equal(&d->peer, self) && (value->kind == MP_FLOAT || value->kind == MP_INT);
    if (good)
        d->priority = value->kind == MP_FLOAT ? value->real
                      : value->negative       ? -1
                                              : (double)value->number;
    if (good) /* an epoch, as hivemind announces it: a whole number, as a float64 */
        good = d->priority >= 0 && d->priority <= DONOR_PRIORITY_MAX &&
               d->priority == floor(d->priority);
    if (subkey) mp_free(subkey);
    if (value) mp_free(value);
    return good;
}

static void on_donors(void *context, int status, const struct dht_result *r)
{
    struct averager *a = context;
    a->load.task = NULL;
    pl_fail(&a->load.why, PL_ENOTFOUND, "state: no peer shares one under %.100s",
            a->names.state_key);
    if (!status && r->type == DHT_FOUND_DICTIONARY && r->dictionary.count) {
        /* Sorting announcements costs time that their authors don't pay, so no more than
         * this are read. */
        size_t most = r->dictionary.count < DONORS_MAX ? r->dictionary.count : DONORS_MAX;
        a->load.donors = malloc(most * sizeof *a->load.donors);
        for (size_t i = 0; a->load.donors && i < most; i++)
            a->load.count += (size_t)read_donor(&a->load.donors[a->load.count],
                                                &r->dictionary.items[i], host_id(a->host));
        order_donors(a);
    }
    try_donor(a);
}

int averager_load(struct averager *a, averager_check *check, averager_loaded *loaded, void *context)
{
    if (a->load.busy || a->end.begun) return PL_EUSE;
    a->load.task = dht_node_get(a->node, &a->names.state_id, 1, on_donors, a);
    if (!a->load.task) return PL_ENOMEM;
    a->load.busy = 1;
    /* This seed is never sent: it samples states that were downloaded, so no donor can
     * prepare for it. */
    RAND_bytes(a->load.own_seed, STATE_SEED);
    a->load.check = check;
    a->load.loaded = loaded;
    a->load.context = context;
    return PL_OK;
}

void averager_load_close(struct averager *a)
{
    if (a->load.task) dht_node_cancel(a->load.task);
    if (a->load.proof) dht_node_cancel(a->load.proof);
    clear_doubts(a);
    rpc_close(a->load.stream);
    state_load_clear(&a->load.load);
    free(a->load.donors);
    timer_stop(&a->load.next);
    memset(&a->load, 0, sizeof a->load);
}
