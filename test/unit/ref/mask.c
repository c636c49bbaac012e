/* mask.c - allowed pairs against sets built another way: for every query its keys are marked, cell
 * by cell, instead of deciding each pair. */
#include "ref/mask.h"
#include "test/unit/unit.h"

#define SIDE 7 /* largest grid */
#define TEXT 6
#define MOST (TEXT + SIDE * SIDE)

static uint8_t painted[MOST][MOST];

/* Cell (r,c) of the grid as a key of q, if there is such a cell, at or before q. */
static void key(const struct pl_mask *m, int q, int r, int c)
{
    int k = m->P + r * m->F + c;
    if (r >= 0 && r < m->F && c >= 0 && c < m->F && k <= q) painted[q][k] = 1;
}

static void paint(const struct pl_mask *m, int n)
{
    int e = m->dilation, K = m->kernel, F = m->F;
    memset(painted, m->kind == PL_MASK_NONE, sizeof painted);
    for (int q = 0; q < n; q++) {
        int r = (q - m->P) / (F ? F : 1), c = (q - m->P) % (F ? F : 1);
        for (int k = 0; k < m->P && k <= q; k++) painted[q][k] = 1;
        if (q < m->P) continue;
        switch (m->kind) {
        case PL_MASK_FULL:
            for (int k = m->P; k <= q; k++) painted[q][k] = 1;
            break;
        case PL_MASK_ROW:
            for (int j = 0; j < F; j++) key(m, q, r, j);
            break;
        case PL_MASK_COL:
            for (int i = 0; i < F; i++) key(m, q, i, c);
            break;
        case PL_MASK_CONV:
            for (int i = -(K / 2); i <= K / 2; i++)
                for (int j = -(K / 2); j <= K / 2; j++) key(m, q, r + i * e, c + j * e);
            break;
        case PL_MASK_CONV_CORNER:
            for (int i = 0; i < K; i++)
                for (int j = 0; j < K; j++) key(m, q, r - i * e, c - j * e);
            break;
        case PL_MASK_NONE: break;
        }
    }
}

static void compare(const char *name, const struct pl_mask *m, int n)
{
    static uint8_t bits[MOST * ((MOST + 7) / 8) + 1];
    int row_bytes = (n + 7) / 8, end = n * row_bytes;
    uint64_t count = 0;
    bits[end] = 0xa5; /* must stay */
    paint(m, n);
    pl_mask_bits(bits, m, n);
    assert_int_equal(bits[end], 0xa5);
    for (int q = 0; q < n; q++)
        for (int k = 0; k < 8 * row_bytes; k++) {
            int bit = bits[q * row_bytes + k / 8] >> (7 - k % 8) & 1,
                want = k < n ? painted[q][k] : 0;
            if (bit != want || (k < n && pl_mask_allowed(m, q, k) != want))
                fail_msg("%s P%d F%d n%d: query %d, key %d", name, m->P, m->F, n, q, k);
            count += (uint64_t)want;
        }
    assert_int_equal(pl_mask_count(m, n), count);
}

static void every_kind_and_size(void **state)
{
    static const char *const names[] = {
        "full",   "axial_row",  "axial_col",   "conv_like",  "conv1",        "conv3",
        "conv5",  "conv7",      "conv11",      "conv3d2",    "conv3d3",      "conv5d2",
        "conv99", "conv1_v166", "conv3@1.6.6", "conv5_v166", "conv3d2_v166", "conv5d3@1.6.6",
    };
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        struct pl_mask m = { .kind = PL_MASK_NONE };
        assert_int_equal(pl_mask_parse(&m, names[i], NULL), PL_OK);
        for (m.P = 1; m.P <= TEXT; m.P++)
            for (m.F = 1; m.F <= SIDE; m.F++) {
                int all = m.P + m.F * m.F;
                for (int n = 1; n <= all; n += n < all - 2 && n > 3 ? 3 : 1)
                    compare(names[i], &m, n);
            }
    }
}

static void text_only_and_none(void **state)
{
    struct pl_mask causal = { .kind = PL_MASK_FULL, .P = MOST }, none = { .kind = PL_MASK_NONE };
    for (int n = 1; n <= MOST; n++) {
        compare("causal text", &causal, n);
        compare("none", &none, n);
    }
    assert_int_equal(pl_mask_count(&causal, MOST), MOST * (MOST + 1) / 2);
}

/* The counts that the specification states for the run's size. */
static void the_run(void **state)
{
    static const struct {
        const char *name;
        uint64_t pairs;
    } want[] = {
        { "full", 819840 },  { "axial_row", 312928 },   { "axial_col", 312928 },
        { "conv5", 308425 }, { "conv5@1.6.6", 318539 },
    };
    for (size_t i = 0; i < PL_COUNT(want); i++) {
        struct pl_mask m = { .P = 257, .F = 32 };
        assert_int_equal(pl_mask_parse(&m, want[i].name, NULL), PL_OK);
        assert_int_equal(pl_mask_count(&m, 1280), want[i].pairs);
    }
}

static void parsing(void **state)
{
    static const char *const bad[] = {
        "",          "ful",       "full ",       "Full",       "axial",       "axial_rows",
        "conv",      "convx",     "conv4",       "conv0",      "conv-3",      "conv5d",
        "conv5d0",   "conv5x",    "conv5@1.6.7", "conv5_v16",  "conv5_v1666", "conv5@1.6.6x",
        "conv99999", "conv10001", "conv5d99999", "conv_like5", "conv5d2d2",   "none",
    };
    struct pl_mask m = { .P = 7, .F = 3 };
    assert_int_equal(pl_mask_parse(&m, "conv3d2@1.6.6", NULL), PL_OK);
    assert_int_equal(m.kind, PL_MASK_CONV_CORNER);
    assert_int_equal(m.kernel, 3);
    assert_int_equal(m.dilation, 2);
    assert_int_equal(m.P, 7);
    assert_int_equal(m.F, 3);
    assert_int_equal(pl_mask_parse(&m, "conv_like", NULL), PL_OK);
    assert_int_equal(m.kind, PL_MASK_CONV);
    assert_int_equal(m.kernel, 5);
    assert_int_equal(m.dilation, 1);
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        struct pl_err err = { "" };
        if (pl_mask_parse(&m, bad[i], &err) != PL_EUSE || !strstr(err.text, bad[i]))
            fail_msg("\"%s\" was taken, or refused without its name: %s", bad[i], err.text);
        assert_int_equal(pl_mask_parse(&m, bad[i], NULL), PL_EUSE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_and_size),
        cmocka_unit_test(text_only_and_none),
        cmocka_unit_test(the_run),
        cmocka_unit_test(parsing),
    };
    return cmocka_run_group_tests_name("mask", tests, NULL, NULL);
}
