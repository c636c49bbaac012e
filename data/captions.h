/* captions.h - which picture has which caption: from a folder or a list. */
#ifndef PL_CAPTIONS_H
#define PL_CAPTIONS_H

#include "image.h"
#include "mapping.h"

#define CAPTIONS_FILE_MAX (1u << 30)    /* bytes of a list: ten million lines */
#define CAPTIONS_CAPTION_MAX (1u << 16) /* bytes of one caption file */

/* A picture inside an archive; archive -1: a file of its own. */
struct captions_place {
    long archive;
    size_t at, bytes;
};

struct captions {
    size_t count;
    char **path, **caption; /* UTF-8, without line breaks; in an archive the path is "x.tar/name.jpg" */
    struct captions_place *place;
    size_t without;         /* pictures of a folder that have no caption, and are left out */
    struct pl_mapping *archive;
    size_t archives;
};

/* path is
 *   - a list: lines "picture<TAB>caption", pictures relative to the list's folder;
 *   - a folder with captions.tsv, such a list;
 *   - a folder with metadata.jsonl: objects with "file_name" and "caption" or "text";
 *   - a tar archive as img2dataset makes them: name.jpg with name.txt or name.json ("caption") beside it;
 *   - a folder, and those in it: such archives, and pictures (.png .jpg .jpeg .webp) with name.txt beside
 *     name.png.
 * A malformed line of a list is an error that names it. Order: the list's, or the alphabet's. */
int captions_read(struct captions *c, const char *path, struct pl_err *err);
void captions_clear(struct captions *c);

/* Picture i, decoded, and how many bytes it is stored in. */
int captions_picture(struct pl_image *image, uint64_t *bytes, const struct captions *c, size_t i,
                     struct pl_err *err);

#endif
