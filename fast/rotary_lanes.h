/* rotary_lanes.h - one token's vectors turned by the same angles. */

#define swap_pairs ISA(swap_pairs)
#define turn_vectors ISA(turn_vectors)

LANE vec swap_pairs(vec x)
{
#if LANES == 16
    return (vec)_mm512_permute_ps((__m512)x, 0xB1);
#elif LANES == 8
    return (vec)_mm256_permute_ps((__m256)x, 0xB1);
#else
    return (vec){ x[1], x[0], x[3], x[2] };
#endif
}

/* R channels from x on, of G vectors d floats apart, of which `room` >= R may be read and written;
 * c, s (R, rounded up): cosine and sine of each channel's pair, the sine with its sign. */
static void turn_vectors(float *x, const float *c, const float *s, int G, int d, int R, int room)
{
    int whole = R / LANES * LANES, rest = R - whole;
    vec last_c = load(c + whole), last_s = load(s + whole);
    ivec turns;
    for (int i = 0; i < LANES; i++) turns[i] = i < rest ? -1 : 0;
    for (int g = 0; g < G; g++, x += d) {
        for (int i = 0; i < whole; i += LANES) {
            vec u = load(x + i);
            store(x + i, fma(u, load(c + i), swap_pairs(u) * load(s + i)));
        }
        if (!rest) continue;
        if (whole + LANES <= room) { /* the channels behind R go through the register as they are */
            vec u = load(x + whole);
            vec v = fma(u, last_c, swap_pairs(u) * last_s);
            store(x + whole, (vec)((ivec)keep(turns, v) | (ivec)keep(~turns, u)));
        } else {
            vec u = load_part(x + whole, rest);
            store_part(x + whole, fma(u, last_c, swap_pairs(u) * last_s), rest);
        }
    }
}

static const struct rotary_ops ISA(ops) = { turn_vectors };
