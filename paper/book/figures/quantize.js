/* quantize.js - block-wise 8-bit codes under the pointer: pl_codebook, ref_quantize, ref_dequantize. */
"use strict";
figure("quantize", (ref, box) => {
    const n = 32, width = 640, top = 20, zero = 130, book = new Float32Array(256);
    ref.call("pl_codebook", book, 0, 0); // signed, as the reference run's library on a CPU
    const base = normals(n, 11);

    const control = controls(box, update);
    const block = control.select("values in a block", ["4", "8", "16", "32"], "16");
    const outlier = control.slider("one value, times", 0, 3, 0, 0.05, (v) => (10 ** v).toPrecision(2));
    const chosen = control.slider("value", 1, n, 7);
    const svg = drawing(box, width, 300, "Values, their codes' values, and the code book's values of a block");
    const output = words(box);
    const codes = new Uint8Array(n), back = new Float32Array(n);
    draggable(svg, svg, point);
    svg.addEventListener("pointermove", (event) => point((event.offsetX / svg.clientWidth) * width));
    function point(x) { chosen.value = Math.max(1, Math.min(n, Math.floor(x / width * n) + 1)); update(); }

    function update() {
        const size = Number(block.value), x = base.slice(), absmax = new Float32Array(n / size), i = chosen.value - 1;
        x[20] *= 10 ** outlier.value;
        ref.call("ref_quantize", codes, absmax, x, n, size, 0, 0);
        ref.call("ref_dequantize", back, codes, absmax, n, size, book);
        const b = Math.floor(i / size), scale = absmax[b], each = width / n, shown = Math.min(scale, 4);
        const y = (v) => zero - (zero - top) * Math.max(-1.1, Math.min(1.1, v / shown));
        svg.replaceChildren();
        add(svg, "rect", { x: b * size * each, y: 0, width: size * each, height: 245, fill: shade(0.12) });
        for (const entry of book) // the values that this block can have
            if (Math.abs(entry * scale) <= 1.1 * shown)
                add(svg, "line", { x1: b * size * each, x2: (b + 1) * size * each, y1: y(entry * scale), y2: y(entry * scale), stroke: colour("line"), "stroke-width": 0.7 });
        add(svg, "line", { x1: 0, x2: width, y1: zero, y2: zero, stroke: colour("soft") });
        for (let k = 0; k < n; k++) {
            const cx = (k + 0.5) * each, error = Math.abs(back[k] - x[k]) / Math.abs(x[k]);
            add(svg, "line", { x1: cx, x2: cx, y1: zero, y2: y(x[k]), stroke: colour(k === i ? "warm" : "main"), "stroke-width": k === i ? 6 : 4 });
            add(svg, "circle", { cx, cy: y(back[k]), r: 4, fill: "none", stroke: colour("warm"), "stroke-width": 2 });
            const bar = Math.min(45, 45 * Math.sqrt(error)); // of the error, from below
            add(svg, "rect", { x: cx - 5, y: 296 - bar, width: 10, height: bar, fill: colour("third") });
        }
        add(svg, "text", { x: 2, y: 13, class: "soft" }, "bars: values; rings: the values of their codes; lines: the block's code book");
        add(svg, "text", { x: 2, y: 262, class: "soft" }, "relative error");
        output.textContent = `Value ${chosen.value}: ${x[i].toPrecision(4)} / ${scale.toPrecision(4)} = ${(x[i] / scale).toFixed(4)}, code ${codes[i]} ` +
            `(${book[codes[i]].toPrecision(4)}), back ${back[i].toPrecision(4)}: ${(100 * Math.abs(back[i] / x[i] - 1)).toFixed(1)} % off. ` +
            `${4 * n} bytes became ${n + 4 * absmax.length}.`;
    }
    update();
});
