/* generate_job.c - from captions to images: sample image tokens, decode, rank by CLIP, write.
 * [TTT 3.1, 3.4]
 *
 *   a group of captions   image tokens are sampled together: the model is fastest on full batches
 *   each caption          decode 16 at a time, score, drop; then decode the best ones once more
 *
 * Decoding twice costs little compared with sampling and keeps memory bounded: only image tokens
 * are kept for all samples, never all of their pixels. */
#include "generate_job.h"
#include "data/files/json.h"
#include "cmd/common/compute.h"
#include "cmd/common/progress_line.h"
#include "cmd/common/plural.h"
#include "data/files/file.h"
#include "data/files/memory_stream.h"
#include "data/images/contact_sheet.h"
#include "data/images/figure.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 16    /* pictures in memory while they are decoded and scored */
#define SHEET_MAX 512 /* pictures on the contact sheet: the first ones */
#define SHEET_GAP 4

/* The output that grows over all captions. */
struct state {
    struct generate_job *job;
    struct progress progress;
    double begun, cells;    /* images of earlier groups; tokens of an image */
    json_t *list;           /* pictures.json */
    struct pl_image *sheet; /* (SHEET_MAX) */
    struct pl_image *real;  /* (SHEET_MAX) their captions' reference images, borrowed; or blank */
    struct pl_image blank;
    char (*label)[24];
    size_t sheets, written, cut, columns;
    size_t own, known; /* nearest to their own reference image; those that have one */
};

static int on_code(void *context, int64_t done, int64_t total)
{
    struct state *s = context;
    double all = (double)s->job->count * (double)s->job->n;
    double elapsed = progress_elapsed(&s->progress), pictures = s->begun + (double)done / s->cells;
    char left[24];
    s->progress.done = pictures / all;
    progress_show(&s->progress, done == total,
                  "drawing: %.0f of %.0f pictures, %.0f codes/s, %s left", pictures, all,
                  elapsed > 0 ? pictures * s->cells / elapsed : 0,
                  progress_time(left, pictures > 0 ? elapsed * (all - pictures) / pictures : 0));
    return 0;
}

/* "0003-a-red-apple-1.png": a file name from the caption, with its number in front so that names
 * differ. */
static void file_name(char *name, size_t capacity, size_t caption, int64_t copy, int64_t copies,
                      const char *text)
{
    char slug[41];
    size_t n = 0;
    for (const char *c = text; *c && n < sizeof slug - 1; c++) {
        if (isalnum((unsigned char)*c)) slug[n++] = (char)tolower((unsigned char)*c);
        else if (n && slug[n - 1] != '-') slug[n++] = '-';
    }
    while (n && slug[n - 1] == '-') n--;
    slug[n] = 0;
    if (copies > 1) snprintf(name, capacity, "%04zu-%s-%lld.png", caption, slug, (long long)copy);
    else snprintf(name, capacity, "%04zu-%s.png", caption, slug);
}

/* CLIP scores of all samples of a caption; codes (n,cells) are their image tokens. */
static int score_all(struct state *s, float *score, const char *caption, const int32_t *codes,
                     struct pl_err *err)
{
    const struct generate_job *job = s->job;
    size_t cells = (size_t)s->cells;
    int rc = PL_OK, cut = 0;
    for (int64_t first = 0; first < job->n && !rc; first += AT_ONCE) {
        struct pl_image images[AT_ONCE] = { 0 };
        int B = job->n - first < AT_ONCE ? (int)(job->n - first) : AT_ONCE;
        rc = image_sampler_decode(job->sampler, images, codes + (size_t)first * cells, B, err);
        if (!rc) rc = pl_rerank_score(job->rank, score + first, &cut, caption, images, B, err);
        for (int i = 0; i < B; i++) pl_image_clear(&images[i]);
        progress_show(&s->progress, 0, "ranking: %lld of %lld pictures of '%.30s'",
                      (long long)(first + B), (long long)job->n, caption);
    }
    s->cut += cut != 0;
    return rc;
}

