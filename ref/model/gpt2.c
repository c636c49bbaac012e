/* gpt2.c - GPT-2, a language model, that of the paper's tutorial on fine-tuning with 8-bit
 * optimizer state. [GPT-2, 2.3] [TTT 2.3] [spec images-and-text 6]
 *
 *   x      = E[token] + P[position]    (B,n,D), both learned
 *   y      = LN_f(blocks(x))           prenorm.c, causal
 *   logits = y E^T                     (B,n,V), the same E, no bias
 *   loss   = mean over t of -log softmax(logits_t)[token_t+1]
 *
 * Positions that the key mask hides (padding) are seen by none, and labels below 0 count for
 * nothing. */
#include "gpt2.h"

#include <string.h>

static float *value(const struct pl_gpt2 *m, size_t index)
{
    return pl_params_value(&m->params, index);
}

static float *grad(const struct pl_gpt2 *m, size_t index)
{
    return pl_params_grad(&m->params, index);
}

static void show(const struct pl_gpt2 *m, const char *name, const float *at, size_t n)
{
    if (m->stack.watch) m->stack.watch(m->stack.context, name, at, n);
}

/* Ids index E, and come from files and users. */
static int check_ids(const struct pl_gpt2 *m, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->config.vocab) return PL_EUSE;
    return PL_OK;
}

/* Copies token ids to the backend's memory. NULL: no memory. */
static int32_t *put_ids(struct pl_gpt2 *m, const int32_t *ids, size_t n)
{
    int32_t *at = (int32_t *)(void *)pl_scratch_take(m->scratch, n);
    return at && !m->params.be->put(at, ids, n * sizeof *at) ? at : NULL;
}

/* Copies the key mask to the backend's memory; without one *at stays NULL. */
static int put_mask(struct pl_gpt2 *m, const uint8_t **at, const uint8_t *key_mask, size_t n)
{
    uint8_t *bytes;
    *at = NULL;
    if (!key_mask) return PL_OK;
    *at = bytes = (uint8_t *)(void *)pl_scratch_take(m->scratch, pl_blocks(n, sizeof(float)));
    return bytes ? m->params.be->put(bytes, key_mask, n) : PL_ENOMEM;
}

/* x = blocks(E[token] + P[position]); inputs as in prenorm.h. */
static int run(struct pl_gpt2 *m, float *x, float *inputs, const int32_t *ids,
               const uint8_t *key_mask, int B, int n)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    size_t row = (size_t)n * (size_t)c->width;
    /* x = E[token] + P[position] */
    int rc = be->embed(x, value(m, m->tokens), ids, B * n, c->width, c->vocab);
    for (int b = 0; b < B && !rc; b++) /* position t is row t of P, for every sequence */
        rc = be->axpy(x + (size_t)b * row, 1, value(m, m->positions), row);
    if (!rc) show(m, "embedded", x, (size_t)B * row);
    return rc ? rc : pl_prenorm_forward(&m->stack, x, inputs, B, n, key_mask);
}

/* y = LN_f(x): the stream has grown by what every block added, and is scaled back for the logits */
static int final_norm(struct pl_gpt2 *m, float *y, const float *x, int M)
{
    return m->params.be->layer_norm(y, x, value(m, m->norm_weight), value(m, m->norm_bias), M,
                                    m->config.width, PL_PRENORM_EPS);
}

int pl_gpt2_logits(struct pl_gpt2 *m, float *logits, const int32_t *ids, const uint8_t *key_mask,
                   int B, int n)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    size_t M = (size_t)B * (size_t)n, floats = M * (size_t)c->width,
           row = (size_t)n * (size_t)c->vocab;
    int rc = n > c->positions ? PL_EUSE : check_ids(m, ids, M);
    if (rc) return rc;
    int32_t *at = put_ids(m, ids, M);
    float *x = pl_scratch_take(m->scratch, floats), *z = pl_scratch_take(m->scratch, row);
    rc = at && x && z ? put_mask(m, &key_mask, key_mask, M) : PL_ENOMEM;
    if (!rc) rc = run(m, x, NULL, at, key_mask, B, n);
    if (!rc) rc = final_norm(m, x, x, (int)M);
    if (!rc) show(m, "ln_f", x, floats);
    for (int b = 0; b < B && !rc; b++) { /* a sequence at a time: logits are the largest of all */
        rc = be->linear(z, x + (size_t)b * (size_t)n * (size_t)c->width, value(m, m->tokens), NULL,
                        n, c->width, c->vocab);
        if (!rc) rc = be->get(logits + (size_t)b * row, z, row * sizeof *z);
    }
    pl_scratch_give_all(m->scratch);
    return rc;
}

