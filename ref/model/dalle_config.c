/* dalle_config.c - the sizes of known models, which blocks share layers, and the rules for any
 * other configuration. [TTT 3.1] [spec dalle 1, 3]
 *
 *   block    0    1    2    3    4    5  ...  62      63
 *   group    0    1    2    3    0    1  ...   2       4
 *   sees    row  col  row  row  row  col ...  row    a window
 *
 * Rows and columns alternate, so that a token reaches every other; the last block looks at its
 * neighbourhood, from which the next token is chosen. */
#include "dalle_config.h"
#include "params.h"

#include <stdio.h>
#include <string.h>

/* The reference run's tokenizer has 32,100 pieces and pads with its end token, id 1 [TTT 3.1, 3.2].
 * The demo speaks t5_2k: 2000 pieces and T5's 100 extra ids; its codec has 256 codes; each of the
 * reference run's five layers stands once, because at this size a shared layer's second use costs
 * more time than it teaches (paper/log/demo.md). "small" and "middle" are the 6.1 and 29.5 million
 * parameters of the speed comparisons. */
static const struct pl_dalle_config named[] = {
    { .name = "run",
      .T = 256,
      .F = 32,
      .D = 1024,
      .H = 16,
      .d = 64,
      .L = 64,
      .V = 32100,
      .Vi = 8192 },
    { .name = "middle",
      .T = 64,
      .F = 16,
      .D = 512,
      .H = 8,
      .d = 64,
      .L = 17,
      .V = 8192,
      .Vi = 8192 },
    { .name = "small", .T = 32, .F = 16, .D = 256, .H = 4, .d = 64, .L = 9, .V = 2100, .Vi = 1024 },
    { .name = "demo", .T = 16, .F = 8, .D = 128, .H = 2, .d = 64, .L = 4, .V = 2100, .Vi = 256 },
};

/* A sequence has S = T + F F positions: T text tokens, then an F x F grid of image tokens, row by
 * row. The image tokens' mean loss weighs 7 times the text tokens'. */
int pl_dalle_config_named(struct pl_dalle_config *c, const char *name, struct pl_err *err)
{
    for (size_t i = 0; i < PL_COUNT(named); i++) {
        if (strcmp(name, named[i].name)) continue;
        *c = named[i];
        c->pad = 1;
        c->image_weight = 7;
        pl_dalle_config_pattern(c, 5, 1);
        return PL_OK;
    }
    return pl_fail(err, PL_ENOTFOUND,
                   "no configuration is called \"%.40s\"; there are run, middle, small and demo",
                   name);
}

/* block[l]: group l mod 4; row, column, row, row. The last block has a group and a K x K window of
 * its own. [TTT 3.1] */
void pl_dalle_config_pattern(struct pl_dalle_config *c, int kernel, int dilation)
{
    static const enum pl_mask_kind kinds[4] = { PL_MASK_ROW, PL_MASK_COL, PL_MASK_ROW,
                                                PL_MASK_ROW };
    for (int l = 0; l < c->L; l++)
        c->block[l] = (struct pl_dalle_block){
            .group = l % 4, .kind = kinds[l % 4], .kernel = 1, .dilation = 1
        };
    c->block[c->L - 1] = (struct pl_dalle_block){ .group = c->L - 1 < 4 ? c->L - 1 : 4,
                                                  .kind = PL_MASK_CONV,
                                                  .kernel = kernel,
                                                  .dilation = dilation };
}

/* Every block gets layers of its own: the same model without sharing. At the reference run's size
 * that is 64 layers in place of 5, and a model 8.9 times as large to average. */
void pl_dalle_config_untie(struct pl_dalle_config *c)
{
    for (int l = 0; l < c->L; l++) c->block[l].group = l;
}

/* S = T + I: the start token replaces the last image token, which is only a label. */
int pl_dalle_positions(const struct pl_dalle_config *c) { return c->T + c->F * c->F; }
/* One embedding serves all tokens: V text ids, T ids of padding (one for each position, so that the
 * model can tell how long a caption is), and Vi image ids. */
