/* charts.js - drawings as SVG elements: a line chart with two scales, and bars. Text is always set as
 * text, never as markup: names come from peers. */
"use strict";
const potluckCharts = (function () {

const NS = "http://www.w3.org/2000/svg";

function element(name, attributes, text) {
    const e = document.createElementNS(NS, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    return e;
}

function canvas(box, width, height, title) {
    const svg = element("svg", { viewBox: "0 0 " + width + " " + height, "aria-hidden": "true" });
    box.replaceChildren(svg);
    if (title) box.setAttribute("aria-label", title);
    return svg;
}

/* Steps of 1, 2 or 5 times a power of ten, about `about` of them. */
function ticks(min, max, about) {
    const span = max - min || 1, power = Math.pow(10, Math.floor(Math.log10(span / about)));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => span / s <= about) || 10 * power;
    const list = [];
    for (let x = Math.ceil(min / step) * step; x <= max + step / 1e6; x += step) list.push(+x.toPrecision(12));
    return list;
}

/* The same of a time axis, by steps that a clock has. */
function timeTicks(t0, t1, about) {
    const span = t1 - t0, whole = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];
    const step = whole.find((s) => span / s <= about) || 86400 * Math.ceil(span / 86400 / about), list = [];
    for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step) list.push(t);
    return list;
}

function extent(values) {
    let min = Infinity, max = -Infinity;
    for (const v of values) if (Number.isFinite(v)) { min = Math.min(min, v); max = Math.max(max, v); }
    return min > max ? [0, 1] : min === max ? [min - (Math.abs(min) || 1) / 2, max + (Math.abs(max) || 1) / 2] : [min, max];
}

function timeLabel(t, span) {
    const d = new Date(t * 1000), two = (n) => String(n).padStart(2, "0");
    if (span > 2 * 86400) return d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate());
    return two(d.getHours()) + ":" + two(d.getMinutes()) + (span < 600 ? ":" + two(d.getSeconds()) : "");
}

/* One moment alone stands in the middle of a minute. */
function spanOf(times) {
    const first = times[0], last = times[times.length - 1];
    return first < last ? [first, last] : [first - 30, first + 30];
}

/* The middle of a time's words, which stay within the picture. */
function within(x, W, words) { return Math.min(x, W - 4 - 3.5 * words.length); }

/* Letters keep their size: a narrow box gets a narrow drawing, not a small one. */
function widthOf(box) { return Math.max(280, Math.min(1000, box.clientWidth || 900)); }

/* What a pointer is over: a line at the nearest time, and the values there. */
function follow(svg, times, marks, top, bottom, label) {
    const line = element("line", { class: "cross", visibility: "hidden" }), words = element("text", { class: "ink", visibility: "hidden" });
    svg.append(line, words);
    svg.addEventListener("pointerleave", () => { for (const e of [line, words]) e.setAttribute("visibility", "hidden"); });
    svg.addEventListener("pointermove", (event) => {
        const frame = svg.getBoundingClientRect(), W = svg.viewBox.baseVal.width, x = (event.clientX - frame.left) / frame.width * W;
        let best = 0;
        times.forEach((t, i) => { if (Math.abs(marks.X(t) - x) < Math.abs(marks.X(times[best]) - x)) best = i; });
        const at = marks.X(times[best]);
        for (const k in { x1: 0, x2: 0 }) line.setAttribute(k, at);
        line.setAttribute("y1", top);
        line.setAttribute("y2", bottom);
        words.setAttribute("x", Math.min(Math.max(at, 130), W - 130));
        words.setAttribute("y", bottom - 6);
        words.setAttribute("text-anchor", "middle");
        words.textContent = label(times[best]) + ": " + marks.series.map((s) => s.name + " " +
            (Number.isFinite(s.values[best]) ? s.text ? s.text(s.values[best]) : String(+s.values[best].toPrecision(4)) : "–")).join(", ");
        for (const e of [line, words]) e.setAttribute("visibility", "visible");
    });
}

/* series: [{name, values, zero, most, whole, text, with}]: the first has its scale on the left, the second on
 * the right, further ones share that of series number `with`. times in seconds since 1970, or what options.label
 * has words for. */
