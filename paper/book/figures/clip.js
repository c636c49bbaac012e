/* clip.js - CenteredClip against peers that the reader drags: ref_median, then ref_centered_clip one
 * iteration at a time. */
"use strict";
figure("clip", (ref, box) => {
    const honest = 9, n = 12, width = 640, height = 400, unit = 44;
    const points = normals(2 * n, 9).map((v) => 0.7 * v);
    [[7.4, 3.2], [8, 2.4], [6.9, 2.2]].forEach(([x, y], i) => { points[2 * (honest + i)] = x; points[2 * (honest + i) + 1] = y; });

    const control = controls(box, update);
    const tau = control.slider("radius τ", 0.2, 6, 1, 0.1);
    const iterations = control.slider("iterations", 1, 20, 8);
    const svg = drawing(box, width, height, "Twelve peers' vectors in the plane, their mean, and CenteredClip's result");
    const output = words(box);
    const sx = (x) => 240 + unit * x, sy = (y) => 220 - unit * y;

    svg.setAttribute("role", "group"); // peers in it can be moved by keys
    const path = add(svg, "polyline", { fill: "none", stroke: colour("main"), "stroke-width": 1.5 });
    const ring = add(svg, "circle", { fill: "none", stroke: colour("main"), "stroke-width": 2, "stroke-dasharray": "5 4" });
    const centre = add(svg, "circle", { r: 5, fill: colour("main") });
    const mean = add(svg, "path", { stroke: colour("ink"), "stroke-width": 2.5, fill: "none" });
    const dots = [];
    for (let i = 0; i < n; i++) {
        const byzantine = i >= honest;
        const dot = add(svg, "circle", { r: byzantine ? 11 : 6, fill: colour(byzantine ? "warm" : "third"), opacity: 0.9,
            ...byzantine && { tabindex: 0, role: "button", "aria-label": `Byzantine peer ${i - honest + 1}: drag it, or use the arrow keys` } });
        dots.push(dot);
        if (!byzantine) continue;
        const move = (x, y) => { points[2 * i] = Math.max(-5.3, Math.min(9, x)); points[2 * i + 1] = Math.max(-4, Math.min(4.9, y)); update(); };
        draggable(svg, dot, (x, y) => move((x - 240) / unit, (220 - y) / unit));
        dot.addEventListener("keydown", (event) => {
            const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
            if (!way) return;
            event.preventDefault();
            move(points[2 * i] + 0.25 * way[0], points[2 * i + 1] + 0.25 * way[1]);
        });
    }
    add(svg, "text", { x: 4, y: height - 8, class: "soft" }, "violet: honest; red: Byzantine; +: mean; dashed: CenteredClip and its radius");

    function average(count) {
        const sum = [0, 0];
        for (let i = 0; i < 2 * count; i++) sum[i % 2] += points[i] / count;
        return sum;
    }
    function update() {
        const median = new Float32Array(2), truth = average(honest), all = average(n);
        ref.call("ref_median", median, points, n, 2, 0);
        const v = Float64Array.from(median), way = [`${sx(v[0])},${sy(v[1])}`];
        let clipped = 0;
        for (let t = 0; t < iterations.value; t++) {
            clipped = ref.call("figure_clip", v, points, 0, n, 2, tau.value, 1, 0);
            way.push(`${sx(v[0])},${sy(v[1])}`);
        }
        dots.forEach((dot, i) => { dot.setAttribute("cx", sx(points[2 * i])); dot.setAttribute("cy", sy(points[2 * i + 1])); });
        path.setAttribute("points", way.join(" "));
        for (const circle of [ring, centre]) { circle.setAttribute("cx", sx(v[0])); circle.setAttribute("cy", sy(v[1])); }
        ring.setAttribute("r", unit * tau.value);
        mean.setAttribute("d", `M${sx(all[0]) - 8},${sy(all[1])}h16M${sx(all[0])},${sy(all[1]) - 8}v16`);
        const far = (x) => Math.hypot(x[0] - truth[0], x[1] - truth[1]).toFixed(2);
        output.textContent = `From the honest peers' mean, the mean of all is ${far(all)} away, the median ${far(median)}, CenteredClip ${far(v)}. ` +
            `${clipped} of ${n} inputs were beyond the radius in the last iteration.`;
    }
    update();
});
