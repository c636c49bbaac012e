/* figure.js - what the figures share: ref/ as WebAssembly, controls, and drawing.
 *
 *   figure("masks", (ref, box) => { ... })    ref: the WebAssembly; box: the figure's element
 *
 * ref.call(name, ...) calls a C function. A typed array stands for a pointer: it is copied into the
 * WebAssembly's memory before the call and back after it. A string is zero-terminated. A negative
 * status becomes an exception with the library's sentence. */
"use strict";

class Ref {
    /* From the bytes of ref.wasm. Of WASI only standard error is there, where a failed assertion goes. */
    static async open(bytes) {
        let memory = null;
        const decoder = new TextDecoder();
        const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: {
            fd_write(file, vectors, count, written) {
                const view = new DataView(memory.buffer);
                let n = 0;
                for (let i = 0; i < count; i++) {
                    const at = view.getUint32(vectors + 8 * i, true), length = view.getUint32(vectors + 8 * i + 4, true);
                    console.error(decoder.decode(new Uint8Array(memory.buffer, at, length)));
                    n += length;
                }
                view.setUint32(written, n, true);
                return 0;
            },
            fd_close: () => 0,
            fd_seek: () => 29, /* ESPIPE: it is a stream */
        } });
        memory = instance.exports.memory;
        instance.exports._initialize();
        return new Ref(instance.exports);
    }

    constructor(exports) { this.exports = exports; }

    call(name, ...args) {
        const placed = [];
        const words = args.map((arg) => {
            if (typeof arg === "string") arg = new TextEncoder().encode(arg + "\0");
            if (!ArrayBuffer.isView(arg)) return arg;
            const at = this.exports.pl_alloc(arg.byteLength, 1);
            if (!at) throw new Error("no memory");
            placed.push({ at, arg });
            new Uint8Array(this.exports.memory.buffer).set(new Uint8Array(arg.buffer, arg.byteOffset, arg.byteLength), at);
            return at;
        });
        const result = this.exports[name](...words);
        for (const { at, arg } of placed) {
            arg.set(new arg.constructor(this.exports.memory.buffer, at, arg.length));
            this.exports.pl_free(at);
        }
        if (result < 0) throw new Error(name + ": " + (this.text(this.exports.figure_error()) || "status " + result));
        return result;
    }

    /* A copy of n floats at an address. */
    floats(at, n) { return new Float32Array(this.exports.memory.buffer, at, n).slice(); }

    text(at) {
        const bytes = new Uint8Array(this.exports.memory.buffer, at);
        return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
    }
}

/* A safetensors file: its configuration, and tensors by name as typed arrays (float16 as float32). */
function openTensors(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), start = 8 + Number(view.getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
    const types = { F32: Float32Array, F64: Float64Array, I32: Int32Array, U8: Uint8Array, F16: Uint16Array };
    return {
        config: JSON.parse(header.__metadata__?.config || "{}"),
        names: Object.keys(header).filter((name) => name !== "__metadata__"),
        shape: (name) => header[name].shape,
        get(name) {
            if (!header[name]) throw new Error("no tensor " + name);
            const [from, to] = header[name].data_offsets, values = new types[header[name].dtype](bytes.slice(start + from, start + to).buffer);
            return header[name].dtype === "F16" ? Float32Array.from(values, fromHalf) : values;
        },
    };
}

function fromHalf(half) {
    const exponent = half >> 10 & 31, fraction = half & 1023, sign = half >> 15 ? -1 : 1;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction / 1024 * 2 ** -14);
}

/* The same numbers on every visit: normal values of deviation 1. */
function normals(n, seed) {
    let state = seed;
    const uniform = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0, (state + 0.5) / 2 ** 32);
    return Float32Array.from({ length: n }, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}

/* Of base64, in which a page has what it may not fetch. */
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/* Of base85 with the digits of RFC 1924, as Python writes it: five of them for four bytes, where base64 takes 5.33. */
function bytesOf85(text) {
    const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~", value = new Uint8Array(128);
    for (let i = 0; i < 85; i++) value[digits.charCodeAt(i)] = i;
    const words = new DataView(new ArrayBuffer(Math.ceil(text.length / 5) * 4));
    for (let i = 0; i < text.length; i += 5) {
        let word = 0;
        for (let k = i; k < i + 5; k++) word = word * 85 + (k < text.length ? value[text.charCodeAt(k)] : 84);
        words.setUint32(i / 5 * 4, word);
    }
    return new Uint8Array(words.buffer, 0, Math.floor(text.length * 4 / 5)); // the last word may be short
}

