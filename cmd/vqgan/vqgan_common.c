/* vqgan_common.c - what the parts of `potluck vqgan` share: errors, the codec, the backend. */
#include "vqgan.h"
#include "data/models/vqgan_file.h"

#include <stdio.h>

int vqgan_fail(const struct pl_err *err) { return command_failed("vqgan", "%s", err->text); }

int vqgan_fail_status(const char *what, int rc, const struct pl_backend *be, int64_t batch)
{
    struct pl_err err;
    pl_fail(&err, rc, "%s: %s", what, pl_status_name(rc));
    compute_explain(&err, rc, be, batch, "a smaller --side");
    return vqgan_fail(&err);
}

int vqgan_open(struct pl_vqgan *m, const char *path, const struct pl_backend *be)
{
    struct pl_err err;
    int rc = pl_vqgan_open(m, path, be, 0, &err);
    if (!rc) return 0;
    compute_explain(&err, rc, be, 0, NULL);
    return vqgan_fail(&err);
}

int vqgan_backend(struct pl_backend *be, struct vqgan_options *o)
{
    if (compute_open(be, &o->compute, "vqgan")) return 1;
    fprintf(stderr, "backend %s\n", be->note);
    return 0;
}

int vqgan_side(const struct vqgan_options *o, const struct pl_vqgan_config *c)
{
    int factor = pl_vqgan_factor(c), side = o->side ? (int)o->side : c->resolution;
    return (side + factor - 1) / factor * factor;
}
