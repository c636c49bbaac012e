/* exchange.c - one all-reduce with the averager, as a member of its group: parts of weight 0 in two
 * compressions, and its responses. */
#include "averager_walk.h"
#include "net/hivemind/swarm/averaging.h"

#include <math.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_LIMIT 60.0 /* s for an answer to a part: others may be slow */

struct allreduce_walk {
    struct averager_walk *a;
    struct pl_part *parts;
    size_t count;
    int values_known; /* only the peer has tensors with weight: the mean is its own */
};

/* Uncompressed and halves in turn, whatever compression the group uses: the answer has to
 * follow. */
static enum pl_compression method_of(size_t i)
{
    return i % 2 ? PL_COMPRESS_FLOAT16 : PL_COMPRESS_NONE;
}

static void send_part(struct allreduce_walk *x, struct talk_stream *s, size_t i, int first)
{
    struct part_message m = { .method = method_of(i), .elements = x->parts[i].length };
    struct bytes out = { 0 };
    uint8_t *buffer;
    if (first) {
        m.code = MSG_PART_FOR_AVERAGING;
        m.group_id = x->a->group.id;
        m.group_id_n = DHT_ID_BYTES;
    }
    m.bytes = m.elements * (m.method == PL_COMPRESS_NONE ? 4 : 2);
    if (!part_message_write(&out, &buffer, &m)) {
        /* zeros, which weigh nothing: answers are the mean itself */
        if (buffer) memset(buffer, 0, m.bytes);
        talk_send(s, bytes_at(&out), bytes_length(&out));
    }
    bytes_clear(&out);
}

/* The answer is what the peer had handed on: exactly, or rounded to halves. */
static int is_its_own(struct allreduce_walk *x, size_t i, const struct part_message *m)
{
    const struct pl_part *p = &x->parts[i];
    const struct tensor_message *t = &x->a->tensors[p->tensor];
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)m->elements } };
    size_t n = tensor_elements(t);
    float *have = pl_alloc(n, sizeof *have), *got = pl_alloc(m->elements, sizeof *got);
    int good = have && got &&
               !pl_wire_decode(have, x->a->w->be, t->method, &t->type, t->buffer, t->bytes, NULL) &&
               !pl_wire_decode(got, x->a->w->be, m->method, &type, m->buffer, m->bytes, NULL);
    for (size_t k = 0; good && k < m->elements; k++) {
        float want = have[p->start + k];
        good = fabsf(got[k] - want) <=
               (m->method == PL_COMPRESS_NONE ? 1e-6f : 1e-3f) * fabsf(want) + 1e-7f;
    }
    pl_free(have);
    pl_free(got);
    return good;
}

/* Sends a reducer its parts, and takes its answers. PL_OK or err. */
static int with_reducer(struct allreduce_walk *x, int place, struct pl_err *err)
{
    struct averager_walk *a = x->a;
    struct talk_stream *s = talk_open(&a->w->talk, &a->group.members[place].peer,
                                      a->rpc[AVERAGER_AGGREGATE], RPC_MESSAGE_MAX);
    struct part_message m;
    const uint8_t *data;
    size_t n, sent = 0;
    int rc = s ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; s && i < x->count; i++)
        if (x->parts[i].reducer == place) send_part(x, s, i, !sent++);
    if (s) talk_send_end(s); /* a peer that reduces nothing gets its answers only after that */
    for (size_t i = 0; !rc && i < x->count; i++) {
        if (x->parts[i].reducer != place) continue;
        if ((rc = talk_next(s, ROUND_LIMIT, &data, &n)))
            pl_fail(err, rc, "part %zu: %s", i, talk_why(s));
        else if ((rc = part_message_read(&m, data, n, err))) continue;
        else if (m.code != MSG_AVERAGED_PART || !m.has_part)
            rc = pl_fail(err, PL_EPROTO, "part %zu: %s", i, walk_code(m.code));
        else if (m.method != method_of(i))
            rc = pl_fail(err, PL_EPROTO, "part %zu: answered in compression %d, sent in %d", i,
                         (int)m.method, (int)method_of(i));
        else if (m.elements != x->parts[i].length)
            rc = pl_fail(err, PL_EPROTO, "part %zu: %zu values, expected %zu", i, m.elements,
                         x->parts[i].length);
        else if (m.weight != 0)
            rc = pl_fail(err, PL_EPROTO, "part %zu: an answer with a weight", i);
        else if (!part_message_is_finite(&m))
            rc = pl_fail(err, PL_EPROTO, "part %zu: missing or infinite values", i);
        else if (x->values_known && !is_its_own(x, i, &m))
            rc = pl_fail(err, PL_EPROTO, "part %zu: not the mean", i);
    }
    if (!rc && (rc = talk_next(s, TALK_LIMIT, &data, &n)) == PL_ENOTFOUND) rc = PL_OK;
    else if (!err->text[0]) rc = pl_fail(err, PL_EPROTO, "more answers than parts, or no end");
    talk_close(s);
    return rc;
}

