/* golden.js - golden values through the WebAssembly that the book's figures run.
 *
 *   node golden.js REF_WASM GOLDEN_FOLDER      a line for each case, and a count
 *
 * test/interop/book.py runs the same in Chromium: potluckGolden(ref, files) returns the cases, where
 * files[NAME] are the bytes of test/golden/NAME.safetensors. The bounds are those of the folders'
 * READMEs. */
"use strict";

const GOLDEN_FILES = ["dalle/masks_small", "dalle/rotary_16", "dalle/reversible_9", "quant/codebooks", "quant/blockwise",
    "optim/lamb32_clip", "aggregate/allreduce_none", "aggregate/centered_clip"];

/* max |got - want| / max |want|; a NaN that only one of them has is infinitely far. */
function relative(got, want) {
    let error = got.length === want.length ? 0 : Infinity, largest = 0;
    for (let i = 0; i < want.length; i++) {
        const e = Object.is(got[i], want[i]) || got[i] === want[i] ? 0 : Math.abs(got[i] - want[i]);
        error = e <= error ? error : Number.isNaN(e) ? Infinity : e;
        largest = Math.max(largest, Math.abs(want[i]));
    }
    return error === 0 ? 0 : error / largest;
}

/* A sum in float32 as numpy forms it, eight at a time: the recorded values were divided by it. */
function floatSum(values) {
    const s = new Float32Array(8), add = (a, b) => Math.fround(a + b);
    const whole = values.length - values.length % 8;
    for (let i = 0; i < whole; i++) s[i % 8] += values[i];
    const sum = add(add(add(s[0], s[1]), add(s[2], s[3])), add(add(s[4], s[5]), add(s[6], s[7])));
    return values.subarray(whole).reduce(add, sum);
}

