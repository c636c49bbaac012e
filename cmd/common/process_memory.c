/* process_memory.c - figures of /proc/meminfo and /proc/self/status: a name, a colon, kibibytes. */
#include "process_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double proc_bytes(const char *file, const char *field)
{
    FILE *f = fopen(file, "r");
    size_t n = strlen(field);
    char line[128];
    double kib = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, field, n) && line[n] == ':') {
            kib = strtod(line + n + 1, NULL);
            break;
        }
    if (f) fclose(f);
    return 1024 * kib;
}
