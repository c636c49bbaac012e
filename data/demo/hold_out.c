/* hold_out.c - parses "woman farmer: medium-dark skin tone" into role, gender and tone, and chooses
 * combinations whose parts all occur elsewhere. */
#include "hold_out.h"
#include "data/files/buffer.h"
#include "data/files/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Emoji for a person of unspecified gender are called "person running", but "farmer". */
static const char *const gender_names[GENDERS] = { "man ", "woman ", "person " };
enum { MAN, WOMAN, PERSON };

static const char *const tone_names[TONES] = { ": light skin tone", ": medium-light skin tone",
                                               ": medium skin tone", ": medium-dark skin tone",
                                               ": dark skin tone" };

static long find_role(struct hold_out *h, const char *name, size_t n)
{
    for (size_t i = 0; i < h->roles; i++)
        if (strlen(h->role[i].name) == n && !memcmp(h->role[i].name, name, n)) return (long)i;
    if (h->roles == ROLES_MAX || !(h->role[h->roles].name = strndup(name, n))) return -1;
    return (long)h->roles++;
}

int hold_out_see(struct hold_out *h, const char *caption)
{
    const char *colon = strrchr(caption, ':'), *subject = caption;
    int gender = PERSON, tone = 0;
    long role;
    while (colon && tone < TONES && strcmp(colon, tone_names[tone])) tone++;
    if (!colon || tone == TONES) return PL_OK;
    for (int g = 0; g < GENDERS; g++)
        if (!strncmp(caption, gender_names[g], strlen(gender_names[g]))) {
            gender = g;
            subject = caption + strlen(gender_names[g]);
        }
    if (memchr(subject, ':', (size_t)(colon - subject))) return PL_OK; /* "man: beard: ..." */
    role = find_role(h, subject, (size_t)(colon - subject));
    if (role < 0) return PL_ENOMEM;
    free(h->role[role].caption[gender][tone]);
    h->role[role].caption[gender][tone] = strdup(caption);
    return h->role[role].caption[gender][tone] ? PL_OK : PL_ENOMEM;
}

/* Men and women in every tone: then all parts of an excluded combination are trained on. */
static int is_complete(const struct hold_out *h, size_t role)
{
    for (int tone = 0; tone < TONES; tone++)
        if (!h->role[role].caption[MAN][tone] || !h->role[role].caption[WOMAN][tone]) return 0;
    return 1;
}

static void choose(struct hold_out *h, struct pl_buffer *out, const char *caption)
{
    if (!caption) return;
    pl_buffer_add(out, caption, strlen(caption));
    pl_buffer_byte(out, '\n');
    h->chosen++;
}

int hold_out_write(struct hold_out *h, const char *path, struct pl_err *err)
{
    static const char head[] =
        "# Captions that the demo trains without: of every role one man and one woman, of every "
        "third\n"
        "# one person besides, in tones that take turns. Made by `make demo-data`.\n";
    struct pl_buffer out = { 0 };
    size_t turn = 0;
    int rc;
    pl_buffer_add(&out, head, sizeof head - 1);
    for (size_t i = 0; i < h->roles; i++) {
        if (!is_complete(h, i)) continue;
        choose(h, &out, h->role[i].caption[MAN][turn % TONES]);
        choose(h, &out, h->role[i].caption[WOMAN][(turn + 2) % TONES]);
        if (turn % 3 == 0) choose(h, &out, h->role[i].caption[PERSON][(turn + 4) % TONES]);
        turn++;
    }
    rc = out.failed ? pl_fail(err, PL_ENOMEM, "%s: no memory", path)
                    : pl_file_write(path, out.data, out.bytes, err);
    pl_buffer_clear(&out);
    return rc;
}

void hold_out_clear(struct hold_out *h)
{
    for (size_t i = 0; i < h->roles; i++) {
        free(h->role[i].name);
        for (int g = 0; g < GENDERS; g++)
            for (int t = 0; t < TONES; t++) free(h->role[i].caption[g][t]);
    }
    memset(h, 0, sizeof *h);
}
