/* memory.h - the calculator: the memory for training a transformer, by term. One half reproduces
 * the calculator that the demonstration showed, errors included; the other computes from first
 * principles and this project's own buffers. Pure functions; no model is allocated. [TTT 2.2]
 *
 * Everything is a double: counts stay exact below 2^53, and the published calculator divides,
 * too. */
#ifndef PL_MEMORY_H
#define PL_MEMORY_H

#include "../ref/model/dalle_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which matrices a model of this name has. */
enum pl_memory_family {
    PL_FAMILY_GPT,    /* biases, two norms a layer, learned positions, output tied to the input */
    PL_FAMILY_GPTJ,   /* rotary positions, one norm, no attention biases, its own output layer */
    PL_FAMILY_BERT,   /* token types, pooler */
    PL_FAMILY_T5,     /* half encoder, half decoder with cross attention; no biases */
    PL_FAMILY_BLOCKS, /* GPT's layers and one token table: all that is published of DALL-E */
    PL_FAMILY_DALLE   /* the reference run's: shared layers, GEGLU, reversible [TTT 3.1] */
};

struct pl_memory_model {
    char name[32];
    enum pl_memory_family family;
    double sequence, width, hidden, layers, vocabulary; /* as the published calculator lists them */
    double published_width;   /* where the published calculator has another; 0: the same */
    double heads, head_width; /* head_width 0: width / heads */
    double sets;              /* of layer weights; 0: one a layer */
    /* the reference run's family alone */
    double sequences_at_once;     /* in the workspace; 0: the whole micro-batch */
    double text, text_vocabulary; /* of the sequence; the rest is for the picture */
};

/* The original's eighteen models, in its order, then this project's own configurations. */
size_t pl_memory_models(void);
int pl_memory_model_at(struct pl_memory_model *m, size_t index);
/* PL_ENOTFOUND lists the names. */
int pl_memory_model_named(struct pl_memory_model *m, const char *name, struct pl_err *err);
void pl_memory_model_of(struct pl_memory_model *m, const struct pl_dalle_config *c);

enum pl_memory_optimizer {
    PL_MEMORY_32BIT,
    PL_MEMORY_16BIT,
    PL_MEMORY_8BIT,
    PL_MEMORY_FACTORED,      /* second moments as rows and columns */
    PL_MEMORY_FACTORED_ALONE /* and no first moments */
};
enum pl_memory_precision { PL_MEMORY_FULL, PL_MEMORY_MIXED, PL_MEMORY_HALF };
enum pl_memory_layers { PL_MEMORY_STORED, PL_MEMORY_CHECKPOINT, PL_MEMORY_REVERSIBLE };

struct pl_memory_plan {
    struct pl_memory_model model;
    enum pl_memory_optimizer optimizer;
    enum pl_memory_precision precision;
    enum pl_memory_layers layers;
    int offload;    /* optimizer in host memory */
    double groups;  /* sets of layer weights; 0: as the model has it */
    double batch;   /* sequences in a micro-batch */
    int zero;       /* 0 to 3 */
    double devices; /* that ZeRO divides by */
    /* the corrected calculator alone */
    double min_8bit, block; /* smaller tensors keep 32-bit states; elements that share a scale */
    int fused;              /* attention never writes its scores */
    int dropout;            /* keeps masks, one byte an element */
    int packed;             /* this project's models by --precision bf16 on a processor */
    int allreduce_bits;     /* bits of a gradient on its way to other peers: 0 (alone), 8, 16, 32 */
    double peers;           /* of the all-reduce */
};
/* The model's own setting: 8-bit LAMB and reversible layers for the reference run's family, the
 * page's preset for the others. */
void pl_memory_plan_for(struct pl_memory_plan *plan, const struct pl_memory_model *model);
/* Sets one option by its name on the published command line ('-' and '_' are the same)
 * or `calc` adds: model, nlayers, bsz, seqlen, dmodel, dhid, vocab-size, fp16-level, optimizer,
 * zero, ngpus, checkpoint, offload, shared-groups; heads, layers, precision, min-8bit, block,
 * fused, dropout, packed, compression-bits, peers. "model" replaces the whole plan, so it comes
 * first. PL_ENOTFOUND: no such option; PL_EUSE: no such value. */
