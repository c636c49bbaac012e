/* plural.h - "1 picture", "2 pictures". */
#ifndef PL_CMD_PLURAL_H
#define PL_CMD_PLURAL_H

#define PLURAL(n) ((n) == 1 ? "" : "s")

#endif
