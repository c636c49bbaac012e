/* golden_allreduce_recording.h - a recorded all-reduce among hivemind peers: who took part with
 * which weights and shares, what each put in and got out, and every message between them. */
#ifndef PL_GOLDEN_ALLREDUCE_RECORDING_H
#define PL_GOLDEN_ALLREDUCE_RECORDING_H

#include "golden_protocol.h"
#include "net/hivemind/allreduce/allreduce.h"

#define PEERS_MAX 64
#define TENSORS_MAX 256

struct recorded_stream {
    size_t caller, callee;
    const json_t *messages;
};

struct recording {
    struct golden *g;
    size_t peers, tensors, values;
    struct group group;
    size_t member[PEERS_MAX];   /* index in the group of recorded peer k */
    size_t recorded[PEERS_MAX]; /* recorded peer of a member */
    double weight[PEERS_MAX], share[PEERS_MAX];
    float *input[PEERS_MAX], *output[PEERS_MAX]; /* (values) */
    size_t elements[TENSORS_MAX];
    enum pl_compression method[TENSORS_MAX];
    struct recorded_stream *streams;
    size_t stream_count, part_bytes;
};

/* Reads a recording; root is borrowed and must outlive it. 0 after a golden_fail line, or if a part
 * is missing. Clear *r in either case. */
int allreduce_recording_read(struct recording *r, const json_t *root);
void allreduce_recording_clear(struct recording *r);

#endif