int pl_memory_set(struct pl_memory_plan *plan, const char *option, const char *value,
                  struct pl_err *err);
/* Ranges that keep every product exact or at least finite; names the option as `calc` spells it. */
int pl_memory_check(const struct pl_memory_plan *plan, struct pl_err *err);

/* --- the published calculator ---------------------------------------------------------------- */

/* Bytes; the page showed them divided by 2^30 and wrote GB. */
struct pl_memory_original {
    double parameters;
    double weights, gradients, activations, optimizer; /* on the device */
    double device, host;
    double transfer_s;
};
/* Its order of operations, so that fractions are its fractions. CHECKPOINT is its checkpointing and
 * REVERSIBLE, which it does not know, counts as that. [spec page-and-tools 3.4] */
void pl_memory_original(struct pl_memory_original *out, const struct pl_memory_plan *plan);

/* --- corrected ------------------------------------------------------------------------------- */

/* Every term once: name and meaning. The page and the program print these sentences. */
#define PL_MEMORY_TERMS(X) \
    X(weights, "parameters as the layers read them: 4 bytes, or 2 in mixed and 16-bit precision") \
    X(master, \
      "mixed precision: the 32-bit copy that the optimizer updates; it moves with the optimizer") \
    X(gradients, \
      "one per parameter, 4 bytes (2 in pure 16-bit), in this project's small models for each " \
      "shard of the batch; with offload the device holds the largest tensor's while it is " \
      "written") \
    X(optimizer, \
      "optimizer state per tensor: 8-bit moments with a scale per block, small tensors " \
      "in 32 bits, factored moments as rows and columns") \
    X(activations, \
      "activations saved for the backward pass: everything a layer computed, each layer's " \
      "input (checkpointing), or two streams for the whole stack (reversible)") \
    X(working, "the current layer: activations that are recomputed for it, and its gradients") \
    X(logits, \
      "embedding, last norm, logits and their gradient; this project's loss takes them in " \
      "blocks") \
    X(packed, \
      "this project's --precision bf16 on a processor: weights in the order in which products of " \
      "few rows read them") \
    X(last_good, \
      "this project's trainer: a copy of parameters and optimizer state, restored when " \
      "a loss is not finite") \
    X(allreduce, "32-bit copies of gradients and of received averages during an all-reduce") \
    X(saving, "a checkpoint while it is written, beyond the blocks that are free by then") \
    X(program, "the program, its libraries, tokenizer and pairs, as measured")

enum pl_memory_term {
#define PL_MEMBER(name, why) PL_TERM_##name,
    PL_MEMORY_TERMS(PL_MEMBER)
#undef PL_MEMBER
        PL_TERM_COUNT
};
const char *pl_memory_term_name(enum pl_memory_term term);
const char *pl_memory_term_why(enum pl_memory_term term);

struct pl_memory_use {
    double parameters, unshared; /* with the plan's sets, and with a set for every layer */
    struct {
        double device, host;
    } term[PL_TERM_COUNT]; /* bytes */
    double device, host;
    double transfer_s;      /* an optimizer step's, between device and host or between devices */
    double allreduce_bytes; /* that a peer sends in one step, and about as much comes back */
};
void pl_memory_estimate(struct pl_memory_use *out, const struct pl_memory_plan *plan);

/* A model's tensors, `count` alike; columns 1 is a vector. */
struct pl_memory_tensor {
    double rows, columns, count;
};
#define PL_MEMORY_TENSORS_MAX 32
/* With `groups` sets of layer weights (0: the model's own). */
size_t pl_memory_tensors(struct pl_memory_tensor out[PL_MEMORY_TENSORS_MAX],
                         const struct pl_memory_model *m, double groups);

#ifdef __cplusplus
}
#endif
#endif
