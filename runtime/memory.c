/* memory.c - the calculator, corrected: heads, whole layers where they are computed again, master
 * copies that move, scales of 8-bit moments, and this project's own buffers for its own model.
 * The script of the page says the same in JavaScript, and a test holds the two together. */
#include "memory.h"
#include "batch_shards.h"

#include <math.h>
#include <string.h>

#define WIRE_8BIT_FROM 65537.0 /* elements: the run sent larger tensors in 8 bits, others in 16 */
#define WIRE_PART 131072.0     /* float32 in a part of 2^19 bytes; each carries its code book */
#define WIRE_BOOK 1024.0
#define LINK 12e9 /* bytes a second, host to device, up to two devices a host */
#define LINK_MANY 6e9
#define BETWEEN 25e9          /* and among devices */
#define LOSS_FLOATS 4194304.0 /* fast/loss.c: logits in a block */
#define LOSS_ROWS 48.0
#define FEED_FLOATS 8388608.0 /* fast/feedforward.c: both halves before the gate, in a block */
#define FEED_SMALL 262144.0 /* up to this many weights before the gate, smaller blocks, of which */
#define FEED_BLOCK 131072.0 /* FEED_EACH or more add up gradients of their own, */
#define FEED_EACH 3.0       /* in the first of FEED_SLOTS places where the gradient is */
#define FEED_SLOTS 8.0
#define PACKED_ROWS 1024.0 /* fast/gemm_bf16_loops.inc: products of more rows pack anew, */
#define PACKED_SLAB 512.0  /* terms and columns of a block of panels, */
#define PACKED_COLUMNS 96.0
#define PACKED_TERMS 32.0 /* and what a panel's terms are a multiple of */
#define PROGRAM 16e6      /* paper/memory.md */

static const struct {
    const char *name, *why;
} terms[] = {
#define ENTRY(name, why) { #name, why },
    PL_MEMORY_TERMS(ENTRY)
#undef ENTRY
};
const char *pl_memory_term_name(enum pl_memory_term term) { return terms[term].name; }
const char *pl_memory_term_why(enum pl_memory_term term) { return terms[term].why; }

void pl_memory_plan_for(struct pl_memory_plan *plan, const struct pl_memory_model *model)
{
    int own = model->family == PL_FAMILY_DALLE;
    *plan = (struct pl_memory_plan){
        .model = *model,
        .batch = 1,
        .devices = 1,
        .peers = 16,
        .dropout = !own,
        .fused = own,
        .optimizer = own ? PL_MEMORY_8BIT : PL_MEMORY_32BIT,
        .precision = own ? PL_MEMORY_FULL : PL_MEMORY_MIXED,
        .layers = own ? PL_MEMORY_REVERSIBLE : PL_MEMORY_CHECKPOINT,
        .min_8bit = own ? 65536 : 4096,
        .block = own ? 4096 : 2048,
    };
}

/* --- terms that depend on the parameters alone ------------------------------------------------ */

struct totals {
    double elements, largest;
    double states; /* bytes of optimizer state */
    double wire;   /* bytes of one whole gradient on the wire */
};

static double state_bytes(const struct pl_memory_plan *plan, const struct pl_memory_tensor *t)
{
    double n = t->rows * t->columns, lines = t->columns > 1 ? t->rows + t->columns : n;
    switch (plan->optimizer) {
    case PL_MEMORY_32BIT: return 8 * n;
    case PL_MEMORY_16BIT: return 4 * n;
    case PL_MEMORY_8BIT:
        if (n < plan->min_8bit || n < plan->block) return 8 * n;
        return 2 * n + 8 * ceil(n / plan->block);
    case PL_MEMORY_FACTORED: return 4 * n + 4 * lines;
    case PL_MEMORY_FACTORED_ALONE: break;
    }
    return 4 * lines;
}

static double wire_bytes(const struct pl_memory_plan *plan, double n)
{
    if (plan->allreduce_bits == 32) return 4 * n;
    if (plan->allreduce_bits == 16 || n < WIRE_8BIT_FROM) return 2 * n;
    return n + WIRE_BOOK * ceil(n / WIRE_PART);
}