/* Which reference image is nearest to this sample: its own caption's, or that of another? Adds
 * the answer to the sample's entry. */
static void compare_references(struct state *s, json_t *entry, const char *caption,
                               const struct pl_image *image)
{
    const struct reference_images *g = s->job->references;
    size_t own = reference_images_find(g, caption), near;
    if (s->sheets < SHEET_MAX) s->real[s->sheets] = own == g->count ? s->blank : g->picture[own];
    if (own == g->count) return;
    near = reference_images_nearest(g, image, own);
    s->known++;
    s->own += near == own;
    json_object_set_new(entry, "nearest", json_string(g->caption[near]));
}

/* Writes one sample: its file, its entry in the list, its place on the contact sheet. Takes the
 * image. */
static int write_one(struct state *s, struct pl_image *image, size_t caption, int64_t place,
                     int64_t places, int64_t drawn, const int32_t *codes, const float *score,
                     const float *share, struct pl_err *err)
{
    const struct generate_job *job = s->job;
    const char *text = job->caption[caption];
    size_t cells = (size_t)s->cells;
    json_t *numbers, *entry, *words;
    char name[120], *path;
    int rc;
    file_name(name, sizeof name, caption, place, places, text);
    path = pl_path_join(job->out, name);
    rc = path ? pl_image_write_png(path, image, err) : pl_fail(err, PL_ENOMEM, "no memory");
    free(path);
    pl_json_begin();
    numbers = json_array();
    for (size_t k = 0; k < cells; k++) json_array_append_new(numbers, json_integer(codes[k]));
    entry = json_pack("{s:s, s:I, s:o}", "file", name, "stream",
                      (json_int_t)((int64_t)caption * job->n + drawn), "codes", numbers);
    words = json_string(text); /* a caption that is not UTF-8 has no JSON */
    if (entry && words) json_object_set_new(entry, "caption", words);
    if (entry && score) {
        json_object_set_new(entry, "score", json_real(*score));
        json_object_set_new(entry, "share", json_real(*share));
    }
    if (!rc && job->references && !s->blank.pixels) {
        rc = pl_image_init(&s->blank, image->width, image->height, 3);
        if (rc) pl_fail(err, rc, "no memory");
        else memset(s->blank.pixels, 255, 3 * (size_t)image->width * (size_t)image->height);
    }
    if (entry && job->references) compare_references(s, entry, text, image);
    if (json_array_append_new(s->list, entry) || pl_json_failed())
        rc = rc ? rc : pl_fail(err, PL_ENOMEM, "no memory");
    s->written++;
    if (s->sheets < SHEET_MAX) {
        if (score) snprintf(s->label[s->sheets], sizeof *s->label, "%.2f", *score);
        s->sheet[s->sheets++] = *image;
    } else pl_image_clear(image);
    return rc;
}

/* Ranks the samples of a caption, and writes the best ones, best first. */
static int finish_caption(struct state *s, size_t caption, const int32_t *codes, struct pl_err *err)
{
    const struct generate_job *job = s->job;
    size_t n = (size_t)job->n, cells = (size_t)s->cells;
    int64_t keep = job->rank && job->keep && job->keep < job->n ? job->keep : job->n;
    float *score = pl_alloc(n, sizeof *score), *share = pl_alloc(n, sizeof *share);
    int32_t *order = pl_alloc(n, sizeof *order);
    int rc = score && share && order ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    if (!rc && job->rank) {
        rc = score_all(s, score, job->caption[caption], codes, err);
        if (!rc) pl_clip_rank(order, share, score, (int)n);
    }
    for (size_t i = 0; !rc && !job->rank && i < n; i++) order[i] = (int32_t)i;
    for (int64_t k = 0; k < keep && !rc; k++) {
        const int32_t *own = codes + (size_t)order[k] * cells;
        struct pl_image image = { 0 };
        rc = image_sampler_decode(job->sampler, &image, own, 1, err);
        if (rc) pl_image_clear(&image);
        else
            rc = write_one(s, &image, caption, k, keep, order[k], own,
                           job->rank ? &score[order[k]] : NULL, &share[order[k]], err);
    }
    pl_free(score);
    pl_free(share);
    pl_free(order);
    return rc;
}

