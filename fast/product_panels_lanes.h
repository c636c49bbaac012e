/* product_panels_lanes.h - large products; see product.c.
 *
 * A tile of the result, ROWS x COLS, stays in registers: its sums, 2 registers of B and one number
 * of A at a time. B is packed into panels of COLS columns, [k][COLS], a slab of k at a time, so a
 * panel stays in the near caches while rows of A pass. A is read where it lies, its next rows
 * fetched meanwhile, unless it is stored transposed or its lines get in each other's way: then
 * BLOCK rows at a time are packed as [k][ROWS]. Bias or older values join a tile when it is stored,
 * so there is no pass over the result before or after. Beside few rows packing is a large part, and
 * most of it is waiting for memory: then B goes panel by panel, and a tile's loop fetches the next
 * panel's lines.
 *
 * Each element is summed over k in one order, by the sizes alone. */

#if LANES > 4 /* on plain C OpenBLAS is better */
#undef ROWS
#undef SLAB
#undef WIDE
#undef BLOCK
#undef SIZE_CASES
#if LANES == 16
#define ROWS 12  /* 24 sums of 32 registers */
#define SLAB 512 /* of k: a panel of B is 64 KiB, and the second cache feeds a tile easily */
#define WIDE 512 /* columns of B that are packed at a time: 1 MiB */
#define BLOCK 12 /* rows of A that go through all panels together: 24 KiB */
#define SIZE_CASES CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#else
#define ROWS 6   /* 12 sums of 16 registers */
#define SLAB 256 /* a panel is 16 KiB, half of the first cache */
#define WIDE 256 /* 256 KiB */
#define BLOCK 24 /* 24 KiB */
#define SIZE_CASES
#endif
#define COLS (2 * LANES)
#define GROUP 64 /* columns of B that are packed together where its lines are long */
#define SHORT_ROWS 128 /* of A: of more, packing B is a small part */
#define FETCHED 32     /* lines of 64 bytes of a row of B, one a step of k */
#define PITCH (ROWS * SLAB + 16) /* between packed tiles; a register carries LANES - ROWS over */
/* Lines a multiple of so many floats apart, 2 KiB, meet in one or two sets of the first cache,
 * which then does not hold a tile's rows: these are packed too. */
#define CONFLICT 512

#define direct_tiles ISA(direct_tiles)
#define fetching_tiles ISA(fetching_tiles)
#define one_tile ISA(one_tile)
#define pack_lying_rows ISA(pack_lying_rows)
#define pack_lines ISA(pack_lines)
#define pack_rows ISA(pack_rows)
#define pack_turned ISA(pack_turned)
#define packed_tiles ISA(packed_tiles)
#define panel_product ISA(panel_product)
#define panel_scratch ISA(panel_scratch)
#define short_slab ISA(short_slab)
#define slab_product ISA(slab_product)
#define take_rows ISA(take_rows)
#define tile ISA(tile)
#define tiles ISA(tiles)

/* `rows` of the result, against one panel: c = from + products. from_ld 0: every row begins
 * alike. */
