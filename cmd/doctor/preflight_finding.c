/* preflight_finding.c - a finding: its text, the advice, and a short form. */
#include "preflight_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void write_finding(struct finding *f, enum finding_level level, const char *what,
                          const char *format, va_list args)
{
    char *advice, *brief = NULL;
    *f = (struct finding){ .level = level, .what = what };
    vsnprintf(f->text, sizeof f->text, format, args);
    if ((advice = strchr(f->text, '\n'))) {
        *advice++ = 0;
        if ((brief = strchr(advice, '\n'))) *brief++ = 0;
        snprintf(f->advice, sizeof f->advice, "%.399s", advice);
        if (brief) snprintf(f->brief, sizeof f->brief, "%.79s", brief);
    }
}

void preflight_set(struct finding *f, enum finding_level level, const char *what,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_finding(f, level, what, format, args);
    va_end(args);
}

void preflight_say(struct preflight *c, enum finding_level level, const char *what,
                   const char *format, ...)
{
    struct finding f;
    va_list args;
    va_start(args, format);
    write_finding(&f, level, what, format, args);
    va_end(args);
    c->report(c->context, &f);
}
