/* referee.c - see referee.h. */
#include "referee.h"

#include <math.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#define HEAD (DHT_ID_BYTES + 1)    /* group id, phase */
#define REPORT_BYTES 16            /* s and norm as float64 */
#define ABSENT (-1.0)              /* a norm that says: nothing of mine went in */

/* Sums and differences are of float64; what is allowed is a thousand times what order and another
 * machine's compiler can make of them. A sum's honest distance from 0 is what CenteredClip had left to go
 * (exchange_robust.c: a ten-millionth of the radius) and the rounding of the aggregate to float32. */
#define REPORT_TOLERANCE 1e-6
#define SUM_TOLERANCE 1e-6
#define ROUNDING 0x1p-23
/* The radius is the reducer's choice, near the middle of the distances: much wider, and CenteredClip
 * clips nobody; much closer, and the sum says nothing. */
#define WIDEST 2.0
#define CLOSEST 0.25

static void sha256(uint8_t hash[PL_HASH_BYTES], const void *data, size_t n)
{
    EVP_Digest(data, n, hash, NULL, EVP_sha256(), NULL);
}

static struct pl_btard checks(double tau, double scale)
{
    return (struct pl_btard){ .hash = sha256, .tau = tau, .tolerance = scale, .iterations = 1 };
}

static size_t length_of(const struct referee *r, int phase)
{
    switch (phase) {
    case REFEREE_COMMIT: return HEAD + (r->v.count + 1) * PL_HASH_BYTES;
    case REFEREE_REVEAL: return HEAD + 3 * PL_HASH_BYTES;
    case REFEREE_REPORT: return HEAD + r->v.part_count * REPORT_BYTES + PL_HASH_BYTES;
    case REFEREE_ACCUSE: return HEAD + r->v.count + PL_HASH_BYTES;
    default: return HEAD + PL_HASH_BYTES;
    }
}

static const uint8_t *said(const struct referee *r, int phase, size_t peer)
{
    return bytes_at(&r->said[phase][peer]) + HEAD;
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
    for (int p = 0; !rc && p < REFEREE_PHASES; p++)
        if (!(r->said[p] = calloc(v->count, sizeof *r->said[p]))) rc = PL_ENOMEM;
    if (!rc &&
        (!(r->own_hash = calloc(v->count, PL_HASH_BYTES)) || !(r->banned = calloc(v->count, 1)) ||
         RAND_bytes(r->lot, sizeof r->lot) != 1 || RAND_bytes(r->salt, sizeof r->salt) != 1))
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

const struct bytes *referee_own(const struct referee *r)
{
    return &r->said[r->phase - 1][r->v.self];
}

int referee_hear(struct referee *r, size_t peer, const uint8_t *data, size_t n)
{
    int phase;
    if (n < HEAD || memcmp(data, r->v.group_id, DHT_ID_BYTES)) return PL_EPROTO;
    phase = data[DHT_ID_BYTES];
    if (phase >= REFEREE_PHASES || n != length_of(r, phase) || peer >= r->v.count ||
        peer == r->v.self || bytes_length(&r->said[phase][peer]))
        return PL_EPROTO;
    return bytes_add(&r->said[phase][peer], data, n);
}

/* --- steps ------------------------------------------------------------------------------------ */

static void give_up(struct referee *r, int status, const char *why)
{
    if (r->over) return;
    r->over = 1;
    r->status = pl_fail(&r->err, status, "averaging: the round is void: %s", why);
}

static void ban(struct referee *r, size_t peer, const char *why)
{
    if (peer != r->v.self) r->banned[peer] = 1;
    give_up(r, PL_EIO, why);
}

static struct bytes *begin(struct referee *r, int phase)
{
    struct bytes *out = &r->said[phase][r->v.self];
    bytes_add(out, r->v.group_id, DHT_ID_BYTES);
    bytes_u8(out, (uint8_t)phase);
    return out;
}

/* Over everybody's messages of a phase: whoever says different things to different peers is noticed. */
static void digest(uint8_t hash[PL_HASH_BYTES], struct referee *r, int phase)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    memset(hash, 0, PL_HASH_BYTES);
    if (!c || !EVP_DigestInit_ex(c, EVP_sha256(), NULL)) give_up(r, PL_ENOMEM, "no memory");
    for (size_t i = 0; !r->over && i < r->v.count; i++)
        EVP_DigestUpdate(c, bytes_at(&r->said[phase][i]), bytes_length(&r->said[phase][i]));
    if (!r->over) EVP_DigestFinal_ex(c, hash, NULL);
    EVP_MD_CTX_free(c);
}