/* Captions first .. first + count - 1: sampled together, since the model is fastest on full
 * batches. */
static int group(struct state *s, size_t first, size_t count, struct pl_err *err)
{
    struct generate_job *job = s->job;
    size_t T = (size_t)job->sampler->model->config.T, cells = (size_t)s->cells, n = (size_t)job->n;
    int32_t *text = calloc(count * n * T, sizeof *text),
            *codes = calloc(count * n * cells, sizeof *codes);
    size_t batch = count * n < (size_t)job->draw.batch ? count * n : (size_t)job->draw.batch;
    int rc = text && codes
                 ? PL_OK
                 : pl_fail(err, PL_ENOMEM, "no memory for the codes of %zu pictures", count * n);
    for (size_t i = 0; i < count * n && !rc; i++) {
        if (i % n) memcpy(text + i * T, text + (i - 1) * T, T * sizeof *text);
        else
            rc = image_sampler_tokens(job->sampler, text + i * T, job->caption[first + i / n], err);
    }
    s->begun = (double)first * (double)n;
    job->draw.first_image = first * n;
    if (!rc &&
        (rc = pl_generate(job->sampler->model, codes, text, (int)(count * n), &job->draw, err)))
        compute_explain(err, rc, job->sampler->model->be, (int64_t)batch, NULL);
    for (size_t i = 0; i < count && !rc; i++)
        if ((rc = finish_caption(s, first + i, codes + i * n * cells, err)))
            compute_explain(err, rc, job->sampler->codec.params.be, 0,
                            job->n > 1 ? "a smaller --n" : NULL);
    free(text);
    free(codes);
    return rc;
}

/* The reference images in the same places, which the dashboard shows next to the samples. */
static int write_real(const struct state *s, struct pl_err *err)
{
    char *path = pl_path_join(s->job->out, "real.png");
    struct pl_image sheet;
    int rc = pl_sheet(&sheet, s->real, s->sheets, (int)s->columns, SHEET_GAP);
    if (rc || !path) rc = pl_fail(err, rc ? rc : PL_ENOMEM, "real.png: %s", pl_status_name(rc));
    else rc = pl_image_write_png(path, &sheet, err);
    pl_image_clear(&sheet);
    free(path);
    return rc;
}

static int write_sheet(struct state *s, struct pl_err *err)
{
    const struct generate_job *job = s->job;
    struct pl_image sheet;
    size_t columns = s->written / job->count;
    char *path = pl_path_join(job->out, "sheet.png");
    int rc;
    if (columns < 2) columns = s->sheets < 8 ? s->sheets : 8;
    if (columns > 32) columns = 32;
    s->columns = columns;
    for (;;) {
        rc = pl_sheet(&sheet, s->sheet, s->sheets, (int)columns, SHEET_GAP);
        if (rc != PL_ELIMIT || s->sheets < 2) break;
        for (size_t half = s->sheets / 2; s->sheets > half;) /* too large: half as many */
            pl_image_clear(&s->sheet[--s->sheets]);
    }
    if (rc || !path)
        rc = pl_fail(err, rc ? rc : PL_ENOMEM, "contact sheet: %s", pl_status_name(rc));
    else rc = pl_image_write_png(path, &sheet, err);
    pl_image_clear(&sheet);
    free(path);
    return rc;
}

/* The contact sheet with each picture's score, by the browser's letters. */
static int write_scores(const struct state *s, struct pl_err *err)
{
    struct figure_picture *picture = calloc(s->sheets + 1, sizeof *picture);
    char *path = pl_path_join(s->job->out, "scores.svg");
    struct pl_memory_stream svg;
    FILE *f = picture && path ? pl_memory_stream_open(&svg) : NULL;
    int rc = f ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t i = 0; !rc && i < s->sheets; i++)
        picture[i] = (struct figure_picture){
            json_string_value(json_object_get(json_array_get(s->list, i), "file")), s->label[i]
        };
    if (!rc) {
        figure_pictures(f, picture, s->sheets, (int)s->columns, s->sheets ? s->sheet[0].width : 0);
        if (pl_memory_stream_close(&svg, f)) rc = pl_fail(err, PL_ENOMEM, "no memory");
        else rc = pl_file_write(path, svg.text, svg.bytes, err);
        free(svg.text);
    }
    free(picture);
    free(path);
    return rc;
}