LANE void tile(int rows, int packed, int fetch, float *c, size_t ldc, const float *from,
               size_t from_ld, const float *a, size_t row, const float *b, int k,
               const struct ahead *ahead)
{
    vec sum[ROWS][2];
    const float *third[ROWS / 3]; /* a pointer reaches three rows by scaled offsets */
    _Pragma("GCC unroll 4")
    for (int i = 0; i < ROWS / 3; i++) third[i] = a + 3 * (size_t)i * (packed ? 1 : row);
    _Pragma("GCC unroll 12")
    for (int r = 0; r < rows; r++) {
        sum[r][0] = sum[r][1] = all(0);
        __builtin_prefetch(c + (size_t)r * ldc, 1); /* wanted behind the loop */
        __builtin_prefetch(c + (size_t)r * ldc + COLS - 1, 1);
    }
    for (int i = 0; i < k; i++, b += COLS) {
        vec b0 = load(b), b1 = load(b + LANES);
        if (fetch)
            __builtin_prefetch(ahead->b + (size_t)(i / FETCHED) * ahead->ld + i % FETCHED * 16,
                               0, 2);
        _Pragma("GCC unroll 12")
        for (int r = 0; r < rows; r++) {
            vec x = all(packed ? a[r] : third[r / 3][(size_t)(r % 3) * row]);
            sum[r][0] = fma(x, b0, sum[r][0]);
            sum[r][1] = fma(x, b1, sum[r][1]);
        }
        if (packed) a += ROWS;
        _Pragma("GCC unroll 4")
        for (int t = 0; t < ROWS / 3; t++) third[t]++;
    }
    _Pragma("GCC unroll 12")
    for (int r = 0; r < rows; r++) {
        const float *f = from + (size_t)r * from_ld;
        store(c + (size_t)r * ldc, sum[r][0] + load(f));
        store(c + (size_t)r * ldc + LANES, sum[r][1] + load(f + LANES));
    }
}

/* Any number of rows up to ROWS. */
LANE void tiles(int rows, int packed, int fetch, float *c, size_t ldc, const float *from,
                size_t from_ld, const float *a, size_t row, const float *b, int k,
                const struct ahead *ahead)
{
#define CASE(r) \
    case r: tile(r, packed, fetch, c, ldc, from, from_ld, a, row, b, k, ahead); break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) SIZE_CASES
    }
#undef CASE
}

static void direct_tiles(int rows, float *c, size_t ldc, const float *from, size_t from_ld,
                         const float *a, size_t row, const float *b, int k)
{
    tiles(rows, 0, 0, c, ldc, from, from_ld, a, row, b, k, NULL);
}

static void packed_tiles(int rows, float *c, size_t ldc, const float *from, size_t from_ld,
                         const float *a, const float *b, int k)
{
    tiles(rows, 1, 0, c, ldc, from, from_ld, a, 0, b, k, NULL);
}

static void fetching_tiles(int rows, int packed, float *c, size_t ldc, const float *from,
                           size_t from_ld, const float *a, size_t row, const float *b, int k,
                           const struct ahead *ahead)
{
    if (packed) tiles(rows, 1, 1, c, ldc, from, from_ld, a, 0, b, k, ahead);
    else tiles(rows, 0, 1, c, ldc, from, from_ld, a, row, b, k, ahead);
}

/* B's columns 0..n-1, k rows, as panels SLAB * COLS apart, zeros behind the last column. */
static void pack_lines(float *to, const float *b, size_t ld, int n, int k)
{
    for (int j0 = 0; j0 < n; j0 += GROUP) {
        int end = n - j0 < GROUP ? n : j0 + GROUP;
        for (int q = 0; q < k; q++) {
            const float *line = b + (size_t)q * ld;
            for (int j = j0; j < end; j += COLS) {
                float *at = to + (size_t)j * SLAB + q * COLS;
                if (j + COLS <= n) {
                    store(at, load(line + j));
                    store(at + LANES, load(line + j + LANES));
                } else
                    for (int c = 0; c < COLS; c++) at[c] = j + c < n ? line[j + c] : 0;
            }
        }
    }
}

/* The same of a B that is stored with a line per column, as the weights of y = x W^T are. */
static void pack_turned(float *to, const float *b, size_t ld, int n, int k)
{
    for (int j = 0; j < n; j += LANES) {
        const float *line[LANES];
        float *at = to + (size_t)(j / COLS) * COLS * SLAB + j % COLS;
        int q = 0;
        for (int c = 0; c < LANES; c++) line[c] = b + (size_t)(j + c < n ? j + c : j) * ld;
        if (j + LANES <= n)
            for (; q + 4 <= k; q += 4) {
                vec x[4];
                turned_quads(x, line, q);
                _Pragma("GCC unroll 4")
                for (int i = 0; i < 4; i++) store(at + (q + i) * COLS, x[i]);
            }
        for (; q < k; q++)
            for (int c = 0; c < LANES; c++) at[q * COLS + c] = j + c < n ? line[c][q] : 0;
        if (n - j <= LANES && j % COLS == 0) /* the other half of the last panel */
            for (q = 0; q < k; q++) store(at + q * COLS + LANES, all(0));
    }
}

