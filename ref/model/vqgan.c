/* vqgan.c - pictures to image tokens and back: an encoder of convolutions, a codebook, a decoder.
 * [VQGAN, 3.1] [TTT 3.1] [spec images-and-text 1.2, 1.5]
 *
 *   z = quant_conv(encoder(picture))             (B,3,H,W) to (B,embed_dim,H/f,W/f), f = 8
 *   token = the codebook's, place by place       codebook.c
 *   picture' = decoder(post_quant_conv(e[token]))
 *
 * A picture of 256 x 256 x 3 bytes becomes 32 x 32 tokens of 13 bits: 118 times fewer bits, and a
 * sequence short enough for a transformer. Encoder and decoder are lists of blocks
 * (vqgan_list.c); running them is a loop. */
#include "vqgan.h"

/* y = block_count(... block_1(x)). For a backward pass each block's input stays in memory. */
int pl_vqgan_run(struct pl_vqgan *m, const struct pl_vq_block *blocks, int count, struct pl_maps *y,
                 const struct pl_maps *x, struct pl_vq_saved *saved)
{
    struct pl_maps from = *x;
    for (int i = 0; i < count; i++) {
        int rc = pl_vq_forward(&blocks[i], &m->params, m->scratch, y, &from,
                               saved ? &saved[i] : NULL);
        if (rc) return rc;
        if (!saved && i > 0) pl_scratch_give(m->scratch, from.at);
        if (m->watch) m->watch(m->context, blocks[i].name, y);
        from = *y;
    }
    return PL_OK;
}

/* Runs one list and lets its input go. */
static int run_on(struct pl_vqgan *m, const struct pl_vq_block *blocks, int count,
                  struct pl_maps *x)
{
    struct pl_maps y;
    int rc = pl_vqgan_run(m, blocks, count, &y, x, NULL);
    if (rc) return rc;
    pl_scratch_give(m->scratch, x->at);
    *x = y;
    return PL_OK;
}

/* x (B,3,H,W) to tokens (B,H/f,W/f): the place's vector becomes the number of a row of the
 * codebook. A picture of 256 x 256 pixels with f = 8 is 1024 tokens of 13 bits. */
int pl_vqgan_encode(struct pl_vqgan *m, int32_t *code, float *z, const float *x, const float *noise,
                    int B, int H, int W)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_vqgan_config *c = &m->config;
    struct pl_maps map = { .B = B, .C = 3, .H = H, .W = W };
    float *chosen, *added = NULL;
    size_t places;
    int P, rc;
    pl_scratch_give_all(m->scratch);
    map.at = pl_scratch_take(m->scratch, pl_maps_floats(&map));
    if (!map.at) return PL_ENOMEM;
    /* z = quant_conv(encoder(x)) */
    rc = be->put(map.at, x, pl_maps_floats(&map) * sizeof *x);
    if (!rc) rc = run_on(m, m->encoder, m->encoders, &map);
    if (!rc) rc = run_on(m, &m->quant_conv, 1, &map);
    if (!rc && z) rc = be->get(z, map.at, pl_maps_floats(&map) * sizeof *z);
    if (rc) return rc;
    P = map.H * map.W;
    places = (size_t)B * (size_t)P;
    chosen = pl_scratch_take(m->scratch, places); /* as many 32-bit integers */
    if (!chosen) return PL_ENOMEM;
    /* Gumbel: token = argmax_n (proj(z)_n + noise_n), a sample of softmax(proj(z)) if noise is
     * given. Otherwise token = argmin_n |z - e_n|^2. */
    if (c->gumbel) {
        rc = run_on(m, &m->proj, 1, &map);
        if (!rc && noise) {
            added = pl_scratch_take(m->scratch, pl_maps_floats(&map));
            rc = added ? be->put(added, noise, pl_maps_floats(&map) * sizeof *noise) : PL_ENOMEM;
        }
        if (!rc) rc = be->gumbel_code((int32_t *)chosen, map.at, added, B, c->n_embed, P);
    } else {
        rc = be->nearest_code((int32_t *)chosen, map.at, pl_params_value(&m->params, m->table), B,
                              c->embed_dim, P, c->n_embed);
    }
    if (!rc) rc = be->get(code, chosen, places * sizeof *code);
    pl_scratch_give_all(m->scratch);
    return rc;
}

int pl_vqgan_decode(struct pl_vqgan *m, float *x, const int32_t *code, int B, int h, int w)
{
    const struct pl_backend *be = m->params.be;
    const struct pl_vqgan_config *c = &m->config;
    struct pl_maps map = { .B = B, .C = c->embed_dim, .H = h, .W = w };
    size_t places = (size_t)B * (size_t)h * (size_t)w;
    float *given;
    int rc;
    pl_scratch_give_all(m->scratch);
    map.at = pl_scratch_take(m->scratch, pl_maps_floats(&map));
    given = pl_scratch_take(m->scratch, places);
    if (!map.at || !given) return PL_ENOMEM;
    /* zq = e[token], then x' = decoder(post_quant_conv(zq)) */
    rc = be->put(given, code, places * sizeof *code);
    if (!rc)
        rc = be->code_rows(map.at, pl_params_value(&m->params, m->table), (int32_t *)given, B,
                           c->embed_dim, h * w, c->n_embed);
    if (!rc && m->watch) m->watch(m->context, "zq", &map);
    if (!rc) rc = run_on(m, &m->post_quant_conv, 1, &map);
    if (!rc) rc = run_on(m, m->decoder, m->decoders, &map);
    if (!rc) rc = be->get(x, map.at, pl_maps_floats(&map) * sizeof *x);
    pl_scratch_give_all(m->scratch);
    return rc;
}

/* Tokens from outside may lie beyond the codebook: count them before decoding. */
size_t pl_vqgan_count_invalid(const struct pl_vqgan *m, const int32_t *code, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += code[i] < 0 || code[i] >= m->config.n_embed;
    return count;
}
