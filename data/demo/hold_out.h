/* hold_out.h - chooses the demo's held-out captions: combinations of a role, a gender and a skin
 * tone. Each part, and each two of the three, occur in other pictures that are trained on. Drawing
 * the combination then means composing concepts learnt separately: a small version of the paper's
 * "concepts not present in the training set". [TTT 3.4] */
#ifndef PL_HOLD_OUT_H
#define PL_HOLD_OUT_H

#include "../../ref/base.h"

enum { GENDERS = 3, TONES = 5, ROLES_MAX = 512 };

struct hold_out {
    struct {
        char *name;
        char *caption[GENDERS][TONES];
    } role[ROLES_MAX];
    size_t roles, chosen;
};

/* Parses a caption such as "woman farmer: medium-dark skin tone"; ignores others. PL_OK, PL_ENOMEM
 * or PL_ELIMIT. */
int hold_out_see(struct hold_out *h, const char *caption);
/* Chooses the held-out captions and writes them to `path`, one per line. */
int hold_out_write(struct hold_out *h, const char *path, struct pl_err *err);
void hold_out_clear(struct hold_out *h);

#endif
