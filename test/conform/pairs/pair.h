/* pair.h - the pair test: an operation of any backend against the reference's, on the same seeded
 * values. One file per component, pair_<component>.c, exports pair_<component>; pairs.h lists them.
 *
 * The framework checks in every case: 64 guard bytes at both ends of every buffer; that buffers the
 * case does not compare are unchanged; that 1, 2 and 3 threads give the same bits; that alloc's
 * memory is zeroed and aligned to 64 bytes. An operation that the backend left to the reference is
 * not run. */
#ifndef PL_PAIR_H
#define PL_PAIR_H

#include "ref/backend.h"
#include "ref/rng.h"

struct pair {
    const struct pl_backend *side[2]; /* the reference, the backend under test */
    struct pl_rng rng;    /* seeded anew for every component: a filter changes nothing */
    struct pair_run *run; /* private */
};

/* One argument on both sides: at[0] is host memory, at[1] the backend's. */
struct pair_any {
    int id;
    size_t n;
};
struct pair_f32 {
    float *at[2];
    struct pair_any any;
};
struct pair_f64 {
    double *at[2];
    struct pair_any any;
};
struct pair_i32 {
    int32_t *at[2];
    struct pair_any any;
};
struct pair_u8 {
    uint8_t *at[2];
    struct pair_any any;
};

/* Begins a case of operation `op` (its name in PL_OPERATIONS) and closes the one before, whose
 * buffers end here. 0: filtered out, or left to the reference; then go on with the next case. */
__attribute__((format(printf, 3, 4))) int pair_case(struct pair *p, const char *op,
                                                    const char *format, ...);

/* The operation's work, for rates with --bench: floating-point operations, bytes read and written.
 * Give the number that limits it, 0 for the other. */
void pair_work(struct pair *p, double flops, double bytes);
/* The reference would take too long here: only the backend runs, and pair_element compares. */
void pair_large(struct pair *p);
/* Whether large shapes are left out: then a case need not make values for them. */
int pair_quick(const struct pair *p);
/* Whether times are wanted: a case only worth timing asks. */
int pair_bench(const struct pair *p);

/* Buffers of n elements. Values are the same on both sides; pure outputs start as NaN. */
struct pair_f32 pair_normal(struct pair *p, size_t n, double deviation);
struct pair_f32 pair_uniform(struct pair *p, size_t n, double low, double high);
struct pair_f32 pair_values(struct pair *p, const float *values, size_t n);
struct pair_f32 pair_poison(struct pair *p, size_t n);
struct pair_i32 pair_ids(struct pair *p, size_t n, int32_t low, int32_t high); /* both included */
struct pair_i32 pair_i32_values(struct pair *p, const int32_t *values, size_t n);
struct pair_u8 pair_u8_values(struct pair *p, const uint8_t *values, size_t n);
struct pair_u8 pair_u8_poison(struct pair *p, size_t n);
/* Host memory on both sides, for arguments that the contract calls so. */
struct pair_f32 pair_host_f32(struct pair *p, size_t n);
struct pair_f64 pair_host_f64(struct pair *p, size_t n);
struct pair_u8 pair_host_u8(struct pair *p, size_t n);
/* Gives the backend what the case has written to at[0], for inputs that it prepares there. */
void pair_share(struct pair *p, struct pair_any b);
/* The other way: gives the reference what the backend has left at at[1]. */
void pair_take(struct pair *p, struct pair_any b);
/* Uniform in low..high, for shapes. */
int pair_int(struct pair *p, int low, int high);
/* Zeroed memory that lives as long as the case, for bounds and expectations. */
float *pair_scratch(struct pair *p, size_t n);

/* Runs the operation on both sides, side = 0 and 1, as often as the checks need. */
#define PAIR(p, op, ...) \
    for (int side; (side = pair_next(p)) >= 0;) pair_ran(p, (p)->side[side]->op(__VA_ARGS__))
int pair_next(struct pair *p);
void pair_ran(struct pair *p, int status);

/* Comparisons. The bound is argued in the contract, not tried out. */
void pair_exact(struct pair *p, const char *name, struct pair_any b);
/* |got - want| <= factor * scale[i]; scale NULL: factor alone. NaN and infinity only where the
 * reference has the same. For float32 and float64 buffers. */
void pair_within(struct pair *p, const char *name, struct pair_any b, double factor,
                 const float *scale);
/* |got - want| <= factor * max |want| over the buffer. */
void pair_of_largest(struct pair *p, const char *name, struct pair_any b, double factor);
/* One element against an expectation that the case worked out in double. */
void pair_element(struct pair *p, const char *name, struct pair_any b, size_t i, double want,
                  double allowed);
/* For buffers that are too much to compare: whole, at least. */
void pair_finite(struct pair *p, const char *name, struct pair_any b);
/* The buffer's content on the host after the run: the reference's (0) or the backend's (1), which
 * counts as compared. */
const float *pair_result(struct pair *p, struct pair_any b, int side);
/* Its content before the run, the same on both sides. */
const float *pair_before(struct pair *p, struct pair_any b);
/* Anything else: a failure with its sentence. */
__attribute__((format(printf, 3, 4))) void pair_check(struct pair *p, int good, const char *format,
                                                      ...);

typedef void pair_fn(struct pair *p);

/* The result of a case. */
struct pair_outcome {
    const char *op, *line;
    const char *why;        /* NULL: good */
    const char *worst_name; /* the argument that came nearest to its bound, */
    double worst;           /* and its share of that; 0: equal bits */
    /* seconds of the best run; NAN for a side that did not run or was not timed */
    double ref, be, baseline;
    int ref_is_scaled;   /* by work, from a smaller case: the reference would take too long */
    double flops, bytes; /* of one run; the number that limits it, else 0 */
};
/* How an operation fared over all of them. */
struct pair_total {
    const char *op;
    int native;         /* 0: left to the reference */
    long cases, failed; /* native without cases: the filter or --quick left all out */
};

/* All components. Prints a line a case and the closing count; returns the number of operations
 * that failed. */
struct pair_options {
    const char *filter; /* only cases whose line contains it; NULL: all */
    uint64_t seed;
    int quick; /* skips what takes long in an emulation */
    /* times: instead of the checks that need several runs, or after all of them */
    enum pair_timing { PAIR_UNTIMED, PAIR_BENCH, PAIR_CHECK_AND_TIME } timing;
    int threads; /* 0: one a core; 1 counts processor time, which a shared machine disturbs less */
    double at_least; /* bytes, or tenths of operations: cases of less work are not timed */
    const struct pl_backend *baseline; /* also timed, in host memory; or NULL */
    /* Called after each case and, at the end, for each operation; or NULL. quiet: only failures are
     * printed. */
    void (*seen)(void *context, const struct pair_outcome *outcome);
    void (*total)(void *context, const struct pair_total *total);
    void *context;
    int quiet;
};
/* Returns the number of operations that failed, or -1 if the filter leaves no case. */
long pair_all(const struct pl_backend *be, const struct pair_options *options);

#endif
