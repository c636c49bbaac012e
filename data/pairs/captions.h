/* captions.h - which picture has which caption: from a folder or a list. */
#ifndef PL_CAPTIONS_H
#define PL_CAPTIONS_H

#include "data/images/image.h"
#include "data/files/mapping.h"
#include "picture_table.h"

#define CAPTIONS_FILE_MAX (1u << 30)    /* bytes of a list: ten million lines */
#define CAPTIONS_CAPTION_MAX (4u << 20) /* bytes of one caption file */

/* Where a picture lies. */
struct captions_place {
    enum { CAPTIONS_FILE, CAPTIONS_TAR, CAPTIONS_TABLE } in; /* a file of its own, or */
    size_t holder;    /* in this one of the tar archives or tables, */
    size_t at, bytes; /* at this byte, so many; or in this row */
};

struct captions {
    size_t count;
    /* UTF-8, without line breaks; inside another file the path is "x.tar/name.jpg" */
    char **path, **caption;
    struct captions_place *place;
    size_t without; /* pictures of a folder that have no caption, and are left out */
    struct pl_mapping *archive;
    size_t archives;
    char **table;        /* paths of Parquet files */
    size_t tables, open; /* the one that is open, if one is */
    struct picture_table *opened;
};

/* path is
 *   - a list: lines "picture<TAB>caption", pictures relative to the list's folder;
 *   - a folder with captions.tsv, such a list;
 *   - a folder with metadata.jsonl: objects with "file_name" and "caption" or "text";
 *   - a tar archive as img2dataset makes them: name.jpg with name.txt or name.json ("caption") beside it;
 *   - a Parquet file with a column of pictures (picture_table.h);
 *   - a folder, and those in it: such archives and tables, and pictures (.png .jpg .jpeg .webp) with name.txt beside
 *     name.png.
 * Parquet files of a folder that hold no pictures are passed over: img2dataset lays one with what
 * it knows about a tar beside it. A malformed line of a list is an error that names it. Order: the
 * list's, or the alphabet's. */
int pl_captions_read(struct captions *c, const char *path, struct pl_err *err);
void pl_captions_clear(struct captions *c);

/* Picture i, decoded, and how many bytes it is stored in. */
int pl_captions_picture(struct pl_image *image, uint64_t *bytes, struct captions *c, size_t i,
                        struct pl_err *err);

#endif