static void add_digest(struct bytes *out, struct referee *r, int phase)
{
    uint8_t hash[PL_HASH_BYTES];
    digest(hash, r, phase);
    bytes_add(out, hash, sizeof hash);
}

/* The digest of `phase` that everybody has put at the end of its next message. */
static int same_heard(struct referee *r, int phase)
{
    uint8_t hash[PL_HASH_BYTES];
    digest(hash, r, phase);
    for (size_t i = 0; i < r->v.count; i++) {
        const struct bytes *m = &r->said[phase + 1][i];
        if (memcmp(bytes_at(m) + bytes_length(m) - PL_HASH_BYTES, hash, sizeof hash)) {
            give_up(r, PL_EIO, "somebody has told different peers different things");
            return 0;
        }
    }
    return 1;
}

/* What each reducer has answered, and by which radius. */
static void hash_aggregates(struct referee *r)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (!c) give_up(r, PL_ENOMEM, "no memory");
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

static void commit(struct referee *r)
{
    const struct pl_btard b = checks(0, 0);
    uint8_t hash[PL_HASH_BYTES];
    struct bytes *out = begin(r, REFEREE_COMMIT);
    hash_aggregates(r);
    pl_btard_lot_commit(hash, &b, (uint32_t)r->v.self, r->lot, r->salt);
    bytes_add(out, r->own_hash, r->v.count * PL_HASH_BYTES);
    bytes_add(out, hash, sizeof hash);
}

static void reveal(struct referee *r)
{
    struct bytes *out;
    for (size_t owner = 0; owner < r->v.count; owner++) {
        const uint8_t *own = said(r, REFEREE_COMMIT, owner) + owner * PL_HASH_BYTES;
        if (memcmp(own, r->own_hash + owner * PL_HASH_BYTES, PL_HASH_BYTES))
            ban(r, owner, "a reducer has answered us with another aggregate than it says");
        for (size_t i = 0; i < r->v.count; i++)
            if (memcmp(own, said(r, REFEREE_COMMIT, i) + owner * PL_HASH_BYTES, PL_HASH_BYTES))
                give_up(r, PL_EIO, "peers don't agree on what a reducer has answered");
    }
    out = begin(r, REFEREE_REVEAL);
    bytes_add(out, r->lot, sizeof r->lot);
    bytes_add(out, r->salt, sizeof r->salt);
    add_digest(out, r, REFEREE_COMMIT);
}

/* Our values' distance to a part's aggregate along z, and in all. */
static void measure(double *s, double *norm, const float *x, const float *a, double tau,
                    const double *z, size_t d)
{
    const struct pl_btard b = checks(tau, 0);
    *s = 0;
    *norm = ABSENT;
    if (x) pl_btard_report(s, norm, &b, z, x, a, d);
}

static size_t longest(const struct referee *r)
{
    size_t d = 0;
    for (size_t p = 0; p < r->v.part_count; p++)
        if (r->v.parts[p].length > d) d = r->v.parts[p].length;
    return d;
}

static void report(struct referee *r)
{
    const struct pl_btard b = checks(0, 0);
    struct bytes *out = begin(r, REFEREE_REPORT);
    size_t d = longest(r);
    uint8_t *lots = malloc(r->v.count * PL_HASH_BYTES + 1);
    double *z = pl_alloc(d, sizeof *z);
    float *room = pl_alloc(d, sizeof *room);
    if (!lots || !z || !room) give_up(r, PL_ENOMEM, "no memory");
    for (size_t i = 0; !r->over && i < r->v.count; i++) {
        const uint8_t *x = said(r, REFEREE_REVEAL, i);
        if (!pl_btard_lot_holds(&b, said(r, REFEREE_COMMIT, i) + r->v.count * PL_HASH_BYTES,
                                (uint32_t)i, x, x + PL_HASH_BYTES))
            ban(r, i, "a peer has revealed another number than it was committed to");
        memcpy(lots + i * PL_HASH_BYTES, x, PL_HASH_BYTES);
    }
    if (!r->over && same_heard(r, REFEREE_COMMIT)) pl_btard_seed(r->seed, lots, (int)r->v.count);
    for (size_t p = 0; !r->over && p < r->v.part_count; p++) {
        double tau, values[2];
        const float *a = r->v.aggregate(r->v.context, p, &tau);
        pl_btard_direction(z, r->v.parts[p].length, &b, r->seed, (uint32_t)p);
        measure(&values[0], &values[1], r->v.sent(r->v.context, p, room), a, tau, z,
                r->v.parts[p].length);
        bytes_add(out, values, sizeof values);
    }
    add_digest(out, r, REFEREE_REVEAL);
    free(lots);
    pl_free(z);
    pl_free(room);
}

