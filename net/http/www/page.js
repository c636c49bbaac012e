/* page.js - the live part: state, history and leaderboard from the program, pushed as events. Whatever
 * a peer has named itself is set as text, never as markup. */
"use strict";
(function () {

const root = document.documentElement, at = (id) => document.getElementById(id);
const POLL = 15000; /* ms, where events don't come through */
const REPORTS = 30; /* s between a peer's reports of its progress */
const STALE = 120; /* s without an answer of the page's program */
let total = 0; /* steps of the schedule */
let history = potluckData.history, board = potluckData.board || [], peers = [], now = Date.now() / 1000;

/* --- light and dark --- */

const theme = at("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
function isDark() { return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches; }
function named() { theme.textContent = isDark() ? "Light" : "Dark"; }
theme.hidden = false;
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; named(); });
dark.addEventListener("change", named);
named();
for (const e of document.querySelectorAll(".nojs")) e.hidden = true;
at("run-line").append("This copy of the page is not connected to a run."); /* until a state has come */
if (!potluckData.live) at("feed-metrics").hidden = true; /* an exported copy has nobody to count */

/* --- peers behind the title: points that drift, lines between those that are near --- */

function drawNet() {
    const svg = at("net"), W = svg.clientWidth || 1000, H = svg.clientHeight || 300, near = 150, points = [];
    for (let i = 0; i < Math.min(70, W * H / 9000); i++) /* the golden ratio spreads them evenly */
        points.push([(i * 0.618034 % 1) * W, (i * 0.414214 % 1) * H, Math.sin(i * 7), Math.cos(i * 5)]);
    const frame = (t) => {
        const here = points.map(([x, y, u, v]) => [x + 22 * Math.sin(t / 9 + u * 9) * u, y + 22 * Math.cos(t / 8 + v * 9) * v]), parts = [];
        here.forEach((p, i) => here.slice(0, i).forEach((q) => {
            if (Math.hypot(p[0] - q[0], p[1] - q[1]) < near)
                parts.push(potluckCharts.element("line", { x1: p[0], y1: p[1], x2: q[0], y2: q[1] }));
        }));
        here.forEach((p) => parts.push(potluckCharts.element("circle", { cx: p[0], cy: p[1], r: 3 })));
        svg.replaceChildren(...parts);
    };
    frame(0);
    return frame;
}
let net = drawNet();
addEventListener("resize", () => { net = drawNet(); });
if (matchMedia("(prefers-reduced-motion: no-preference)").matches)
    setInterval(() => { if (!document.hidden && scrollY < 400) net(performance.now() / 1000); }, 60);

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
function percent(x) { return Math.round(100 * x) + " %"; }
function figure(x, digits) {
    return Number.isFinite(x) ? x.toLocaleString("en", { maximumSignificantDigits: digits }) : "–";
}

function bytes(n) {
    const unit = ["B", "kB", "MB", "GB", "TB", "PB"];
    let i = 0;
    if (!Number.isFinite(n)) return "–";
    while (n >= 1000 && i < unit.length - 1) { n /= 1000; i++; }
    return (i ? n.toPrecision(3) : String(n)) + " " + unit[i];
}

/* --- tables --- */

function fill(body, rows) { /* rows of [text, class, title] */
    body.replaceChildren(...rows.map((cells) => {
        const tr = document.createElement("tr"), heads = body.parentElement.tHead.rows[0].cells;
        for (const [text, style, title] of cells) {
            const td = tr.insertCell();
            td.textContent = text;
            td.dataset.head = heads[td.cellIndex].textContent; /* a phone shows it before the value */
            if (style) td.className = style;
            if (title) td.title = title;
        }
        return tr;
    }));
}

/* From the page's own machine. */
function roundTrip(p) {
    if (!Number.isFinite(p.round_trip_ms)) return ["–", "n", p.answers === false ? "did not answer a ping" : "not measured"];
    return [figure(p.round_trip_ms, 2) + " ms", "n", "a ping from the machine that serves this page, a minute old at most"];
}

/* A word and a colour; what it means is the title. */
function stateOf(p) {
    if (p.state === "local") return !shown || shown.status === "live" ? ["training", "state on", "reads its log from the disk of this machine"] :
        shown.status === "ended" ? ["ended", "state off", "has made the run's last step"] :
        ["silent", "state off", "has written no line of its log for some time: it was stopped, or it ended early"];
    if (p.state === "quiet") return total && p.step >= total ? ["ended", "state off", "has made the run's last step"] :
        ["gone", "state off", "has reported no progress for a minute: it was stopped, or has lost its connection"];
    if (now - p.seen > REPORTS + 15) return ["stale", "state off", "has missed a report: peers report every " + REPORTS + " s"];
    if (p.step !== null && root.dataset.step - p.step > 1) return p.rounds ? ["behind", "state half", "was in rounds, and is behind the others' step: slow, or stopped"] :
        ["joining", "state half", "has not caught up with the others' step yet"];
    if (p.reachability === "relayed" || p.relayed) return ["relayed", "state half", "others call it through a relay"];
    if (p.state === "client" || p.reachability === "none") return ["client", "state half", "behind NAT: it can connect to others, they cannot connect to it"];
    if (p.answers === false) return ["no answer", "state off", "says that it can be called, but does not answer this page"];
    return p.reachability === "direct" ? ["direct", "state on", "others call it directly"] : ["reachable", "state on", "says that it can be called"];
}

function showPeers(list, now) {
    peers = list;
    sayDevices(peers);
    potluckPeers.health(peers, stateOf, (shown && shown.rounds) || { good: 0, failed: 0 });
    potluckPeers.world(peers, stateOf);
    const closed = peers.filter((p) => stateOf(p)[0] === "client").length;
    fill(at("peers"), peers.map((p) => [
        [potluckPeers.label(p), "wrap-words", p.id], stateOf(p), roundTrip(p), [p.step === null ? "–" : String(p.step), "n"],
        [figure(p.samples_per_second, 3), "n"], [figure(p.samples, 6), "n"],
        [figure(p.loss, 3), "n"], [p.version ? bytes(p.sent) : "–", "n",
         Number.isFinite(p.compression) ? "received " + bytes(p.received) + ", compressed " + figure(p.compression, 3) + " times" : ""],
        [p.version ? p.failed + " of " + (p.rounds + p.failed) : "–", "n", p.retried ? p.retried + " tried again" : ""],
        [ago(now - p.seen)], [p.version || "other"], [p.device || "–", "wrap-words"]]));
    at("peers-advice").textContent = closed && closed * 2 > peers.length ?
        "Most of these peers are not publicly reachable: if you can, open a port (potluck doctor says how), or serve as a relay (potluck peer --relay)." : "";
}

function showBoard() {
    const by = at("board-by").value, sorted = board.slice().sort((a, b) => b[by] - a[by]);
    fill(at("board"), sorted.slice(0, 200).map((p, i) => [
        [String(i + 1), "n"], [potluckPeers.label(p), "", p.id], [figure(p.samples, 9), "n"], [time(p.seconds), "n"],
        [Number.isFinite(p.last) ? ago(now - p.last) : "–"]]));
    potluckPeers.timeline(board, now);
}
at("board-by").addEventListener("change", showBoard);

/* --- pictures and checkpoints --- */

function showFiles(files) {
    potluckSamples.show(files);
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

/* Whether the run goes on, and how old what is shown is. Records have the swarm's clock, so the age of
 * a state is counted from its arrival here. */
let shown = null, arrived = 0;
function sayRun() {
    const state = shown, alone = !(state.target > 0);
    const age = (performance.now() - arrived) / 1000;
    const name = "the run “" + state.run + "”, ", when = new Date(state.time * 1000).toLocaleString();
    const last = Number.isFinite(state.seen) ? (alone ? "; the last line of its log is from " : "; its newest record is from ") + ago(state.time - state.seen) : "";
    let text = "Live: " + name + state.peers + (state.peers === 1 ? " peer" : " peers") + ", as of " + when + ".";
    if (!potluckData.live) text = "As it ended: " + name + "at step " + figure(state.step, 9) + ", as of " + when + ".";
    else if (state.status === "ended") text = "Ended: " + name + "after its last step, " + figure(state.step, 9) + last + ".";
    else if (state.status === "silent") text = "Silent: " + name + "at step " + figure(state.step, 9) + (alone ? "" : "; no peer reports progress") + last + ".";
    else if (state.status === "empty") text = "Waiting: " + name + "of which there is no record.";
    else if (age > STALE) text = "Out of date: " + name + "at step " + figure(state.step, 9) + "; this page's program answered " + ago(age) + ".";
    at("run-line").textContent = text + (state.problem ? " " + state.problem : "");
    return potluckData.live && state.status === "live" && age <= STALE;
}

function showState(state) {
    if (!shown || shown.time !== state.time) arrived = performance.now();
    shown = state;
    total = state.total_steps || 0;
    const live = sayRun();
    /* Without a swarm a step has no target to wait for: there the bar is the schedule's. */
    const alone = !(state.target > 0), all = state.total_steps;
    const done = alone ? (all ? state.step / all : 0) : Math.min(1, state.samples / state.target);
    const ends = all && Number.isFinite(state.schedule_eta) ? "the schedule ends in " + time(state.schedule_eta) : "";
    at("live").hidden = false;
    at("t-loss").textContent = figure(state.loss, 4);
    at("t-peers").textContent = figure(state.peers, 9);
    /* By wall clock: lately, or of the whole run once it is over. Before that is known, what the peers compute. */
    const counted = Number.isFinite(state.throughput);
    at("t-rate-name").textContent = "Samples a second" + (!live ? ", mean of the run" : counted || alone ? "" : ", computing");
    at("t-rate").textContent = figure(!live ? state.mean_throughput : counted ? state.throughput : state.samples_per_second, 3);
    at("t-share-box").hidden = alone || !live || !Number.isFinite(state.averaging_share);
    at("t-share").textContent = percent(state.averaging_share);
    const of = document.createElement("small");
    of.textContent = all ? " of " + figure(all, 9) : "";
    at("t-step").replaceChildren(figure(state.step, 9), of);
    at("t-held-box").hidden = !Number.isFinite(state.held_out);
    at("t-held").textContent = figure(state.held_out, 4);
    for (const phase of ["accumulating", "matching", "averaging"]) {
        const here = live && state.phase === phase && state.target > 0 && state.peers > 0;
        at("phase-" + phase).className = here ? "here" : "";
        if (here) at("phase-" + phase).setAttribute("aria-current", "step");
        else at("phase-" + phase).removeAttribute("aria-current");
    }
    showTraffic(state.rounds || {});
    showResources(state.resources);
    at("t-banned-box").hidden = !state.banned;
    at("t-banned").textContent = figure(state.banned, 9);
    sayCommunication(state.rounds || {}, state.step);
    document.querySelector(".phases").hidden = alone || !live;
    at("t-progress").parentElement.hidden = (alone && !all) || (!alone && !live);
    at("t-progress").value = done;
    at("t-phase").textContent = alone ? "Steps of the schedule" : { averaging: "Averaging and stepping", matching: "Finding groups to average in" }[state.phase] ||
        "Towards the next common step";
    at("t-eta").textContent = alone ? figure(state.step, 9) + " of " + figure(all, 9) + (ends ? "; " + ends : "") : figure(state.samples, 9) + " of " + figure(state.target, 9) + " samples" +
        (state.phase !== "averaging" && Number.isFinite(state.eta) ? ", about " + time(Math.max(0, state.eta)) + " left" : "") +
        (ends ? "; " + ends : "");
    root.dataset.step = state.step;
    now = state.time;
}

/* The challenges, in numbers of the run that is being watched. */
function say(id, text) {
    at(id).hidden = !text;
    at(id).textContent = text;
}
function sayCommunication(r, steps) {
    say("live-communication", r.sent > 0 && Number.isFinite(r.compression) ?
        "The run on this page: its peers have sent " + bytes(r.sent) + (steps > 0 ? ", " + bytes(r.sent / steps) + " a step" : "") +
        "; in 32 bits it would have been " + bytes(r.sent * r.compression) + ", " + figure(r.compression, 3) + " times as much." : "");
}
function sayDevices(peers) {
    const rates = peers.map((p) => p.samples_per_second).filter((x) => x > 0).sort((a, b) => a - b);
    say("live-devices", rates.length > 1 ? "The run on this page: the slowest of " + rates.length + " peers computes " + figure(rates[0], 3) +
        " samples a second, the fastest " + figure(rates[rates.length - 1], 3) + (rates[rates.length - 1] < 1.1 * rates[0] ? "." :
        ", " + figure(rates[rates.length - 1] / rates[0], 2) + " times as many.") : "");
}

function showResources(r) {
    at("resources").hidden = !r;
    if (!r) return;
    const of = (id, name, text) => {
        const most = r.limits.system[name];
        at(id).textContent = text(r.system[name]) + (most ? " of " + text(most) : "");
    };
    const count = (x) => figure(x, 9);
    of("t-connections", "connections", count);
    of("t-streams", "streams", count);
    of("t-held-bytes", "held_bytes", bytes);
    of("t-unsent-bytes", "unsent_bytes", bytes);
    of("t-record-bytes", "record_bytes", bytes);
    of("t-reservations", "reservations", count);
    at("t-limited").textContent = count(r.limited);
}

function showTraffic(r) {
    at("traffic").hidden = !(r.good || r.failed);
    at("t-sent").textContent = bytes(r.sent);
    at("t-received").textContent = bytes(r.received);
    at("t-compressed").textContent = Number.isFinite(r.compression) ? figure(100 / r.compression, 3) + " %" : "–";
    at("t-rounds").textContent = figure(r.good, 9);
    at("t-failed").textContent = figure(r.failed, 9);
    at("t-retried").textContent = figure(r.retried, 9);
}

function showHistory() {
    if (!history || history.time.length < 1) return;
    const held = (history.held_out || []).some(Number.isFinite) ? [{ name: "held-out loss", values: history.held_out, with: 0 }] : [];
    potluckCharts.lines(at("chart-loss"), history.time,
        [{ name: "training loss", values: history.loss }, { name: "active peers", values: history.peers, zero: true, whole: true }, ...held],
        { title: "Training loss and active peers over time; last loss " + figure(history.loss[history.loss.length - 1], 4) });
    potluckCharts.lines(at("chart-rate"), history.time,
        [{ name: "samples a second", values: history.samples_per_second, zero: true }], { height: 150 });
    if (!at("traffic").hidden && (history.sent || []).some((x) => x > 0))
        potluckCharts.lines(at("chart-sent"), history.time, [{ name: "bytes sent", values: history.sent, zero: true, text: bytes }], { height: 150 });
}

addEventListener("resize", () => { showHistory(); potluckPeers.world(peers, stateOf); potluckPeers.timeline(board, now); });

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
/* The command that joins, as a QR code and for the clipboard, which browsers allow over https and on
 * this machine alone. */
function offerCommand(command) {
    const code = potluckQR.matrix(command), svg = document.getElementById("qr"), quiet = 4;
    if (!code) return;
    const side = code.length + 2 * quiet, path = document.createElementNS(svg.namespaceURI, "path");
    svg.setAttribute("viewBox", [-quiet, -quiet, side, side].join(" "));
    path.setAttribute("d", potluckQR.path(code));
    svg.replaceChildren(path);
    document.getElementById("joining").hidden = false;
    const button = document.getElementById("copy-join");
    button.hidden = !navigator.clipboard;
    button.onclick = () => navigator.clipboard.writeText(command).then(
        () => { document.getElementById("copied").textContent = "copied"; },
        () => { document.getElementById("copied").textContent = "this browser does not allow it"; });
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
    get("join").then((join) => { /* where the page knows one, the commands can be copied as they are */
        if (!join.addresses.length) return;
        for (const e of document.querySelectorAll(".address")) e.textContent = join.addresses[0];
        offerCommand("potluck join " + join.addresses[0]);
        say("join-scope", potluckPeers.scope(join.addresses[0]));
    }).catch(() => {});
    let events = null, seen = {}; /* of each feed, what the state held when it was fetched */
    const listen = () => {
        events = new EventSource("api/events");
        events.addEventListener("state", (e) => {
            const state = JSON.parse(e.data);
            showState(state);
            const due = { peers: state.rows, history: state.history_version, board: state.history_version, files: state.files_version };
            for (const name in due) /* only what has changed: a thousand pages ask at once */
                if (due[name] !== seen[name] && !document.hidden) {
                    seen[name] = due[name];
                    get(name).then((value) => show({ [name]: value })).catch(() => {});
                }
        });
        events.onerror = () => { if (events.readyState === EventSource.CLOSED) setTimeout(listen, POLL); };
    };
    setInterval(() => { if (shown) sayRun(); }, 5000);
    if (typeof EventSource === "function") listen();
    else setInterval(refresh, POLL);
}
})();
