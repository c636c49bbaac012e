/* group.c - the data on which the peers of a group have to agree; each peer computes the same.
 * [spec hivemind-protocol 4.1 to 4.5]
 *
 *   group key    "PREFIX.0bBITS": which peers average together; hivemind parses it, so its form is
 *                fixed
 *   schema hash  SHA-1 over a text that describes each tensor as Python prints it: peers with other
 *                shapes can't be in one group
 *   gather       (bandwidth, mode, user data) as msgpack: each peer's statement about itself
 *   shares       how many values each member reduces, by a linear program over the bandwidths
 *                (ref/balance.h); all solve the same program, so nothing has to be announced
 *   next bits    each member draws another number, by a generator seeded with the group's ID, and
 *                pushes it into its key's bits, so peers that have just met are in different groups
 *                next [Moshpit SGD 3.2] */
#include "group.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/hivemind/messages/tensor_message.h"
#include "ref/small.h"

#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_PRECISION 1e-3 /* of a bandwidth: they have two digits */

/* --- names ------------------------------------------------------------------------------------ */

int group_key_is_valid(const char *key)
{
    /* The prefix ends at the first dot: hivemind's pattern is ^(([^.])+)[.]0b[01]*$, so a
     * prefix with a dot would make the bits ambiguous. [spec hivemind-protocol 4.1] */
    size_t prefix = strcspn(key, ".");
    const char *bits = key + prefix + 3;
    return prefix && !strncmp(key + prefix, ".0b", 3) && bits[strspn(bits, "01")] == 0;
}

int group_key(char key[GROUP_KEY_MAX], const char *prefix, const char *bits, struct pl_err *err)
{
    int n = snprintf(key, GROUP_KEY_MAX, "%s.0b%s", prefix, bits);
    if (n < 0 || n >= GROUP_KEY_MAX || strlen(bits) > GROUP_BITS_MAX || !group_key_is_valid(key))
        return pl_fail(err, PL_EUSE,
                       "averaging: prefix \"%.60s\" and bits \"%.20s\" make no group key; "
                       "a prefix has no dot, bits are 0 and 1",
                       prefix, bits);
    return PL_OK;
}

/* The class is part of the name, so one peer can serve its gradients and its parameters
 * under one prefix: GradientAverager and TrainingStateAverager. */
int group_rpc_name(char name[GROUP_NAME_MAX], const char *prefix, const char *class_name,
                   enum averager_rpc rpc, struct pl_err *err)
{
    static const char *const calls[AVERAGER_ALL_RPCS] = {
        "rpc_join_group", "rpc_aggregate_part", "rpc_download_state",
        "rpc_btard",      "rpc_state_samples",  "rpc_gather"
    };
    int n = snprintf(name, GROUP_NAME_MAX, "%s::%s.%s", prefix, class_name, calls[rpc]);
    if (n > 0 && n < GROUP_NAME_MAX) return PL_OK;
    return pl_fail(err, PL_EUSE, "averaging: prefix \"%.60s...\" is too long", prefix);
}

/* --- schema ----------------------------------------------------------------------------------- */

static void field(struct bytes *out, const char *name, const char *value)
{
    mp_text(out, name);
    mp_text(out, value);
}

/* Python's text of torch.Size, and of a dtype. Seven fields in this order, all as text: any
 * other order or type gives another hash, and peers with another hash never meet. */
static void describe(struct bytes *out, const struct schema_tensor *t)
{
    char size[32 + 24 * PL_WIRE_DIMS_MAX] = "torch.Size([", dtype[40];
    size_t n = strlen(size);
    for (int i = 0; i < t->type.dims; i++)
        n += (size_t)snprintf(size + n, sizeof size - n, "%s%lld", i ? ", " : "",
                              (long long)t->type.size[i]);
    snprintf(size + n, sizeof size - n, "])");
    snprintf(dtype, sizeof dtype, "torch.%s", tensor_dtype_name(t->type.dtype));
    /* Layout, device and pin_memory never differ among averaged tensors: hivemind keeps
     * those in shared memory of the CPU. Compression 0 stands for "none", whatever a part
     * travels as. */
    mp_map(out, 7);
    field(out, "size", size);
    field(out, "dtype", dtype);
    field(out, "layout", "torch.strided");
    field(out, "device", "cpu");
    field(out, "requires_grad", t->requires_grad ? "True" : "False");
    field(out, "pin_memory", "False");
    field(out, "compression", "0");
}