static double count(const struct pl_memory_model *m, double groups)
{
    struct pl_memory_tensor list[PL_MEMORY_TENSORS_MAX];
    size_t n = pl_memory_tensors(list, m, groups);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += list[i].rows * list[i].columns * list[i].count;
    return sum;
}

static struct totals add_up(const struct pl_memory_plan *plan)
{
    struct pl_memory_tensor list[PL_MEMORY_TENSORS_MAX];
    size_t n = pl_memory_tensors(list, &plan->model, plan->groups);
    struct totals sum = { 0 };
    for (size_t i = 0; i < n; i++) {
        double elements = list[i].rows * list[i].columns;
        sum.elements += list[i].count * elements;
        sum.states += list[i].count * state_bytes(plan, &list[i]);
        sum.wire += list[i].count * wire_bytes(plan, elements);
        if (elements > sum.largest) sum.largest = elements;
    }
    return sum;
}

/* --- activations ----------------------------------------------------------------- */

struct activations {
    double saved, working, logits; /* bytes */
    double passing;                /* of those, the bytes freed at the end of a step */
    double shards;                 /* with gradients of their own */
};

/* [Korthikanti et al. 2022, section 4], whose 34 s b d + 5 h s s b bytes are this for 16 bits and
 * f = 4 d; q is the heads' common width, `cross` the decoder's look at the encoder. */
static double layer_bytes(const struct pl_memory_plan *plan, double a, double d, double q, double f,
                          int cross)
{
    const struct pl_memory_model *m = &plan->model;
    double bs = plan->batch * m->sequence, scores = m->heads * bs * m->sequence,
           mask = plan->dropout;
    double attentions = cross ? 2 : 1, norms = m->family == PL_FAMILY_GPTJ ? 1 : attentions + 1;
    double bytes = bs *
                   (a * (2 * norms * d + attentions * 4 * q + 2 * f) + mask * (attentions + 1) * d);
    if (plan->fused) return bytes + attentions * 4 * m->heads * bs;
    return bytes + attentions * scores * (plan->dropout ? 2 * a + 1 : a);
}

static struct activations common(const struct pl_memory_plan *plan)
{
    const struct pl_memory_model *m = &plan->model;
    double a = plan->precision == PL_MEMORY_FULL ? 4 : 2, bs = plan->batch * m->sequence;
    double z = plan->precision == PL_MEMORY_HALF ? 2
                                                 : 4; /* logits: the loss is 32-bit in practice */
    double d = m->published_width > 0 ? m->published_width : m->width, f = m->hidden / m->width * d;
    double q = m->head_width > 0 ? m->heads * m->head_width : d;
    double one = layer_bytes(plan, a, d, q, f, 0), all = m->layers * one, largest = one;
    if (m->family == PL_FAMILY_T5) {
        largest = layer_bytes(plan, a, d, q, f, 1);
        all = m->layers / 2 * (one + largest);
    }
    return (struct activations){
        .saved = plan->layers == PL_MEMORY_STORED
                     ? all
                     : (plan->layers == PL_MEMORY_CHECKPOINT ? m->layers : 2) * bs * d * a,
        .working = plan->layers == PL_MEMORY_STORED ? 0 : largest,
        .logits = 2 * bs * d * a + 2 * bs * m->vocabulary * z,
        .shards = 1,
    };
}

/* Temporary buffers of fast's feed-forward layer: gradients, and values that it recomputes. */
static double feed_bytes(double D, double M, int stored)
{
    double rows = floor(FEED_FLOATS / (8 * D)), slots;
    if (8 * D * D <= FEED_SMALL) {
        rows = 16 * floor(FEED_BLOCK / (8 * D) / 16);
        if (rows < 16) rows = 16;
        slots = ceil(ceil(M / rows) / FEED_EACH);
        return 4 * (((slots < FEED_SLOTS ? slots : FEED_SLOTS) - 1) * 12 * D * D + 16 * D * rows);
    }
    return 4 * (stored ? 8 : 16) * D * (rows < M ? rows : M);
}

