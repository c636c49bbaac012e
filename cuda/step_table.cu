/* step_table.cu - the reference run's quantization rule as a step function: a table of where each
 * code begins, built from the reference's scalar rule, so that codes are equal to the last bit. */
#include "quant.cuh"

#include "device.cuh"

#include <assert.h>

static uint32_t *copies[CUDA_DEVICES_MAX][2];

static void shape(struct cuda_step_table *s, enum pl_map map)
{
    int negative = map == PL_MAP_SIGNED;
    s->shift = negative ? 17 : 16; /* buckets of a 64th, or a 128th, of a power of two */
    s->least = (negative ? 127 - 22 : 127 - 21) << 23; /* the first step is at 2.75e-7, or 5.5e-7 */
    s->magnitude = negative ? INT32_MAX : -1;
    s->flip = negative ? -1 : 0;
    s->zero = (0x3f800000 - s->least) / (1 << s->shift) + 1;
    s->rows = (1 + negative) * s->zero;
    if (!negative) s->zero = 0;
}

/* The code of the quotient that code_run calls `at`. */
static uint8_t code_at(const struct cuda_step_table *s, const float book[PL_CODES], int32_t at)
{
    union {
        float f;
        int32_t i;
    } bits;
    bits.i = (at < 0 ? ~at : at) + s->least;
    if (bits.i > 0x3f800000) bits.i = 0x3f800000;
    return pl_code_run(book, at < 0 ? -bits.f : bits.f);
}

/* The last `at` of low..high-1 whose code is not `code`; high has that code, low does not. */
static int32_t before_step(const struct cuda_step_table *s, const float book[PL_CODES], int32_t low,
                           int32_t high, uint8_t code)
{
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (code_at(s, book, middle) == code) high = middle;
        else low = middle;
    }
    return low;
}

static void build(uint32_t *entry, const struct cuda_step_table *s, const float book[PL_CODES])
{
    for (int i = 0; i < s->rows; i++) {
        int32_t begin = (i - s->zero) * (1 << s->shift), end = begin + (1 << s->shift) - 1;
        uint8_t first = code_at(s, book, begin), last = code_at(s, book, end);
        int32_t before = last == first ? end : before_step(s, book, begin, end, last);
        assert(last == first || last == first + 1);
        entry[i] = (uint32_t)(before - begin) << (32 - s->shift) | first;
    }
}

/* The first float whose code is not 0. */
static float first_above(const float book[PL_CODES])
{
    float low = -1, high = 0;
    for (;;) {
        float middle = low + (high - low) / 2;
        if (middle == low || middle == high) return high;
        if (pl_code_run(book, middle)) high = middle;
        else low = middle;
    }
}

int cuda_step_table_get(struct cuda_step_table *s, enum pl_map map)
{
    uint32_t **copy = &copies[cuda_number()][map], entry[STEP_TABLE_ROWS];
    float book[PL_CODES];
    int rc;
    pl_codebook(book, map, PL_RULE_RUN);
    shape(s, map);
    s->below = map == PL_MAP_SIGNED ? -1 : first_above(book);
    assert(s->rows <= STEP_TABLE_ROWS);
    if (!*copy) {
        uint32_t *made = (uint32_t *)cuda_alloc_uncounted((size_t)s->rows * sizeof *made);
        if (!made) return PL_ENOMEM;
        build(entry, s, book);
        rc = cuda_upload(made, entry, (size_t)s->rows * sizeof *made);
        if (rc != PL_OK) {
            cuda_free(made);
            return rc;
        }
        *copy = made;
    }
    s->entry = *copy;
    return PL_OK;
}