/* Rows that a tile takes when `left` are left: never one alone if it can be helped, for a tile of
 * few rows waits for its own sums. */
static int take_rows(int left)
{
    int count = (left + ROWS - 1) / ROWS;
    return (left + count - 1) / count;
}

/* `rows` <= BLOCK of A, which is stored with a line per k: tile after tile as [k][ROWS]. All tiles
 * of one k before the next k, for a long line's neighbours are worth having only once. A register
 * carries LANES - ROWS floats too many, which the next k's overwrite; `spare`: they are there to be
 * read. */
static void pack_rows(float *to, const float *a, size_t ld, int rows, int k, int spare)
{
    for (int q = 0; q < k; q++, a += ld) {
        float *at = to + q * ROWS;
        int i = 0;
        __builtin_prefetch(a + BLOCK); /* the next block's */
        __builtin_prefetch(a + 2 * BLOCK - 1);
        if (rows == BLOCK && spare)
            _Pragma("GCC unroll 8")
            for (; i < BLOCK; i += ROWS, at += PITCH) store(at, load(a + i));
        for (int count; i < rows; i += count, at += PITCH) {
            count = take_rows(rows - i);
            for (int r = 0; r < count; r++) at[r] = a[i + r];
        }
    }
}

/* The same of an A with a line per row. */
static void pack_lying_rows(float *to, const float *a, size_t ld, int rows, int k)
{
    for (int i = 0, count; i < rows; i += count, to += PITCH) {
        const float *line[LANES];
        int q = 0;
        count = take_rows(rows - i);
        for (int r = 0; r < LANES; r++) line[r] = a + (size_t)(i + (r < count ? r : 0)) * ld;
        for (; q + 4 <= k; q += 4) {
            vec x[4];
            turned_quads(x, line, q);
            _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) store(to + (q + j) * ROWS, x[j]);
        }
        for (; q < k; q++)
            for (int r = 0; r < count; r++) to[q * ROWS + r] = line[r][q];
    }
}

/* One panel's columns of one tile, cut off at the border where there is one. ahead: or NULL. */
static void one_tile(const struct result *y, int i, int j, int rows, int cols, const float *a,
                     size_t row, int packed, const float *panel, int k,
                     const struct ahead *ahead)
{
    static const float zeros[COLS];
    float *c = y->c + (size_t)i * y->ldc + (size_t)j, *to = c, edge[ROWS * COLS];
    const float *from = y->add ? c : y->bias ? y->bias + j : zeros;
    size_t from_ld = y->add ? y->ldc : 0, to_ld = y->ldc;
    if (cols < COLS) {
        for (int r = 0; r < rows; r++)
            for (int q = 0; q < COLS; q++)
                edge[r * COLS + q] = q < cols ? from[(size_t)r * from_ld + (size_t)q] : 0;
        from = to = edge;
        from_ld = to_ld = COLS;
    }
    if (LANES == 16 && ahead && ahead->rows > 0)
        fetching_tiles(rows, packed, to, to_ld, from, from_ld, a, row, panel, k, ahead);
    else if (packed) packed_tiles(rows, to, to_ld, from, from_ld, a, panel, k);
    else direct_tiles(rows, to, to_ld, from, from_ld, a, row, panel, k);
    for (int r = 0; to != c && r < rows; r++)
        memcpy(c + (size_t)r * y->ldc, edge + r * COLS, (size_t)cols * sizeof *c);
}

