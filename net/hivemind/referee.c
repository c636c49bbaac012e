/* referee.c - see referee.h: who says what when. */
#include "referee_inside.h"
#include "../../ref/quant.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_BYTES sizeof(struct told)
#define ACCUSATION_BYTES 5 /* what, and of which part */
#define CODEC_BYTES (1 + PL_CODES * sizeof(float)) /* of a part that travels, beside its values */

static const struct pl_btard hashing = { .hash = referee_sha256 };

void referee_sha256(uint8_t hash[PL_HASH_BYTES], const void *data, size_t n)
{
    EVP_Digest(data, n, hash, NULL, EVP_sha256(), NULL);
}

/* --- messages --------------------------------------------------------------------------------- */

static size_t shortest(const struct referee *r, int phase)
{
    switch (phase) {
    case REFEREE_COMMIT:
        return REFEREE_HEAD + (r->v.count + 1 + r->v.part_count) * PL_HASH_BYTES + 16;
    case REFEREE_REVEAL: return REFEREE_HEAD + 3 * PL_HASH_BYTES;
    case REFEREE_REPORT: return REFEREE_HEAD + r->v.part_count * REPORT_BYTES + PL_HASH_BYTES;
    case REFEREE_ACCUSE:
        return REFEREE_HEAD + r->v.count * ACCUSATION_BYTES + 1 + PL_HASH_BYTES;
    case REFEREE_OPEN: return REFEREE_HEAD + r->v.count + PL_HASH_BYTES;
    default: return REFEREE_HEAD + PL_HASH_BYTES;
    }
}

static size_t longest(const struct referee *r, int phase)
{
    return shortest(r, phase) + (phase == REFEREE_OPEN ? r->longest_sent : 0);
}

const uint8_t *referee_said(const struct referee *r, int phase, size_t peer)
{
    return bytes_at(&r->said[phase][peer]) + REFEREE_HEAD;
}

static uint64_t be64(const uint8_t *p)
{
    struct cursor c = { p, 8 };
    uint64_t x = 0;
    get_be64(&c, &x);
    return x;
}

struct referee_claim referee_claim_of(const struct referee *r, size_t peer)
{
    const uint8_t *p = referee_said(r, REFEREE_COMMIT, peer) + (r->v.count + 1) * PL_HASH_BYTES;
    return (struct referee_claim){ (int64_t)be64(p), be64(p + 8) };
}

const uint8_t *referee_part_hash(const struct referee *r, size_t peer, size_t part)
{
    return referee_said(r, REFEREE_COMMIT, peer) + (r->v.count + 1 + part) * PL_HASH_BYTES + 16;
}

struct told referee_told(const struct referee *r, size_t peer, size_t part)
{
    struct told t;
    memcpy(&t, referee_said(r, REFEREE_REPORT, peer) + part * REPORT_BYTES, sizeof t);
    return t;
}

enum accusation referee_accusation(const struct referee *r, size_t by, size_t of, size_t *part)
{
    const uint8_t *p = referee_said(r, REFEREE_ACCUSE, by) + of * ACCUSATION_BYTES;
    *part = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    return by == of || p[0] > ACCUSES_VALUES ? ACCUSES_NOBODY : (enum accusation)p[0];
}

/* --- life ------------------------------------------------------------------------------------- */

int referee_open(struct referee **out, const struct referee_view *v, struct pl_err *err)
{
    struct referee *r = calloc(1, sizeof *r);
    int rc = r ? PL_OK : PL_ENOMEM;
    *out = NULL;
    if (v->count > REFEREE_PEERS_MAX || v->part_count > REFEREE_PARTS_MAX) {
        free(r);
        return pl_fail(err, PL_ELIMIT, "verification: %zu peers, %zu parts are too many", v->count,
                       v->part_count);
    }
    if (r) r->v = *v;
    for (size_t p = 0; !rc && p < v->part_count; p++)
        if (v->parts[p].length > r->longest) r->longest = v->parts[p].length;
    if (r) r->longest_sent = CODEC_BYTES + r->longest * sizeof(float);
    if (r && r->longest_sent > REFEREE_SHOWN_MAX) {
        pl_fail(err, PL_ELIMIT, "verification: a part of %zu values is too long to be shown to all",
                r->longest);
        free(r);
        return PL_ELIMIT;
    }
    for (int p = 0; !rc && p < REFEREE_PHASES; p++)
        if (!(r->said[p] = calloc(v->count, sizeof *r->said[p]))) rc = PL_ENOMEM;
    if (!rc && (!(r->own_hash = calloc(v->count, PL_HASH_BYTES)) ||
                !(r->banned = calloc(v->count, 1)) || !(r->opinion = calloc(v->count, 1)) ||
                !(r->order = pl_alloc(v->count, sizeof *r->order)) ||
                chance_bytes(&v->chance, r->lot, sizeof r->lot) ||
                chance_bytes(&v->chance, r->salt, sizeof r->salt)))
        rc = PL_ENOMEM;
    if (rc) {
        referee_close(r);
        return pl_fail(err, rc, "verification: no memory");
    }
    *out = r;
    return PL_OK;
}