/* [spec hivemind-protocol 4.2] Names are not in it: tensors are matched by their order
 * alone. */
int group_schema_text(struct bytes *out, const struct schema_tensor *tensors, size_t count)
{
    mp_list(out, count);
    for (size_t i = 0; i < count; i++) describe(out, &tensors[i]);
    return out->failed;
}

int group_schema_hash(uint8_t hash[SCHEMA_HASH_BYTES], const struct schema_tensor *tensors,
                      size_t count)
{
    struct bytes text = { 0 };
    int rc = group_schema_text(&text, tensors, count);
    if (!rc) SHA1(bytes_at(&text), bytes_length(&text), hash);
    bytes_clear(&text);
    return rc;
}

/* --- gather messages --------------------------------------------------------------- */

/* [bandwidth or nil, mode, user data], e.g. 93 c0 00 c4 01 c0. [spec hivemind-protocol 4.3] */
int gather_write(struct bytes *out, const struct gather *g)
{
    mp_list(out, 3);
    if (g->bandwidth == PL_BANDWIDTH_UNKNOWN) mp_nil(out);
    else mp_float(out, g->bandwidth);
    mp_int(out, g->mode);
    return mp_bin(out, g->user, g->user_n);
}

/* Any peer states this number, and everybody's shares are computed from it: an infinite,
 * negative or undefined one would spoil the linear program for the whole group. */
static int read_bandwidth(double *bandwidth, const struct mp_value *v)
{
    if (v->kind == MP_NIL) *bandwidth = PL_BANDWIDTH_UNKNOWN;
    else if (v->kind == MP_FLOAT) *bandwidth = v->real;
    else if (v->kind == MP_INT && !v->negative) *bandwidth = (double)v->number;
    else return 0;
    /* Unknown (nil) counts as the mean of the known ones; 0 means that the peer reduces
     * nothing. */
    return *bandwidth == PL_BANDWIDTH_UNKNOWN || (*bandwidth >= 0 && isfinite(*bandwidth));
}

int gather_read(struct gather *g, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v;
    int64_t mode = -1;
    int good = 0, rc;
    memset(g, 0, sizeof *g);
    /* A leader passes on everybody's message to everybody: n peers cost n * n times this
     * length. */
    if (n > GATHER_MAX)
        return pl_fail(err, PL_ELIMIT, "gather: %zu bytes, expected at most %d", n, GATHER_MAX);
    if ((rc = mp_read(&v, data, n, err))) return rc;
    if ((v->kind == MP_LIST || v->kind == MP_TUPLE) && v->n == 3 && v->item[2].kind == MP_BIN) {
        mode = mp_count(&v->item[1]);
        /* The user's bytes are not read here: each averager knows what its own users put in
         * them. They stay where they are in `data`, since msgpack's binary needs no
         * decoding. */
        good = read_bandwidth(&g->bandwidth, &v->item[0]) && mode >= 0 && mode <= GROUP_AUXILIARY;
        g->user = v->item[2].bytes;
        g->user_n = v->item[2].n;
    }
    g->mode = good ? (enum group_mode)mode : GROUP_FULL;
    mp_free(v);
    return good ? PL_OK : pl_fail(err, PL_EFORMAT, "gather: expected [bandwidth, mode, bytes]");
}

/* --- a group ---------------------------------------------------------------------------------- */

/* The leader's list may hold a thousand peers. Each member keeps the bytes of its message,
 * since a leader passes them on unchanged and a verified round hashes them. */
int group_append(struct group *g, const struct peer_id *peer, const uint8_t *gather, size_t n,
                 struct pl_err *err)
{
    struct group_member m = { .peer = *peer, .gathered_n = n }, *more;
    int rc;
    if (g->count == GROUP_PEERS_MAX)
        return pl_fail(err, PL_ELIMIT, "group: more than %d peers", GROUP_PEERS_MAX);
    more = realloc(g->members, (g->count + 1) * sizeof *more);
    if (!more) return pl_fail(err, PL_ENOMEM, "group: no memory");
    g->members = more;
    if (!(m.gathered = malloc(n + 1))) return pl_fail(err, PL_ENOMEM, "group: no memory");
    if (n) memcpy(m.gathered, gather, n);
    if ((rc = gather_read(&m.gather, m.gathered, n, err))) {
        free(m.gathered);
        return rc;
    }
    g->members[g->count++] = m;
    return PL_OK;
}

