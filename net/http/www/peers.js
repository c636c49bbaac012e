/* peers.js - who takes part: names before keys, the swarm's health, a map by round-trip time, and who came when.
 * Names are a peer's own words: set as text, and never without its key, which nobody else can have. */
"use strict";
const potluckPeers = (function () {

const at = (id) => document.getElementById(id), charts = potluckCharts;
const ROWS = 24; /* keys of the timeline: those with the most samples */
const RINGS = [1, 10, 100, 1000]; /* ms */

const label = (p) => p.called ? p.called + " · " + p.name : p.name;

/* --- health: [how it is reached, whether that is good] of each kind --- */

function health(peers, stateOf, rounds) {
    const count = {}, tries = rounds.good + rounds.failed;
    for (const p of peers) { const s = stateOf(p)[0]; count[s] = (count[s] || 0) + 1; }
    const sum = (...names) => names.reduce((n, name) => n + (count[name] || 0), 0);
    const active = peers.length - sum("gone", "ended", "silent", "training");
    at("health").hidden = !peers.length || active < 1 && !tries;
    at("h-direct").textContent = sum("direct", "reachable") + " of " + active;
    at("h-relayed").textContent = sum("relayed");
    at("h-client").textContent = sum("client");
    at("h-late").textContent = sum("stale", "joining", "behind", "no answer");
    at("h-failed").textContent = tries > 0 ? +(100 * rounds.failed / tries).toPrecision(2) + " %" : "–";
    at("h-failed").title = tries > 0 ? rounds.failed + " of " + tries + " rounds" : "";
}

/* --- the world as this page's machine sees it: near is near in time, whatever the place --- */

/* An angle that stays with the key. */
function angle(key) {
    let h = 2166136261;
    for (let i = 0; i < key.length; i++) h = Math.imul(h ^ key.charCodeAt(i), 16777619) >>> 0;
    return h / 4294967296 * 2 * Math.PI;
}

/* Away from the middle, or towards it where the words would leave the picture. */
function writeBeside(svg, x, y, isRight, words, W) {
    const long = 7.5 * words.length + 9, right = isRight ? x + long < W : x - long < 0;
    svg.append(charts.element("text", { x: (x + (right ? 9 : -9)).toFixed(1), y: (y + 4).toFixed(1), class: "ink",
                                        "text-anchor": right ? "start" : "end" }, words));
}

function world(peers, stateOf) {
    const known = peers.filter((p) => Number.isFinite(p.round_trip_ms)), box = at("chart-world");
    at("world").hidden = !known.length;
    if (!known.length) return;
    const W = charts.widthOf(box), H = 320, R = H / 2 - 18, x0 = W / 2, y0 = H / 2;
    const far = (ms) => R * Math.min(1, Math.max(0.06, (Math.log10(Math.max(ms, 0.1)) + 1) / 4));
    const sorted = known.map((p) => p.round_trip_ms).sort((a, b) => a - b);
    const svg = charts.canvas(box, W, H, "Round trips to " + known.length + " of " + peers.length + " peers: the nearest " +
        sorted[0].toPrecision(2) + " ms, the farthest " + sorted[sorted.length - 1].toPrecision(2) + " ms");
    for (const ms of RINGS) {
        svg.append(charts.element("circle", { cx: x0, cy: y0, r: far(ms).toFixed(1), class: "axis" }));
        svg.append(charts.element("text", { x: x0, y: (y0 - far(ms) - 3).toFixed(1), "text-anchor": "middle" }, ms < 1000 ? ms + " ms" : "1 s"));
    }
    svg.append(charts.element("circle", { cx: x0, cy: y0, r: 4, class: "fill-3" }));
    for (const p of known) {
        const a = angle(p.key), r = far(p.round_trip_ms), x = x0 + r * Math.cos(a), y = y0 + r * Math.sin(a);
        const dot = charts.element("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 5, class: stateOf(p)[1].endsWith(" on") ? "fill-0" : "fill-1" });
        dot.append(charts.element("title", {}, label(p) + ", " + p.round_trip_ms.toPrecision(2) + " ms, " + stateOf(p)[0]));
        svg.append(dot);
        if (known.length <= 40)
            writeBeside(svg, x, y, x > x0, p.called || p.name, W);
    }
}

/* --- the timeline: of each key, from the first record that this page has seen to the last; of those that report how they
   spend their time, its shares --- */

const KINDS = [["computed", "computing", 0], ["waited", "waiting for a group", 3], ["averaged", "averaging", 2], ["shared", "sending its state", 1]];

/* From totals, which begin anew with the peer, to [begin, end, seconds of each kind]. */
function spans(times) {
    const grown = (k, i) => (times[k][i] >= times[k][i - 1] ? times[k][i] - times[k][i - 1] : times[k][i]) / 1000;
    return times.time.slice(1).map((t, i) => [times.time[i], t, KINDS.map(([k]) => grown(k, i + 1))]);
}

function spent(all) {
    const long = all.reduce((n, s) => n + s[1] - s[0], 0);
    return KINDS.map(([, words], k) => words + " " + Math.round(100 * all.reduce((n, s) => n + s[2][k], 0) / (long || 1)) + " %").join(", ");
}

/* Each kind's share of a span as its part of the height; kinds that overlap share it. */
function drawSpans(svg, all, X, y, high) {
    const d = KINDS.map(() => "");
    for (const [from, to, seconds] of all) {
        const scale = high / Math.max(to - from, seconds.reduce((a, b) => a + b, 0)), x = X(from).toFixed(1), w = Math.max(0.5, X(to) - X(from)).toFixed(1);
        let low = y + high;
        seconds.forEach((s, k) => {
            low -= s * scale;
            if (s > 0) d[k] += "M" + x + " " + low.toFixed(2) + "h" + w + "v" + (s * scale).toFixed(2) + "h-" + w + "z";
        });
    }
    d.forEach((path, k) => svg.append(charts.element("path", { d: path, class: "fill-" + KINDS[k][2] })));
}

function drawKinds(svg, left, wide) {
    let x = left, y = 0;
    KINDS.forEach(([, words, colour], k) => {
        if (!wide && k === 2) { x = left; y = 16; }
        svg.append(charts.element("rect", { x: x, y: y + 2, width: 11, height: 11, class: "fill-" + colour }));
        svg.append(charts.element("text", { x: x + 16, y: y + 12 }, words));
        x += wide ? 32 + 7 * words.length : 140;
    });
}

function timeline(board, now) {
    const rows = board.filter((p) => Number.isFinite(p.first) && Number.isFinite(p.last)).slice(0, ROWS).sort((a, b) => a.first - b.first);
    const box = at("chart-timeline"), t0 = Math.min(...rows.map((p) => p.first)), t1 = Math.max(now, ...rows.map((p) => p.last));
    at("timeline").hidden = !rows.length || !(t1 > t0);
    if (at("timeline").hidden) return;
    const W = charts.widthOf(box), wide = W >= 480, left = wide ? 200 : 8, high = wide ? 20 : 34;
    const drawn = rows.map((p) => p.span ? spans(p.span) : []), all = drawn.flat(), top = all.length ? wide ? 22 : 38 : 0, H = top + rows.length * high + 30;
    const X = (t) => left + (t - t0) / (t1 - t0) * (W - left - 16);
    const svg = charts.canvas(box, W, H, rows.length + " peers, from " + charts.timeLabel(t0, t1 - t0) + " to " + charts.timeLabel(t1, t1 - t0) + (all.length ? ": " + spent(all) : ""));
    if (all.length) drawKinds(svg, left, wide);
    for (const t of charts.timeTicks(t0, t1, W / 150)) {
        svg.append(charts.element("line", { x1: X(t), x2: X(t), y1: top, y2: H - 22, class: "axis" }));
        const words = charts.timeLabel(t, t1 - t0);
        svg.append(charts.element("text", { x: charts.within(X(t), W, words), y: H - 8, "text-anchor": "middle" }, words));
    }
    rows.forEach((p, i) => {
        const y = top + i * high + 3, bar = y + (wide ? 0 : 16);
        svg.append(charts.element("text", wide ? { x: left - 8, y: y + 11, "text-anchor": "end", class: "ink" } : { x: left, y: y + 10, class: "ink" }, label(p)));
        const e = charts.element("rect", { x: X(p.first).toFixed(1), y: bar, width: Math.max(2, X(p.last) - X(p.first)).toFixed(1), height: 13, rx: 3,
                                           class: drawn[i].length ? "track" : now - p.last < 120 ? "fill-0" : "fill-3" });
        const g = charts.element("g", { class: "ink" });
        g.append(charts.element("title", {}, label(p) + ": " + charts.timeLabel(p.first, 60) + " to " + charts.timeLabel(p.last, 60) +
                                             (drawn[i].length ? ", " + spent(drawn[i]) : "")), e);
        drawSpans(g, drawn[i], X, bar, 13);
        svg.append(g);
    });
}

/* --- from where an address can be reached: a copied command that fails elsewhere helps nobody --- */

function scope(address) {
    const [, kind, host] = address.split("/"), part = (host || "").split(".").map(Number);
    const words = { here: "This address works on this machine alone.", near: "This address works in the local network alone." };
    const how = " For others the peer has to listen on or announce a public address: potluck doctor says how.";
    if (kind === "ip4" && part[0] === 127 || kind === "ip6" && host === "::1" || host === "localhost") return words.here + how;
    if (kind === "ip4" && (part[0] === 10 || part[0] === 192 && part[1] === 168 || part[0] === 172 && part[1] >= 16 && part[1] < 32 ||
        part[0] === 169 && part[1] === 254 || part[0] === 100 && part[1] >= 64 && part[1] < 128) ||
        kind === "ip6" && /^(f[cd]|fe[89ab])/i.test(host)) return words.near + how;
    return "";
}

return { label: label, health: health, world: world, timeline: timeline, scope: scope };
})();
