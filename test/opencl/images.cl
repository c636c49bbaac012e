/* images.cl - convolution by its definition, one output per work-item; group norm; vector
 * quantization. */

struct conv {
    int C, H, W, O, K, stride, top, left, H_out, W_out;
};

kernel void conv(ulong n, global float *y, global const float *x, global const float *w, global const float *b,
                 int has_b, struct conv c)
{
    EACH(i, n);
    int col = i % c.W_out, row = i / c.W_out % c.H_out, o = i / c.W_out / c.H_out % c.O;
    ulong image = i / c.W_out / c.H_out / c.O;
    double sum = has_b ? b[o] : 0;
    for (int ch = 0; ch < c.C; ch++)
    for (int ky = 0; ky < c.K; ky++)
    for (int kx = 0; kx < c.K; kx++) {
        int r = row * c.stride - c.top + ky, s = col * c.stride - c.left + kx;
        if (r < 0 || r >= c.H || s < 0 || s >= c.W) continue;
        sum += (double)w[(((ulong)o * c.C + ch) * c.K + ky) * c.K + kx] * x[((image * c.C + ch) * c.H + r) * c.W + s];
    }
    y[i] = (float)sum;
}

kernel void conv_dx(ulong n, global float *dx, global const float *dy, global const float *w, struct conv c)
{
    EACH(i, n);
    int col = i % c.W, row = i / c.W % c.H, ch = i / c.W / c.H % c.C;
    ulong image = i / c.W / c.H / c.C;
    double sum = 0;
    for (int o = 0; o < c.O; o++)
    for (int ky = 0; ky < c.K; ky++)
    for (int kx = 0; kx < c.K; kx++) {
        int down = row + c.top - ky, across = col + c.left - kx, r = down / c.stride, s = across / c.stride;
        if (down < 0 || across < 0 || r * c.stride != down || s * c.stride != across || r >= c.H_out || s >= c.W_out)
            continue;
        sum += (double)w[(((ulong)o * c.C + ch) * c.K + ky) * c.K + kx] *
               dy[((image * c.O + o) * c.H_out + r) * c.W_out + s];
    }
    dx[i] = (float)sum;
}

kernel void conv_dw(ulong n, global float *dw, global const float *dy, global const float *x, struct conv c, int B)
{
    EACH(i, n);
    int kx = i % c.K, ky = i / c.K % c.K, ch = i / c.K / c.K % c.C, o = i / c.K / c.K / c.C;
    double sum = dw[i];
    for (ulong image = 0; image < B; image++)
    for (int row = 0; row < c.H_out; row++)
    for (int col = 0; col < c.W_out; col++) {
        int r = row * c.stride - c.top + ky, s = col * c.stride - c.left + kx;
        if (r < 0 || r >= c.H || s < 0 || s >= c.W) continue;
        sum += (double)dy[((image * c.O + o) * c.H_out + row) * c.W_out + col] *
               x[((image * c.C + ch) * c.H + r) * c.W + s];
    }
    dw[i] = (float)sum;
}

/* sum[c] += all positions of channel c in every image of x (B,n,P) */
kernel void channel_sums(ulong n, global float *sum, global const float *x, int B, int P)
{
    EACH(c, n);
    double s = sum[c];
    for (ulong b = 0; b < B; b++)
        for (ulong p = 0; p < P; p++) s += x[(b * n + c) * P + p];
    sum[c] = (float)s;
}

kernel void upsample_positions(ulong n, global float *y, global const float *x, int H, int W)
{
    EACH(i, n);
    y[i] = x[(i / (2 * W) / (2 * H) * H + i / (2 * W) % (2 * H) / 2) * W + i % (2 * W) / 2];
}

kernel void upsample_backward(ulong n, global float *dx, global const float *dy, int H, int W)
{
    EACH(i, n);
    global const float *from = dy + (i / W / H * 2 * H + i / W % H * 2) * 2 * W + i % W * 2;
    dx[i] = from[0] + from[1] + from[2 * W] + from[2 * W + 1];
}

/* n = B * G groups of `channels` * P values; G groups per image. */
kernel void group_norm(ulong n, global float *y, global const float *x, global const float *weight,
                       global const float *bias, int channels, int P, int G, float eps)
{
    EACH(group, n);
    ulong per = (ulong)channels * P;
    double2 s = statistics(x + group * per, per, eps);
    for (ulong i = group * per, k = 0; k < per; i++, k++) {
        ulong c = group % G * channels + k / P;
        y[i] = (float)((x[i] - s.x) * s.y * weight[c] + bias[c]);
    }
}

kernel void group_statistics(ulong n, global double2 *s, global const float *x, ulong per, float eps)
{
    EACH(group, n);
    s[group] = statistics(x + group * per, per, eps);
}

kernel void group_norm_param_grads(ulong n, global float *dweight, global float *dbias, global const float *dy,
                             global const float *x, global const double2 *s, int B, int channels, int P, int G)
{
    EACH(c, n);
    double g = dweight[c], o = dbias[c];
    for (ulong b = 0; b < B; b++) {
        double2 of = s[b * G + c / channels];
        for (ulong i = (b * n + c) * P, p = 0; p < P; p++, i++) {
            g += dy[i] * (x[i] - of.x) * of.y;
            o += dy[i];
        }
    }
    dweight[c] = (float)g;
    dbias[c] = (float)o;
}

