/* contact_sheet.h - a contact sheet: many pictures in one. */
#ifndef PL_CONTACT_SHEET_H
#define PL_CONTACT_SHEET_H

#include "image.h"

/* `count` pictures in rows of `columns`, on white, `gap` pixels between and around. All cells have
 * the size of the largest picture; transparency shows white. The caller clears *out. */
int pl_sheet(struct pl_image *out, const struct pl_image *pictures, size_t count, int columns,
             int gap);

#endif