/* fast/loss.c: rows in a block of `positions`. */
static double loss_rows(double positions, double columns)
{
    double rows = columns > 0 ? LOSS_ROWS * floor(LOSS_FLOATS / columns / LOSS_ROWS) : 0;
    if (rows < LOSS_ROWS) rows = LOSS_ROWS;
    return rows < positions ? rows : positions;
}

/* Such a block's logits, and its rows of x and dx. */
static double loss_bytes(double positions, double columns, double D)
{
    return 4 * loss_rows(positions, columns) * (columns + 2 * D);
}

/* ref/model/reversible.c, float for float; dalle_run.c takes each shard's part of a micro-batch
 * a few sequences at a time. */
static struct activations own(const struct pl_memory_plan *plan, double parameters)
{
    const struct pl_memory_model *m = &plan->model;
    double a = plan->precision == PL_MEMORY_FULL ? 4 : 2;
    double shards = pl_batch_shards((size_t)parameters, (int)plan->batch);
    double at_once = m->sequences_at_once > 0 ? m->sequences_at_once : plan->batch;
    double B = ceil(plan->batch / shards) < at_once ? ceil(plan->batch / shards) : at_once;
    double one = B * m->sequence,
           M = shards * one < plan->batch * m->sequence ? shards * one : plan->batch * m->sequence;
    double D = m->width, E = m->head_width > 0 ? m->heads * m->head_width : D, L = m->layers;
    double attention = 2 * D + 4 * E + m->heads, feed = 10 * D;
    int stored = plan->layers == PL_MEMORY_STORED, small = 8 * D * D <= FEED_SMALL;
    double block = feed_bytes(D, one, stored);
    double streams = plan->layers == PL_MEMORY_REVERSIBLE ? 2 * D : (2 * L + 1) * D;
    double text = loss_bytes(B * m->text, m->text_vocabulary, D);
    double image = loss_bytes(B * (m->sequence - m->text), m->vocabulary - m->text_vocabulary, D);
    return (struct activations){
        .saved = a * M * (streams + (stored ? L * (attention + feed) : 0)),
        .working = a * M * (4 * D + 4 * E + (stored ? 0 : attention)) + block,
        .logits = text > image ? text : image,
        .passing = small ? 0 : block,
        .shards = shards,
    };
}

/* Rows of the product of a block; the last block may have fewer. */
static int is_packed(double rows, double all)
{
    double last = fmod(all, rows);
    return rows <= PACKED_ROWS || (last > 0 && last <= PACKED_ROWS);
}

/* A weight of n columns and k terms in panels of bfloat16; whole: all terms in one slab. */
static double panel_bytes(double n, double k, int whole)
{
    double slab = whole || k < PACKED_SLAB ? PACKED_TERMS * ceil(k / PACKED_TERMS) : PACKED_SLAB;
    return 2 * PACKED_COLUMNS * ceil(n / PACKED_COLUMNS) * slab * ceil(k / slab);
}

/* For the forward pass, and transposed for the gradient. */
static double both_ways(double n, double k) { return panel_bytes(n, k, 0) + panel_bytes(k, n, 0); }

/* The output layer's `columns`, which a block of `positions` meets. */
static double packed_output(double positions, double columns, double D)
{
    if (positions <= 0 || columns <= 0) return 0;
    return is_packed(loss_rows(positions, columns), positions) ? both_ways(columns, D) : 0;
}

/* fast/packed_weights.c: panels of all weights that meet few rows, at most as much as the
 * parameters. A feed-forward layer's gate needs sums over all terms. */
