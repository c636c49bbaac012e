/* tensor_core.cpp - matrix products of a warp, fragment by fragment as the PTX ISA defines them
 * ("Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix"). The indices are
 * written from that text, not from cuda/tensor_core.cuh. */
#include "cuda_runtime.h"

static uint32_t rounded(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* cvt.rn.bf16x2.f32: the instruction's first operand becomes the upper half. */
uint32_t emu_word(float low, float high) { return rounded(high) << 16 | rounded(low); }

static float half_of(uint32_t word, int i)
{
    uint32_t u = i % 2 ? word & 0xffff0000u : word << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void old_code(const char *what)
{
    struct cudaFuncAttributes code;
    emu_attributes(&code);
    if (code.ptxVersion < 80) emu_fail("%s in code for sm_%d", what, code.ptxVersion);
}

struct fragments {
    float *d;
    uint32_t a[4], b[2];
};

/* Sums in double; a device's are in float32, in an order of its own. */
static void multiply(void *const lanes[32])
{
    float A[16][16], B[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const struct fragments *f = (const struct fragments *)lanes[lane];
        int group = lane >> 2, thread = lane % 4;
        for (int i = 0; i < 8; i++) {
            int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
            int column = thread * 2 + (i & 1) + (i < 4 ? 0 : 8);
            A[row][column] = half_of(f->a[i / 2], i);
        }
        for (int i = 0; i < 4; i++)
            B[thread * 2 + (i & 1) + (i < 2 ? 0 : 8)][group] = half_of(f->b[i / 2], i);
    }
    for (int lane = 0; lane < 32; lane++) {
        const struct fragments *f = (const struct fragments *)lanes[lane];
        for (int i = 0; i < 4; i++) {
            int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
            double sum = (double)f->d[i];
            for (int k = 0; k < 16; k++) sum += (double)A[row][k] * (double)B[k][column];
            f->d[i] = (float)sum;
        }
    }
}

void emu_multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    struct fragments mine = { d, { a[0], a[1], a[2], a[3] }, { b0, b1 } };
    old_code("mma.sync");
    emu_warp_together(&mine, multiply);
}

/* Lane 8 m + r passes the address of row r of matrix m. Each lane receives the words of its
 * position in the matrix: 8 rows of 4 words, or, transposed, 8 columns. */
void emu_load_matrices(uint32_t r[4], emu_shared<uint32_t> words, int at, int transposed)
{
    const uint64_t *row = emu_warp_exchange(~0u, (uint64_t)at);
    unsigned lane = emu_lane();
    old_code("ldmatrix");
    if (at % 4)
        emu_fail("ldmatrix: word %d of %s is at no multiple of 16 bytes", at, words.a->name);
    for (unsigned m = 0; m < 4; m++)
        if (!transposed) {
            r[m] = words[row[8 * m + lane / 4] + lane % 4];
        } else {
            unsigned column = lane / 4, above = 8 * m + lane % 4 * 2;
            uint32_t first = words[row[above] + column / 2];
            uint32_t second = words[row[above + 1] + column / 2];
            r[m] = column % 2 ? first >> 16 | (second & 0xffff0000u)
                              : (first & 0xffffu) | second << 16;
        }
}
