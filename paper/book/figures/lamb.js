/* lamb.js - how far three tensors of different size move: with Adam's direction alone, and by LAMB's
 * trust ratio. figure_lamb is ref_lamb. */
"use strict";
figure("lamb", (ref, box) => {
    const n = 256, sizes = [10, 0.1, 0.001], tensors = ["large", "middle", "small"];

    const control = controls(box, update);
    const rate = control.slider("learning rate", -4, -0.5, -2, 0.1, (v) => (10 ** v).toPrecision(2));
    const steps = control.slider("steps", 1, 30, 10);
    const scale = control.slider("gradients of the middle one, times", -4, 4, 0, 0.5, (v) => (10 ** v).toPrecision(2));
    const decay = control.slider("weight decay", 0, 0.2, 0.045, 0.005);
    const svg = drawing(box, 640, 220, "The step of each tensor as a share of the tensor's norm, with Adam's direction and with LAMB");
    const output = words(box);

    /* The norms of the last step, and |change| / |start|, trusted or not. */
    function train(k, trusted) {
        const p = normals(n, 5 + k).map((v) => v * sizes[k]), start = p.slice();
        const m = new Float32Array(n), v = new Float32Array(n), u = new Float32Array(n), norms = new Float32Array(3);
        for (let t = 0; t < steps.value; t++) {
            const g = normals(n, 100 * k + t + 7).map((x) => x / sizes[k] * (k === 1 ? 10 ** scale.value : 1)), before = p.slice();
            ref.call("figure_lamb", norms, p, u, g, m, v, n, 10 ** rate.value, 0.9, 0.96, 1e-6, decay.value, 1);
            if (!trusted) for (let i = 0; i < n; i++) p[i] = before[i] - 10 ** rate.value * u[i];
        }
        const norm = (x) => Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));
        return { norms, share: norm(p.map((value, i) => value - start[i])) / norm(start) };
    }
    function update() {
        svg.replaceChildren();
        const width = (share) => 440 * Math.max(0.005, Math.min(1, (Math.log10(share) + 5) / 9));
        add(svg, "text", { x: 190, y: 14, class: "soft" }, "share of its own norm that a tensor moved, 1e-5 to 1e4");
        const lamb = tensors.map((name, k) => {
            const y = 30 + 62 * k, adam = train(k, false), trusted = train(k, true);
            add(svg, "text", { x: 0, y: y + 14 }, `${name} (values of ${sizes[k]})`);
            add(svg, "text", { x: 0, y: y + 34, class: "soft" }, `trust ratio ${trusted.norms[2].toPrecision(3)}`);
            for (const [row, what, run] of [[0, "Adam", adam], [1, "LAMB", trusted]]) {
                add(svg, "rect", { x: 190, y: y + 22 * row, width: width(run.share), height: 18, fill: colour(row ? "main" : "warm"), opacity: 0.8 });
                const inside = width(run.share) > 330;
                add(svg, "text", { x: inside ? 196 : 196 + width(run.share), y: y + 14 + 22 * row, ...inside && { style: `fill: ${colour("card")}` } },
                    `${what} ${run.share.toPrecision(2)}`);
            }
            return trusted;
        });
        const [least, most] = [Math.min(...lamb.map((t) => t.share)), Math.max(...lamb.map((t) => t.share))];
        output.textContent = `The last step of the small tensor: |p| = ${lamb[2].norms[0].toPrecision(3)}, |u| = ${lamb[2].norms[1].toPrecision(3)}, ` +
            `trust ratio ${lamb[2].norms[2].toPrecision(3)}. With LAMB the three moved by ${least.toPrecision(2)} to ${most.toPrecision(2)} of their norms.`;
    }
    update();
});
