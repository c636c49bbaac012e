/* image_jpeg.c - JPEG by libjpeg-turbo. A truncated file is an error here; the library alone would
 * fill the rest with grey. */
#include "exif.h"
#include "image.h"
#include "image_format.h"

#include <stdio.h> /* jpeglib.h needs it */

#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>
#include <string.h>

/* scans of a progressive file, each as much work as the whole picture; real files have ten */
#define SCANS_MAX 200

struct jpeg {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    char why[JMSG_LENGTH_MAX];
};

static void on_error(j_common_ptr c)
{
    struct jpeg *j = c->client_data;
    c->err->format_message(c, j->why);
    longjmp(j->out, 1);
}

static void on_message(j_common_ptr c) {}

static void source_begin_end(j_decompress_ptr d) {}

static boolean source_more(j_decompress_ptr d)
{
    struct jpeg *j = d->client_data;
    snprintf(j->why, sizeof j->why, "the file ends too early");
    longjmp(j->out, 1);
}

static void source_skip(j_decompress_ptr d, long n)
{
    if (n <= 0) return;
    if ((size_t)n > d->src->bytes_in_buffer) source_more(d);
    d->src->next_input_byte += n;
    d->src->bytes_in_buffer -= (size_t)n;
}

static void count_scans(j_common_ptr c)
{
    struct jpeg *j = c->client_data;
    if (j->d.input_scan_number <= SCANS_MAX) return;
    snprintf(j->why, sizeof j->why, "more scans than any camera makes");
    longjmp(j->out, 1);
}

/* CMYK to RGB without colour profiles; Adobe's files store it inverted. */
static void cmyk_row(uint8_t *row, const uint8_t *cmyk, int width, int inverted)
{
    for (int x = 0; x < width; x++)
        for (int c = 0; c < 3; c++) {
            unsigned ink = cmyk[4 * x + c], black = cmyk[4 * x + 3];
            if (!inverted) ink = 255 - ink, black = 255 - black;
            row[3 * x + c] = (uint8_t)((ink * black + 127) / 255);
        }
}

/* Reads the APP1 marker with EXIF data. */
static int orientation(const struct jpeg_decompress_struct *d)
{
    static const char head[6] = "Exif\0";
    for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > sizeof head &&
            !memcmp(m->data, head, sizeof head))
            return pl_exif_orientation(m->data + sizeof head, m->data_length - sizeof head);
    return 1;
}

static int decode(struct jpeg *j, struct pl_image *image, const char *name, struct pl_err *err)
{
    struct jpeg_decompress_struct *d = &j->d;
    int rc, print;
    if (setjmp(j->out))
        return d->err->msg_code == JERR_OUT_OF_MEMORY
                   ? pl_fail(err, PL_ENOMEM, "%s: no memory", name)
                   : pl_fail(err, PL_EFORMAT, "%s: damaged JPEG: %s", name, j->why);
    jpeg_create_decompress(d);
    d->src = &j->source;
    d->progress = &j->progress;
    jpeg_save_markers(d, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(d, TRUE);
    print = d->num_components == 4;
    d->out_color_space = print ? JCS_CMYK : d->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    rc = pl_image_allocate(image, d->image_width, d->image_height, d->num_components == 1 ? 1 : 3,
                           j->source.bytes_in_buffer, name, err);
    if (rc) return rc;
    image->orientation = orientation(d);
    jpeg_start_decompress(d);
    while (d->output_scanline < d->output_height) {
        uint8_t *row = image->pixels +
                       (size_t)d->output_scanline * (size_t)image->width * (size_t)image->channels;
        if (print) {
            JSAMPARRAY line = d->mem->alloc_sarray((j_common_ptr)d, JPOOL_IMAGE, 4 * d->image_width,
                                                   1);
            for (; d->output_scanline < d->output_height; row += 3 * (size_t)image->width) {
                jpeg_read_scanlines(d, line, 1);
                cmyk_row(row, line[0], image->width, d->saw_Adobe_marker);
            }
        } else jpeg_read_scanlines(d, &row, 1);
    }
    jpeg_finish_decompress(d);
    return PL_OK;
}

int pl_image_decode_jpeg(struct pl_image *image, const uint8_t *data, size_t bytes,
                         const char *name, struct pl_err *err)
{
    struct jpeg j;
    int rc;
    memset(&j, 0, sizeof j);
    j.d.err = jpeg_std_error(&j.errors);
    j.errors.error_exit = on_error;
    j.errors.output_message = on_message;
    j.d.client_data = &j;
    j.source.next_input_byte = data;
    j.source.bytes_in_buffer = bytes;
    j.source.init_source = j.source.term_source = source_begin_end;
    j.source.fill_input_buffer = source_more;
    j.source.skip_input_data = source_skip;
    j.source.resync_to_restart = jpeg_resync_to_restart;
    j.progress.progress_monitor = count_scans;
    rc = decode(&j, image, name, err);
    jpeg_destroy_decompress(&j.d);
    return rc;
}
