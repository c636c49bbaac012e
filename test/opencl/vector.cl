/* vector.cl - whole buffers, and transposition. */

kernel void fill(ulong n, global float *x, float value)
{
    EACH(i, n);
    x[i] = value;
}

kernel void axpy(ulong n, global float *y, float a, global const float *x)
{
    EACH(i, n);
    y[i] = fma(a, x[i], y[i]);
}

kernel void scale(ulong n, global float *x, float a)
{
    EACH(i, n);
    x[i] = a * x[i];
}

/* Work-item i of n sums every n-th square from i on. */
kernel void squares(ulong n, global double *part, global const float *x, ulong size)
{
    EACH(i, n);
    double s = 0;
    for (ulong k = i; k < size; k += n) s += (double)x[k] * x[k];
    part[i] = s;
}

kernel void transpose(ulong n, global float *y, int y_step, global const float *x, int x_step, int R, int C)
{
    EACH(i, n);
    ulong r = i % R, c = i / R % C, b = i / R / C;
    y[(b * C + c) * y_step + r] = x[(b * R + r) * x_step + c];
}
