/* www.h - the page's files, built into the program by net/http/www/embed.sh. */
#ifndef PL_WWW_H
#define PL_WWW_H

#include <stddef.h>

struct www_file {
    const char *name;
    const unsigned char *data;
    size_t bytes;
};
extern const struct www_file www_files[]; /* the last one's name is NULL */

#endif
