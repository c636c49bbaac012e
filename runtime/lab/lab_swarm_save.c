/* lab_swarm_save.c - a whole swarm in a file: plain structs as they lie in memory, then the memory
 * that they point to. The file belongs to this program on this machine, like a core dump: the
 * caller's head says which run it is. */
#include "lab_swarm_internal.h"

#include <string.h>

#define TRANSFERS_MAX ((size_t)1 << 20) /* 64 peers have 4,032 at once, per exchange under way */
#define EXCHANGES_MAX ((size_t)1 << 16)
#define MESSAGE_MAX ((size_t)1 << 32)
#define STATE_MAX ((size_t)1 << 36) /* of one peer: some vectors as long as the model, a message */

/* One function for both directions, so that reading and writing cannot differ. */
struct io {
    FILE *file;
    int is_loading, has_failed;
};

static void move(struct io *io, void *p, size_t bytes)
{
    if (io->has_failed || !bytes) return;
    io->has_failed = io->is_loading ? fread(p, 1, bytes, io->file) != bytes
                                    : fwrite(p, 1, bytes, io->file) != bytes;
}

/* The number of following items; 0 after a failure. */
static size_t move_count(struct io *io, size_t count, size_t most)
{
    uint64_t n = count;
    move(io, &n, sizeof n);
    if (n > most) io->has_failed = 1;
    return io->has_failed ? 0 : (size_t)n;
}

static void move_buffer(struct io *io, const struct lab_model *m, float *x)
{
    float *host = pl_alloc(m->n, sizeof *host);
    io->has_failed |= !host;
    if (!io->has_failed && !io->is_loading)
        io->has_failed = m->be->get(host, x, m->n * sizeof *host) != PL_OK;
    move(io, host, m->n * sizeof *host);
    if (!io->has_failed && io->is_loading)
        io->has_failed = m->be->put(x, host, m->n * sizeof *host) != PL_OK;
    pl_free(host);
}

static void move_peer(struct io *io, struct lab_swarm *s, int k)
{
    struct peer *p = &s->peer[k];
    const struct lab_model *m = s->model;
    size_t inner = m->state_bytes(m->context, k), outer;
    uint8_t *state;
    move(io, &p->clock, sizeof p->clock);
    if ((unsigned)p->clock.activity > LAB_AWAY || p->clock.donor < 0 ||
        p->clock.donor >= s->setup->peers)
        io->has_failed = 1;
    move_buffer(io, m, p->x);
    move_buffer(io, m, p->g);
    outer = move_count(io, pl_outer_state_bytes(p->outer), STATE_MAX);
    state = pl_alloc(outer + inner, 1);
    io->has_failed |= !state;
    if (!io->has_failed && !io->is_loading)
        io->has_failed = pl_outer_save(p->outer, state) || m->save(m->context, k, state + outer);
    move(io, state, outer + inner);
    if (!io->has_failed && io->is_loading)
        io->has_failed = pl_outer_load(p->outer, state, outer, NULL) ||
                         m->load(m->context, k, state + outer);
    pl_free(state);
}

static void move_message(struct io *io, const struct lab_swarm *s, struct pl_outer_message *m)
{
    const size_t behind = lab_exchange_bytes(s, m) - m->bytes;
    size_t bytes = move_count(io, m->data ? m->bytes + 1 : 0, MESSAGE_MAX);
    if (io->has_failed || !bytes) return;
    if (io->is_loading) {
        m->bytes = bytes - 1;
        m->data = pl_alloc(bytes + behind, 1);
        io->has_failed |= !m->data;
    }
    move(io, &m->weight, sizeof m->weight);
    move(io, &m->rank, sizeof m->rank);
    move(io, m->data, m->bytes + behind);
}

static void move_exchanges(struct io *io, struct lab_swarm *s)
{
    size_t count = move_count(io, s->exchanges, EXCHANGES_MAX);
    if (io->is_loading) lab_exchange_clear(s);
    for (size_t i = 0; i < count && !io->has_failed; i++) {
        uint64_t number = io->is_loading ? 0 : s->exchange[i]->plain.number;
        struct exchange *e;
        move(io, &number, sizeof number);
        e = io->is_loading ? lab_exchange_new(s, number) : s->exchange[i];
        io->has_failed |= !e;
        if (io->has_failed) return;
        move(io, &e->plain, sizeof e->plain);
        if (e->plain.number != number || e->plain.members < 0 ||
            e->plain.members > s->setup->peers || (e->plain.under_way && !e->plain.members))
            io->has_failed = 1;
        for (int k = 0; k < s->setup->peers; k++) move_message(io, s, &e->message[k]);
    }
}

static void move_net(struct io *io, struct lab_net *net)
{
    size_t count = move_count(io, net->count, TRANSFERS_MAX);
    move(io, &net->now, sizeof net->now);
    move(io, &net->is_stale, sizeof net->is_stale);
    move(io, net->traffic, (size_t)net->peers * sizeof *net->traffic);
    if (io->is_loading && !io->has_failed) {
        pl_free(net->transfer);
        net->transfer = pl_alloc(count + 1, sizeof *net->transfer);
        net->count = net->transfer ? count : 0;
        net->capacity = net->transfer ? count + 1 : 0;
        io->has_failed |= !net->transfer;
    }
    move(io, net->transfer, net->count * sizeof *net->transfer);
    for (size_t i = 0; i < net->count && io->is_loading; i++) {
        const struct lab_transfer *t = &net->transfer[i];
        if (t->from < 0 || t->from >= net->peers || t->to < 0 || t->to >= net->peers)
            io->has_failed = 1;
    }
}

static void move_swarm(struct io *io, struct lab_swarm *s)
{
    move(io, &s->count, sizeof s->count);
    move_net(io, &s->net);
    for (int k = 0; k < s->setup->peers; k++) move_peer(io, s, k);
    move_exchanges(io, s);
}

int lab_swarm_save(const struct lab_swarm *s, FILE *file)
{
    struct io io = { .file = file };
    /* writing changes nothing */
    move_swarm(&io, (struct lab_swarm *)(uintptr_t)s);
    return io.has_failed ? PL_EIO : PL_OK;
}

int lab_swarm_load(struct lab_swarm *s, FILE *file, struct pl_err *err)
{
    struct io io = { .file = file, .is_loading = 1 };
    move_swarm(&io, s);
    return io.has_failed ? pl_fail(err, PL_EFORMAT, "the saved swarm is cut off or damaged")
                         : PL_OK;
}
