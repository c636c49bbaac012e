/* image_decode.c - recognizes a format by its first bytes; image_png.c, image_jpeg.c and
 * image_webp.c decode it. */
#include "image.h"
#include "data/files/file.h"
#include "image_format.h"

#include <stdlib.h>
#include <string.h>

int pl_image_decode(struct pl_image *image, const void *data, size_t bytes, const char *name,
                    struct pl_err *err)
{
    const uint8_t *p = data;
    image_decode_fn *decode = NULL;
    int rc;
    memset(image, 0, sizeof *image);
    if (bytes >= 8 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8)) decode = pl_image_decode_png;
    else if (bytes >= 3 && !memcmp(p, "\xff\xd8\xff", 3)) decode = pl_image_decode_jpeg;
    else if (bytes >= 12 && !memcmp(p, "RIFF", 4) && !memcmp(p + 8, "WEBP", 4))
        decode = pl_image_decode_webp;
    if (!decode) return pl_fail(err, PL_EFORMAT, "%s: neither PNG nor JPEG nor WebP", name);
    rc = decode(image, p, bytes, name, err);
    if (rc) pl_image_clear(image);
    return rc;
}

int pl_image_read(struct pl_image *image, const char *path, struct pl_err *err)
{
    void *data;
    size_t bytes;
    int rc = pl_file_read(&data, &bytes, path, IMAGE_FILE_MAX, err);
    memset(image, 0, sizeof *image);
    if (rc) return rc;
    rc = pl_image_decode(image, data, bytes, path, err);
    free(data);
    return rc;
}
