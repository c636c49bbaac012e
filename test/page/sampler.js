/* sampler.js - the book's model in node, as JSON: {"tokens": [ids of each line], "drawn": [{codes, pixels} of each line drawn]}.
 *
 *   node sampler.js REF_WASM MODEL_JS LINES DRAWN       LINES: texts, one a line; the first DRAWN of them are drawn
 *
 * test/interop/book.py compares them with `potluck tokenize` and `potluck generate --greedy`. */
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");
const scripts = path.join(__dirname, "../../paper/book/figures");
const { Ref, bytesOf85, openTensors } = require(path.join(scripts, "figure.js"));
Object.assign(globalThis, { bytesOf85, openTensors });
const { Sampler, tokenize } = require(path.join(scripts, "sampler.js"));

const [, , wasm, model, file, drawn] = process.argv;
const trained = vm.runInNewContext(fs.readFileSync(model, "utf8") + "; MODEL");
const lines = fs.readFileSync(file, "utf8").split("\n").slice(0, -1);
Ref.open(fs.readFileSync(wasm)).then((ref) => {
    const sampler = new Sampler(ref, trained);
    const pictures = lines.slice(0, Number(drawn)).map((line) => sampler.sample(line, { temperature: 0 }));
    console.log(JSON.stringify({
        tokens: lines.map((line) => tokenize(sampler.pieces, line)),
        drawn: pictures.map(({ codes, pixels }) => ({ codes: [...codes], pixels: [...pixels] })),
    }));
});
