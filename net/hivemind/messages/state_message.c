/* state_message.c - how a newcomer gets the model. It calls rpc_download_state of a peer that
 * has announced one, and the donor streams DownloadData messages [spec hivemind-protocol 7]:
 *
 *   {metadata: msgpack, tensor_part: first piece of tensor 0}
 *   {tensor_part: next piece of tensor 0}
 *   ...
 *   {tensor_part: last piece of the last tensor}
 *
 * Tensors are the parameters, then the optimizer's moments; the metadata says which epoch they
 * belong to and how the optimizer's state is put together from numbered tensors and plain values. A
 * donor may be Byzantine or slow, so the newcomer computes in advance the largest state of its own
 * model (state_load_expect) and refuses anything beyond that before it is stored. */
#include "state_message.h"
#include "protobuf_fields.h"
#include "msgpack.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>

/* --- the donor -------------------------------------------------------------------------------- */

/* A tensor of 100 MB travels as 1,600 messages of 64 KiB: other calls on the connection get their
 * turn in between, and neither side needs a buffer for all of it. */
static int put_piece(struct state_source *s, struct bytes *out)
{
    uint8_t *piece;
    size_t n;
    int rc = tensor_pack_piece(&piece, &n, &s->message, s->piece);
    if (rc) return rc;
    rc = field_write(out, 2, piece, n);
    free(piece);
    return rc;
}

/* One message for each call, so that a donor holds one compressed tensor at a time, not the
 * whole state. */
int state_source_next(struct state_source *s, struct bytes *out, const struct pl_backend *be,
                      struct pl_err *err)
{
    int rc = PL_OK;
    if (s->at == s->count) return PL_ENOTFOUND;
    /* A new tensor: compress it once, then cut it. */
    if (!s->piece) {
        const struct state_tensor *t = &s->tensors[s->at];
        s->message = (struct tensor_message){ .type = t->type, .method = t->method };
        if ((rc = tensor_fill(&s->message, be, t->data, err))) return rc;
        /* The very first message has all the metadata, however long. */
        if (!s->at) rc = field_write(out, 1, s->metadata, s->metadata_n);
    }
    if (!rc) rc = put_piece(s, out);
    if (!rc && ++s->piece < tensor_pieces(s->message.bytes)) return PL_OK;
    tensor_clear(&s->message);
    s->piece = 0;
    s->at++;
    return rc ? pl_fail(err, rc, "state: %s", pl_status_name(rc)) : PL_OK;
}

/* Also in the middle of a tensor: the newcomer may have left. */
void state_source_clear(struct state_source *s)
{
    tensor_clear(&s->message);
    memset(s, 0, sizeof *s);
}

/* --- the newcomer ----------------------------------------------------------------------------- */

/* How large can an honest state be? For P parameters of N bytes: 4 N (parameters, two moments,
 * one to spare) and a few kilobytes for each parameter's tables, counters and metadata. */
void state_load_expect(struct state_load *l, const struct schema_tensor *schema, size_t count)
{
    size_t bytes = 0, n;
    for (size_t i = 0; i < count; i++)
        /* The sum cannot overflow, whatever shapes the model has: a tensor that would is not
         * added. */
        if (!pl_wire_elements(&n, &schema[i].type, NULL) && n < SIZE_MAX / 64 - bytes)
            bytes += n * sizeof(float);
    memset(l, 0, sizeof *l);
    l->schema = schema;
    l->expected = count;
    /* The wire may hold less than float32 (float16, 8-bit codes), never more. */
    l->bytes_max = STATE_BYTES_FACTOR * bytes + STATE_BYTES_EACH * (count + 1);
    l->tensors_max = STATE_TENSORS_EACH * (count + 1);
    l->metadata_max = STATE_METADATA_BASE + STATE_METADATA_EACH * count;
    if (l->tensors_max > STATE_TENSORS_MAX) l->tensors_max = STATE_TENSORS_MAX;
    if (l->metadata_max > STATE_METADATA_MAX) l->metadata_max = STATE_METADATA_MAX;
}

void state_load_expect_any(struct state_load *l, size_t bytes, size_t tensors)
{
    state_load_expect(l, NULL, 0);
    l->bytes_max += bytes;
    l->tensors_max = tensors + 1 < STATE_TENSORS_MAX ? tensors + 1 : STATE_TENSORS_MAX;
}

/* A zeroed state_load has no expectation: then only the constants bound it. */
static size_t metadata_max(const struct state_load *l)
{
    return l->metadata_max ? l->metadata_max : STATE_METADATA_MAX;
}

/* Metadata and a piece of a tensor: the longest message that a reader has to accept. */
size_t state_load_message_max(const struct state_load *l)
{
    return metadata_max(l) + 2 * TENSOR_PIECE;
}

