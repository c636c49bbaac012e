/* page.js - the live part: state, history and leaderboard from the program, pushed as events. Whatever
 * a peer has named itself is set as text, never as markup. */
"use strict";
(function () {

const root = document.documentElement, at = (id) => document.getElementById(id);
const POLL = 15000; /* ms, where events don't come through */
let history = potluckData.history, board = potluckData.board || [], now = Date.now() / 1000;

/* --- light and dark --- */

const theme = at("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
function isDark() { return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches; }
function named() { theme.textContent = isDark() ? "Light" : "Dark"; }
theme.hidden = false;
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; named(); });
dark.addEventListener("change", named);
named();
for (const e of document.querySelectorAll(".nojs")) e.hidden = true;

/* --- words --- */

function ago(s) {
    if (s < 90) return Math.max(0, Math.round(s)) + " s ago";
    if (s < 5400) return Math.round(s / 60) + " min ago";
    return s < 172800 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " days ago";
}
function time(s) {
    if (!Number.isFinite(s)) return "–";
    if (s < 90) return Math.round(s) + " s";
    return s < 5400 ? Math.round(s / 60) + " min" : (s / 3600).toFixed(1) + " h";
}
function figure(x, digits) {
    return Number.isFinite(x) ? x.toLocaleString("en", { maximumSignificantDigits: digits }) : "–";
}

/* --- tables --- */

function fill(body, rows) { /* rows of [text, class, title] */
    body.replaceChildren(...rows.map((cells) => {
        const tr = document.createElement("tr");
        for (const [text, style, title] of cells) {
            const td = tr.insertCell();
            td.textContent = text;
            if (style) td.className = style;
            if (title) td.title = title;
        }
        return tr;
    }));
}

function showPeers(peers, now) {
    fill(at("peers"), peers.map((p) => [
        [p.name, "", p.id], [p.state], [p.step === null ? "–" : String(p.step)],
        [figure(p.samples_per_second, 3), "n"], [figure(p.samples, 6), "n"],
        [ago(now - p.seen)]]));
}

function showBoard() {
    const by = at("board-by").value, sorted = board.slice().sort((a, b) => b[by] - a[by]);
    fill(at("board"), sorted.slice(0, 200).map((p, i) => [
        [String(i + 1), "n"], [p.name, "", p.id], [figure(p.samples, 9), "n"], [time(p.seconds), "n"]]));
}
at("board-by").addEventListener("change", showBoard);

/* --- pictures and checkpoints --- */

let samples = [];
function showDrawn() {
    const i = Math.min(Number(at("drawn-step").value), samples.length - 1), picture = at("drawn-picture");
    if (i < 0) return;
    at("drawn-name").textContent = figure(samples[i].step, 9);
    picture.alt = "Pictures that the model drew from fixed captions at step " + samples[i].step;
    if (!picture.src.endsWith("/" + samples[i].path)) picture.src = samples[i].path;
}
at("drawn-step").addEventListener("input", showDrawn);

function showFiles(files) {
    const slider = at("drawn-step"), atEnd = Number(slider.value) >= samples.length - 1;
    samples = files.samples;
    at("drawn").hidden = !samples.length;
    slider.max = Math.max(0, samples.length - 1);
    if (atEnd) slider.value = slider.max; /* follows, unless somebody looks at an older one */
    showDrawn();
    at("saved").hidden = !files.checkpoints.length;
    at("checkpoints").replaceChildren(...files.checkpoints.map((c) => {
        const li = document.createElement("li"), a = document.createElement("a");
        a.href = c.path;
        a.textContent = c.name;
        li.append(a, ", step " + figure(c.step, 9) + ", " + figure(c.bytes / 1e6, 3) + " MB");
        return li;
    }));
}

/* --- figures --- */

function showState(state) {
    const done = state.target > 0 ? Math.min(1, state.samples / state.target) : 0;
    at("live").hidden = false;
    at("run-line").textContent = (potluckData.live ? "Live: " : "As it ended: ") + "the run “" + state.run + "”, " +
        state.peers + (state.peers === 1 ? " peer" : " peers") + ", as of " + new Date(state.time * 1000).toLocaleString() + "." +
        (state.problem ? " " + state.problem : "");
    at("t-loss").textContent = figure(state.loss, 4);
    at("t-peers").textContent = figure(state.peers, 9);
    at("t-rate").textContent = figure(state.samples_per_second, 3);
    at("t-step").textContent = figure(state.step, 9) + (state.total_steps ? " of " + figure(state.total_steps, 9) : "");
    at("t-progress").parentElement.hidden = !state.target;
    at("t-progress").value = done;
    at("t-phase").textContent = state.phase === "averaging" ? "Averaging and stepping" : "Towards the next common step";
    at("t-eta").textContent = figure(state.samples, 9) + " of " + figure(state.target, 9) + " samples" +
        (state.phase === "accumulating" && Number.isFinite(state.eta) ? ", about " + time(Math.max(0, state.eta)) + " left" : "") +
        (state.total_steps && Number.isFinite(state.schedule_eta) ? "; the schedule ends in " + time(state.schedule_eta) : "");
    root.dataset.step = state.step;
    now = state.time;
}

function showHistory() {
    if (!history || history.time.length < 1) return;
    potluckCharts.lines(at("chart-loss"), history.time,
        [{ name: "training loss", values: history.loss }, { name: "active peers", values: history.peers, zero: true, whole: true }],
        { title: "Training loss and active peers over time; last loss " + figure(history.loss[history.loss.length - 1], 4) });
    potluckCharts.lines(at("chart-rate"), history.time,
        [{ name: "samples a second", values: history.samples_per_second, zero: true }], { height: 150 });
}

addEventListener("resize", showHistory);

/* --- where they come from --- */

function show(all) {
    if (all.state) showState(all.state);
    if (all.peers) showPeers(all.peers, now);
    if (all.history) { history = all.history; showHistory(); }
    if (all.files) showFiles(all.files);
    if (all.board) { board = all.board; showBoard(); }
}
async function get(name) {
    const answer = await fetch("api/" + name + ".json", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    return answer.json();
}
async function refresh() {
    try {
        show({ state: await get("state"), peers: await get("peers"), history: await get("history"),
               board: await get("board"), files: await get("files") });
    } catch (e) {
        at("run-line").textContent = "The program that serves this page does not answer; trying again.";
    }
}

show(potluckData);
if (potluckData.live) {
    let events = null, last = -1;
    const listen = () => {
        events = new EventSource("api/events");
        events.addEventListener("state", (e) => {
            const state = JSON.parse(e.data);
            showState(state);
            if (state.rows !== last && !document.hidden) { /* new points: the rest is due */
                last = state.rows;
                for (const name of ["peers", "history", "board", "files"])
                    get(name).then((value) => show({ [name]: value })).catch(() => {});
            }
        });
        events.onerror = () => { if (events.readyState === EventSource.CLOSED) setTimeout(listen, POLL); };
    };
    if (typeof EventSource === "function") listen();
    else setInterval(refresh, POLL);
}
})();
