/* captions.h - which picture has which caption: from a folder or a list. */
#ifndef PL_CAPTIONS_H
#define PL_CAPTIONS_H

#include "../ref/base.h"

#define CAPTIONS_FILE_MAX (1u << 30)    /* bytes of a list: ten million lines */
#define CAPTIONS_CAPTION_MAX (1u << 16) /* bytes of one caption file */

struct captions {
    size_t count;
    char **path, **caption; /* UTF-8, without line breaks */
    size_t without;         /* pictures of a folder that have no caption, and are left out */
};

/* path is
 *   - a list: lines "picture<TAB>caption", pictures relative to the list's folder;
 *   - a folder with captions.tsv, such a list;
 *   - a folder with metadata.jsonl: objects with "file_name" and "caption" or "text";
 *   - a folder, and those in it: pictures (.png .jpg .jpeg .webp) with name.txt beside name.png.
 * A malformed line of a list is an error that names it. Order: the list's, or the alphabet's. */
int captions_read(struct captions *c, const char *path, struct pl_err *err);
void captions_clear(struct captions *c);

#endif