int pl_dalle_text_rows(const struct pl_dalle_config *c) { return c->V + c->T; }
int pl_dalle_rows(const struct pl_dalle_config *c) { return c->V + c->T + c->Vi; }

void pl_dalle_mask(const struct pl_dalle_config *c, int l, struct pl_mask *mask)
{
    const struct pl_dalle_block *b = &c->block[l];
    /* P = T + 1 text positions, the start token among them; then F x F image cells */
    *mask = (struct pl_mask){
        .kind = b->kind, .P = c->T + 1, .F = c->F, .kernel = b->kernel, .dilation = b->dilation
    };
}

/* The block that declares and initializes a group's layers. */
int pl_dalle_first_of_group(const struct pl_dalle_config *c, int l)
{
    int first = 0;
    while (c->block[first].group != c->block[l].group) first++;
    return first;
}

/* A group's blocks share their attention layer, so they must see the same keys. */
static int check_block(const struct pl_dalle_config *c, int l, struct pl_err *err)
{
    const struct pl_dalle_block *b = &c->block[l], *other;
    if (b->group < 0 || b->group >= c->L)
        return pl_fail(err, PL_EUSE, "configuration: block %d is in group %d, expected 0 to %d", l,
                       b->group, c->L - 1);
    /* an autoregressive model predicts position t + 1 from 0..t, so every mask has to be causal */
    if (b->kind == PL_MASK_NONE)
        return pl_fail(err, PL_EUSE, "configuration: block %d looks at later positions", l);
    if ((b->kind == PL_MASK_CONV || b->kind == PL_MASK_CONV_CORNER) &&
        (b->kernel < 1 || b->kernel > 9999 || b->kernel % 2 == 0 || b->dilation < 1 ||
         b->dilation > 9999))
        return pl_fail(err, PL_EUSE,
                       "configuration: block %d has kernel %d and dilation %d, "
                       "expected an odd kernel and a dilation from 1 to 9999",
                       l, b->kernel, b->dilation);
    /* Shared weights with another mask would be another layer. */
    other = &c->block[pl_dalle_first_of_group(c, l)];
    if (other->kind != b->kind || other->kernel != b->kernel || other->dilation != b->dilation)
        return pl_fail(err, PL_EUSE,
                       "configuration: block %d shares the layer of block %d, but "
                       "not its kind of attention",
                       l, (int)(other - c->block));
    return PL_OK;
}

int pl_dalle_config_check(const struct pl_dalle_config *c, struct pl_err *err)
{
    /* Far above any model of this kind, and low enough that S, 8 D and the rows stay an int. */
    const struct pl_range sizes[] = {
        { "the text length", c->T, 1, 1 << 15 },
        { "the grid's side", c->F, 1, 1 << 8 },
        { "the width", c->D, 1, 1 << 16 },
        { "the number of heads", c->H, 1, 1 << 10 },
        { "the width of a head", c->d, 1, 1 << 10 },
        { "the number of blocks", c->L, 1, PL_DALLE_BLOCKS_MAX },
        { "the text vocabulary", c->V, 1, 1 << 24 },
        { "the image vocabulary", c->Vi, 1, 1 << 24 },
    };
    int rc = pl_check_ranges("configuration", sizes, PL_COUNT(sizes), err);
    if (rc) return rc;
    const struct pl_range padding = { "the padding id", c->pad, 0, c->V - 1 };
    if ((rc = pl_check_ranges("configuration", &padding, 1, err))) return rc;
    if (!(c->image_weight >= 0 && c->image_weight <= 1e6))
        return pl_fail(err, PL_EUSE, "configuration: the image loss weighs %g, expected 0 to 1e6",
                       c->image_weight);
    for (int l = 0; l < c->L; l++)
        if ((rc = check_block(c, l, err))) return rc;
    return PL_OK;
}
