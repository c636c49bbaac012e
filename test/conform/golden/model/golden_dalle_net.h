/* golden_dalle_net.h - a whole network out of a golden file: its sizes from the metadata, its
 * parameters and angles from the tensors. */
#ifndef PL_GOLDEN_DALLE_NET_H
#define PL_GOLDEN_DALLE_NET_H

#include "data/models/dalle_names.h"
#include "runtime/workspace.h"
#include "runtime/dalle_run.h"
#include "golden_dalle.h"

struct net {
    struct golden *g;
    const struct st_file *f;
    json_t *json; /* the configuration as the file has it */
    struct pl_dalle_config config;
    struct pl_dalle *m;
    int B; /* sequences in the file */
    int S;
};

/* 0 after a line that says what is wrong. */
int net_open(struct net *net, struct golden *g, const struct st_file *f);
void net_close(struct net *net);

/* A status of an operation: 1 if good, else 0 after a line. */
int net_did(struct net *net, const char *what, int status, const struct pl_err *err);
/* A tensor of n elements, or NULL after a line; free with pl_free. */
float *net_floats(struct net *net, const char *tensor, size_t n);
int32_t *net_ints(struct net *net, const char *tensor, size_t n);

/* Sets all gradients to zero. */
int net_zero_grad(struct net *net);
/* A line for each tensor `prefix`NAME against the value (gradient with grad 1) of parameter NAME;
 * or one line named `worst` for all of them. Every parameter must have a tensor. */
void net_params(struct net *net, const char *prefix, int grad, const char *worst, double allowed);

/* Parameter gradients: rounding grows with depth, most of all where the stack is rebuilt from its
 * output. The README has a tolerance for 9 blocks and one for 64; between them we go
 * geometrically. */
double net_grad_tolerance(const struct net *net, double ref, double fast);

void net_stack(struct net *net);                       /* reversible_* */
void net_model(struct net *net);                       /* model_* */
void net_train(struct net *net);                       /* train_* */
void net_generate(struct net *net);                    /* generate* */
void net_facts(struct golden *g, const json_t *facts); /* run_facts.json */

#endif