/* Position t is to predict the label at t + 1; the last one predicts nothing. PL_EUSE: no id. */
static int shifted(int32_t *label, const struct pl_gpt2 *m, const int32_t *labels, int B, int n)
{
    for (int b = 0; b < B; b++)
        for (int t = 0; t < n; t++) {
            int32_t id = t + 1 < n ? labels[(size_t)b * (size_t)n + (size_t)t + 1] : -1;
            if (id >= m->config.vocab) return PL_EUSE;
            label[(size_t)b * (size_t)n + (size_t)t] = id < 0 ? -1 : id;
        }
    return PL_OK;
}

/* From dy, the gradient of LN_f's output, down to the embeddings: dE[token] += dx, added to E's
 * gradient from the output layer, and dP[position] += dx of every sequence. */
static int backward(struct pl_gpt2 *m, const float *dy, const float *x, const float *inputs,
                    const int32_t *ids, const uint8_t *key_mask, int B, int n)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    size_t row = (size_t)n * (size_t)c->width;
    float *dx = pl_scratch_take(m->scratch, (size_t)B * row);
    int rc = dx ? be->layer_norm_backward(dx, grad(m, m->norm_weight), grad(m, m->norm_bias), dy,
                                          x, /* LN_f */
                                          value(m, m->norm_weight), B * n, c->width, PL_PRENORM_EPS,
                                          0)
                : PL_ENOMEM;
    /* the blocks, then dE[token] += dx, dP[position] += dx */
    if (!rc) rc = pl_prenorm_backward(&m->stack, dx, inputs, B, n, key_mask);
    if (!rc) rc = be->embed_backward(grad(m, m->tokens), dx, ids, B * n, c->width, c->vocab);
    /* every sequence has used the same P */
    for (int b = 0; b < B && !rc; b++)
        rc = be->axpy(grad(m, m->positions), 1, dx + (size_t)b * row, row);
    return rc;
}

int pl_gpt2_loss(struct pl_gpt2 *m, double *loss, const int32_t *ids, const int32_t *labels,
                 const uint8_t *key_mask, int B, int n, double scale)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_gpt2_config *c = &m->config;
    /* one segment: all positions choose among all tokens (DALL-E has one of text, one of image
     * tokens) */
    struct pl_loss_segment all = { 0, n, 0, c->vocab, (float)scale };
    size_t M = (size_t)B * (size_t)n, floats = M * (size_t)c->width;
    int with_grad = scale != 0;
    int rc = n <= c->positions ? check_ids(m, ids, M) : PL_EUSE;
    int32_t *host = pl_alloc(M, sizeof *host); /* labels, each where it is to be predicted */
    if (!rc && !host) rc = PL_ENOMEM;
    if (!rc) rc = shifted(host, m, labels, B, n);
    if (rc) {
        pl_free(host);
        return rc;
    }
    int32_t *at = put_ids(m, ids, M), *label = put_ids(m, host, M);
    float *x = pl_scratch_take(m->scratch, floats), *y = pl_scratch_take(m->scratch, floats),
          *dy = NULL, *inputs = NULL;
    /* inputs: x before each block, from which the backward pass computes the block again */
    if (with_grad) {
        dy = pl_scratch_take(m->scratch, floats);
        inputs = pl_scratch_take(m->scratch, (size_t)c->layers * floats);
    }
    rc = at && label && x && y && (!with_grad || (dy && inputs))
             ? put_mask(m, &key_mask, key_mask, M)
             : PL_ENOMEM;
    if (!rc) rc = run(m, x, inputs, at, key_mask, B, n);
    if (!rc) rc = final_norm(m, y, x, (int)M);
    /* loss = mean -log softmax(y E')[label], dy = (softmax - onehot) E and dE += (softmax -
     * onehot)' y in one operation, block by block: logits (B,n,V) never exist whole. GPT-2's output
     * has no bias, so zeros stand for it and their gradient is thrown away. */
    if (!rc)
        rc = be->loss(loss, NULL, dy, with_grad ? grad(m, m->tokens) : NULL,
                      with_grad ? m->no_grad : NULL, y, value(m, m->tokens), m->zeros, label, &all,
                      1, B, n, c->width, c->vocab);
    if (!rc && with_grad) rc = backward(m, dy, x, inputs, at, key_mask, B, n);
    pl_prenorm_forget(&m->stack); /* after an error there may be something */
    pl_free(host);
    pl_scratch_give_all(m->scratch);
    return rc;
}
