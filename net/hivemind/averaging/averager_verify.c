/* averager_verify.c - BTARD over the network. [BTARD 3.1]
 *
 * Verification works only if every honest member judges by the same rules and gets the same
 * messages. So
 *
 *   1. terms   each member's gather message states version, validators, data, epoch and a number of
 *              its own; the leader passes all on, and a round is verified if all terms agree
 *   2. calls   each message of allreduce_verify.c goes from each member to each other one, since a
 *              leader between them could report different things to each
 *   3. number  it is new in each search and part of every signed text: a message of one round
 *              proves nothing in another
 *
 * In any other group the round is a plain one: clients, Python peers and pairs cannot verify. */
#include "averager_internal.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AVERAGER_DATA_MAX 64   /* characters that name the data; a hash's are enough */
#define VERIFY_CALL_LIMIT 30.0 /* s for a call, where reducers are given no limit */

/* A call of ours without an answer yet. It may outlive its round: the last messages of a successful
 * round go to peers that still wait for them. */
struct verify_call {
    struct averager *a;
    struct rpc_request *request;
    struct verify_call *next, *prev;
};

int averager_write_terms(struct bytes *out, const struct averager *a, int64_t epoch)
{
    const struct allreduce_validation *v = &a->o.validation;
    char text[AVERAGER_DATA_MAX + 96];
    /* A version, validators a round, the data's name, the epoch, and the search's number. The first
     * four have to be equal in a group, since all computations depend on them. */
    snprintf(text, sizeof text, "btard4 %.3g %.*s %lld %016llx", v->validators, AVERAGER_DATA_MAX,
             v->data ? v->data : "", (long long)epoch, (unsigned long long)a->search.number);
    mp_text(out, text);
    return out->failed;
}

/* The text of averager_write_terms, and its length without the search's number, which differs for
 * each peer and search. 0: not a valid text, or *rc = PL_ENOMEM. The caller frees *v with
 * mp_free. */
static size_t read_terms(struct mp_value **v, const struct gather *g, int *rc)
{
    const int status = mp_read(v, g->user, g->user_n, NULL);
    size_t n;
    if (status == PL_ENOMEM) *rc = status;
    if (status) *v = NULL;
    /* hivemind's peers send nil or a number here, so a text of this form marks a potluck
     * peer. */
    if (status || (*v)->kind != MP_STR) return 0;
    for (n = (*v)->n; n && (*v)->bytes[n - 1] != ' '; n--)
        ;
    return n;
}

/* The same terms. but_data: compares the number of validators and the epoch, but not the data
 * between them, which a helper does not have. */
static int is_same(const struct gather *a, const struct gather *b, int but_data, int *rc)
{
    struct mp_value *x, *y;
    size_t n = read_terms(&x, a, rc), m = read_terms(&y, b, rc);
    const size_t words = but_data ? 2 : 0;
    int same = n && m && (but_data || (n == m && !memcmp(x->bytes, y->bytes, n)));
    /* The first two words from the front, then the epoch from the back. */
    for (size_t i = 0, spaces = 0; same && spaces < words; i++) {
        same = i < n && i < m && x->bytes[i] == y->bytes[i];
        spaces += same && x->bytes[i] == ' ';
    }
    for (size_t i = 1, spaces = 0; same && spaces < words; i++) {
        same = i <= n && i <= m && x->bytes[n - i] == y->bytes[m - i];
        spaces += same && x->bytes[n - i] == ' ';
    }
    mp_free(x);
    mp_free(y);
    return same;
}

/* 1: the group's leader has passed on our gather message of this search: its number makes sure
 * that no message that we have signed in another round is valid in this one. */
static int is_ours(const struct averager *a, const struct gather *gather, int *rc)
{
    struct mp_value *v;
    char number[17];
    size_t n = read_terms(&v, gather, rc);
    int same;
    /* A leader that passed on an older message of ours could replay our signatures of that
     * round. */
    snprintf(number, sizeof number, "%016llx", (unsigned long long)a->search.number);
    same = n && v->n - n == 16 && !memcmp(v->bytes + n, number, 16);
    mp_free(v);
    return same;
}

/* All members have stated the same terms as we, and are publicly reachable. Two peers alone can't
 * tell which of them is right. Helpers reduce and are verified as others are, and vote, but compute
 * nothing again. */