/* One slab of k, some columns, all rows. */
static void slab_product(int ta, int tb, int m, int n, int k, const float *a, size_t lda,
                         const float *b, size_t ldb, const struct result *y, float *panels,
                         float *tall)
{
    int pack = ta || lda % CONFLICT == 0;
    if (tb) pack_turned(panels, b, ldb, n, k);
    else pack_lines(panels, b, ldb, n, k);
    for (int i0 = 0; i0 < m; i0 += BLOCK) {
        int end = m - i0 < BLOCK ? m : i0 + BLOCK, next = m - end < BLOCK ? m - end : BLOCK;
        if (ta) pack_rows(tall, a + i0, lda, end - i0, k, end + LANES - ROWS <= m);
        else if (pack) pack_lying_rows(tall, a + (size_t)i0 * lda, lda, end - i0, k);
        for (int j = 0; j < n; j += COLS) {
            const float *panel = panels + (size_t)j * SLAB;
            if (!ta) fetch_share(a, lda, end, next, k, j / COLS, (n + COLS - 1) / COLS);
            for (int i = i0, t = 0, rows; i < end; i += rows, t++) {
                const float *from = pack ? tall + t * PITCH : a + (size_t)i * lda;
                rows = take_rows(end - i);
                one_tile(y, i, j, rows, n - j < COLS ? n - j : COLS, from, lda, pack, panel, k,
                         NULL);
            }
        }
    }
}

/* The same of few rows, tb. */
static void short_slab(int m, int n, int k, const float *a, size_t lda, const float *b, size_t ldb,
                       const struct result *y, float *panel, float *tall)
{
    int pack = lda % CONFLICT == 0;
    if (pack) pack_lying_rows(tall, a, lda, m, k);
    for (int j = 0; j < n; j += COLS, b += COLS * ldb) {
        int cols = n - j < COLS ? n - j : COLS, left = n - j - cols;
        struct ahead ahead = { b + COLS * ldb, ldb, left < COLS ? left : COLS };
        pack_turned(panel, b, ldb, cols, k);
        for (int i = 0, t = 0, rows; i < m; i += rows, t++) {
            const float *from = pack ? tall + t * PITCH : a + (size_t)i * lda;
            rows = take_rows(m - i);
            one_tile(y, i, j, rows, cols, from, lda, pack, panel, k, &ahead);
            ahead.b += (size_t)(k / FETCHED) * ldb;
            ahead.rows -= k / FETCHED;
        }
    }
}

/* Floats that panel_product needs: packed rows of A, and panels of B behind them. */
#define PACKED_ROWS ((SHORT_ROWS > BLOCK ? (SHORT_ROWS + ROWS - 1) / ROWS : BLOCK / ROWS) * PITCH)
static size_t panel_scratch(int n)
{
    return PACKED_ROWS + (size_t)(n < WIDE ? (n + COLS - 1) / COLS * COLS : WIDE) * SLAB;
}

static void panel_product(int ta, int tb, int m, int n, int k, const float *a, size_t lda,
                          const float *b, size_t ldb, const struct result *whole, float *scratch)
{
    int groups = fast_pieces(n, WIDE), slabs = fast_pieces(k, SLAB);
    for (int g = 0; g < groups; g++) {
        struct fast_piece q = fast_piece(n, WIDE, COLS, g);
        struct result y = *whole;
        y.c += q.start;
        if (y.bias) y.bias += q.start;
        for (int s = 0; s < slabs && q.count; s++, y.add = 1) {
            struct fast_piece p = fast_piece(k, SLAB, 8, s);
            size_t at = (size_t)p.start, j = (size_t)q.start;
            const float *from = a + (ta ? at * lda : at);
            const float *by = b + (tb ? j * ldb + at : at * ldb + j);
            float *panels = scratch + PACKED_ROWS;
            if (!p.count) continue;
            if (tb && !ta && m <= SHORT_ROWS)
                short_slab(m, q.count, p.count, from, lda, by, ldb, &y, panels, scratch);
            else
                slab_product(ta, tb, m, q.count, p.count, from, lda, by, ldb, &y, panels, scratch);
        }
    }
}
#endif
