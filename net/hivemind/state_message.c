/* state_message.c - see state_message.h. */
#include "state_message.h"
#include "fields.h"
#include "msgpack.h"

#include <stdlib.h>
#include <string.h>

/* --- the donor -------------------------------------------------------------------------------- */

static int put(struct bytes *out, int field, const uint8_t *data, size_t n)
{
    bytes_u8(out, FIELD_KEY(field, FIELD_DELIMITED));
    bytes_varint(out, n);
    return bytes_add(out, data, n);
}

static int put_piece(struct state_source *s, struct bytes *out)
{
    uint8_t *piece;
    size_t n;
    int rc = tensor_pack_piece(&piece, &n, &s->message, s->piece);
    if (rc) return rc;
    rc = put(out, 2, piece, n);
    free(piece);
    return rc;
}

int state_source_next(struct state_source *s, struct bytes *out, const struct pl_backend *be,
                      struct pl_err *err)
{
    int rc = PL_OK;
    if (s->at == s->count) return PL_ENOTFOUND;
    if (!s->piece) {
        const struct state_tensor *t = &s->tensors[s->at];
        s->message = (struct tensor_message){ .type = t->type, .method = t->method };
        if ((rc = tensor_fill(&s->message, be, t->data, err))) return rc;
        if (!s->at) rc = put(out, 1, s->metadata, s->metadata_n);
    }
    if (!rc) rc = put_piece(s, out);
    if (!rc && ++s->piece < tensor_pieces(s->message.bytes)) return PL_OK;
    tensor_clear(&s->message);
    s->piece = 0;
    s->at++;
    return rc ? pl_fail(err, rc, "state: %s", pl_status_name(rc)) : PL_OK;
}

void state_source_clear(struct state_source *s)
{
    tensor_clear(&s->message);
    memset(s, 0, sizeof *s);
}

/* --- the newcomer ----------------------------------------------------------------------------- */

static int keep_tensor(struct state_load *l, struct pl_err *err)
{
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 16;
        struct tensor_message *more;
        if (l->count == STATE_TENSORS_MAX)
            return pl_fail(err, PL_ELIMIT, "state: more than %u tensors", STATE_TENSORS_MAX);
        if (!(more = realloc(l->tensors, room * sizeof *more)))
            return pl_fail(err, PL_ENOMEM, "state: no memory");
        l->tensors = more;
        l->room = room;
    }
    tensor_join_take(&l->tensors[l->count], &l->join);
    l->bytes += l->tensors[l->count++].bytes;
    return PL_OK;
}

static int keep_metadata(struct state_load *l, const struct field *f, struct pl_err *err)
{
    if (l->metadata || l->count || l->begun)
        return pl_fail(err, PL_EFORMAT, "state: metadata behind the first message");
    if (f->n > STATE_METADATA_MAX)
        return pl_fail(err, PL_ELIMIT, "state: %zu bytes of metadata, expected at most %u", f->n,
                       STATE_METADATA_MAX);
    if (!(l->metadata = malloc(f->n + 1))) return pl_fail(err, PL_ENOMEM, "state: no memory");
    if (f->n) memcpy(l->metadata, f->data, f->n);
    l->metadata_n = f->n;
    return PL_OK;
}

int state_load_add(struct state_load *l, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct cursor c = { data, n };
    struct field f, tensor = { 0 };
    int rc = PL_OK;
    while (c.left && !rc) {
        if (field_next(&c, &f))
            return pl_fail(err, PL_EFORMAT, "state: %zu bytes are no DownloadData", n);
        if (f.number == 1 && f.type == FIELD_DELIMITED) rc = keep_metadata(l, &f, err);
        else if (f.number == 2 && f.type == FIELD_DELIMITED) tensor = f;
    }
    if (rc || !tensor.data) return rc;
    if (l->limit) {
        if (l->bytes >= l->limit)
            return pl_fail(err, PL_ELIMIT, "state: more than %zu bytes", l->limit);
        l->join.limit = l->limit - l->bytes;
    }
    rc = tensor_join_add(&l->join, tensor.data, tensor.n, err);
    l->begun = rc == PL_EAGAIN;
    if (rc == PL_EAGAIN) return PL_OK;
    return rc ? rc : keep_tensor(l, err);
}

int state_load_finish(const struct state_load *l, struct pl_err *err)
{
    if (l->begun) return pl_fail(err, PL_EFORMAT, "state: ended within tensor %zu", l->count);
    if (!l->metadata && !l->count)
        return pl_fail(err, PL_ENOTFOUND, "state: the peer shares nothing");
    if (!l->metadata) return pl_fail(err, PL_EFORMAT, "state: without metadata");
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

static void write_leaf(struct bytes *out, const struct state_leaf *leaf)
{
    int is_tensor = leaf->kind == STATE_TENSOR;
    mp_map(out, 2);
    mp_text(out, "type");
    mp_text(out, is_tensor ? "tensor" : "value");
    mp_text(out, is_tensor ? "index" : "value");
    if (leaf->kind == STATE_REAL) mp_float(out, leaf->real);
    else mp_int(out, leaf->index);
}

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
        return PL_OK;
    }
    leaf->kind = STATE_COUNT; /* settings such as True or a name are nothing that we could use */
    leaf->index = value->kind == MP_INT ? (int64_t)value->number : 0;
    return PL_OK;
}

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
    return pl_fail(err, rc, "state: metadata that are no training state's");
}

void training_state_clear(struct training_state *t)
{
    free(t->leaves);
    memset(t, 0, sizeof *t);
}