void referee_close(struct referee *r)
{
    if (!r) return;
    for (int p = 0; p < REFEREE_PHASES; p++) {
        for (size_t i = 0; r->said[p] && i < r->v.count; i++) bytes_clear(&r->said[p][i]);
        free(r->said[p]);
    }
    free(r->own_hash);
    free(r->opinion);
    pl_free(r->order);
    free(r->banned);
    free(r);
}

int referee_is_ready(const struct referee *r)
{
    if (r->over) return 0;
    for (size_t i = 0; r->phase && i < r->v.count; i++)
        if (!bytes_length(&r->said[r->phase - 1][i])) return 0;
    return 1;
}

int referee_is_slow(const struct referee *r)
{
    return !r->over && r->drawn &&
           (r->phase == REFEREE_ACCUSE + 1 || r->phase == REFEREE_OPEN + 1);
}

const struct bytes *referee_own(const struct referee *r)
{
    return &r->said[r->phase - 1][r->v.self];
}

int referee_hear(struct referee *r, size_t peer, const uint8_t *data, size_t n)
{
    int phase;
    if (n < REFEREE_HEAD || memcmp(data, r->v.group_id, DHT_ID_BYTES)) return PL_EPROTO;
    phase = data[DHT_ID_BYTES];
    if (phase >= REFEREE_PHASES || n < shortest(r, phase) || n > longest(r, phase) ||
        peer >= r->v.count || peer == r->v.self || bytes_length(&r->said[phase][peer]))
        return PL_EPROTO;
    return bytes_add(&r->said[phase][peer], data, n);
}

/* --- steps ------------------------------------------------------------------------------------ */

void referee_give_up(struct referee *r, int status, const char *why)
{
    if (r->over) return;
    r->over = 1;
    r->status = pl_fail(&r->err, status, "averaging: the round is void: %s", why);
}

void referee_ban(struct referee *r, size_t peer, const char *why)
{
    if (peer != r->v.self) r->banned[peer] = 1;
    referee_give_up(r, PL_EIO, why);
}

static struct bytes *begin(struct referee *r, int phase)
{
    struct bytes *out = &r->said[phase][r->v.self];
    bytes_add(out, r->v.group_id, DHT_ID_BYTES);
    bytes_u8(out, (uint8_t)phase);
    return out;
}

/* Over everybody's messages of a phase: whoever says different things to different peers is
 * noticed. */
static void digest(uint8_t hash[PL_HASH_BYTES], struct referee *r, int phase)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    memset(hash, 0, PL_HASH_BYTES);
    if (!c || !EVP_DigestInit_ex(c, EVP_sha256(), NULL))
        referee_give_up(r, PL_ENOMEM, "no memory");
    for (size_t i = 0; !r->over && i < r->v.count; i++)
        EVP_DigestUpdate(c, bytes_at(&r->said[phase][i]), bytes_length(&r->said[phase][i]));
    if (!r->over) EVP_DigestFinal_ex(c, hash, NULL);
    EVP_MD_CTX_free(c);
}

/* The end of every message but the first: what we have heard of the phase before it. */
static void add_digest(struct bytes *out, struct referee *r, int phase)
{
    uint8_t hash[PL_HASH_BYTES];
    digest(hash, r, phase);
    bytes_add(out, hash, sizeof hash);
}

