/* peak.h - this machine's peak rates, measured by small loops. */
#ifndef PL_CMD_PEAK_H
#define PL_CMD_PEAK_H

struct peak {
    double
        float32; /* multiply-adds from registers: operations a second, a multiply-add counts two */
    double bf16; /* the same with bfloat16 pairs; 0: no such instruction */
    double
        memory; /* bytes a second, read and written, of y = x + a z on buffers past every cache */
    const char *vectors; /* "AVX-512", "AVX2", "plain C" */
};

/* All threads at once, about a second. Zeros where there is no memory or thread to measure with. */
struct peak peak_measure(int threads);

#endif