kernel void group_norm_dx(ulong n, global float *dx, global const float *dy, global const float *x,
                          global const float *weight, global const double2 *s, int channels, int P, int G)
{
    EACH(group, n);
    ulong per = (ulong)channels * P, first = group % G * channels;
    double sum = 0, sum_h = 0, mean = s[group].x, scale = s[group].y;
    for (ulong i = group * per, k = 0; k < per; i++, k++) {
        double g = (double)dy[i] * weight[first + k / P];
        sum += g;
        sum_h += g * (x[i] - mean) * scale;
    }
    for (ulong i = group * per, k = 0; k < per; i++, k++) {
        double g = (double)dy[i] * weight[first + k / P], h = (x[i] - mean) * scale;
        dx[i] = (float)(scale * (g - sum / per - h * sum_h / per));
    }
}

/* ---- codes: one work-item per position; maps are (B,D,P) ---- */

kernel void nearest_code(ulong n, global int *code, global const float *z, global const float *table, int D, int P,
                         int N)
{
    EACH(i, n);
    ulong at = i / P * D * P + i % P;
    double best = INFINITY;
    for (int k = 0; k < N; k++) {
        double distance = 0;
        for (int c = 0; c < D; c++) {
            double difference = (double)z[at + (ulong)c * P] - table[(ulong)k * D + c];
            distance += difference * difference;
        }
        if (distance < best) best = distance, code[i] = k;
    }
}

kernel void code_rows(ulong n, global float *z, global const float *table, global const int *code, int D, int P)
{
    EACH(i, n);
    z[i] = table[(ulong)code[i / P / D * P + i % P] * D + i / P % D];
}

kernel void code_rows_backward(ulong n, global float *dtable, global const float *dz, float scale,
                               global const int *code, int B, int P)
{
    EACH(c, n); /* of n channels */
    for (ulong b = 0; b < B; b++)
        for (ulong p = 0; p < P; p++)
            dtable[code[b * P + p] * n + c] = fma(scale, dz[(b * n + c) * P + p], dtable[code[b * P + p] * n + c]);
}

kernel void gumbel_code(ulong n, global int *code, global const float *logits, global const float *noise,
                        int has_noise, int N, int P)
{
    EACH(i, n);
    ulong at = i / P * N * P + i % P;
    float best = 0;
    int which = 0;
    for (int k = 0; k < N; k++, at += P) {
        float v = has_noise ? logits[at] + noise[at] : logits[at];
        if (k == 0 || v > best) best = v, which = k;
    }
    code[i] = which;
}

/* The largest of a position's N values, and the log of the sum of exp((v - max) / temperature). */
double2 denominator(global const float *logits, global const float *noise, int has_noise, double temperature, int N,
                    int P)
{
    double largest = -INFINITY, sum = 0;
    for (ulong k = 0; k < N; k++) {
        float v = has_noise ? logits[k * P] + noise[k * P] : logits[k * P];
        largest = fmax(largest, (double)v);
    }
    for (ulong k = 0; k < N; k++) {
        float v = has_noise ? logits[k * P] + noise[k * P] : logits[k * P];
        sum += exp((v - largest) / temperature);
    }
    return (double2)(largest, log(sum));
}

kernel void gumbel_soft(ulong n, global float *y, global const float *logits, global const float *noise,
                        int has_noise, float temperature, int N, int P)
{
    EACH(i, n);
    ulong at = i / P * N * P + i % P;
    double2 s = denominator(logits + at, noise + at, has_noise, temperature, N, P);
    for (int k = 0; k < N; k++, at += P) {
        float v = has_noise ? logits[at] + noise[at] : logits[at];
        y[at] = (float)exp((v - s.x) / temperature - s.y);
    }
}

kernel void kl_uniform(ulong n, global double *kl, global const float *logits, int N, int P)
{
    EACH(i, n);
    ulong at = i / P * N * P + i % P;
    double2 s = denominator(logits + at, logits, 0, 1, N, P);
    double sum = 0;
    for (int k = 0; k < N; k++, at += P) {
        double q = exp(logits[at] - s.x - s.y);
        sum += q * log(q * N + 1e-10);
    }
    kl[i] = sum;
}

/* With r = log(qN + 1e-10) + qN / (qN + 1e-10):  d kl / d logits = q (r - sum q r) / n. */
kernel void gumbel_backward(ulong n, global float *dlogits, global const float *a, global const float *y,
                            global const float *logits, float temperature, float kl_weight, int N, int P)
{
    EACH(i, n);
    ulong first = i / P * N * P + i % P, at = first;
    double2 s = denominator(logits + at, logits, 0, 1, N, P);
    double ay = 0, qr = 0;
    for (int k = 0; k < N; k++, at += P) {
        double q = exp(logits[at] - s.x - s.y), qN = q * N;
        ay += (double)a[at] * y[at];
        qr += q * (log(qN + 1e-10) + qN / (qN + 1e-10));
    }
    at = first;
    for (int k = 0; k < N; k++, at += P) {
        double q = exp(logits[at] - s.x - s.y), qN = q * N, r = log(qN + 1e-10) + qN / (qN + 1e-10);
        dlogits[at] = (float)(y[at] * (a[at] - ay) / temperature + kl_weight * q * (r - qr) / n);
    }
}

/* Work-item i of n takes every n-th element; its two sums are n apart. */
kernel void pixel_loss(ulong n, global double *part, global float *dy, int has_dy, global const float *y,
                       global const float *x, float l1, float l2, ulong size)
{
    EACH(i, n);
    double absolute = 0, squares = 0;
    for (ulong k = i; k < size; k += n) {
        double d = (double)y[k] - x[k];
        absolute += fabs(d);
        squares += d * d;
        if (has_dy) dy[k] = (float)(((d > 0) - (d < 0)) * (double)l1 / size + 2 * l2 * d / size);
    }
    part[i] = absolute;
    part[n + i] = squares;
}