/* Everybody has heard the same of `phase`, by its next message. */
static int same_heard(struct referee *r, int phase)
{
    uint8_t hash[PL_HASH_BYTES];
    digest(hash, r, phase);
    for (size_t i = 0; i < r->v.count; i++) {
        const struct bytes *m = &r->said[phase + 1][i];
        if (memcmp(bytes_at(m) + bytes_length(m) - PL_HASH_BYTES, hash, sizeof hash)) {
            referee_give_up(r, PL_EIO, "somebody has told different peers different things");
            return 0;
        }
    }
    return 1;
}

/* What each reducer has answered, and by which radius. */
static void hash_aggregates(struct referee *r)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (!c) referee_give_up(r, PL_ENOMEM, "no memory");
    for (size_t owner = 0; !r->over && owner < r->v.count; owner++) {
        EVP_DigestInit_ex(c, EVP_sha256(), NULL);
        for (size_t p = 0; p < r->v.part_count; p++) {
            double tau;
            const float *a;
            if (r->v.parts[p].owner != (int)owner) continue;
            a = r->v.aggregate(r->v.context, p, &tau);
            EVP_DigestUpdate(c, &tau, sizeof tau);
            EVP_DigestUpdate(c, a, r->v.parts[p].length * sizeof *a);
        }
        EVP_DigestFinal_ex(c, r->own_hash + owner * PL_HASH_BYTES, NULL);
    }
    EVP_MD_CTX_free(c);
}

int referee_sent(const struct referee *r, size_t part, struct bytes *out,
                 uint8_t hash[PL_HASH_BYTES])
{
    size_t before = bytes_length(out);
    int rc = r->v.sent(r->v.context, part, out);
    memset(hash, 0, PL_HASH_BYTES);
    if (rc == 1) referee_sha256(hash, bytes_at(out) + before, bytes_length(out) - before);
    return rc;
}

static void commit(struct referee *r)
{
    uint8_t hash[PL_HASH_BYTES];
    struct bytes *out = begin(r, REFEREE_COMMIT), part = { 0 };
    hash_aggregates(r);
    pl_btard_lot_commit(hash, &hashing, (uint32_t)r->v.self, r->lot, r->salt);
    bytes_add(out, r->own_hash, r->v.count * PL_HASH_BYTES);
    bytes_add(out, hash, sizeof hash);
    bytes_be64(out, (uint64_t)r->v.claim.epoch);
    bytes_be64(out, r->v.claim.samples);
    for (size_t p = 0; !r->over && p < r->v.part_count; p++) {
        bytes_take(&part, bytes_length(&part));
        if (referee_sent(r, p, &part, hash) < 0) referee_give_up(r, PL_ENOMEM, "no memory");
        bytes_add(out, hash, sizeof hash);
    }
    bytes_clear(&part);
}

static void reveal(struct referee *r)
{
    struct bytes *out;
    for (size_t i = 0; i < r->v.count; i++)
        if (referee_claim_of(r, i).epoch != r->v.claim.epoch)
            referee_give_up(r, PL_EIO, "its peers are at different epochs");
    for (size_t owner = 0; owner < r->v.count; owner++) {
        const uint8_t *own = referee_said(r, REFEREE_COMMIT, owner) + owner * PL_HASH_BYTES;
        if (memcmp(own, r->own_hash + owner * PL_HASH_BYTES, PL_HASH_BYTES))
            referee_ban(r, owner, "a reducer has answered us with another aggregate than it says");
        for (size_t i = 0; i < r->v.count; i++)
            if (memcmp(own, referee_said(r, REFEREE_COMMIT, i) + owner * PL_HASH_BYTES,
                       PL_HASH_BYTES))
                referee_give_up(r, PL_EIO, "peers don't agree on what a reducer has answered");
    }
    out = begin(r, REFEREE_REVEAL);
    bytes_add(out, r->lot, sizeof r->lot);
    bytes_add(out, r->salt, sizeof r->salt);
    add_digest(out, r, REFEREE_COMMIT);
}

struct told referee_measure(const float *x, const float *a, double tau, const double *z, size_t d)
{
    const struct pl_btard b = { .tau = tau };
    struct told t = { 0, REFEREE_ABSENT, 0 };
    if (!x) return t;
    pl_btard_report(&t.s, &t.norm, &b, z, x, a, d);
    for (size_t k = 0; k < d; k++) t.length += (double)x[k] * x[k];
    t.length = sqrt(t.length);
    return t;
}

