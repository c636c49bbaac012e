/* masks.js - the mask of a layer, and what one token attends to. figure_layer_mask asks
 * pl_mask_allowed for every pair. */
"use strict";
figure("masks", (ref, box) => {
    const P = 5, F = 8, L = 64, n = P + F * F, kinds = ["full", "row", "column", "window"];
    const allowed = new Uint8Array(n * n), full = n * (n + 1) / 2;

    const control = controls(box, update);
    const layer = control.slider("layer", 1, L, 1);
    const token = control.slider("token", 0, n - 1, P + 4 * F + 3);
    const drawings = add(box, "div", { class: "drawings" });
    const matrix = drawing(drawings, 276, 292, "The mask: a row for each query, a column for each key");
    const picture = drawing(drawings, 276, 292, "What the chosen token attends to: caption and image");
    const output = words(box);

    add(matrix, "text", { x: 0, y: 11, class: "soft" }, "keys →, queries ↓");
    const pairs = grid(matrix, 0, 16, n, n, 4);
    const outline = add(matrix, "rect", { x: -1, width: 278, height: 5, fill: "none", stroke: colour("warm") });
    add(picture, "text", { x: 0, y: 11, class: "soft" }, "caption");
    const caption = grid(picture, 0, 18, 1, P, 30);
    add(picture, "text", { x: 0, y: 66, class: "soft" }, "image");
    const image = grid(picture, 0, 72, F, F, 27);
    for (const [i, cell] of [...caption.cells, ...image.cells].entries())
        cell.addEventListener("pointerdown", () => { token.value = i; update(); });
    draggable(matrix, matrix, (x, y) => { token.value = Math.max(0, Math.min(n - 1, Math.floor((y - 16) / 4))); update(); });

    const fill = (q, k) => !allowed[q * n + k] ? colour("line") : k < P ? shade(0.55) : colour("main");
    let drawn = 0; // the layer whose matrix is drawn
    function update() {
        const kind = ref.call("figure_layer_mask", allowed, layer.value - 1, L, P, F), q = token.value, cell = q - P;
        if (drawn !== layer.value) pairs((i) => fill(Math.floor(i / n), i % n));
        drawn = layer.value;
        const one = (k) => k === q ? colour("warm") : fill(q, k);
        caption(one);
        image((i) => one(P + i));
        outline.setAttribute("y", 15.5 + 4 * q);
        const count = allowed.subarray(q * n, q * n + n).reduce((a, b) => a + b, 0), sum = allowed.reduce((a, b) => a + b, 0);
        const place = cell < 0 ? `text position ${q}` : `row ${Math.floor(cell / F) + 1}, column ${cell % F + 1}`;
        output.textContent = `Layer ${layer.value} of ${L}: ${kinds[kind]}. The token at ${place} attends to ${count} of ` +
            `${q + 1} positions, itself included. The layer computes ${Math.round(100 * sum / full)} % of the pairs of full attention.`;
    }
    update();
});