static int cut(struct allreduce_walk *x, struct pl_err *err)
{
    const struct averager_walk *a = x->a;
    size_t n = a->count, total = 0, *elements = calloc(n + 1, sizeof *elements),
           *share = calloc(a->group.count, sizeof *share);
    enum pl_compression *method = calloc(n + 1, sizeof *method);
    double *fraction = calloc(a->group.count, sizeof *fraction);
    int rc = elements && share && method && fraction ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; !rc && i < n; i++) {
        total += elements[i] = tensor_elements(&a->tensors[i]);
        rc = compression_named(&method[i], a->w->compression, elements[i], a->w->threshold);
    }
    if (!rc) rc = group_shares(share, &a->group, total, err);
    for (size_t i = 0; !rc && i < a->group.count; i++) fraction[i] = (double)share[i];
    if (!rc)
        rc = pl_partition(&x->parts, &x->count, elements, method, n, fraction, (int)a->group.count,
                          a->w->part_bytes, err);
    free(elements);
    free(share);
    free(method);
    free(fraction);
    return rc;
}

void walk_exchange(struct averager_walk *a)
{
    const char *what = "each part is answered in order, in its own compression, without a weight; "
                       "then the stream ends";
    struct allreduce_walk x = { .a = a,
                                .values_known = a->group.count == 2 && a->kind == AVERAGER_BARE };
    struct pl_err err = { "" }, unused = { "" };
    int its_place = group_find(&a->group, &a->w->talk.peer), rc = cut(&x, &err);
    if (rc) {
        walk_skip(a->w, "hivemind 5", what, "%s", err.text);
        return;
    }
    if (x.values_known)
        walk_clause(a->w, "hivemind 5.4",
                    "whose mean is what it handed on, since ours weighs nothing",
                    !(rc = with_reducer(&x, its_place, &err)), "%s", err.text);
    else rc = with_reducer(&x, its_place, &err);
    walk_clause(a->w, "hivemind 5.4", what, !rc, "%s", err.text);
    for (size_t i = 0; i < a->group.count; i++) /* the others shall not have to wait for us */
        if ((int)i != its_place && i != a->group.self) with_reducer(&x, (int)i, &unused);
    pl_free(x.parts);
}

void walk_stray_part(struct averager_walk *a)
{
    uint8_t id[DHT_ID_BYTES], *buffer;
    struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                              .group_id = id,
                              .group_id_n = sizeof id,
                              .elements = 1,
                              .bytes = 4,
                              .weight = 1 };
    struct talk_stream *s = talk_open(&a->w->talk, &a->w->talk.peer, a->rpc[AVERAGER_AGGREGATE],
                                      RPC_MESSAGE_MAX);
    struct bytes out = { 0 };
    const uint8_t *data;
    size_t n;
    int rc;
    if (!s) return;
    RAND_bytes(id, sizeof id);
    if (!part_message_write(&out, &buffer, &m)) memset(buffer, 0, 4);
    talk_send_last(s, bytes_at(&out), bytes_length(&out));
    rc = talk_next(s, TALK_LIMIT, &data, &n);
    if (!rc) rc = part_message_read(&m, data, n, NULL);
    walk_clause(a->w, "hivemind 5.4", "a part for a group that there is not: BAD_GROUP_ID",
                !rc && m.code == MSG_BAD_GROUP_ID, "%s", rc ? talk_why(s) : walk_code(m.code));
    talk_close(s);
    bytes_clear(&out);
}
