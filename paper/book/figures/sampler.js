/* sampler.js - a trained model in the WebAssembly: its tokenizer, its transformer (figure_generate is
 * pl_generate with the KV cache) and its codec (figure_decode is pl_vqgan_decode). */
"use strict";

/* The pieces of a SentencePiece model, and their scores: field 1 of the file, fields 1 and 2 in it. */
function readPieces(bytes) {
    const pieces = new Map(), text = new TextDecoder(), view = new DataView(bytes.buffer, bytes.byteOffset);
    const fields = (at, end, take) => {
        const varint = () => { let value = 0, shift = 0; do value += (bytes[at] & 127) * 2 ** shift, shift += 7; while (bytes[at++] & 128); return value; };
        while (at < end) {
            const key = varint(), kind = key % 8, length = kind === 2 ? varint() : kind === 5 ? 4 : kind === 1 ? 8 : 0;
            if (kind === 0) varint();
            take(Math.floor(key / 8), at, length);
            at += length;
        }
    };
    let id = 0;
    fields(0, bytes.length, (field, at, length) => {
        if (field !== 1) return;
        let piece = "", score = 0;
        fields(at, at + length, (inner, begin, n) => {
            if (inner === 1) piece = text.decode(bytes.subarray(begin, begin + n));
            if (inner === 2) score = view.getFloat32(begin, true);
        });
        pieces.set(piece, { id: id++, score });
    });
    return pieces;
}

/* Token ids of a caption: the split into pieces whose scores sum to the most, as data/text/unigram.c finds it. Of T5's
 * normalization this is what English captions need. */
function tokenize(pieces, caption) {
    const points = [...caption.normalize("NFKC").trim().split(/\s+/).filter(Boolean).map((word) => "\u2581" + word).join("")];
    const unknown = Math.min(...[...pieces.values()].map((p) => p.score)) - 10;
    const best = [{ score: 0 }];
    for (let end = 1; end <= points.length; end++) {
        best[end] = { score: -Infinity };
        for (let begin = Math.max(0, end - 32); begin < end; begin++) { // no piece is longer
            const piece = pieces.get(points.slice(begin, end).join(""));
            if (!piece && end - begin > 1) continue;
            const score = best[begin].score + (piece ? piece.score : unknown);
            if (score > best[end].score) best[end] = { score, begin, id: piece ? piece.id : pieces.get("<unk>").id, known: !!piece };
        }
    }
    const ids = [];
    for (let at = points.length; at > 0; at = best[at].begin)
        if (best[at].known || best[best[at].begin].known !== false) ids.unshift(best[at].id); // unknown characters in a row are one token
    return ids;
}

/* Puts the tensors of a model.js into the WebAssembly; sample(caption, {topK, temperature, seed}) gives its codes and its picture. */
class Sampler {
    constructor(ref, model) {
        const checkpoint = openTensors(bytesOf85(model.checkpoint)), codec = openTensors(bytesOf85(model.codec)), c = checkpoint.config, v = codec.config;
        this.ref = ref;
        this.pieces = readPieces(bytesOf85(model.tokenizer));
        this.T = c.T;
        this.F = c.F;
        const pattern = ["axial_row", "axial_col", "axial_row", "axial_row"];
        if (!c.attn_types.every((kind, l) => kind === (l === c.depth - 1 ? "conv5" : pattern[l % 4]))) throw new Error("a model with other attention masks");
        const wants = ref.call("figure_model_open", c.T, c.F, c.dim, c.heads, c.dim_head, c.depth, c.text_tokens, c.image_tokens);
        if (wants !== checkpoint.names.length) throw new Error(`the checkpoint has ${checkpoint.names.length} tensors, expected ${wants}`);
        for (const name of checkpoint.names) ref.call("figure_model_put", name, checkpoint.get(name), checkpoint.get(name).length);
        const d = v.ddconfig;
        ref.call("figure_codec_open", d.ch, Int32Array.from(d.ch_mult), d.ch_mult.length, d.num_res_blocks, d.resolution, d.z_channels, v.embed_dim,
            v.n_embed, d.norm_groups || 32);
        for (const name of codec.names) ref.call("figure_codec_put", name, codec.get(name), codec.get(name).length);
        this.side = c.F * 2 ** (d.ch_mult.length - 1);
    }

    sample(caption, { topK = 0, temperature = 1, seed = 1 }) {
        const ids = tokenize(this.pieces, caption).slice(0, this.T), codes = new Int32Array(this.F ** 2);
        const text = Int32Array.from({ length: this.T }, (_, i) => i < ids.length ? ids[i] : 1); // padded as in training
        this.ref.call("figure_generate", codes, text, topK, temperature, seed);
        const x = new Float32Array(3 * this.side ** 2), n = this.side ** 2;
        this.ref.call("figure_decode", x, codes, this.F);
        const pixels = new Uint8ClampedArray(4 * n);
        for (let i = 0; i < n; i++) {
            for (let k = 0; k < 3; k++) pixels[4 * i + k] = Math.floor((Math.max(-1, Math.min(1, x[k * n + i])) + 1) / 2 * 255);
            pixels[4 * i + 3] = 255;
        }
        return { ids, codes, pixels };
    }
}

if (typeof module !== "undefined") module.exports = { Sampler, readPieces, tokenize };