function potluckGolden(ref, files) {
    const cases = [];
    const check = (name, error, allowed) => cases.push({ name, error, allowed, good: error <= allowed });
    const open = (name) => openTensors(files[name]);

    /* --- masks: equal */
    let file = open("dalle/masks_small");
    for (const name of file.names.filter((n) => n.endsWith(".bits"))) {
        const [, kind, T, F] = name.match(/^(.*)\.T(\d+)\.F(\d+)\.bits$/).map((v, i) => i < 2 ? v : Number(v));
        const [rows, stride] = file.shape(name), n = T + 1 + F * F, allowed = new Uint8Array(n * n), bits = new Uint8Array(rows * stride);
        ref.call("figure_mask", allowed, kind.replace("conv5_v166", "conv5@1.6.6"), T + 1, F);
        for (let q = 0; q < rows; q++)
            for (let k = 0; k < rows; k++) bits[q * stride + (k >> 3)] |= allowed[q * n + k] << 7 - (k & 7);
        check("masks_small " + name, relative(bits, file.get(name)), 0);
    }
    const pattern = open("dalle/reversible_9"), kinds = { axial_row: "axial_row", axial_col: "axial_col", conv_like: "conv5" };
    pattern.config.attn_types.forEach((kind, l) => {
        const { T, F, depth } = pattern.config, n = T + 1 + F * F, got = new Uint8Array(n * n), want = got.slice();
        ref.call("figure_layer_mask", got, l, depth, T + 1, F);
        ref.call("figure_mask", want, kinds[kind], T + 1, F);
        check(`mask of layer ${l}`, relative(got, want), 0);
    });

    /* --- rotary embedding */
    file = open("dalle/rotary_16");
    {
        const { T, F, dim_head: d, heads: H, batch: B } = file.config, n = T + 1 + F * F, R = ref.call("pl_rotary_channels", d);
        const angle = new Float32Array(n * R / 2), cosine = angle.slice(), sine = angle.slice();
        ref.call("pl_rotary_angles", angle, T + 1, F, d);
        const pairs = Float32Array.from({ length: n * R }, (_, i) => angle[i >> 1]); // the file has an angle for each channel
        check("rotary_16 angles", Math.max(...pairs.map((a, i) => Math.abs(a - file.get("table")[i]))), 1e-3);
        ref.call("pl_rotary_tables", cosine, sine, file.get("table").filter((_, i) => i % 2 === 0), angle.length);
        for (const name of ["q", "k", "v"]) {
            const given = file.get(name), x = new Float32Array(given.length); // (B,H,n,d) there, (B,n,H,d) here
            const place = (i) => { const c = i % d, p = Math.floor(i / d) % n, h = Math.floor(i / d / n) % H, b = Math.floor(i / d / n / H); return ((b * n + p) * H + h) * d + c; };
            given.forEach((v, i) => x[place(i)] = v);
            ref.call("ref_rotary", x, cosine, sine, B, n, H, d, R, 0);
            check(`rotary_16 ${name} rotated`, relative(given.map((_, i) => x[place(i)]), file.get(name + "_rotated")), 1e-6);
            ref.call("ref_rotary", x, cosine, sine, B, n, H, d, R, 1);
            check(`rotary_16 ${name} rotated back`, relative(given.map((_, i) => x[place(i)]), given), 1e-6);
        }
    }

    /* --- reversible blocks: forward, and computed back */
    {
        const { T, F, depth, dim, heads, dim_head, batch, S } = pattern.config, n = batch * S * dim;
        ref.call("figure_stack_open", depth, T, F, dim, heads, dim_head, batch, 1);
        for (const name of pattern.names.filter((x) => x.startsWith("param.")))
            ref.call("figure_model_put", "model.transformer." + name.slice(6), pattern.get(name), pattern.get(name).length);
        ref.call("figure_stack_angles", pattern.get("pos_emb").filter((_, i) => i % 2 === 0));
        ref.call("figure_stack_begin", pattern.get("x"), n);
        const read = () => { // a and b of a position next to each other, as in the file
            const [a, b] = ["figure_stack_a", "figure_stack_b"].map((s) => ref.floats(ref.call(s), n));
            return Float32Array.from({ length: 2 * n }, (_, i) => (i % (2 * dim) < dim ? a : b)[Math.floor(i / 2 / dim) * dim + i % dim]);
        };
        for (let l = 0; l < depth; l++) {
            ref.call("figure_stack_block", l);
            check(`reversible_9 streams after block ${l}`, relative(read(), pattern.get("streams").subarray(2 * n * l, 2 * n * (l + 1))), 1e-5);
        }
        for (let l = depth; l-- > 0;) ref.call("figure_stack_undo", l);
        check("reversible_9 input computed back", relative(read(), pattern.get("rebuilt_input")), 1e-5);
    }

    /* --- 8-bit codes: equal. In the enumerations of ref/quant.h signed is 0, run 0, lut 1. */
    file = open("quant/codebooks");
    const book = (map, rule) => { const b = new Float32Array(256); ref.call("pl_codebook", b, map, rule); return b; };
    ["signed", "unsigned"].forEach((name, map) => {
        check(`codebooks ${name}`, relative(book(map, 1), file.get(name)), 0);
        check(`codebooks ${name}_run_cpu`, relative(book(map, 0), file.get(name + "_run_cpu")), 0);
    });
    file = open("quant/blockwise");
    for (const name of file.names) {
        const [, which, sign, rule, size] = name.match(/^(.*)\.(signed|unsigned)\.(run|lut|cuda)\.(\d+)\.codes$/) || [], block = Number(size);
        if (!which) continue;
        const map = sign === "signed" ? 0 : 1, by = ["run", "lut", "cuda"].indexOf(rule);
        const x = file.get(which + ".x").map((v) => map ? Math.abs(v) : v), n = x.length, stem = name.slice(0, -6);
        const codes = new Uint8Array(n), absmax = new Float32Array(Math.ceil(n / block)), back = new Float32Array(n);
        ref.call("ref_quantize", codes, absmax, x, n, block, map, by);
        ref.call("ref_dequantize", back, codes, absmax, n, block, book(map, by));
        check(`blockwise ${stem}`, Math.max(relative(codes, file.get(name)), relative(absmax, file.get(stem + ".absmax")),
            file.names.includes(stem + ".deq") ? relative(back, file.get(stem + ".deq")) : 0), 0);
    }

    /* --- LAMB */
    file = open("optim/lamb32_clip");
    {
        const { steps, shapes, hyper, groups } = file.config;
        const state = shapes.map((shape, i) => {
            const n = shape.reduce((a, b) => a * b, 1);
            return { n, p: file.get(`p${i}.init`), m: new Float32Array(n), v: new Float32Array(n), u: new Float32Array(n),
                decay: groups.find((g) => g.idx.includes(i)).weight_decay };
        });
        for (const [t, step] of steps.entries())
            state.forEach(({ n, p, m, v, u, decay }, i) => {
                const norms = new Float32Array(3), clip = Math.min(1, hyper.max_grad_norm / (step.grad_norm + 1e-6)), at = `s${t + 1}.p${i}.`;
                ref.call("figure_lamb", norms, p, u, file.get(at + "grad"), m, v, n, step.lr, ...hyper.betas, hyper.eps, decay, clip);
                check(`lamb32_clip step ${t + 1}, tensor ${i}`, Math.max(relative(p, file.get(at + "param")), relative(m, file.get(at + "exp_avg")),
                    relative(v, file.get(at + "exp_avg_sq"))), 1e-6);
                check(`lamb32_clip step ${t + 1}, tensor ${i}, trust ratio`, Math.abs(norms[2] / step.tensors[i].trust_ratio - 1), 1e-5);
            });
    }

    /* --- all-reduce: a whole round, and the reducers' two operations part by part */
    file = open("aggregate/allreduce_none");
    {
        const { weights, peer_fractions, part_size_bytes, roles } = file.config, senders = [0, 1, 2], tensors = [0, 1, 2];
        const sizes = Int32Array.from(tensors, (t) => file.shape(`peer0.in${t}`).reduce((a, b) => a * b, 1));
        const x = Float32Array.from(senders.flatMap((k) => tensors.flatMap((t) => [...file.get(`peer${k}.in${t}`)])));
        const weight = Float64Array.from(weights, (w, k) => roles[k].startsWith("auxiliary") ? -1 : w), fraction = Float64Array.from(peer_fractions);
        ref.call("figure_average", x, sizes, 3, weight, fraction, 4, part_size_bytes);
        let at = 0;
        const worst = (k, t, got) => got.reduce((most, v, i) => Math.max(most, Math.abs(v - file.get(`peer${k}.out${t}`)[i])), 0);
        for (const k of senders)
            for (const t of tensors) {
                const want = file.get(`peer${k}.out${t}`), got = x.subarray(at, at += sizes[t]);
                check(`allreduce_none peer ${k}, tensor ${t}`, got.reduce((most, v, i) => Math.max(most, Math.abs(v - want[i])), 0), 1e-7);
            }
        const rows = new Int32Array(4 * 1000), parts = ref.call("figure_partition", rows, sizes, 3, fraction, 4, part_size_bytes);
        const counts = [0, 0, 0, 0];
        for (let p = 0; p < parts; p++) counts[rows[4 * p + 3]]++;
        check("allreduce_none parts of each reducer", relative(counts, file.config.num_parts_by_peer), 0);
        const sum = new Float32Array(sizes[1]), delta = sum.slice(), total = weights.reduce((a, b) => a + b, 0);
        for (const k of senders) ref.call("figure_add", sum, file.get(`peer${k}.in1`), weights[k], sizes[1]);
        for (const k of senders) {
            const own = file.get(`peer${k}.in1`);
            ref.call("figure_delta", delta, sum, total, own, sizes[1]);
            check(`allreduce_none peer ${k}, by sum and delta`, worst(k, 1, own.map((v, i) => v + delta[i])), 1e-7);
        }
    }

    /* --- CenteredClip */
    file = open("aggregate/centered_clip");
    for (const [name, { n, d, tau }] of Object.entries(file.config.cases)) {
        const x = file.get(name + ".x"), median = new Float32Array(d);
        ref.call("ref_median", median, x, n, d, 0);
        check(`centered_clip ${name} median`, relative(median, file.get(name + ".lower_median")), 0);
        for (const iterations of [1, 2, 5, 20]) {
            const v = Float64Array.from(median), weight = Float64Array.from(file.get(name + ".w"));
            ref.call("figure_clip", v, x, weight, n, d, tau, iterations, floatSum(weight));
            check(`centered_clip ${name}, ${iterations} iterations`, relative(v, file.get(`${name}.ref_iter${iterations}`)), 1e-9);
        }
    }
    return cases;
}

if (typeof module !== "undefined") {
    const fs = require("fs"), path = require("path");
    const shared = require(path.join(__dirname, "../../paper/book/figures/figure.js"));
    globalThis.openTensors = shared.openTensors;
    const [, , wasm, folder] = process.argv, files = {};
    for (const name of GOLDEN_FILES) files[name] = new Uint8Array(fs.readFileSync(path.join(folder, name + ".safetensors")));
    shared.Ref.open(fs.readFileSync(wasm)).then((ref) => {
        const cases = potluckGolden(ref, files), failed = cases.filter((c) => !c.good).length;
        for (const { name, error, allowed, good } of cases) console.log(`${good ? "ok  " : "FAIL"} ${name}  error ${error.toExponential(1)} of ${allowed}`);
        console.log(`${cases.length - failed} passed, ${failed} failed`);
        process.exit(failed > 0 || cases.length === 0 ? 1 : 0);
    });
}