int averager_can_verify(const struct averager *a, int *rc)
{
    const struct gather *terms = NULL;
    size_t trainers = 0;
    /* Every member computes this from the same gather messages and gets the same result: either the
     * whole group verifies, or none of it. */
    if (!a->o.verify || a->o.client_mode || a->round.group.count > VERIFIER_PEERS_MAX) return 0;
    /* All others are compared with the first trainer's terms. */
    for (size_t i = 0; i < a->round.group.count; i++)
        if (a->round.group.members[i].gather.mode == GROUP_FULL && !trainers++)
            terms = &a->round.group.members[i].gather;
    if (trainers < AVERAGER_VERIFY_MIN ||
        !is_ours(a, &a->round.group.members[a->round.group.self].gather, rc))
        return 0;
    for (size_t i = 0; i < a->round.group.count; i++) {
        const struct gather *gather = &a->round.group.members[i].gather;
        /* A peer that cannot be called cannot receive the others' signed messages. */
        if (gather->mode == GROUP_CLIENT || gather->bandwidth == 0 || /* behind NAT */
            !is_same(gather, terms, gather->mode == GROUP_AUXILIARY, rc))
            return 0;
    }
    return 1;
}

/* Calls outlive their round: the last packets are for peers that have not ended yet. */
static void forget(struct verify_call *t)
{
    list_remove(&t->a->verify.calls, t);
    free(t);
}

/* A peer that did not receive it times out or voids the round; there is nothing to do here. */
static void on_answered(void *context, const struct rpc_result *r) { forget(context); }

static void send_packet(struct averager *a, const struct peer_id *peer, const uint8_t *data,
                        size_t n)
{
    struct verify_call *t = calloc(1, sizeof *t);
    /* A call that fails is not repeated: the broadcast asks for missing messages (NEED). */
    double limit = a->o.reducer_timeout > 0 ? a->o.reducer_timeout : VERIFY_CALL_LIMIT;
    if (!t) return;
    t->a = a;
    /* A call of its own for each packet: a unary call has an answer, so it is known whether
     * it came. */
    t->request = rpc_call_unary(a->host, peer, a->names.rpc[AVERAGER_VERIFY], data, n, limit,
                                on_answered, t);
    if (!t->request) {
        free(t);
        return;
    }
    list_add(&a->verify.calls, t);
}

void averager_verify_send(void *context, size_t peer, const uint8_t *data, size_t n)
{
    struct averager *a = context;
    send_packet(a, &a->round.group.members[peer].peer, data, n);
}

void averager_ban(struct averager *a, const struct peer_id *peer, const char *why)
{
    char name[PEER_ID_TEXT_MAX];
    /* A ban ends by itself: a peer that was restarted with repaired software may come back. */
    a->call.result.banned += bans_add(&a->bans, loop_now(a->loop), peer);
    peer_id_text(name, peer);
    pl_fail(&a->call.caught, PL_EPROTO, "%s is banned for %.0f s: %.300s", name, BANS_TIME, why);
}

/* A proof may arrive after our own part in its round has ended. It still bans its peer, and is
 * passed on to that round's other members, as its sender may have shown it only to us. */
static void on_convicted(void *context, const struct logged_round *round, size_t author,
                         const uint8_t *packet, size_t n)
{
    struct averager *a = context;
    const struct peer_id *me = host_id(a->host), *peers = round->scope.peers;
    /* A proof against ourselves: we know better, and the others act on it without us. */
    if (peer_id_equal(&peers[author], me)) return;
    averager_ban(a, &peers[author], "it has signed two messages that contradict each other");
    for (size_t i = 0; n && i < round->scope.count; i++)
        if (i != author && !peer_id_equal(&peers[i], me)) send_packet(a, &peers[i], packet, n);
}

static void on_verify_message(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    struct averager *a = context;
    const struct peer_id *caller = rpc_caller(call);
    /* The packet goes to the running round and to the log of earlier ones: it may concern
     * either. */
    int place = a->call.phase == AVERAGER_REDUCING ? group_find(&a->round.group, caller) : -1;
    int is_taken = place >= 0 &&
                   !allreduce_verify_message(a->round.x, loop_now(a->loop), (size_t)place, data, n);
    /* An error tells an honest sender that it is too late, or that this peer does not
     * verify. */
    if (!equivocation_log_receive(&a->verify.log, loop_now(a->loop), caller, data, n, on_convicted,
                                  a) &&
        !is_taken)
        rpc_reply_error(call, "ValueError('not of a round that is being verified')");
    else rpc_reply(call, "", 0);
    averager_drive(a);
}

int averager_verify_open(struct averager *a, struct pl_err *err)
{
    /* A peer that does not verify serves no such call; its gather message does not offer it
     * either. */
    if (!a->o.verify || a->o.client_mode) return PL_OK;
    if (rpc_serve_unary(a->host, a->names.rpc[AVERAGER_VERIFY], on_verify_message, a))
        return pl_fail(err, PL_EUSE, "averaging: %s is already served",
                       a->names.rpc[AVERAGER_VERIFY]);
    return PL_OK;
}

void averager_verify_close(struct averager *a)
{
    if (a->o.verify && !a->o.client_mode) rpc_unserve(a->host, a->names.rpc[AVERAGER_VERIFY]);
    while (a->verify.calls) {
        rpc_cancel(a->verify.calls->request);
        forget(a->verify.calls);
    }
    equivocation_log_clear(&a->verify.log);
}
