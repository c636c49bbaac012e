/* reversible.js - a stack of blocks forward, and computed back: figure_stack_block is pl_stack_block,
 * figure_stack_undo what the backward pass does to the streams. */
"use strict";
figure("reversible", (ref, box) => {
    const T = 8, F = 4, D = 32, S = T + F * F, n = S * D, side = 9;
    const input = normals(n, 3);
    let at, forward, streams; // blocks done; the direction; streams[l]: both, as they were before block l

    const control = controls(box, update);
    const depth = control.select("blocks", ["4", "16", "64"], "16");
    depth.addEventListener("change", () => { open(); update(); });
    control.button("Forward", () => step(true));
    control.button("Back", () => step(false));
    control.button("To the end and back", () => {
        while (at < L()) step(true);
        while (at > 0) step(false);
    });
    const drawings = add(box, "div", { class: "drawings" });
    const paint = ["a", "b"].map((name) => {
        const svg = drawing(drawings, D * side, S * side + 18, `Stream ${name}: a row for each position, a column for each channel`);
        add(svg, "text", { x: 0, y: 12, class: "soft" }, `stream ${name}`);
        return grid(svg, 0, 18, S, D, side);
    });
    const chart = drawing(box, 600, 96, "Largest difference from the stream of the forward pass, block by block");
    const output = words(box);

    function L() { return Number(depth.value); }
    const read = () => ["figure_stack_a", "figure_stack_b"].map((name) => ref.floats(ref.call(name), n));
    function open() {
        ref.call("figure_stack_open", L(), T, F, D, 2, 16, 1, 1);
        ref.call("figure_stack_begin", input, n);
        at = 0;
        forward = true;
        streams = [read()];
        streams.errors = [];
    }
    const largest = (values, other) => values.reduce((most, v, i) => Math.max(most, Math.abs(v - (other ? other[i] : 0))), 0);
    function step(ahead) {
        if (ahead ? at === L() : at === 0) return;
        if (ahead && at === 0) open(); // from the input itself, without rounding errors of an earlier run
        ref.call(ahead ? "figure_stack_block" : "figure_stack_undo", ahead ? at : at - 1);
        at += ahead ? 1 : -1;
        forward = ahead;
        if (ahead) streams[at] ||= read();
        else streams.errors[at] = Math.max(...read().map((stream, i) => largest(stream, streams[at][i])));
    }
    function update() {
        const now = read();
        now.forEach((stream, i) => paint[i]((k) => shade(stream[k] / 3)));
        chart.replaceChildren();
        add(chart, "text", { x: 0, y: 12, class: "soft" }, "largest difference on the way back, from 1e-8 (below) to 1e-4");
        add(chart, "line", { x1: 0, x2: 600, y1: 90, y2: 90, stroke: colour("line") });
        streams.errors.forEach((error, l) => {
            const height = Math.max(1, Math.min(70, 17.5 * (Math.log10(error || 1e-12) + 8)));
            add(chart, "rect", { x: 600 * l / (L() + 1), y: 90 - height, width: 560 / (L() + 1), height, fill: colour("warm") });
        });
        add(chart, "rect", { x: 600 * at / (L() + 1), y: 91, width: 560 / (L() + 1), height: 4, fill: colour("main") });
        const place = `${at} of ${L()} blocks are done.`;
        output.textContent = forward || at === L() ? `${place} The streams hold values up to ${Math.max(...now.map((s) => largest(s))).toFixed(2)}; ` +
            "nothing else is stored." : `${place} Undone up to this block, the streams differ from those of the forward pass by at most ` +
            `${streams.errors[at].toExponential(1)}. Stored activations of ${L()} blocks would be ${18 * L()} such tensors; here there are 2.`;
    }
    open();
    update();
});
