/* captions.h - which picture has which caption: read from a list, a folder, tar archives or Parquet
 * files. */
#ifndef PL_CAPTIONS_H
#define PL_CAPTIONS_H

#include "data/images/image.h"
#include "data/files/mapping.h"
#include "picture_table.h"

#define CAPTIONS_FILE_MAX (1u << 30)    /* bytes of a list: ten million lines */
#define CAPTIONS_CAPTION_MAX (4u << 20) /* bytes of one caption file */

/* Where a picture is stored. */
struct picture_location {
    enum { CAPTIONS_FILE, CAPTIONS_TAR, CAPTIONS_TABLE } in; /* in a file of its own, or */
    size_t holder;                                           /* in this tar archive or table, */
    size_t at, bytes; /* at this byte, with this many bytes; or in this row */
};

struct captions {
    size_t count, capacity;
    /* UTF-8, without line breaks; inside another file the path is "x.tar/name.jpg" */
    char **path, **caption;
    struct picture_location *location;
    size_t uncaptioned; /* pictures of a folder without a caption, which are omitted */
    struct pl_mapping *archive;
    size_t archives;
    char **table;        /* paths of Parquet files */
    size_t tables, open; /* the table that is open now */
    struct picture_table *opened;
};

/* path is
 *   - a list: lines "picture<TAB>caption", pictures relative to the list's folder;
 *   - a folder with captions.tsv, such a list;
 *   - a folder with metadata.jsonl: objects with "file_name" and "caption" or "text";
 *   - a tar archive as img2dataset writes it: name.jpg with name.txt or name.json ("caption");
 *   - a Parquet file with a column of pictures (picture_table.h);
 *   - a folder, recursively: such archives and tables, and pictures (.png .jpg .jpeg .webp) with
 *     name.txt next to name.png.
 * Parquet files of a folder without pictures are ignored: img2dataset writes one with metadata for
 * each tar. A malformed line of a list is an error that names it. Order: the list's, otherwise
 * alphabetical. pl_captions_clear frees *c, also after an error. */
int pl_captions_read(struct captions *c, const char *path, struct pl_err *err);
void pl_captions_clear(struct captions *c);

/* Decodes picture i; *bytes is the size of its file. The caller clears *image. */
int pl_captions_picture(struct pl_image *image, uint64_t *bytes, struct captions *c, size_t i,
                        struct pl_err *err);

#endif