int group_add(struct group *g, const struct peer_id *peer, const uint8_t *gather, size_t n,
              struct pl_err *err)
{
    /* For one peer at a time, as followers come: here a search is cheaper than sorting. */
    if (group_find(g, peer) >= 0) return pl_fail(err, PL_EPROTO, "group: a peer is in it twice");
    return group_append(g, peer, gather, n, err);
}

/* Twice in a group, a peer would count twice in the mean and take two shares. Sorting finds
 * that in n log n steps, where a comparison of all pairs takes half a million for 1,024
 * peers. */
static int by_peer(const void *a, const void *b)
{
    return peer_id_compare(&(*(const struct group_member *const *)a)->peer,
                           &(*(const struct group_member *const *)b)->peer);
}

int group_check_peers(const struct group *g)
{
    const struct group_member **sorted = malloc((g->count + 1) * sizeof *sorted);
    int rc = PL_OK;
    if (!sorted) return PL_ENOMEM;
    for (size_t i = 0; i < g->count; i++) sorted[i] = &g->members[i];
    qsort(sorted, g->count, sizeof *sorted, by_peer);
    for (size_t i = 1; !rc && i < g->count; i++)
        if (!by_peer(&sorted[i - 1], &sorted[i])) rc = PL_EPROTO;
    free(sorted);
    return rc;
}

/* The leader changes what a follower has stated: shares follow from the gather messages
 * alone, so the message itself is written again, and all members of the group read the same
 * number. */
int group_set_bandwidth(struct group_member *m, double bandwidth)
{
    struct bytes message = { 0 };
    struct gather gather = m->gather;
    uint8_t *copy = NULL;
    size_t n;
    gather.bandwidth = bandwidth;
    if (!gather_write(&message, &gather) && (copy = malloc((n = bytes_length(&message)) + 1))) {
        memcpy(copy, bytes_at(&message), n);
        free(m->gathered);
        m->gathered = copy;
        m->gathered_n = n;
        gather_read(&m->gather, copy, n, NULL); /* its views were of the old copy */
    }
    bytes_clear(&message);
    return copy ? PL_OK : PL_ENOMEM;
}

/* The largest share of the n reducers among N members, in equal shares, if no bandwidth is above
 * `limit`. */
static double largest_share(double *share, double *limited, const double *stated, size_t n,
                            size_t N, double limit)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) limited[i] = fmin(stated[i], limit);
    for (size_t i = n; i < N; i++) limited[i] = 0;
    pl_balance_level(share, limited, (int)N);
    for (size_t i = 0; i < n; i++) largest = fmax(largest, share[i]);
    return largest * (double)n;
}

/* The highest limit at which no share is too large; it is between the least bandwidth, where all
 * shares are equal, and the greatest. A false claim may be any number, so the ratio is halved. */
static double limit_of(double *stated, size_t n, size_t N)
{
    double *share = stated + N, *limited = share + N, low, high;
    const double most = fmin(GROUP_SHARES_MAX, (double)n);
    if (!n) return INFINITY;
    qsort(stated, n, sizeof *stated, pl_ascending);
    low = stated[0], high = stated[n - 1];
    if (largest_share(share, limited, stated, n, N, high) < most) return high;
    while (high > low * (1 + LIMIT_PRECISION)) {
        const double middle = sqrt(low) * sqrt(high);
        if (largest_share(share, limited, stated, n, N, middle) < most) low = middle;
        else high = middle;
    }
    return low;
}

/* Peers that state no bandwidth, or that reduce nothing, do not count. */
int group_limit_bandwidths(struct group *g)
{
    double *stated = malloc((3 * g->count + 1) * sizeof *stated), most;
    size_t n = 0;
    int rc = PL_OK;
    if (!stated) return PL_ENOMEM;
    for (size_t i = 0; i < g->count; i++)
        if (g->members[i].gather.mode != GROUP_CLIENT && g->members[i].gather.bandwidth > 0)
            stated[n++] = g->members[i].gather.bandwidth;
    most = limit_of(stated, n, g->count);
    free(stated);
    for (size_t i = 0; !rc && i < g->count; i++)
        if (g->members[i].gather.bandwidth > most) rc = group_set_bandwidth(&g->members[i], most);
    return rc;
}

