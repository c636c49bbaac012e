/* golden_optim_rules.c - rules around the optimizers: from how many elements on a tensor's state is
 * stored in 8 bits, and the learning-rate schedule. */
#include "golden_optim.h"
#include "runtime/optimizer.h"
#include "ref/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void golden_optim_thresholds(struct golden *g, const char *stem)
{
    char file[300];
    json_t *root, *row;
    size_t i;
    snprintf(file, sizeof file, "%s.json", stem);
    root = golden_json(g, file);
    json_array_foreach(json_object_get(root, "rows"), i, row)
    {
        struct pl_optimizer_tensor t = { .n = (size_t)golden_int(g, row, "numel") };
        struct pl_optimizer_options options = pl_lamb_options();
        const char *state = json_string_value(json_object_get(row, "state"));
        long blocks = golden_int(g, row, "blocks");
        struct pl_optimizer_state first;
        struct pl_optimizer *o;
        char what[60];
        int good;
        options.min_8bit = (size_t)golden_int(g, row, "min_8bit_size");
        snprintf(what, sizeof what, "%zu elements, 8 bit from %zu", t.n, options.min_8bit);
        if (pl_optimizer_open(&o, g->be, &options, &t, 1, NULL)) {
            golden_fail(g, what, "cannot be opened");
            continue;
        }
        first = pl_optimizer_state_at(o, 0);
        if (state && !strcmp(state, "uint8"))
            good = !strcmp(first.name, "absmax1") && first.n == (size_t)blocks;
        else good = state && !strcmp(state, "float32") && !strcmp(first.name, "state1") && !blocks;
        golden_check(g, what, good, "expected %s and %ld blocks", state ? state : "a state",
                     blocks);
        pl_optimizer_close(o);
    }
    json_decref(root);
}

void golden_optim_schedule(struct golden *g, const char *path)
{
    struct st_file *f;
    json_t *config;
    const struct st_tensor *lr;
    size_t n = 0;
    int32_t *step;
    if (!(f = golden_open(g, path))) return;
    config = golden_meta(g, f, "config");
    step = golden_ints(g, f, "step", &n);
    lr = pl_safetensors_find(f, "lr");
    if (config && step && lr && lr->dtype == PL_F64 && lr->n == n) {
        double peak = golden_real(g, config, "peak"), worst = 0;
        long warmup = golden_int(g, config, "warmup"), total = golden_int(g, config, "total");
        for (size_t i = 0; i < n; i++) {
            double want,
                got = pl_schedule_linear(peak, (uint64_t)warmup, (uint64_t)total,
                                         (uint64_t)step[i]),
                error;
            memcpy(&want, (const char *)lr->data + i * sizeof want, sizeof want);
            error = got == want ? 0 : fabs(got - want) / want;
            if (!(error <= worst)) worst = error;
        }
        golden_case(g, "lr", worst, 1e-15);
    } else golden_fail(g, "lr", "expected as many F64 as there are steps");
    pl_free(step);
    json_decref(config);
    pl_safetensors_close(f);
}
