/* train_rounds.c - see train_rounds.h. */
#include "train_rounds.h"
#include "net/bytes.h"
#include "net/hivemind/optimizer/optimizer_trainer.h"
#include "net/hivemind/powersgd/factors.h"

#include <stdlib.h>

static void drop(struct train_rounds *r)
{
    free(r->data);
    r->data = NULL;
    r->n = 0;
}

int train_rounds_rank(const struct train_rounds *r)
{
    return r->data ? factors_saved_rank(r->data, r->n) : 0;
}

int train_rounds_load(struct train_rounds *r, struct pl_collaborative *c, int64_t epoch,
                      struct pl_err *err)
{
    const int64_t behind = pl_collaborative_epoch(c) - epoch;
    int rc = PL_OK;
    if (r->data) rc = collaborative_load_factors(c, r->data, r->n, behind, err);
    /* Behind the others, of another rank than theirs: as a newcomer, without an error. */
    if (rc == PL_EUSE && behind) rc = PL_OK;
    drop(r);
    r->from = c;
    return rc;
}

void train_rounds_save(struct train_rounds *r)
{
    struct bytes out = { 0 };
    if (!r->from) return;
    drop(r);
    if (collaborative_save_factors(r->from, &out)) return;
    r->data = out.data;
    r->n = out.end;
}

void train_rounds_saved(struct train_rounds *r)
{
    if (r->from) drop(r);
}

void train_rounds_end(struct train_rounds *r)
{
    train_rounds_save(r);
    r->from = NULL;
}