void group_clear(struct group *g)
{
    for (size_t i = 0; i < g->count; i++) free(g->members[i].gathered);
    free(g->members);
    memset(g, 0, sizeof *g);
}

int group_find(const struct group *g, const struct peer_id *peer)
{
    for (size_t i = 0; i < g->count; i++)
        if (peer_id_equal(&g->members[i].peer, peer)) return (int)i;
    return -1;
}

/* Peers behind NAT state 0. If all of them do, they may still reach each other behind the same
 * router: then all share alike, clients apart. */
static double bandwidth_of(const struct gather *gather, int all_behind_nat)
{
    if (gather->mode == GROUP_CLIENT) return 0;
    return all_behind_nat ? PL_BANDWIDTH_UNKNOWN : gather->bandwidth;
}

/* Bandwidth b_i gives a share of about b_i / sum b; with unequal bandwidths a linear program
 * minimizes the time of the slowest peer. The rule is deterministic and its input is the
 * same everywhere, so all compute the same shares without a message.
 * [spec hivemind-protocol 5.1] */
int group_shares(size_t *share, const struct group *g, size_t total, struct pl_err *err)
{
    double *bandwidth = pl_alloc(g->count, sizeof *bandwidth);
    int rc = bandwidth ? PL_OK : pl_fail(err, PL_ENOMEM, "group: no memory"), all_behind_nat = 1;
    for (size_t i = 0; i < g->count; i++)
        all_behind_nat &= bandwidth_of(&g->members[i].gather, 0) == 0;
    for (size_t i = 0; !rc && i < g->count; i++)
        bandwidth[i] = bandwidth_of(&g->members[i].gather, all_behind_nat);
    /* The 0 is the least share that is worth a reducer: none is too small. */
    if (!rc) rc = pl_balance(share, bandwidth, (int)g->count, total, 0, err);
    pl_free(bandwidth);
    return rc;
}

int gather_reduces(const struct gather *g) { return g->mode != GROUP_CLIENT && g->bandwidth != 0; }

/* --- group bits: Python's random.Random(id).sample(range(buckets), size) ---------------------- */

#define MT_WORDS 624

struct twister { /* MT19937 [Matsumoto & Nishimura 1998] */
    uint32_t word[MT_WORDS];
    int at;
};

static void twister_init(struct twister *t, uint32_t seed)
{
    t->word[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++)
        t->word[i] = 1812433253u * (t->word[i - 1] ^ (t->word[i - 1] >> 30)) + i;
    t->at = MT_WORDS;
}

/* Python seeds by init_by_array, over all words of the key: first the key is added word by
 * word, then the words are mixed once more without it. */
static void twister_init_by_array(struct twister *t, const uint32_t *key, size_t n)
{
    size_t i = 1, j = 0;
    twister_init(t, 19650218u);
    for (size_t k = n > MT_WORDS ? n : MT_WORDS; k; k--) {
        uint32_t last = t->word[i - 1];
        t->word[i] = (t->word[i] ^ ((last ^ (last >> 30)) * 1664525u)) + key[j] + (uint32_t)j;
        if (++i == MT_WORDS) t->word[0] = t->word[MT_WORDS - 1], i = 1;
        if (++j == n) j = 0;
    }
    for (size_t k = MT_WORDS - 1; k; k--) {
        uint32_t last = t->word[i - 1];
        t->word[i] = (t->word[i] ^ ((last ^ (last >> 30)) * 1566083941u)) - (uint32_t)i;
        if (++i == MT_WORDS) t->word[0] = t->word[MT_WORDS - 1], i = 1;
    }
    /* The first word has its highest bit set, so the state can't be all zeros. */
    t->word[0] = 0x80000000u;
}

