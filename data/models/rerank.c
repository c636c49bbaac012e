/* rerank.c - scores pictures against a caption with CLIP: both are embedded as unit vectors, and
 * the score is their scaled cosine similarity. */
#include "rerank.h"
#include "clip_file.h"
#include "data/images/resize.h"
#include "../../runtime/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 16 /* pictures at a time, which limits the image tower's memory */

int pl_rerank_open(struct pl_rerank *r, const struct pl_backend *be, const char *weights,
                   const char *vocab, struct pl_err *err)
{
    const char *slash = strrchr(weights, '/');
    char *folder = slash ? strndup(weights, (size_t)(slash - weights) + 1) : strdup(".");
    char *default_vocab = folder ? pl_path_join(folder, RERANK_VOCAB) : NULL;
    int rc = PL_OK;
    memset(r, 0, sizeof *r);
    if (!vocab && !default_vocab) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", weights);
    if (!rc) rc = pl_bpe_open_clip(&r->bpe, vocab ? vocab : default_vocab, err);
    free(folder);
    free(default_vocab);
    if (!rc) rc = pl_clip_open(&r->clip, weights, be, err);
    if (!rc && (r->clip.config.vocab < pl_bpe_size(r->bpe) || r->clip.config.context < 2))
        rc = pl_fail(err, PL_EUSE, "%s: reads %d ids, %d at a time; the tokenizer has %d", weights,
                     r->clip.config.vocab, r->clip.config.context, pl_bpe_size(r->bpe));
    if (rc) pl_rerank_close(r);
    return rc;
}

void pl_rerank_close(struct pl_rerank *r)
{
    pl_clip_clear(&r->clip);
    pl_bpe_close(r->bpe);
    memset(r, 0, sizeof *r);
}

/* One picture as input of the image tower. */
static int prepare(float *pixels, const struct pl_image *image, int side)
{
    struct pl_image out;
    int rc = pl_resize_square(&out, image, side, PL_BICUBIC);
    if (!rc) rc = pl_image_rgb(&out, PL_ALPHA_DROP);
    if (!rc) pl_clip_pixels(pixels, out.pixels, side);
    pl_image_clear(&out);
    return rc;
}

int pl_rerank_score(struct pl_rerank *r, float *score, int *cut, const char *caption,
                    const struct pl_image *images, int n, struct pl_err *err)
{
    const struct pl_clip_config *c = &r->clip.config;
    size_t each = 3 * (size_t)c->image * (size_t)c->image, E = (size_t)c->embed;
    int32_t *row = pl_alloc((size_t)c->context, sizeof *row);
    float *text = pl_alloc(E, sizeof *text), *vectors = pl_alloc(BATCH * E, sizeof *vectors);
    float *pixels = pl_alloc(BATCH * each, sizeof *pixels);
    int rc = row && text && vectors && pixels ? PL_OK : PL_ENOMEM;
    if (!rc) rc = pl_bpe_clip_row(row, c->context, cut, r->bpe, caption, strlen(caption));
    if (!rc) rc = pl_clip_texts(&r->clip, text, row, 1);
    for (int first = 0; first < n && !rc; first += BATCH) {
        int B = n - first < BATCH ? n - first : BATCH;
        for (int i = 0; i < B && !rc; i++)
            rc = prepare(pixels + (size_t)i * each, &images[first + i], c->image);
        if (!rc) rc = pl_clip_images(&r->clip, vectors, pixels, B);
        if (!rc) rc = pl_clip_logits(&r->clip, score + first, text, 1, vectors, B);
    }
    if (rc) pl_fail(err, rc, "CLIP on '%.60s': %s", caption, pl_status_name(rc));
    pl_free(row);
    pl_free(text);
    pl_free(vectors);
    pl_free(pixels);
    return rc;
}
