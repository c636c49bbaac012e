/* rotary.js - the product of a query and a key after both were rotated: pl_rotary_angles,
 * pl_rotary_tables, ref_rotary. */
"use strict";
figure("rotary", (ref, box) => {
    const P = 1, F = 11, d = 64, n = P + F * F, side = 24;
    const R = ref.call("pl_rotary_channels", d), half = R / 2;
    const angle = new Float32Array(n * half), cosine = new Float32Array(n * half), sine = new Float32Array(n * half);
    ref.call("pl_rotary_angles", angle, P, F, d);
    ref.call("pl_rotary_tables", cosine, sine, angle, n * half);
    // One vector at every position: (1, 0) in each pair of channels.
    const x = Float32Array.from({ length: n * d }, (_, i) => i % d < R && i % 2 === 0 ? 1 : 0);
    ref.call("ref_rotary", x, cosine, sine, 1, n, 1, d, R, 0);

    const control = controls(box, update);
    const sliders = ["query's row", "query's column", "key's row", "key's column"].map((name, i) => control.slider(name, 1, F, [4, 4, 6, 9][i]));
    const drawings = add(box, "div", { class: "drawings" });
    const map = drawing(drawings, F * side, F * side + 20, "Product of the query with the same key at every cell");
    const dials = drawing(drawings, 264, 284, "Angles of ten channel pairs, the query's and the key's");
    const output = words(box);

    add(map, "text", { x: 0, y: 12, class: "soft" }, "product with the query (click: move it)");
    const cells = grid(map, 0, 18, F, F, side);
    const ring = (name) => add(map, "circle", { r: side * 0.32, fill: "none", stroke: colour(name), "stroke-width": 3, "pointer-events": "none" });
    const query = ring("warm"), key = ring("third");
    const within = (v) => Math.max(1, Math.min(F, Math.floor(v) + 1));
    draggable(map, map, (x, y) => { sliders[0].value = within((y - 18) / side); sliders[1].value = within(x / side); update(); });

    const hands = [];
    for (let i = 0; i < 10; i++) { // five pairs of the row axis, five of the column axis
        const cx = 28 + 52 * (i % 5), cy = i < 5 ? 60 : 200;
        if (i % 5 === 0) add(dials, "text", { x: 0, y: cy - 36, class: "soft" }, i ? "channel pairs that rotate with the column" : "channel pairs that rotate with the row");
        add(dials, "circle", { cx, cy, r: 22, fill: "none", stroke: colour("line") });
        const hand = (name) => add(dials, "line", { x1: cx, y1: cy, stroke: colour(name), "stroke-width": 3, "stroke-linecap": "round" });
        hands.push({ cx, cy, pair: half / 3 * (i < 5 ? 1 : 2) + 2 * (i % 5), query: hand("warm"), key: hand("third") });
    }
    add(dials, "text", { x: 0, y: 108, style: `fill: ${colour("warm")}` }, "query");
    add(dials, "text", { x: 60, y: 108, style: `fill: ${colour("third")}` }, "key");

    // Of the channels that rotate with row and column: their mean product, 1 for the same cell.
    function product(p, q) {
        let sum = 0;
        for (let c = R / 3; c < R; c++) sum += x[p * d + c] * x[q * d + c];
        return sum / (R / 3);
    }
    function update() {
        const [qr, qc, kr, kc] = sliders.map((s) => s.value - 1), q = P + qr * F + qc, k = P + kr * F + kc;
        cells((i) => shade(product(q, P + i)));
        for (const [circle, r, c] of [[query, qr, qc], [key, kr, kc]]) {
            circle.setAttribute("cx", (c + 0.47) * side);
            circle.setAttribute("cy", 18 + (r + 0.47) * side);
        }
        for (const hand of hands)
            for (const [line, position] of [[hand.query, q], [hand.key, k]]) {
                const a = angle[position * half + hand.pair];
                line.setAttribute("x2", hand.cx + 20 * Math.cos(a));
                line.setAttribute("y2", hand.cy - 20 * Math.sin(a));
            }
        output.textContent = `Query and key are ${Math.abs(qr - kr)} rows and ${Math.abs(qc - kc)} columns apart: product ` +
            `${product(q, k).toFixed(3)}. Move both by the same way, and it stays.`;
    }
    update();
});
