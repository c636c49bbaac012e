/* draw.js - pictures from a caption that the reader types, by the model that `make demo` has trained. */
"use strict";
figure("draw", (ref, box) => {
    if (!MODEL) {
        words(box).textContent = "This book was made without a trained model. make demo trains one in minutes; make book then includes it.";
        return;
    }
    const pictures = 4, shown = 128;
    const control = controls(box, () => {});
    const caption = control.text("caption", "red apple");
    const temperature = control.slider("temperature", 0, 1.5, 0.7, 0.1);
    const topK = control.slider("top-k", 1, 256, 32);
    control.button("Draw", draw);
    caption.addEventListener("keydown", (event) => { if (event.key === "Enter") draw(); });
    const row = add(box, "div", { class: "pictures" });
    const canvases = Array.from({ length: pictures }, () => add(row, "canvas", { width: shown, height: shown, role: "img", "aria-label": "not drawn yet" }));
    const output = words(box);
    let sampler = null, run = 0;

    function draw() {
        sampler ||= new Sampler(ref, MODEL);
        const mine = ++run, text = caption.value, begun = performance.now();
        const next = (i) => { // the page answers between two pictures
            if (mine !== run) return;
            const { ids, codes, pixels } = sampler.sample(text, { topK: topK.value, temperature: temperature.value, seed: i + 1 });
            const small = new OffscreenCanvas(sampler.side, sampler.side), context = canvases[i].getContext("2d");
            small.getContext("2d").putImageData(new ImageData(pixels, sampler.side), 0, 0);
            context.imageSmoothingEnabled = false;
            context.drawImage(small, 0, 0, shown, shown);
            canvases[i].setAttribute("aria-label", `${text}, picture ${i + 1}`);
            canvases[i].dataset.codes = codes.join(" ");
            output.textContent = `${ids.length} text tokens (${ids.join(", ")}), ${codes.length} image tokens each; ${i + 1} of ${pictures} pictures, ` +
                `${((performance.now() - begun) / 1000 / (i + 1)).toFixed(2)} s each.`;
            if (i + 1 < pictures) setTimeout(next, 0, i + 1);
            else box.dataset.drawn = text;
        };
        next(0);
    }
    output.textContent = "Type a caption of an emoji, and press Draw.";
});