/* Every message and every byte is counted, also unknown fields and empty pieces: otherwise a donor
 * could keep sending without ever completing a tensor. */
static int charge(struct state_load *l, size_t n, struct pl_err *err)
{
    size_t messages = l->bytes_max / STATE_PIECE_MIN + l->tensors_max + 1;
    if (!l->bytes_max) return PL_OK;
    /* A message of a piece smaller than STATE_PIECE_MIN costs us more than it brings. */
    l->messages++;
    l->received += n;
    if (l->messages > messages)
        return pl_fail(err, PL_ELIMIT, "state: more than %zu messages", messages);
    if (l->received >
        l->bytes_max + l->bytes_max / 16 + metadata_max(l) + l->tensors_max * STATE_HEADER_MAX)
        return pl_fail(err, PL_ELIMIT, "state: %zu bytes came, our model's state has at most %zu",
                       l->received, l->bytes_max);
    return PL_OK;
}

/* A tensor is complete and checked: it moves from the join to the list. */
static int keep_tensor(struct state_load *l, struct pl_err *err)
{
    if (l->count == (l->tensors_max ? l->tensors_max : STATE_TENSORS_MAX))
        return pl_fail(err, PL_ELIMIT, "state: more than %zu tensors", l->count);
    if (pl_grow(&l->tensors, l->count, &l->capacity, 16))
        return pl_fail(err, PL_ENOMEM, "state: no memory");
    tensor_join_take(&l->tensors[l->count], &l->join); /* moved, not copied */
    l->bytes += l->tensors[l->count++].bytes;
    return PL_OK;
}

/* Metadata stands in the first message only; a second one would replace metadata that were already
 * accepted. */
static int keep_metadata(struct state_load *l, const struct field *f, struct pl_err *err)
{
    if (l->metadata || l->count || l->begun)
        return pl_fail(err, PL_EFORMAT, "state: metadata after the first message");
    if (f->n > metadata_max(l))
        return pl_fail(err, PL_ELIMIT, "state: %zu bytes of metadata, expected at most %zu", f->n,
                       metadata_max(l));
    if (!(l->metadata = malloc(f->n + 1))) return pl_fail(err, PL_ENOMEM, "state: no memory");
    if (f->n) memcpy(l->metadata, f->data, f->n);
    l->metadata_n = f->n;
    return PL_OK;
}

/* A tensor's first piece names its type and size: if they differ from ours, or the size is too
 * large, it is refused before any of it is stored. */
static int add_piece(struct state_load *l, const struct field *piece, struct pl_err *err)
{
    struct pl_err why = { "" };
    int rc;
    /* Copied by position: the protocol has no names. The first `expected` tensors have our
     * parameters' shapes; after them comes the optimizer's state, whose shapes depend on the
     * optimizer. */
    l->join.type = l->count < l->expected ? &l->schema[l->count].type : NULL;
    if (l->bytes_max) {
        if (l->bytes >= l->bytes_max)
            return pl_fail(err, PL_ELIMIT, "state: more than %zu bytes", l->bytes_max);
        l->join.limit = l->bytes_max - l->bytes;
    }
    rc = tensor_join_add(&l->join, piece->data, piece->n, &why);
    l->begun = rc == PL_EAGAIN;
    if (rc == PL_EAGAIN) return PL_OK;
    /* Another model: a donor of this swarm by name, but not of ours. */
    if (rc == PL_EUSE)
        return pl_fail(err, rc,
                       "peer's state has different tensors than our model (parameter %zu: "
                       "%.200s)",
                       l->count, why.text);
    return rc ? pl_fail(err, rc, "state: %.300s", why.text) : keep_tensor(l, err);
}

/* The fields of DownloadData, read as views: 1 metadata, 2 tensor_part. */
int state_load_add(struct state_load *l, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct cursor c = { data, n };
    struct field f, tensor = { 0 };
    int rc = charge(l, n, err);
    while (c.left && !rc) {
        if (field_next(&c, &f))
            return pl_fail(err, PL_EFORMAT,
                           "state: %zu bytes are not a valid DownloadData "
                           "message",
                           n);
        if (f.number == 1 && f.type == FIELD_DELIMITED) rc = keep_metadata(l, &f, err);
        else if (f.number == 2 && f.type == FIELD_DELIMITED) tensor = f;
    }
    if (rc || !tensor.data) return rc;
    return add_piece(l, &tensor, err);
}

/* The donor closed the stream. A state with half a tensor, or with fewer tensors than parameters,
 * cannot be trained from. */
int state_load_finish(const struct state_load *l, struct pl_err *err)
{
    if (l->begun) return pl_fail(err, PL_EFORMAT, "state: ended within tensor %zu", l->count);
    if (!l->metadata && !l->count)
        return pl_fail(err, PL_ENOTFOUND, "state: the peer shares nothing");
    if (!l->metadata) return pl_fail(err, PL_EFORMAT, "state: without metadata");
    if (l->count < l->expected)
        return pl_fail(err, PL_EUSE,
                       "peer's state has different tensors than our model (theirs has "
                       "%zu, ours has %zu parameters)",
                       l->count, l->expected);
    return PL_OK;
}