const float *referee_part(const struct referee *r, size_t part, double *z, double *tau)
{
    pl_btard_direction(z, r->v.parts[part].length, &hashing, r->seed, (uint32_t)part);
    return r->v.aggregate(r->v.context, part, tau);
}

static void combine_lots(struct referee *r)
{
    uint8_t *lots = malloc(r->v.count * PL_HASH_BYTES + 1);
    if (!lots) referee_give_up(r, PL_ENOMEM, "no memory");
    for (size_t i = 0; !r->over && i < r->v.count; i++) {
        const uint8_t *x = referee_said(r, REFEREE_REVEAL, i);
        if (!pl_btard_lot_holds(&hashing,
                                referee_said(r, REFEREE_COMMIT, i) + r->v.count * PL_HASH_BYTES,
                                (uint32_t)i, x, x + PL_HASH_BYTES))
            referee_ban(r, i, "a peer has revealed another number than it was committed to");
        memcpy(lots + i * PL_HASH_BYTES, x, PL_HASH_BYTES);
    }
    if (!r->over && same_heard(r, REFEREE_COMMIT))
        pl_btard_seed(r->seed, lots, (int)r->v.count);
    free(lots);
}

static void report(struct referee *r)
{
    struct bytes *out = begin(r, REFEREE_REPORT), own = { 0 };
    double *z = pl_alloc(r->longest, sizeof *z);
    float *room = pl_alloc(r->longest, sizeof *room);
    if (!z || !room) referee_give_up(r, PL_ENOMEM, "no memory");
    combine_lots(r);
    for (size_t p = 0; !r->over && p < r->v.part_count; p++) {
        double tau;
        const float *a = referee_part(r, p, z, &tau), *x = NULL;
        struct told t;
        int rc;
        bytes_take(&own, bytes_length(&own));
        rc = r->v.sent(r->v.context, p, &own);
        if (rc == 1)
            x = r->v.decode(r->v.context, p, bytes_at(&own), bytes_length(&own), room);
        if (rc < 0 || (rc && !x)) referee_give_up(r, PL_ENOMEM, "no memory");
        t = referee_measure(x, a, tau, z, r->v.parts[p].length);
        bytes_add(out, &t, sizeof t);
    }
    add_digest(out, r, REFEREE_REVEAL);
    bytes_clear(&own);
    pl_free(z);
    pl_free(room);
}

static void accuse(struct referee *r)
{
    struct bytes *out = begin(r, REFEREE_ACCUSE);
    if (!same_heard(r, REFEREE_REVEAL)) return;
    referee_draw(r);
    if (!r->over) referee_accuse(r, out);
    add_digest(out, r, REFEREE_REPORT);
}

static void open_part(struct referee *r)
{
    uint8_t hash[PL_HASH_BYTES];
    struct bytes *out = begin(r, REFEREE_OPEN);
    if (!same_heard(r, REFEREE_REPORT)) return;
    referee_hear_accusations(r);
    if (r->over) return;
    bytes_add(out, r->opinion, r->v.count);
    if (r->v.part_count && referee_sent(r, r->opened, out, hash) < 0)
        referee_give_up(r, PL_ENOMEM, "no memory");
    add_digest(out, r, REFEREE_ACCUSE);
}

static void judge(struct referee *r)
{
    struct bytes *out = begin(r, REFEREE_AGREE);
    if (!same_heard(r, REFEREE_ACCUSE)) return;
    referee_judge(r);
    add_digest(out, r, REFEREE_OPEN);
}

static void agree(struct referee *r)
{
    if (!same_heard(r, REFEREE_OPEN)) return;
    r->over = 1;
    r->status = PL_OK;
}

void referee_step(struct referee *r)
{
    switch (r->phase++) {
    case REFEREE_COMMIT: commit(r); break;
    case REFEREE_REVEAL: reveal(r); break;
    case REFEREE_REPORT: report(r); break;
    case REFEREE_ACCUSE: accuse(r); break;
    case REFEREE_OPEN: open_part(r); break;
    case REFEREE_AGREE: judge(r); break;
    default: agree(r); break;
    }
    if (!r->over && r->said[r->phase - 1][r->v.self].failed)
        referee_give_up(r, PL_ENOMEM, "no memory");
}
