/* calc.js - the browser's calculator against the program's: the recorded cases of the tutorial's
 * calculator, and every model under many options. Usage: node calc.js POTLUCK GOLDEN_DIR */
"use strict";
const { execFileSync } = require("child_process");
const fs = require("fs"), path = require("path");
const calc = require("../../net/http/www/calc.js");
const [potluck, golden] = process.argv.slice(2);
let passed = 0, failed = 0;

function check(what, good, why) {
    if (good) { passed++; return; }
    failed++;
    console.log("FAIL " + what + "  " + why);
}
function run(...args) { return JSON.parse(execFileSync(potluck, ["calc", "--json", ...args])); }
function close(a, b) { return Number.isInteger(b) ? a === b : Math.abs(a - b) <= 1e-12 * Math.abs(b); }

const models = {};
for (const m of run("--models").models) models[m.name] = m;

const names = { "adam": "32-bit", "16-bit-adam": "16-bit", "8-bit-adam": "8-bit", "adafactor": "factorized" };
const levels = { O0: "full", O1: "mixed", O2: "mixed", O3: "half" };
for (const c of JSON.parse(fs.readFileSync(path.join(golden, "cases.json"))).cases) {
    const plan = calc.planFor(models[c.in.model]);
    plan.optimizer = names[c.in.optimizer];
    plan.precision = levels[c.in["fp16-level"]];
    plan.layers = c.in.checkpoint ? "checkpoint" : "stored";
    plan.offload = c.in.offload;
    plan.groups = c.in.shared_groups || 0;
    plan.batch = c.in.bsz;
    const got = calc.original(plan);
    const bad = Object.keys(c.out).filter((k) => !close(got[k], c.out[k]));
    check("original " + JSON.stringify(c.in), !bad.length, bad + " " + got[bad[0]] + " " + c.out[bad[0]]);
}

const variants = [
    {}, { optimizer: "32-bit", layers: "stored", precision: "full" },
    { optimizer: "8-bit", precision: "mixed", offload: true, "compression-bits": 8, bsz: 3 },
    { optimizer: "factorized", precision: "half", zero: 2, ngpus: 4, "shared-groups": 2 },
    { optimizer: "factorized-alone", layers: "reversible", zero: 3, ngpus: 8, fused: true },
    { optimizer: "16-bit", layers: "checkpoint", zero: 1, ngpus: 2, dropout: true, fused: false,
      "compression-bits": 16, peers: 5, bsz: 40 },
    { optimizer: "8-bit", "min-8bit": 1000, block: 256, dropout: false, layers: "stored", "compression-bits": 32 },
    { packed: true }, { packed: true, bsz: 40, "shared-groups": 2 }
];
const keys = { bsz: "batch", ngpus: "devices", "shared-groups": "groups", "min-8bit": "min_8bit", "compression-bits": "allreduce_bits" };
for (const name in models)
    for (const v of variants) {
        const plan = calc.planFor(models[name]), args = [name];
        for (const k in v) {
            plan[keys[k] || k] = v[k];
            if (typeof v[k] === "boolean") args.push((v[k] ? "--" : "--no-") + k);
            else args.push("--" + k, String(v[k]));
        }
        const got = calc.corrected(plan), want = run(...args), bad = [];
        for (const k in want) if (k !== "terms" && !close(got[k], want[k])) bad.push(k);
        for (const t of want.terms)
            if (!close(got.terms[t.term].gpu, t.gpu) || !close(got.terms[t.term].ram, t.ram)) bad.push(t.term);
        check("corrected " + args.join(" "), !bad.length && Object.keys(got.terms).length === want.terms.length,
              bad + " " + JSON.stringify(got));
    }
console.log(passed + " passed, " + failed + " failed");
process.exit(failed ? 1 : 0);