function lines(box, times, series, options) {
    const W = widthOf(box), H = (options && options.height) || 260, right = series.length > 1 ? 56 : 16, left = 60;
    const crowded = W < 480 && series.length > 2, top = crowded ? 44 : 26, bottom = 26, svg = canvas(box, W, H, options && options.title);
    const [t0, t1] = spanOf(times), X = (t) => left + (t - t0) / (t1 - t0) * (W - left - right), scale = [];
    const words = (options && options.label) || ((t) => timeLabel(t, t1 - t0));
    let legend = left;
    for (const t of (options && options.label ? ticks : timeTicks)(t0, t1, W / 130)) {
        svg.append(element("line", { x1: X(t), x2: X(t), y1: top, y2: H - bottom, class: "axis" }));
        svg.append(element("text", { x: within(X(t), W, words(t)), y: H - 8, "text-anchor": "middle" }, words(t)));
    }
    series.forEach((s, k) => {
        const own = s.with === undefined, mates = series.filter((o) => o === s || o.with === k);
        let [min, max] = own ? extent([].concat(...mates.map((o) => o.values))) : [0, 1];
        if (s.zero) min = 0;
        if (s.zero && max <= 0) max = 1;
        if (s.most) max = s.most;
        scale[k] = own ? (v) => H - bottom - (v - min) / (max - min) * (H - bottom - top) : scale[s.with];
        for (const v of own ? ticks(min, max, 5).filter((x) => !s.whole || Number.isInteger(x)) : [])
            svg.append(element("text", { x: k ? W - right + 6 : left - 6, y: scale[k](v) + 4, class: "label-" + k,
                                         "text-anchor": k ? "start" : "end" }, s.text ? s.text(v) : String(v)));
        let d = "", pen = false;
        s.values.forEach((v, i) => {
            if (!Number.isFinite(v)) { pen = false; return; }
            d += (pen ? "L" : "M") + X(times[i]).toFixed(1) + " " + scale[k](v).toFixed(1);
            if (!pen && !Number.isFinite(s.values[i + 1])) /* alone: no line would show it */
                svg.append(element("circle", { cx: X(times[i]), cy: scale[k](v), r: 3.5, class: "fill-" + k }));
            pen = true;
        });
        if (!k && times.length > 1 && s.values.every(Number.isFinite)) /* what is below it, softly */
            svg.append(element("polygon", { class: "below", points: s.values.map((v, i) => X(times[i]).toFixed(1) + "," + scale[k](v).toFixed(1)).join(" ") +
                " " + X(t1).toFixed(1) + "," + (H - bottom) + " " + X(t0).toFixed(1) + "," + (H - bottom) }));
        svg.append(element("path", { d: d, class: ["one", "two-line", "three-line"][k] }));
        if (k !== 1) { /* names of what is on the left stand side by side, or below each other */
            svg.append(element("text", { x: crowded ? left : legend, y: k && crowded ? 32 : 14, class: "label-" + k }, s.name));
            legend += 9 * s.name.length;
        } else svg.append(element("text", { x: W - right, y: 14, class: "label-1", "text-anchor": "end" }, s.name));
    });
    follow(svg, times, { X: X, series: series }, top, H - bottom, words);
}

/* rows: [{name, parts: [number], text}] on one scale from 0; words above each bar, as HTML that wraps. */
function bars(box, rows, max, title) {
    if (title) box.setAttribute("aria-label", title);
    box.replaceChildren(...rows.map((row) => {
        const div = document.createElement("div"), words = document.createElement("div");
        const svg = element("svg", { viewBox: "0 0 100 2", preserveAspectRatio: "none", class: "bar-of", "aria-hidden": "true" });
        let x = 0;
        words.className = "small";
        words.textContent = row.name + ": " + row.text;
        row.parts.forEach((part, k) => {
            const w = max > 0 ? part / max * 100 : 0;
            svg.append(element("rect", { x: x.toFixed(3), y: 0, width: Math.max(0, w).toFixed(3), height: 2, class: "fill-" + k }));
            x += w;
        });
        div.append(words, svg);
        return div;
    }));
}

return { element: element, canvas: canvas, widthOf: widthOf, timeTicks: timeTicks, within: within, timeLabel: timeLabel, lines: lines, bars: bars };
})();