/* --- a figure on its page --------------------------------------------------------------------- */

function figure(name, draw) {
    const box = document.getElementById("figure-" + name);
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Figure: " + name);
    figure.ref ||= Ref.open(bytesOf(REF_WASM));
    figure.ref.then((ref) => draw(ref, box)).then(() => box.dataset.ready = "1", (error) => {
        add(box, "p", { class: "words" }, "This figure did not start: " + error.message);
        throw error;
    });
}

/* An HTML or SVG element, appended to its parent. */
function add(parent, tag, attributes = {}, text = "") {
    const svg = tag === "svg" || parent instanceof SVGElement;
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== "") element.textContent = text;
    parent.append(element);
    return element;
}

/* The row of controls; each one calls `update` when it is changed. */
function controls(box, update) {
    const row = add(box, "div", { class: "controls" });
    const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
    return {
        slider(label, least, most, value, step = 1, show = (v) => number.format(v)) {
            const outer = add(row, "label", {}, label + " ");
            const input = add(outer, "input", { type: "range", min: least, max: most, step });
            const output = add(outer, "output");
            const control = {
                get value() { return Number(input.value); },
                set value(v) { input.value = v; output.textContent = show(control.value); },
            };
            control.value = value;
            input.addEventListener("input", () => { control.value = input.value; update(); });
            return control;
        },
        select(label, choices, value) {
            const select = add(add(row, "label", {}, label + " "), "select");
            for (const choice of choices) add(select, "option", {}, choice);
            select.value = value;
            select.addEventListener("change", update);
            return select;
        },
        text(label, value) {
            const input = add(add(row, "label", {}, label + " "), "input", { type: "text", maxlength: 200 });
            input.value = value;
            return input;
        },
        button(label, press) {
            const button = add(row, "button", { type: "button" }, label);
            button.addEventListener("click", () => { press(); update(); });
            return button;
        },
    };
}

/* The sentence under a figure, read aloud when it changes. */
function words(box) { return add(box, "p", { class: "words", role: "status" }); }

/* Wide drawings scroll on a phone. */
function drawing(parent, width, height, label) {
    if (width > 400) parent = add(parent, "div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label });
    return add(parent, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

/* A page's colour, "main" or "line", as it is in the light or dark theme. */
const colour = (name) => `var(--${name})`;

/* Colour of a value from -1 (warm) to 1 (main), pale in between. */
function shade(value) {
    const share = Math.round(100 * Math.min(1, Math.abs(value)));
    return `color-mix(in srgb, var(--${value < 0 ? "warm" : "main"}) ${share}%, var(--card))`;
}

/* rows x columns squares from (x, y) on, made once; returns a function that colours them. */
function grid(svg, x, y, rows, columns, side) {
    const cells = [];
    for (let r = 0; r < rows; r++)
        for (let c = 0; c < columns; c++)
            cells.push(add(svg, "rect", { x: x + c * side, y: y + r * side, width: side * 0.94, height: side * 0.94 }));
    const paint = (colours) => cells.forEach((cell, i) => cell.setAttribute("fill", colours(i)));
    paint.cells = cells;
    return paint;
}

/* Calls move(x, y), in the drawing's units, while the pointer is down on the element. */
function draggable(svg, element, move) {
    const at = (event) => {
        const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
        move((event.clientX - box.left) / box.width * view.width, (event.clientY - box.top) / box.height * view.height);
    };
    element.classList.add("drag");
    element.addEventListener("pointerdown", (event) => { element.setPointerCapture(event.pointerId); at(event); });
    element.addEventListener("pointermove", (event) => { if (element.hasPointerCapture(event.pointerId)) at(event); });
}

if (typeof module !== "undefined") module.exports = { Ref, bytesOf85, normals, openTensors };