/* All 624 words are renewed at once; each output is one of them, tempered by four shifts. */
static uint32_t twister_next(struct twister *t)
{
    uint32_t y;
    if (t->at == MT_WORDS) {
        for (int i = 0; i < MT_WORDS; i++) {
            y = (t->word[i] & 0x80000000u) | (t->word[(i + 1) % MT_WORDS] & 0x7fffffffu);
            t->word[i] = t->word[(i + 397) % MT_WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        t->at = 0;
    }
    y = t->word[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* Python's way to a seed from bytes: the number id | SHA-512(id), in words, the lowest first. */
static void seed_by_id(struct twister *t, const uint8_t id[DHT_ID_BYTES])
{
    uint8_t number[DHT_ID_BYTES + SHA512_DIGEST_LENGTH];
    uint32_t key[sizeof number / 4];
    size_t n = sizeof number / 4;
    memcpy(number, id, DHT_ID_BYTES);
    SHA512(id, DHT_ID_BYTES, number + DHT_ID_BYTES);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *b = number + sizeof number - 4 * (i + 1);
        key[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    /* Python drops the leading zero words of its seed, an integer, and so must we. */
    while (n > 1 && !key[n - 1]) n--;
    twister_init_by_array(t, key, n);
}

static int bit_length(size_t n) /* 0 for 0 */
{
    int bits = 0;
    for (; n; n >>= 1) bits++;
    return bits;
}

/* Python's randbelow: as many bits as n has, drawn again until the number is below n. Taking
 * a remainder instead would be biased, and would give other members other bits than
 * hivemind's. */
static size_t below(struct twister *t, size_t n)
{
    int bits = bit_length(n);
    size_t r;
    do r = twister_next(t) >> (32 - bits);
    while (r >= n);
    return r;
}

/* The element at `place` of the sample. Python draws from a shrinking list if that is smaller than
 * a set of the elements drawn, and repeats draws otherwise. */
static int sample(size_t *element, struct twister *t, size_t n, size_t size, size_t place)
{
    size_t set = 21, *drawn = malloc((n + 1) * sizeof *drawn);
    if (!drawn) return PL_ENOMEM;
    /* The threshold of Python's random.sample: a set of k elements takes about
     * 4^ceil(log4(3k)) slots; up to that many elements a list costs less. Both ways draw
     * different numbers, so it has to match. */
    if (size > 5) {
        size_t table = 1;
        while (table < 3 * size) table *= 4;
        set += table;
    }
    for (size_t i = 0; i < n; i++) drawn[i] = i;
    for (size_t i = 0; i <= place; i++) {
        if (n <= set) {
            size_t j = below(t, n - i);
            *element = drawn[j];
            drawn[j] = drawn[n - i - 1];
        } else {
            do *element = below(t, n);
            while (drawn[*element] == SIZE_MAX);
            drawn[*element] = SIZE_MAX;
        }
    }
    free(drawn);
    return PL_OK;
}

/* [Moshpit SGD 3.2] Peers of one group get different new bits, so no two of them meet
 * again in the next round while others are there: if N = n^d peers always met in full groups
 * of n, d rounds would give all of them the mean over N. */
int group_next_bits(char *new_bits, const char *bits, const uint8_t id[DHT_ID_BYTES], size_t size,
                    size_t place, size_t buckets)
{
    struct twister t;
    size_t n = buckets, length = strlen(bits), element;
    char all[2 * GROUP_BITS_MAX + 1];
    int added, rc;
    if (!n)
        /* Without a target size the next power of two, so that the bits can tell all
         * members apart. */
        for (n = 1; n < size;) n *= 2;
    /* A larger group than its target would leave some members without bits of their own. */
    if (!size || size > n || place >= size || n > GROUP_PEERS_MAX || length > GROUP_BITS_MAX)
        return PL_EUSE;
    seed_by_id(&t, id);
    if ((rc = sample(&element, &t, n, size, place))) return rc;
    added = n > 1 ? bit_length(n - 1) : 1; /* zero is one bit, as hivemind writes it */
    memcpy(all, bits, length);
    for (int i = 0; i < added; i++)
        all[length + (size_t)i] = element >> (added - 1 - i) & 1 ? '1' : '0';
    /* New bits enter on the right, the oldest leave on the left. */
    memcpy(new_bits, all + added, length);
    new_bits[length] = 0;
    return PL_OK;
}