void state_load_clear(struct state_load *l)
{
    for (size_t i = 0; i < l->count; i++) tensor_clear(&l->tensors[i]);
    tensor_join_clear(&l->join);
    free(l->tensors);
    free(l->metadata);
    memset(l, 0, sizeof *l);
}

/* --- an optimizer's metadata ------------------------------------------------------------------ */

/* An entry of the optimizer's state, as hivemind writes it: {"type": "tensor", "index": 7} or
 * {"type": "value", "value": 0.9}. */
static void write_leaf(struct bytes *out, const struct state_leaf *leaf)
{
    int is_tensor = leaf->kind == STATE_TENSOR;
    mp_map(out, 2);
    mp_text(out, "type");
    mp_text(out, is_tensor ? "tensor" : "value");
    mp_text(out, is_tensor ? "index" : "value");
    if (leaf->kind == STATE_REAL) mp_float(out, leaf->real);
    else if (leaf->kind == STATE_TRUTH) mp_bool(out, leaf->index != 0);
    else if (leaf->kind == STATE_NONE) mp_nil(out);
    else mp_int(out, leaf->index);
}

/* {"epoch": 12, "group_bits": "01", "optimizer_metadata": [...]}. The group bits are part of the
 * donor's averager: they name the group that it averages with next (spec 4.5). */
int training_state_write(struct bytes *out, const struct training_state *t)
{
    mp_map(out, 3);
    mp_text(out, "epoch");
    mp_int(out, t->epoch);
    mp_text(out, "group_bits");
    mp_text(out, t->group_bits);
    mp_text(out, "optimizer_metadata");
    mp_list(out, t->count);
    for (size_t i = 0; i < t->count; i++) write_leaf(out, &t->leaves[i]);
    return out->failed;
}

/* Of strangers: an index is only a number here; the optimizer checks that it has such a tensor. */
static int read_leaf(struct state_leaf *leaf, const struct mp_value *v)
{
    const struct mp_value *type = mp_get(v, "type"), *value = mp_get(v, "value");
    if (!type) return PL_EFORMAT;
    if (mp_is_text(type, "tensor")) {
        leaf->kind = STATE_TENSOR;
        leaf->index = mp_get(v, "index") ? mp_count(mp_get(v, "index")) : -1;
        return leaf->index >= 0 ? PL_OK : PL_EFORMAT;
    }
    if (!value || !mp_is_text(type, "value")) return PL_EFORMAT;
    if (value->kind == MP_FLOAT) {
        leaf->kind = STATE_REAL;
        leaf->real = value->real;
    } else if (value->kind == MP_NIL || value->kind == MP_BOOL) {
        leaf->kind = value->kind == MP_NIL ? STATE_NONE : STATE_TRUTH;
        leaf->index = value->kind == MP_BOOL && value->truth;
    } else { /* other values (a name) mean nothing to our optimizers: 0 */
        leaf->kind = STATE_COUNT;
        leaf->index = value->kind == MP_INT ? (int64_t)value->number : 0;
    }
    return PL_OK;
}

/* The epoch is a claim. Other peers' reports decide whether it may be adopted, see
 * progress/claims.h [spec hivemind-protocol 7]. */
int training_state_read(struct training_state *t, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *root;
    const struct mp_value *epoch, *bits, *list;
    int rc = mp_read(&root, data, n, err);
    memset(t, 0, sizeof *t);
    if (rc) return rc;
    epoch = mp_get(root, "epoch");
    bits = mp_get(root, "group_bits");
    list = mp_get(root, "optimizer_metadata");
    rc = PL_EFORMAT;
    if (epoch && (t->epoch = mp_count(epoch)) >= 0 && list &&
        (list->kind == MP_LIST || list->kind == MP_TUPLE)) {
        /* Group bits may be missing or too long: the newcomer then begins with its own. */
        if (bits && bits->kind == MP_STR && bits->n < sizeof t->group_bits)
            memcpy(t->group_bits, bits->bytes, bits->n);
        t->leaves = calloc(list->n + 1, sizeof *t->leaves);
        rc = t->leaves ? PL_OK : PL_ENOMEM;
        for (; !rc && t->count < list->n; t->count++)
            rc = read_leaf(&t->leaves[t->count], &list->item[t->count]);
    }
    mp_free(root);
    if (!rc) return PL_OK;
    training_state_clear(t);
    return pl_fail(err, rc, "state: its metadata are not a training state's");
}

void training_state_clear(struct training_state *t)
{
    free(t->leaves);
    memset(t, 0, sizeof *t);
}