/* Writes a file next to the images. Takes root; NULL means that there was no memory for it. */
static int write_json(const struct generate_job *job, const char *name, json_t *root,
                      struct pl_err *err)
{
    char *text = pl_json_text(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    char *path = pl_path_join(job->out, name);
    int rc = text && path ? pl_file_write(path, text, strlen(text), err)
                          : pl_fail(err, PL_ENOMEM, "no memory");
    free(path);
    free(text);
    json_decref(root);
    return rc;
}

/* With where the samples are on the contact sheet: of `side` pixels, `gap` between and around. */
static int write_list(struct state *s, struct pl_err *err)
{
    return write_json(s->job, "pictures.json",
                      json_pack("{s:I, s:O, s:{s:I, s:I, s:i, s:I}}", "seed",
                                (json_int_t)s->job->draw.seed, "pictures", s->list, "sheet",
                                "columns", (json_int_t)s->columns, "side",
                                (json_int_t)(s->sheets ? s->sheet[0].width : 0), "gap", SHEET_GAP,
                                "pictures", (json_int_t)s->sheets),
                      err);
}

/* A small summary, for the dashboard, which reads it often. */
static int write_nearest(const struct state *s, struct pl_err *err)
{
    return write_json(s->job, "nearest.json",
                      json_pack("{s:I, s:I, s:I}", "own", (json_int_t)s->own, "of",
                                (json_int_t)s->known, "among",
                                (json_int_t)s->job->references->count),
                      err);
}

int generate_job_run(struct generate_job *job, struct pl_err *err)
{
    size_t F = (size_t)job->sampler->model->config.F;
    size_t together = (size_t)job->draw.batch > (size_t)job->n
                          ? (size_t)job->draw.batch / (size_t)job->n
                          : 1;
    struct state s = { .job = job, .cells = (double)(F * F), .list = json_array() };
    int rc;
    s.sheet = calloc(SHEET_MAX, sizeof *s.sheet);
    s.real = calloc(SHEET_MAX, sizeof *s.real);
    s.label = calloc(SHEET_MAX, sizeof *s.label);
    rc = s.list && s.sheet && s.real && s.label ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    job->draw.progress = on_code;
    job->draw.context = &s;
    progress_begin(&s.progress, job->quiet);
    for (size_t first = 0; first < job->count && !rc; first += together)
        rc = group(&s, first, job->count - first < together ? job->count - first : together, err);
    progress_end(&s.progress);
    if (!rc && job->references)
        rc = write_nearest(&s, err); /* before the sheet, which ends the job */
    if (!rc) rc = write_sheet(&s, err);
    if (!rc && job->rank) rc = write_scores(&s, err);
    if (!rc && job->references && !job->rank) rc = write_real(&s, err);
    if (!rc) rc = write_list(&s, err);
    if (!rc) {
        if (s.cut)
            printf("%zu caption%s longer than CLIP reads: the rest of it did not count\n", s.cut,
                   s.cut == 1 ? " is" : "s are");
        if (job->references)
            printf("%zu of %zu nearest to their own picture among %zu\n", s.own, s.known,
                   job->references->count);
        printf("%zu picture%s in %s; %s%s/sheet.png\n", s.written, PLURAL(s.written), job->out,
               s.sheets < s.written ? "the first of them on "
               : s.written == 1     ? "also on "
                                    : "all of them on ",
               job->out);
    }
    for (size_t i = 0; s.sheet && i < s.sheets; i++) pl_image_clear(&s.sheet[i]);
    pl_image_clear(&s.blank);
    free(s.sheet);
    free(s.real);
    free(s.label);
    json_decref(s.list);
    return rc;
}
