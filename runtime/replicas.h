/* replicas.h - one model trained on several devices: each has a copy of the parameters and takes
 * its share of every batch; gradients are summed on the devices, each of which sums a slice of
 * all. */
#ifndef PL_REPLICAS_H
#define PL_REPLICAS_H

#include "dalle_run.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_replicas;

/* `first` is the model on the devices' first and is borrowed; the others' copies are made here, for
 * devices 1 .. count-1 of what pl_set_devices chose. */
int pl_replicas_open(struct pl_replicas **r, struct pl_dalle *first, int count, struct pl_err *err);
void pl_replicas_close(struct pl_replicas *r);

/* As pl_dalle_step of the first model, but for where the gradients are: each device's holds a part
 * until pl_replicas_sum. The first model's parameters are everybody's. A batch that the devices
 * don't divide gives some a sample more; one smaller than their number leaves some idle. */
int pl_replicas_step(struct pl_replicas *r, const int32_t *text, const int32_t *codes, int B,
                     double scale, struct pl_dalle_loss *loss, struct pl_err *err);
/* All gradients into the first model's; the others' are zero then. The order of the sum depends on
 * the number of devices alone. */
int pl_replicas_sum(struct pl_replicas *r);
/* All but the first model's gradients are forgotten. */
int pl_replicas_drop(struct pl_replicas *r);

#ifdef __cplusplus
}
#endif
#endif