static void read_report(double values[2], const struct referee *r, size_t peer, size_t part)
{
    memcpy(values, said(r, REFEREE_REPORT, peer) + part * REPORT_BYTES, REPORT_BYTES);
}

/* [BTARD verification 1] Who has reported falsely of the parts that we have reduced? */
static void accuse(struct referee *r)
{
    struct bytes *out = begin(r, REFEREE_ACCUSE);
    const struct pl_btard b = checks(0, 0);
    size_t d = longest(r);
    uint8_t *accused = calloc(r->v.count, 1);
    double *z = pl_alloc(d, sizeof *z);
    float *room = pl_alloc(d, sizeof *room);
    if (!accused || !z || !room) give_up(r, PL_ENOMEM, "no memory");
    if (!r->over) same_heard(r, REFEREE_REVEAL);
    for (size_t p = 0; !r->over && p < r->v.part_count; p++) {
        double tau, s, norm, told[2];
        const float *a = r->v.aggregate(r->v.context, p, &tau);
        if (r->v.parts[p].owner != (int)r->v.self) continue;
        pl_btard_direction(z, r->v.parts[p].length, &b, r->seed, (uint32_t)p);
        for (size_t i = 0; i < r->v.count; i++) {
            struct pl_btard near;
            if (i == r->v.self) continue;
            measure(&s, &norm, r->v.received(r->v.context, p, i, room), a, tau, z,
                    r->v.parts[p].length);
            read_report(told, r, i, p);
            near = checks(tau, REPORT_TOLERANCE * fmax(0, norm));
            if (!pl_btard_report_holds(&near, s, norm, told[0], told[1])) accused[i] = 1;
        }
    }
    if (accused) bytes_add(out, accused, r->v.count);
    add_digest(out, r, REFEREE_REPORT);
    free(accused);
    pl_free(z);
    pl_free(room);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* [BTARD verification 2] The sum of a part's reports, and its radius beside the distances. */
static void judge_part(struct referee *r, size_t p, double *norms)
{
    const struct pl_part *part = &r->v.parts[p];
    double tau, sum = 0, length = 0, told[2], middle;
    const float *a = r->v.aggregate(r->v.context, p, &tau);
    struct pl_btard b;
    size_t n = 0;
    for (size_t k = 0; k < part->length; k++) length += (double)a[k] * a[k];
    for (size_t i = 0; i < r->v.count; i++) {
        read_report(told, r, i, p);
        if (told[1] == ABSENT) continue;
        sum += told[0];
        norms[n++] = told[1];
    }
    if (!n) return;
    qsort(norms, n, sizeof *norms, ascending);
    middle = norms[n / 2];
    b = checks(tau, (double)n * (SUM_TOLERANCE * tau + ROUNDING * sqrt(length)));
    if (!pl_btard_sum_holds(&b, sum))
        ban(r, (size_t)part->owner, "a reducer's aggregate is not what its group's values give");
    else if (middle > 0 && !(tau >= CLOSEST * middle && tau <= WIDEST * middle))
        ban(r, (size_t)part->owner, "a reducer's radius is far from its group's distances");
}

static void judge(struct referee *r)
{
    struct bytes *out = begin(r, REFEREE_AGREE);
    double *norms = pl_alloc(r->v.count, sizeof *norms);
    uint8_t *doubted = calloc(r->v.count, 1);
    if (!norms || !doubted) give_up(r, PL_ENOMEM, "no memory");
    if (!r->over) same_heard(r, REFEREE_REPORT);
    if (!r->over) {
        for (size_t j = 0; j < r->v.count; j++)
            for (size_t i = 0; i < r->v.count; i++) {
                if (!said(r, REFEREE_ACCUSE, j)[i] || i == j) continue;
                doubted[j] = 1;
                /* Whoever accuses knows whether it does so rightly; so does the accused. */
                if (j == r->v.self)
                    ban(r, i, "a peer has reported falsely about what it has sent us");
                else if (i == r->v.self) ban(r, j, "a reducer accuses us falsely");
                else r->banned[j] = 1, ban(r, i, "one peer accuses another");
            }
        for (size_t p = 0; p < r->v.part_count; p++)
            if (!doubted[r->v.parts[p].owner]) judge_part(r, p, norms);
    }
    add_digest(out, r, REFEREE_ACCUSE);
    pl_free(norms);
    free(doubted);
}

static void agree(struct referee *r)
{
    if (!same_heard(r, REFEREE_ACCUSE)) return;
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
    case REFEREE_AGREE: judge(r); break;
    default: agree(r); break;
    }
    if (!r->over && r->said[r->phase - 1][r->v.self].failed) give_up(r, PL_ENOMEM, "no memory");
}
