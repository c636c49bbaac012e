/* loss.cl - cross-entropy: rows of logits become their own gradients. */

kernel void softmax_rows(ulong rows, global float *z, global float *logp, int has_logp, global double *row_loss,
                         global const int *label, float scale, int columns, int col0)
{
    EACH(r, rows);
    int id = label[r] < 0 ? -1 : label[r] - col0;
    global float *x = z + r * columns;
    double sum = 0, inverse;
    float most = -INFINITY, lp = 0;
    for (int j = 0; j < columns; j++) most = fmax(most, x[j]);
    for (int j = 0; j < columns; j++) sum += exp((double)(x[j] - most));
    if (id >= 0) lp = (float)(x[id] - most - log(sum));
    inverse = id < 0 ? 0 : scale / sum;
    for (int j = 0; j < columns; j++)
        x[j] = (float)(inverse * exp((double)(x[j] - most)) - (j == id ? scale : 0));
    if (has_logp) logp[r] = lp;
    row_loss[r] = -(double)lp;
}
