/* samples.js - what the model draws from the same captions, as training goes on: a card for each caption with the
 * real picture next to the drawn one, a slider over the steps, and a time-lapse of them. */
"use strict";
const potluckSamples = (function () {

const at = (id) => document.getElementById(id), charts = potluckCharts;
const FRAME = 500; /* ms of a step in the time-lapse */
let samples = [], captions = [], sheet = null, real = null, cards = [], playing = 0;

const number = (x) => x.toLocaleString("en");

/* Picture i of a contact sheet. The sheet lies behind a window of one picture's size, so a step is one file. */
function tile(i, label) {
    const step = sheet.side + sheet.gap, rows = Math.ceil(sheet.pictures / sheet.columns);
    const svg = charts.element("svg", { role: "img", "aria-label": label, viewBox:
        [sheet.gap + i % sheet.columns * step, sheet.gap + Math.floor(i / sheet.columns) * step, sheet.side, sheet.side].join(" ") });
    svg.append(charts.element("image", { x: 0, y: 0, width: sheet.gap + sheet.columns * step, height: sheet.gap + rows * step,
                                         preserveAspectRatio: "xMinYMin meet" }));
    return svg;
}

function makeCards() {
    cards = [];
    at("cards").replaceChildren(...(sheet ? captions : []).map((caption, i) => {
        const li = document.createElement("li"), pair = document.createElement("div"), words = document.createElement("p");
        const drawn = tile(i, "drawn: " + caption);
        cards.push(drawn.firstChild);
        if (real) {
            const shown = tile(i, "real: " + caption);
            shown.firstChild.setAttribute("href", real);
            pair.append(shown);
        }
        pair.append(drawn);
        words.textContent = caption;
        li.append(pair, words);
        return li;
    }));
    at("cards-box").hidden = !sheet;
    at("drawn-picture").hidden = !!sheet; /* of a run that does not say where its pictures are */
    at("drawn-captions").textContent = sheet ? (real ? "Left the real picture, right the drawn one." : "")
        : captions.length ? "In this order: " + captions.join(" · ") : "";
}

function draw() {
    const i = Math.min(Number(at("drawn-step").value), samples.length - 1), whole = at("drawn-picture");
    if (i < 0) return;
    at("drawn-name").textContent = number(samples[i].step) + (samples[i].of ? ": " + samples[i].own + " of " + samples[i].of +
        " nearest to their own picture" : "");
    whole.alt = "Pictures that the model drew from fixed captions at step " + samples[i].step;
    if (!sheet && !whole.src.endsWith("/" + samples[i].path)) whole.src = samples[i].path;
    for (const e of cards) if (e.getAttribute("href") !== samples[i].path) e.setAttribute("href", samples[i].path);
}

/* --- the time-lapse --- */

function stop() {
    clearInterval(playing);
    playing = 0;
    at("drawn-play").textContent = "Play";
}
function next() {
    const slider = at("drawn-step");
    if (Number(slider.value) >= samples.length - 1) return stop();
    slider.value = Number(slider.value) + 1;
    draw();
}
at("drawn-play").addEventListener("click", () => {
    const slider = at("drawn-step");
    if (playing) return stop();
    for (const s of samples) new Image().src = s.path; /* all of them, before they are due */
    if (Number(slider.value) >= samples.length - 1) slider.value = 0;
    draw();
    playing = setInterval(next, FRAME);
    at("drawn-play").textContent = "Pause";
});
at("drawn-step").addEventListener("input", () => { if (playing) stop(); draw(); });

/* --- how many are right --- */

const percent = (x) => Math.round(100 * x) + " %";
function nearest() {
    const counted = samples.filter((s) => s.of > 0), last = counted[counted.length - 1];
    at("nearest").hidden = !last;
    if (last)
        charts.lines(at("chart-nearest"), counted.map((s) => s.step),
            [{ name: "nearest to its own picture, by step", values: counted.map((s) => s.own / s.of), zero: true, most: 1, text: percent }],
            { height: 150, label: number, title: "Retrieval rate over steps; at step " + number(last.step) + " " +
                last.own + " of " + last.of });
}
addEventListener("resize", nearest);

function show(files) {
    const slider = at("drawn-step"), atEnd = Number(slider.value) >= samples.length - 1;
    const before = JSON.stringify([captions, sheet, real]);
    samples = files.samples;
    captions = files.captions || [];
    sheet = files.sheet || null;
    real = files.real || null;
    at("drawn").hidden = !samples.length;
    at("drawn-play").hidden = samples.length < 2;
    slider.max = Math.max(0, samples.length - 1);
    if (atEnd && !playing) slider.value = slider.max; /* follows, unless somebody looks at an older one */
    if (JSON.stringify([captions, sheet, real]) !== before || !cards.length) makeCards();
    draw();
    nearest();
}

return { show: show };
})();
