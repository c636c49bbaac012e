/* calc.js - the memory calculator in the browser: runtime/memory.c and its helpers once more, function by function.
 * A test compares the two over every model. Models come from the program (data.js). */
"use strict";
(function (root) {

/* --- the original [TTT 2.2], errors included --- */

function original(plan) {
    const m = plan.model, d = m.width, bs = plan.batch * m.sequence, GiB = 1073741824;
    const layers = m.layers * (2 * d * m.hidden + 4 * d * d + d), table = m.vocabulary * d + d;
    const P = plan.groups > 0 ? layers / m.layers * plan.groups + table : layers + table;
    const layer = plan.layers !== "stored" ? bs * d
        : 6 * bs * m.hidden + 47 * bs * d + 15 * bs * m.sequence;
    const bytes = { full: [4, 4, 4], mixed: [6, 2, 2], half: [2, 2, 2] }[plan.precision];
    const states = { "32-bit": 8 * P, "16-bit": 4 * P, "8-bit": 2 * P, "factorized": 4 * P,
                     "factorized-alone": Math.log(P) };
    let weights = bytes[0] * P, gradients = bytes[1] * P, optimizer = states[plan.optimizer];
    let moved = 0, ram = 0, seconds;
    const activations = bytes[2] * (m.layers * layer + 3 * bs * d + 2 * bs * m.vocabulary);
    if (plan.zero >= 1) { moved += optimizer; optimizer /= plan.devices; }
    if (plan.zero >= 2) { moved += gradients; gradients /= plan.devices; }
    if (plan.zero >= 3) { moved += weights; weights /= plan.devices; }
    seconds = moved / GiB / 25;
    if (plan.offload) {
        ram = optimizer + gradients;
        optimizer = gradients = 0;
        seconds = ram / GiB / (plan.devices <= 2 ? 12 : 6);
    }
    return { parameters: P, weights: weights, weight_gradients_gpu: gradients, activations: activations,
             optimizer_gpu: optimizer, gpu_total: weights + gradients + activations + optimizer,
             ram_total: ram, transfer_seconds: seconds };
}

/* --- tensors: [rows, columns, how many] --- */

function tensors(m, groups) {
    const d = m.published_width > 0 ? m.published_width : m.width, f = m.hidden / m.width * d;
    const L = m.family === "t5" ? m.layers / 2 : m.layers;
    const q = m.head_width > 0 ? m.heads * m.head_width : d;
    const s = Math.min(groups > 0 ? groups : m.sets > 0 ? m.sets : L, L);
    const common = [[3 * q, d, s], [3 * q, 1, s], [d, q, s], [f, d, s], [f, 1, s], [d, f, s],
                    [d, 1, 2 * s + 4 * m.layers]];
    const table = [m.vocabulary, d, 1], positions = [m.sequence, d, 1];
    switch (m.family) {
    case "gpt": return [table, positions, [d, 1, 2]].concat(common);
    case "bert": return [table, positions, [2, d, 1], [d, d, 1], [d, 1, 3]].concat(common);
    case "gptj": return [table, table, [m.vocabulary, 1, 1], [d, 1, 2], [q, d, 3 * s], [d, q, s],
                         [f, d, s], [f, 1, s], [d, f, s], [d, 1, s + 2 * m.layers]];
    case "t5": return [table, [q, d, 9 * s], [d, q, 3 * s], [f, d, 2 * s], [d, f, 2 * s],
                       [d, 1, 5 * (m.layers / 2) + 2], [32, m.heads, 2]];
    case "blocks": return [table].concat(common);
    default: return [table, [3 * q, d, s], [d, q, s], [8 * d, d, s], [8 * d, 1, s], [d, 4 * d, s],
                     [d, 1, 2 * s + 6 * m.layers + 2], [m.vocabulary, 1, 1]];
    }
}

function stateBytes(plan, rows, columns) {
    const n = rows * columns, lines = columns > 1 ? rows + columns : n;
    switch (plan.optimizer) {
    case "32-bit": return 8 * n;
    case "16-bit": return 4 * n;
    case "8-bit": return n < plan.min_8bit || n < plan.block ? 8 * n : 2 * n + 8 * Math.ceil(n / plan.block);
    case "factorized": return 4 * n + 4 * lines;
    default: return 4 * lines;
    }
}

function wireBytes(plan, n) {
    if (plan.allreduce_bits === 32) return 4 * n;
    if (plan.allreduce_bits === 16 || n < 65537) return 2 * n;
    return n + 1024 * Math.ceil(n / 131072);
}

/* --- activations --- */

function layerBytes(plan, a, d, q, f, cross) {
    const m = plan.model, bs = plan.batch * m.sequence, scores = m.heads * bs * m.sequence;
    const mask = plan.dropout ? 1 : 0, attentions = cross ? 2 : 1;
    const norms = m.family === "gptj" ? 1 : attentions + 1;
    const bytes = bs * (a * (2 * norms * d + attentions * 4 * q + 2 * f) + mask * (attentions + 1) * d);
    if (plan.fused) return bytes + attentions * 4 * m.heads * bs;
    return bytes + attentions * scores * (plan.dropout ? 2 * a + 1 : a);
}

function common(plan) {
    const m = plan.model, a = plan.precision === "full" ? 4 : 2, bs = plan.batch * m.sequence;
    const z = plan.precision === "half" ? 2 : 4;
    const d = m.published_width > 0 ? m.published_width : m.width, f = m.hidden / m.width * d;
    const q = m.head_width > 0 ? m.heads * m.head_width : d, one = layerBytes(plan, a, d, q, f, false);
    let all = m.layers * one, largest = one;
    if (m.family === "t5") {
        largest = layerBytes(plan, a, d, q, f, true);
        all = m.layers / 2 * (one + largest);
    }
    return { saved: plan.layers === "stored" ? all : (plan.layers === "checkpoint" ? m.layers : 2) * bs * d * a,
             working: plan.layers === "stored" ? 0 : largest,
             logits: 2 * bs * d * a + 2 * bs * m.vocabulary * z, passing: 0, shards: 1 };
}

function feedForwardBytes(D, M, stored) {
    if (8 * D * D <= 262144) {
        const rows = Math.max(16, 16 * Math.floor(131072 / (8 * D) / 16));
        const slots = Math.min(8, Math.ceil(Math.ceil(M / rows) / 3));
        return 4 * ((slots - 1) * 12 * D * D + 16 * D * rows);
    }
    return 4 * (stored ? 8 : 16) * D * Math.min(Math.floor(8388608 / (8 * D)), M);
}

function lossRows(positions, columns) {
    return Math.min(Math.max(48, columns > 0 ? 48 * Math.floor(4194304 / columns / 48) : 0), positions);
}

function lossBytes(positions, columns, D) {
    return 4 * lossRows(positions, columns) * (columns + 2 * D);
}

/* A small model's batch is split into shards, each with gradients of its own. */
function shardsOf(P, batch) {
    return P >= 4000000 || batch < 12 ? 1 : batch < 24 ? 2 : 4;
}

function own(plan, P) {
    const m = plan.model, a = plan.precision === "full" ? 4 : 2, D = m.width, L = m.layers;
    const shards = shardsOf(P, plan.batch);
    const B = Math.min(Math.ceil(plan.batch / shards), m.sequences_at_once > 0 ? m.sequences_at_once : plan.batch);
    const one = B * m.sequence, M = Math.min(shards * one, plan.batch * m.sequence);
    const E = m.head_width > 0 ? m.heads * m.head_width : D;
    const attention = 2 * D + 4 * E + m.heads, stored = plan.layers === "stored";
    const block = feedForwardBytes(D, one, stored);
    const streams = plan.layers === "reversible" ? 2 * D : (2 * L + 1) * D;
    const logits = Math.max(lossBytes(B * m.text, m.text_vocabulary, D),
                            lossBytes(B * (m.sequence - m.text), m.vocabulary - m.text_vocabulary, D));
    return { saved: a * M * (streams + (stored ? L * (attention + 10 * D) : 0)),
             working: a * M * (4 * D + 4 * E + (stored ? 0 : attention)) + block,
             logits: logits, passing: 8 * D * D <= 262144 ? 0 : block, shards: shards };
}

function isPacked(rows, all) {
    const last = all % rows;
    return rows <= 1024 || (last > 0 && last <= 1024);
}

function panelBytes(n, k, whole) {
    const slab = whole || k < 512 ? 32 * Math.ceil(k / 32) : 512;
    return 2 * 96 * Math.ceil(n / 96) * slab * Math.ceil(k / slab);
}

function bothWays(n, k) { return panelBytes(n, k, false) + panelBytes(k, n, false); }

function packedOutput(positions, columns, D) {
    if (positions <= 0 || columns <= 0) return 0;
    return isPacked(lossRows(positions, columns), positions) ? bothWays(columns, D) : 0;
}

function packedBytes(plan, P) {
    const m = plan.model, D = m.width, E = m.head_width > 0 ? m.heads * m.head_width : D;
    const B = Math.min(Math.ceil(plan.batch / shardsOf(P, plan.batch)), m.sequences_at_once > 0 ? m.sequences_at_once : Infinity);
    const M = B * m.sequence, rows = Math.min(16 * Math.floor(8388608 / (8 * D) / 16), M);
    const sets = Math.min(plan.groups > 0 ? plan.groups : m.sets > 0 ? m.sets : m.layers, m.layers);
    let sum = 0;
    if (isPacked(M, M)) sum += bothWays(3 * E, D) + bothWays(D, E);
    if (isPacked(rows, M))
        sum += panelBytes(8 * D, D, true) + panelBytes(D, 8 * D, false) + panelBytes(D, 4 * D, false) + panelBytes(4 * D, D, true);
    sum *= sets;
    sum += packedOutput(B * m.text, m.text_vocabulary, D);
    sum += packedOutput(B * (m.sequence - m.text), m.vocabulary - m.text_vocabulary, D);
    return Math.min(sum, 4 * P);
}

/* --- corrected --- */

function corrected(plan) {
    const m = plan.model, isOwn = m.family === "dalle", N = plan.devices;
    const w = plan.precision === "full" ? 4 : 2, g = plan.precision === "half" ? 2 : 4;
    let P = 0, states = 0, wire = 0, largest = 0, unshared = 0;
    for (const [rows, columns, n] of tensors(m, plan.groups)) {
        P += n * rows * columns;
        states += n * stateBytes(plan, rows, columns);
        wire += n * wireBytes(plan, rows * columns);
        if (n > 0) largest = Math.max(largest, rows * columns);
    }
    for (const [rows, columns, n] of tensors(m, m.layers)) unshared += n * rows * columns;
    const act = isOwn ? own(plan, P) : common(plan);
    const gradients = act.shards * (plan.zero >= 2 ? g * P / N : g * P), held = plan.zero >= 1 ? states / N : states;
    let master = plan.precision === "mixed" ? 4 * P : 0;
    if (plan.zero >= 1) master /= N;
    const on = (device, ram) => ({ gpu: device, ram: ram });
    const moving = (bytes) => plan.offload ? on(0, bytes) : on(bytes, 0);
    const term = {
        weights: on(plan.zero >= 3 ? w * P / N : w * P, 0),
        master: moving(master),
        gradients: plan.offload ? on(g * largest, gradients) : on(gradients, 0),
        optimizer: moving(held),
        activations: on(act.saved, 0), working: on(act.working, 0), logits: on(act.logits, 0),
        packed: on(isOwn && plan.packed ? packedBytes(plan, P) : 0, 0),
        last_good: on(0, isOwn ? 4 * P + states : 0),
        allreduce: on(0, plan.allreduce_bits ? 4 * P : 0),
        saving: on(0, isOwn ? Math.max(0, 4 * P + states - act.passing) : 0),
        program: on(0, isOwn ? 16e6 : 0)
    };
    let gpu = 0, ram = 0, seconds = 0;
    for (const name in term) { gpu += term[name].gpu; ram += term[name].ram; }
    if (plan.offload) seconds = (g * P + w * P) / (N <= 2 ? 12e9 : 6e9);
    else if (plan.zero > 0) seconds = (plan.zero === 3 ? 3 : 2) * (w * P) * (N - 1) / N / 25e9;
    return { parameters: P, without_sharing: unshared, gpu_total: gpu, ram_total: ram,
             allreduce_bytes: plan.allreduce_bits ? 2 * wire * (plan.peers - 1) / plan.peers : 0,
             transfer_seconds: seconds, terms: term };
}

/* Where a model's options start: its own setting, as `potluck calc MODEL` has it. */
function planFor(model) {
    const isOwn = model.family === "dalle";
    return { model: model, optimizer: isOwn ? "8-bit" : "32-bit", precision: isOwn ? "full" : "mixed",
             layers: isOwn ? "reversible" : "checkpoint", offload: false, groups: 0, batch: 1, zero: 0,
             devices: 1, min_8bit: isOwn ? 65536 : 4096, block: isOwn ? 4096 : 2048, fused: isOwn,
             dropout: !isOwn, packed: false, allreduce_bits: 0, peers: 16 };
}

const calc = { original: original, corrected: corrected, planFor: planFor, tensors: tensors };
if (typeof module !== "undefined") module.exports = calc;
else root.potluckCalc = calc;

})(typeof globalThis !== "undefined" ? globalThis : this);
