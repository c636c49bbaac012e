/* figures.js - the five challenges as small drawings to play with, and the calculator's form. Numbers
 * are the run's, the protocol's, or come from calc.js. */
"use strict";
(function () {

const calc = globalThis.potluckCalc, charts = potluckCharts, models = {};
for (const m of potluckData.calculator.models) models[m.name] = m;

/* "12.3 GB", three digits. */
function bytes(n) {
    const unit = ["B", "kB", "MB", "GB", "TB"];
    let i = 0;
    while (n >= 1000 && i < 4) { n /= 1000; i++; }
    return (i ? n.toPrecision(3) : Math.round(n)) + " " + unit[i];
}
function duration(s) {
    if (s < 90) return s.toPrecision(2) + " s";
    if (s < 5400) return (s / 60).toPrecision(2) + " minutes";
    if (s < 129600) return (s / 3600).toPrecision(2) + " hours";
    return s < 3e9 ? Math.round(s / 86400).toLocaleString("en") + " days" : Math.round(s / 31557600) + " years";
}

/* A figure redraws whenever one of its inputs moves. */
function play(id, draw) {
    const figure = document.getElementById(id), inputs = {}, outputs = {};
    for (const e of figure.querySelectorAll("[data-in]")) inputs[e.dataset.in] = e;
    for (const e of figure.querySelectorAll("[data-out]")) outputs[e.dataset.out] = e;
    outputs.text.classList.remove("nojs");
    outputs.text.setAttribute("role", "status");
    outputs.chart.setAttribute("role", "img");
    const value = (name) => inputs[name].type === "checkbox" ? inputs[name].checked : Number(inputs[name].value);
    const update = () => draw(value, outputs);
    for (const name in inputs) inputs[name].addEventListener("input", update);
    update();
}

play("fig-communication", (value, out) => {
    const plan = calc.planFor(models.run), link = Math.pow(10, value("link"));
    plan.groups = value("shared") ? 0 : 64;
    plan.allreduce_bits = value("bits");
    const sent = calc.corrected(plan).allreduce_bytes, seconds = sent * 8 / (link * 1e6);
    plan.allreduce_bits = 32;
    plan.groups = 64;
    const worst = calc.corrected(plan).allreduce_bytes;
    out.link.textContent = Math.round(link) + " Mbit/s";
    out.text.textContent = "Each peer sends " + bytes(sent) + " a round, " + duration(seconds) +
        " at " + Math.round(link) + " Mbit/s. The run took a step about every 260 s: " +
        (seconds < 260 ? Math.round(seconds / 260 * 100) + " % of it." : "the all-reduce alone takes longer.");
    charts.bars(out.chart, [
        { name: "This setting", parts: [sent], text: bytes(sent) },
        { name: "32 bits, nothing shared", parts: [0, worst], text: bytes(worst) }], worst, out.text.textContent);
});

play("fig-devices", (value, out) => {
    const one = 0.105, kinds = [value("colab") * one, value("fast") * 5 * one, value("slow") * one / 10];
    const rate = kinds[0] + kinds[1] + kinds[2], seconds = 4096 / rate;
    out.colab.textContent = value("colab");
    out.fast.textContent = value("fast");
    out.slow.textContent = value("slow");
    out.text.textContent = "Together " + rate.toFixed(2) + " samples a second: the target batch is reached after " +
        duration(seconds) + ". No card waits for the slowest one.";
    charts.bars(out.chart, ["Colab cards", "Fast cards", "Laptops"].map((name, k) => ({
        name: name, parts: [0, 0, 0].map((z, i) => i === k ? kinds[k] : 0),
        text: Math.round(kinds[k] / rate * 4096) + " of 4096 samples" })), rate, out.text.textContent);
});

play("fig-memory", (value, out) => {
    const plan = calc.planFor(models.run), rows = [];
    const row = (name) => {
        const use = calc.corrected(plan), t = use.terms, sum = (x) => t[x].gpu + t[x].ram;
        const parts = [sum("weights") + sum("gradients"), sum("optimizer"), sum("activations"),
                       sum("working") + sum("logits") + sum("last_good") + sum("saving") + sum("program")];
        rows.push({ name: name, parts: parts, text: bytes(parts.reduce((a, b) => a + b)) + " (" +
            ["weights and gradients", "optimizer state", "saved activations", "everything else"]
                .map((n, i) => n + " " + bytes(parts[i])).join(", ") + ")" });
        return use.gpu_total + use.ram_total;
    };
    plan.groups = value("shared") ? 0 : 64;
    plan.optimizer = value("states") ? "8-bit" : "32-bit";
    plan.layers = value("reversible") ? "reversible" : "stored";
    const now = row("This setting");
    plan.groups = 64;
    plan.optimizer = "32-bit";
    plan.layers = "stored";
    const worst = row("None of the three");
    out.text.textContent = bytes(now) + " where none of the three would take " + bytes(worst) + ": " +
        (worst / now).toFixed(1) + " times as much.";
    charts.bars(out.chart, rows, worst, out.text.textContent);
});

play("fig-streaming", (value, out) => {
    const rate = Math.pow(10, value("rate")), size = value("codes") ? 1024 * 13 / 8 : 256 * 256 * 3;
    out.rate.textContent = rate.toPrecision(2);
    out.text.textContent = (value("codes") ? "Codes: " : "Pixels: ") + bytes(size) + " a picture, " +
        bytes(size * rate) + " a second to read, " + bytes(size * 413e6) +
        " for all of LAION's 413 million; a shuffle buffer of 8,192 takes " + bytes(8192 * size) + ".";
    charts.bars(out.chart, [
        { name: "Codes of a picture", parts: [1664], text: bytes(1664) },
        { name: "Its pixels", parts: [0, 196608], text: bytes(196608) }], 196608, out.text.textContent);
});

/* ref/centered_clip: v <- v + mean of (x - v) min(1, tau / |x - v|), from the median, 20 times. */
function centeredClip(points, tau) {
    const middle = (k) => points.map((p) => p[k]).sort((a, b) => a - b)[points.length >> 1];
    let v = [middle(0), middle(1)];
    for (let i = 0; i < 20; i++) {
        const sum = [0, 0];
        for (const p of points) {
            const d = [p[0] - v[0], p[1] - v[1]], c = Math.min(1, tau / (Math.hypot(d[0], d[1]) || 1));
            sum[0] += d[0] * c;
            sum[1] += d[1] * c;
        }
        v = [v[0] + sum[0] / points.length, v[1] + sum[1] / points.length];
    }
    return v;
}

play("fig-security", (value, out) => {
    const n = 16, points = [];
    for (let i = 0; i < n; i++) { /* honest ones around (1, 0), always the same */
        const a = i * 2.399963, r = 0.25 + 0.75 * ((i * 7) % n) / n;
        points.push(i < n - value("byzantine") ? [1 + r * Math.cos(a), r * Math.sin(a)]
                    : [1 - value("far") * (0.8 - 0.03 * (n - i)), value("far") * (0.6 - 0.05 * ((n - i) % 3))]);
    }
    const honest = points.slice(0, n - value("byzantine"));
    const mean = (list) => [0, 1].map((k) => list.reduce((s, p) => s + p[k], 0) / list.length);
    const truth = mean(honest), all = mean(points), clipped = centeredClip(points, value("tau"));
    const off = (v) => Math.hypot(v[0] - truth[0], v[1] - truth[1]);
    out.byzantine.textContent = value("byzantine");
    out.far.textContent = value("far");
    out.tau.textContent = value("tau").toFixed(1);
    out.text.textContent = "From the honest peers' mean: the plain mean is " + off(all).toFixed(2) +
        " away, CenteredClip " + off(clipped).toFixed(2) + ".";
    const W = charts.widthOf(out.chart), H = 260, svg = charts.canvas(out.chart, W, H, out.text.textContent);
    const unit = Math.min(W * 0.66 / Math.max(3, value("far") * 0.8), H * 0.6 / Math.max(1.5, value("far") * 0.6));
    const X = (x) => W * 0.82 + (x - 1) * unit, Y = (y) => H * 0.68 - y * unit;
    const mark = (p, r, c, label, dy) => {
        svg.append(charts.element("circle", { cx: X(p[0]).toFixed(1), cy: Y(p[1]).toFixed(1), r: r, class: c }));
        if (label) svg.append(charts.element("text", { x: X(p[0]) - 12, y: Y(p[1]) + dy, class: "ink", "text-anchor": "end" }, label));
    };
    points.forEach((p, i) => mark(p, 4, i < honest.length ? "fill-0" : "fill-1"));
    mark(all, 8, "ring", "mean", -8);
    mark(clipped, 8, "ring", "CenteredClip", 16);
});

/* --- the calculator --- */

const form = document.getElementById("calc"), result = document.getElementById("calc-out");
const field = (name) => form.elements[name];
for (const name in models) field("model").append(new Option(name, name, false, name === "run"));
form.hidden = false;

function start() { /* a model brings its own setting */
    const plan = calc.planFor(models[field("model").value]);
    for (const name of ["optimizer", "precision", "layers", "groups", "batch", "allreduce_bits", "peers", "zero", "devices"])
        field(name).value = plan[name];
    for (const name of ["offload", "fused", "dropout", "packed"]) field(name).checked = plan[name];
}

function size(n) { return n === 0 ? "–" : (n / 1073741824 >= 1 ? (n / 1073741824).toFixed(2) + " GiB" : (n / 1048576).toFixed(2) + " MiB"); }

function table(head, rows) {
    const t = document.createElement("table"), top = t.createTHead().insertRow(), body = t.createTBody();
    for (const [text, right] of head) {
        const th = document.createElement("th");
        th.scope = "col";
        th.textContent = text;
        if (right) th.className = "n";
        top.append(th);
    }
    for (const cells of rows) {
        const r = body.insertRow();
        cells.forEach((text, i) => {
            const c = i ? r.insertCell() : r.appendChild(document.createElement("th"));
            if (!i) c.scope = "row";
            c.textContent = text;
            if (head[i][1]) c.className = "n";
        });
    }
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Terms");
    scroll.append(t);
    return scroll;
}

function show() {
    const plan = calc.planFor(models[field("model").value]);
    for (const name of ["optimizer", "precision", "layers"]) plan[name] = field(name).value;
    for (const name of ["groups", "batch", "allreduce_bits", "peers", "zero", "devices"])
        plan[name] = Math.max(name === "batch" || name === "devices" || name === "peers" ? 1 : 0, Math.floor(Number(field(name).value) || 0));
    for (const name of ["offload", "fused", "dropout", "packed"]) plan[name] = field(name).checked;
    const originally = field("mode").value === "original", line = document.createElement("p");
    for (const name of ["fused", "dropout", "packed", "allreduce_bits", "peers"]) field(name).disabled = originally;
    let rows, sum;
    if (originally) {
        const m = calc.original(plan);
        rows = [["GPU total", size(m.gpu_total)], ["offloaded to RAM", size(m.ram_total)],
                ["parameters", size(m.weights)], ["activations", size(m.activations)],
                [plan.offload ? "optimizer (CPU)" : "optimizer (GPU)", size(plan.offload ? m.ram_total : m.optimizer_gpu)],
                ["weight gradients", size(m.weight_gradients_gpu)],
                ["CPU–GPU transfer", (1000 * m.transfer_seconds).toFixed(0) + " ms"]];
        line.textContent = m.parameters.toLocaleString("en") + " parameters, by the original's formulas.";
        result.replaceChildren(line, table([["", false], ["", true]], rows));
        result.dataset.total = m.gpu_total;
        return;
    }
    const use = calc.corrected(plan);
    rows = Object.keys(use.terms).filter((t) => use.terms[t].gpu || use.terms[t].ram)
        .map((t) => [t.replace("_", " "), size(use.terms[t].gpu), size(use.terms[t].ram), potluckData.calculator.terms[t]]);
    rows.push(["total", size(use.gpu_total), size(use.ram_total),
               plan.model.family === "dalle" ? "on a processor both are the same memory"
                                             : "plan 20 to 30 % more for a framework on a GPU"]);
    line.textContent = use.parameters.toLocaleString("en") + " parameters" +
        (use.without_sharing > use.parameters ? ", shared from " + use.without_sharing.toLocaleString("en") : "") +
        (use.allreduce_bytes ? "; " + bytes(use.allreduce_bytes) + " sent a step" : "") +
        (use.transfer_seconds ? "; " + use.transfer_seconds.toPrecision(3) + " s of transfer a step" : "") + ".";
    result.replaceChildren(line, table([["", false], ["device", true], ["host", true], ["what it is", false]], rows));
    result.dataset.total = use.gpu_total;
}

field("model").addEventListener("change", () => { start(); show(); });
form.addEventListener("input", show);
form.addEventListener("change", show);
form.addEventListener("submit", (e) => e.preventDefault());
start();
show();
})();
