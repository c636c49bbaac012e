/* rotary.c - rotary position embedding: a position is an angle, and pairs of channels are rotated
 * by it. [RoFormer: Su et al. 2021, 3.4.2, eq. 34] [TTT 3.1]
 *
 *   (u, v) -> (u cos a - v sin a,  v cos a + u sin a)
 *
 * Rotating q by a and k by b leaves their product a function of a - b alone: attention sees
 * distances, not places. A third of the pairs rotate with the text position, a third with the image
 * row, a third with the column; text lies outside of both image axes, images after all text.
 * Angles are rounded in float32 where DALLE-pytorch rounds them. */
#include "rotary.h"

#include <assert.h>
#include <math.h>

#define PI 3.14159265358979323846
#define TEXT_COORDINATE -10.0f /* of text, on both image axes: outside of -1..1 */
#define IMAGE_POSITION 8192.0f /* of image cells, on the text axis: after every text */

/* Channel pairs for each of the three axes. */
static int frequencies(int d) { return d / 3 / 2; }

int pl_rotary_channels(int d) { return 6 * frequencies(d); }

/* n values from a to b, both ends met exactly; a alone if n = 1. Fused, as PyTorch's vector
 * code: with that DALLE-pytorch's table comes out bit for bit. */
static float linspace(float a, float b, int n, int i)
{
    float step = n > 1 ? (b - a) / (float)(n - 1) : 0;
    return i < n / 2 || n == 1 ? fmaf(step, (float)i, a) : fmaf(-step, (float)(n - 1 - i), b);
}

void pl_rotary_angles(float *angle, int P, int F, int d)
{
    int n = frequencies(d), m = d / 3;
    for (int p = 0; p < P + F * F; p++)
        for (int i = 0; i < n; i++) {
            float *row = angle + (size_t)p * 3 * (size_t)n;
            /* the exponent is 2i/m, even where m = 2n+1 */
            float power = (float)pow(10000, (float)(2 * i) / (float)m);
            float text = 1.0f / power, axis = linspace(1, 5, n, i) * (float)PI;
            int is_text = p < P, cell = p - P;
            /* text axis: p / 10000^(2i/m); image axes: -1..1 times pi to 5 pi */
            row[i] = (is_text ? (float)p : IMAGE_POSITION) * text;
            row[n + i] = (is_text ? TEXT_COORDINATE : linspace(-1, 1, F, cell / F)) * axis;
            row[2 * n + i] = (is_text ? TEXT_COORDINATE : linspace(-1, 1, F, cell % F)) * axis;
        }
}

void pl_rotary_tables(float *cosine, float *sine, const float *angle, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cosine[i] = (float)cos(angle[i]);
        sine[i] = (float)sin(angle[i]);
    }
}

int ref_rotary(float *x_, const float *cosine_, const float *sine_, int B, int n, int G, int d,
               int R, int inverse)
{
    if (!R) return PL_OK; /* a head too narrow to rotate; C has no rows of no elements */
    float(*x)[n][G][d] = (float(*)[n][G][d])x_;
    const float(*cosine)[R / 2] = (const float(*)[R / 2]) cosine_;
    const float(*sine)[R / 2] = (const float(*)[R / 2]) sine_;
    assert(R % 2 == 0 && 0 < R && R <= d);
    for (int b = 0; b < B; b++)
        for (int p = 0; p < n; p++)
            for (int g = 0; g < G; g++)
                for (int i = 0; i < R / 2; i++) {
                    double c = cosine[p][i], s = inverse ? -sine[p][i] : sine[p][i];
                    double u = x[b][p][g][2 * i], v = x[b][p][g][2 * i + 1];
                    x[b][p][g][2 * i] = (float)(u * c - v * s);
                    x[b][p][g][2 * i + 1] = (float)(v * c + u * s);
                }
    return PL_OK;
}
