/* allreduce.js - a butterfly all-reduce, step by step. pl_balance_fractions and pl_partition say who reduces
 * what, figure_add and figure_delta are the reducer's ref_average_add and ref_average_delta. At the
 * end the values must be those of pl_average_group. */
"use strict";
figure("allreduce", (ref, box) => {
    const N = 4, n = 24, part = 3, bytes = 4 * part, cell = 22, rowHeight = 66, left = 92;
    const phases = ["Before", "Scatter", "Reduce", "Gather", "Apply"];
    const weights = Float64Array.from([4, 2, 1, 3]), own = Array.from({ length: N }, (_, k) => normals(n, 21 + k));
    let phase = 0;

    const control = controls(box, update);
    const bandwidth = Array.from({ length: N }, (_, k) =>
        control.slider(`peer ${k + 1}, Mbit/s`, 0, 200, [100, 50, 100, 0][k], 10, (v) => v ? String(v) : "client"));
    control.button("← Step", () => phase = (phase + phases.length - 1) % phases.length);
    control.button("Step →", () => phase = (phase + 1) % phases.length);
    const svg = drawing(box, left + n * cell + 4, 40 + N * rowHeight, "Four peers' values, the parts they are cut into, and the messages of this step");
    const output = words(box);

    function update() {
        const speeds = Float64Array.from(bandwidth, (b) => b.value), fraction = new Float64Array(N);
        svg.replaceChildren();
        if (speeds.every((s) => s === 0)) {
            output.textContent = "At least one peer has to reduce: give one some bandwidth.";
            return;
        }
        ref.call("pl_balance_fractions", fraction, speeds, N, n, 0, 0);
        const sizes = Int32Array.of(n), rows = new Int32Array(4 * n);
        const parts = ref.call("figure_partition", rows, sizes, 1, fraction, N, bytes);
        const total = weights.reduce((a, b) => a + b, 0), sum = new Float32Array(n), deltas = own.map(() => new Float32Array(n));
        own.forEach((x, k) => ref.call("figure_add", sum, x, weights[k], n));
        own.forEach((x, k) => ref.call("figure_delta", deltas[k], sum, total, x, n));
        const after = own.map((x, k) => x.map((v, i) => v + deltas[k][i]));

        // The same round by pl_average_group: equal, bit for bit.
        const group = Float32Array.from(own.flatMap((x) => [...x]));
        ref.call("figure_average", group, sizes, 1, weights, fraction, N, bytes);
        const same = after.every((x, k) => x.every((v, i) => Math.fround(v) === group[k * n + i]));

        const y = (k) => 46 + k * rowHeight, middle = (p) => left + (rows[4 * p + 1] + rows[4 * p + 2] / 2) * cell;
        for (let k = 0; k < N; k++) {
            add(svg, "text", { x: 0, y: y(k) + 10 }, `peer ${k + 1}`);
            add(svg, "text", { x: 0, y: y(k) + 26, class: "soft" }, `${weights[k]} samples`);
        }
        for (let p = 0; p < parts; p++) {
            const [, start, length, reducer] = rows.subarray(4 * p, 4 * p + 4);
            add(svg, "text", { x: middle(p), y: 12, "text-anchor": "middle", class: "soft" }, `part ${p + 1}`);
            add(svg, "text", { x: middle(p), y: 28, "text-anchor": "middle" }, `→ ${reducer + 1}`);
            for (let k = 0; k < N; k++) {
                for (let i = start; i < start + length; i++) {
                    const mean = sum[i] / total, value = phase === 4 ? after[k][i] : phase >= 2 && k === reducer ? mean : own[k][i];
                    add(svg, "rect", { x: left + i * cell, y: y(k), width: cell - 2, height: 26, fill: shade(value / 2) });
                }
                const mine = { x: left + start * cell - 1.5, y: y(k) - 2, width: length * cell + 1, height: 30, fill: "none", "stroke-width": 2.5 };
                if (k === reducer) add(svg, "rect", { ...mine, stroke: colour("third") });
                if (k === reducer || phase !== 1 && phase !== 3) continue;
                const x = middle(p) + 6 * (k - 1.5), down = k < reducer ? 1 : -1; // senders next to each other
                const [from, to] = phase === 1 ? [k, reducer] : [reducer, k], away = phase === 1 ? down : -down;
                const y1 = y(from) + (away > 0 ? 30 : -4), y2 = y(to) + (away > 0 ? -6 : 32);
                add(svg, "line", { x1: x, x2: x, y1, y2, stroke: colour(phase === 1 ? "third" : "warm"), "stroke-width": 1.5 });
                add(svg, "path", { d: `M${x - 4},${y2 - 5 * away}L${x},${y2}L${x + 4},${y2 - 5 * away}`, fill: "none", stroke: colour(phase === 1 ? "third" : "warm"), "stroke-width": 1.5 });
            }
        }
        const share = (k) => rows.subarray(0, 4 * parts).reduce((s, v, i) => s + (i % 4 === 3 && v === k ? rows[i - 1] : 0), 0);
        output.textContent = `${phase}. ${phases[phase]}: ` + [
            `each peer has ${n} values of its own. Peers 1 to 4 reduce ${[0, 1, 2, 3].map(share).join(", ")} of them.`,
            "each peer sends every part to the part's reducer; its own part stays where it is.",
            "the reducer adds them, weighted by samples, and divides by the sum of the weights.",
            "it answers each sender with the difference between the mean and that sender's values.",
            `each peer adds the difference, and all have the mean${same ? ": the bits that pl_average_group gives" : ", but not pl_average_group's bits"}.`,
        ][phase];
    }
    update();
});