static double packed_bytes(const struct pl_memory_plan *plan, double parameters)
{
    const struct pl_memory_model *m = &plan->model;
    double B = ceil(plan->batch / pl_batch_shards((size_t)parameters, (int)plan->batch));
    double D = m->width, E = m->head_width > 0 ? m->heads * m->head_width : D, sum = 0;
    double sets = plan->groups > 0 ? plan->groups : m->sets > 0 ? m->sets : m->layers;
    double text = m->text_vocabulary, image = m->vocabulary - m->text_vocabulary, M, rows;
    if (m->sequences_at_once > 0 && m->sequences_at_once < B) B = m->sequences_at_once;
    M = B * m->sequence;
    rows = 16 * floor(FEED_FLOATS / (8 * D) / 16);
    if (rows > M) rows = M;
    if (is_packed(M, M)) sum += both_ways(3 * E, D) + both_ways(D, E);
    if (is_packed(rows, M))
        sum += panel_bytes(8 * D, D, 1) + panel_bytes(D, 8 * D, 0) + panel_bytes(D, 4 * D, 0) +
               panel_bytes(4 * D, D, 1);
    sum *= sets < m->layers ? sets : m->layers;
    sum += packed_output(B * m->text, text, D);
    sum += packed_output(B * (m->sequence - m->text), image, D);
    return sum < 4 * parameters ? sum : 4 * parameters;
}

/* --- together ----------------------------------------------------------------- */

static double moved_s(const struct pl_memory_plan *plan, double weights, double gradients)
{
    if (plan->offload) return (gradients + weights) / (plan->devices <= 2 ? LINK : LINK_MANY);
    if (plan->zero == 0) return 0;
    return (plan->zero == 3 ? 3 : 2) * weights * (plan->devices - 1) / plan->devices / BETWEEN;
}

void pl_memory_estimate(struct pl_memory_use *use, const struct pl_memory_plan *plan)
{
    const struct pl_memory_model *m = &plan->model;
    int is_own = m->family == PL_FAMILY_DALLE, offload = plan->offload;
    double w = plan->precision == PL_MEMORY_FULL ? 4 : 2,
           g = plan->precision == PL_MEMORY_HALF ? 2 : 4;
    struct totals sum = add_up(plan);
    double P = sum.elements;
    struct activations act = is_own ? own(plan, P) : common(plan);
    double master = plan->precision == PL_MEMORY_MIXED ? 4 * P : 0;
    double share = plan->devices;
    double gradients = act.shards * (plan->zero >= 2 ? g * P / share : g * P);
    double states = plan->zero >= 1 ? sum.states / share : sum.states;
    memset(use, 0, sizeof *use);
    use->parameters = P;
    use->unshared = count(m, m->layers);
    if (plan->zero >= 1) master /= share;
    use->term[PL_TERM_weights].device = plan->zero >= 3 ? w * P / share : w * P;
    *(offload ? &use->term[PL_TERM_master].host : &use->term[PL_TERM_master].device) = master;
    *(offload ? &use->term[PL_TERM_optimizer].host : &use->term[PL_TERM_optimizer].device) = states;
    use->term[PL_TERM_gradients].device = offload ? g * sum.largest : gradients;
    use->term[PL_TERM_gradients].host = offload ? gradients : 0;
    use->term[PL_TERM_activations].device = act.saved;
    use->term[PL_TERM_working].device = act.working;
    use->term[PL_TERM_logits].device = act.logits;
    if (is_own) {
        use->term[PL_TERM_last_good].host = 4 * P + sum.states;
        if (4 * P + sum.states > act.passing)
            use->term[PL_TERM_saving].host = 4 * P + sum.states - act.passing;
        use->term[PL_TERM_program].host = PROGRAM;
        if (plan->packed) use->term[PL_TERM_packed].device = packed_bytes(plan, P);
    }
    if (plan->allreduce_bits) {
        use->term[PL_TERM_allreduce].host = 4 * P;
        use->allreduce_bytes = 2 * sum.wire * (plan->peers - 1) / plan->peers;
    }
    for (int i = 0; i < PL_TERM_COUNT; i++) {
        use->device += use->term[i].device;
        use->host += use->term[i].host;
    }
    use->transfer_s = moved_s(plan, w * P, g * P);
}
