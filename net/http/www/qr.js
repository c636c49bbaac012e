/* qr.js - a text as a QR code (ISO/IEC 18004): bytes, error correction level M, versions 1 to 10, so
 * at most 213 bytes; a multiaddr has some 90.
 *
 *   data      mode and length, the bytes, padding: the version's number of codewords
 *   blocks    each with Reed-Solomon codewords over GF(256), interleaved
 *   place     finders, timing, alignment; then the bits in a zigzag of two columns
 *   mask      of eight patterns the one with the least penalty, named in the format bits
 */
"use strict";
(function () {

/* By version: codewords in all, of error correction in each block, blocks, centres of alignment. */
const SIZES = [, [26, 10, 1, []], [44, 16, 1, [6, 18]], [70, 26, 1, [6, 22]], [100, 18, 2, [6, 26]], [134, 24, 2, [6, 30]],
    [172, 16, 4, [6, 34]], [196, 18, 4, [6, 22, 38]], [242, 22, 4, [6, 24, 42]], [292, 22, 5, [6, 26, 46]], [346, 26, 5, [6, 28, 50]]];
const MASKS = [(r, c) => (r + c) % 2, (r) => r % 2, (r, c) => c % 3, (r, c) => (r + c) % 3, (r, c) => ((r >> 1) + Math.floor(c / 3)) % 2,
    (r, c) => r * c % 2 + r * c % 3, (r, c) => (r * c % 2 + r * c % 3) % 2, (r, c) => ((r + c) % 2 + r * c % 3) % 2];

function times(a, b) { /* in GF(256) by x^8 + x^4 + x^3 + x^2 + 1 */
    let product = 0;
    for (; b; b >>= 1, a = a << 1 ^ (a & 0x80 ? 0x11d : 0)) if (b & 1) product ^= a;
    return product;
}
/* The remainder of data * x^n by (x - 1)(x - 2)(x - 4)...: the codewords of error correction. */
function remainder(data, n) {
    let divisor = [1], root = 1;
    for (let i = 0; i < n; i++, root = times(root, 2))
        divisor = [...divisor, 0].map((d, k) => d ^ (k ? times(divisor[k - 1], root) : 0));
    const rest = new Array(n).fill(0);
    for (const byte of data) {
        const factor = byte ^ rest.shift();
        rest.push(0);
        for (let i = 0; i < n; i++) rest[i] ^= times(divisor[i + 1], factor);
    }
    return rest;
}
/* value and its n check bits by the generator. */
function withChecks(value, n, generator) {
    let rest = value << n;
    for (let i = 31 - Math.clz32(rest); rest >> n; i = 31 - Math.clz32(rest)) rest ^= generator << i - n;
    return value << n | rest;
}

function codewords(bytes, version) {
    const [all, checks, blocks] = SIZES[version], capacity = all - checks * blocks, bits = [];
    const put = (value, n) => { while (n--) bits.push(value >> n & 1); };
    put(4, 4);
    put(bytes.length, version < 10 ? 8 : 16);
    for (const byte of bytes) put(byte, 8);
    put(0, Math.min(4, capacity * 8 - bits.length));
    while (bits.length % 8) bits.push(0);
    const data = [];
    for (let i = 0; i < bits.length; i += 8) data.push(parseInt(bits.slice(i, i + 8).join(""), 2));
    for (let pad = 0xec; data.length < capacity; pad ^= 0xec ^ 0x11) data.push(pad);
    const short = Math.floor(capacity / blocks), longer = capacity % blocks, parts = []; /* the last blocks have one more */
    for (let b = 0, at = 0; b < blocks; at += parts[b++].length) parts.push(data.slice(at, at + short + (b >= blocks - longer)));
    const ends = parts.map((part) => remainder(part, checks)), out = [];
    for (let i = 0; i <= short; i++) for (const part of parts) if (i < part.length) out.push(part[i]);
    for (let i = 0; i < checks; i++) for (const end of ends) out.push(end[i]);
    return out;
}

/* Modules that carry no data: null where data go. */
function frame(version) {
    const n = 17 + 4 * version, m = Array.from({ length: n }, () => new Array(n).fill(null)), at = SIZES[version][3];
    const set = (r, c, on) => { if (m[r] && c >= 0 && c < n) m[r][c] = on ? 1 : 0; };
    for (const [top, left] of [[0, 0], [0, n - 7], [n - 7, 0]])
        for (let r = -1; r < 8; r++) for (let c = -1; c < 8; c++) {
            const ring = Math.max(Math.abs(r - 3), Math.abs(c - 3));
            set(top + r, left + c, ring !== 2 && ring !== 4);
        }
    for (const r of at) for (const c of at)
        if (!(r === 6 && c === 6 || r === 6 && c === n - 7 || r === n - 7 && c === 6))
            for (let i = -2; i < 3; i++) for (let k = -2; k < 3; k++) set(r + i, c + k, Math.max(Math.abs(i), Math.abs(k)) !== 1);
    for (let i = 8; i < n - 8; i++) m[6][i] = m[i][6] = (i + 1) % 2;
    for (let i = 0; i < 9; i++) { if (m[8][i] === null) m[8][i] = 0; if (m[i][8] === null) m[i][8] = 0; }
    for (let i = 0; i < 8; i++) m[8][n - 1 - i] = m[n - 1 - i][8] = 0;
    m[n - 8][8] = 1;
    if (version > 6)
        for (let i = 0, bits = withChecks(version, 12, 0x1f25); i < 18; i++)
            m[Math.floor(i / 3)][n - 11 + i % 3] = m[n - 11 + i % 3][Math.floor(i / 3)] = bits >> i & 1;
    return m;
}

function setFormat(m, mask) { /* level M is 00 */
    const n = m.length, bits = withChecks(mask, 10, 0x537) ^ 0x5412;
    for (let i = 0; i < 15; i++) {
        const bit = bits >> i & 1;
        if (i < 6) m[i][8] = bit; else if (i < 8) m[i + 1][8] = bit; else m[n - 15 + i][8] = bit;
        if (i < 8) m[8][n - 1 - i] = bit; else if (i < 9) m[8][7] = bit; else m[8][14 - i] = bit;
    }
}

function penalty(m) {
    const n = m.length;
    let sum = 0, dark = 0;
    for (const rows of [m, m[0].map((_, c) => m.map((row) => row[c]))])
        for (const row of rows) {
            const text = row.join("");
            for (const run of text.match(/0+|1+/g)) if (run.length >= 5) sum += run.length - 2;
            for (let i = 0; i + 11 <= n; i++)
                if (text.startsWith("10111010000", i) || text.startsWith("00001011101", i)) sum += 40;
        }
    for (let r = 0; r < n; r++) for (let c = 0; c < n; c++) {
        dark += m[r][c];
        if (r && c && m[r][c] === m[r - 1][c] && m[r][c] === m[r][c - 1] && m[r][c] === m[r - 1][c - 1]) sum += 3;
    }
    return sum + 10 * Math.floor(Math.abs(20 * dark / (n * n) - 10));
}

/* Rows of 0 and 1 (dark), without the quiet zone of four modules; null: the text is too long. masks:
 * those to choose from. */
function matrix(text, masks = MASKS.keys()) {
    const bytes = new TextEncoder().encode(text);
    let version = 1, best = null, least = Infinity;
    while (version < SIZES.length && SIZES[version][0] - SIZES[version][1] * SIZES[version][2] < bytes.length + (version < 10 ? 2 : 3)) version++;
    if (version === SIZES.length) return null;
    const data = codewords(bytes, version), empty = frame(version), n = empty.length;
    for (const mask of masks) {
        const m = empty.map((row) => row.slice());
        let bit = 0;
        for (let right = n - 1, up = true; right > 0; right -= 2, up = !up) {
            if (right === 6) right--; /* the timing pattern's column */
            for (let i = 0; i < n; i++) for (const c of [right, right - 1]) {
                const r = up ? n - 1 - i : i;
                if (m[r][c] !== null) continue;
                m[r][c] = (data[bit >> 3] >> 7 - (bit & 7) & 1) ^ (MASKS[mask](r, c) === 0 ? 1 : 0);
                bit++;
            }
        }
        setFormat(m, mask);
        const found = penalty(m);
        if (found < least) { least = found; best = m; }
    }
    return best;
}

/* One SVG path of all dark modules, each 1 by 1. */
function path(m) {
    let d = "";
    m.forEach((row, r) => row.forEach((on, c) => { if (on) d += "M" + c + " " + r + "h1v1h-1z"; }));
    return d;
}

globalThis.potluckQR = { matrix, path };
})();
