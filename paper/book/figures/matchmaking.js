/* matchmaking.js - two hivemind 1.1.12 trainers find each other: a recording (TRACE is test/golden/protocol/training_trace.json),
 * and the state of each peer as net/hivemind/matchmaking/matchmaking.h names it. */
"use strict";
figure("matchmaking", (ref, box) => {
    const states = ["LOOKING", "ASKING", "FOLLOWING", "in a group"], ways = ["ask", "ACCEPTED", "BEGIN_ALLREDUCE"];
    const averagers = { gradients: "grad_averager", parameters: "state_averager" };
    let moments = [];

    const control = controls(box, update);
    const averager = control.select("averages", Object.keys(averagers), "gradients");
    averager.addEventListener("change", () => { read(); update(); });
    control.button("← Step", () => at.value = (at.value + moments.length - 1) % moments.length);
    control.button("Step →", () => at.value = (at.value + 1) % moments.length);
    const at = control.slider("message", 0, 0, 0);
    const svg = drawing(box, 640, 250, "The states of two peers, and the message between them");
    const output = words(box);

    /* Each message of the recording, and the peers' states after it. */
    function read() {
        const name = averagers[averager.value], state = [0, 0];
        moments = [{ state: [0, 0], text: `Both peers poll the DHT for declarations under trace_${name}.0b: which peers want to begin, and when.` }];
        for (const e of TRACE.events.filter((e) => e.protocol.includes(name) && /JoinRequest|MessageFromLeader/.test(e.type))) {
            const [follower, leader] = [e.caller, e.callee], time = `After ${e.t.toFixed(2)} s `;
            if (e.type === "JoinRequest") {
                state[leader] = 0; // since the last round
                state[follower] = 1;
                moments.push({ ...arrow(follower, leader, "JoinRequest"), state: [...state],
                    text: `${time}peer ${follower} asks peer ${leader}, whose declared time is earlier. Its own begins in ${e.expires_in.toFixed(1)} s.` });
            } else if (e.code === "ACCEPTED") {
                state[follower] = 2;
                moments.push({ ...arrow(leader, follower, e.code), state: [...state],
                    text: `${time}peer ${leader} accepts: peer ${follower} follows it, and waits for more peers, or for the leader's time.` });
            } else if (e.code === "BEGIN_ALLREDUCE") {
                state[0] = state[1] = 3;
                moments.push({ ...arrow(leader, follower, e.code), state: [...state],
                    text: `${time}peer ${leader} leads, and begins the all-reduce. The group's order is ${e.order.join(", ")}, which also orders the shares.` });
            }
        }
        document.querySelector("#figure-matchmaking input").max = moments.length - 1;
        at.value = 0;
    }
    const arrow = (from, to, label) => ({ from, to, label });

    function update() {
        const now = moments[at.value], y = (peer) => 30 + 150 * peer;
        svg.replaceChildren();
        for (const peer of [0, 1]) {
            add(svg, "text", { x: 0, y: y(peer) + 28 }, `peer ${peer}`);
            states.forEach((name, i) => {
                const x = 62 + 148 * i, here = now.state[peer] === i;
                add(svg, "rect", { x, y: y(peer), width: 104, height: 46, rx: 10, fill: here ? colour("main") : colour("paper"), stroke: colour("soft") });
                add(svg, "text", { x: x + 52, y: y(peer) + 28, "text-anchor": "middle", ...here && { style: `fill: ${colour("card")}; font-weight: 600` } }, name);
                if (i === 3) return;
                add(svg, "path", { d: `M${x + 106},${y(peer) + 23}h38m-6,-4l6,4l-6,4`, fill: "none", stroke: colour("soft") });
                add(svg, "text", { x: x + 126, y: y(peer) - 8, "text-anchor": "middle", class: "soft" }, ways[i]);
            });
        }
        if (now.label) {
            const down = now.to > now.from, y1 = down ? y(0) + 52 : y(1) - 24, y2 = down ? y(1) - 26 : y(0) + 54, d = down ? -6 : 6;
            add(svg, "path", { d: `M30,${y1}V${y2}m-5,${d}l5,${-d}l5,${d}`, fill: "none", stroke: colour("warm"), "stroke-width": 2.5 });
            add(svg, "text", { x: 42, y: (y1 + y2) / 2 + 5, style: `fill: ${colour("warm")}; font-weight: 600` }, now.label);
        }
        output.textContent = `${at.value} of ${moments.length - 1}. ${now.text}`;
    }
    read();
    update();
});
