// Where a model looked in a picture when it wrote each word: the picture is dark, but for the places with attention.
import { choice, figure, html, isNumber, plural } from "./draw.js";
import { roving } from "./keys.js";
import { percent } from "./shading.js";

const SAMPLES = 12; // per patch, in each direction
const DARKEST = 0.84;
const VEIL = [20, 18, 24];
// How a share from 0 to 1 is painted over the picture, as red, green, blue and opacity.
const darken = (share) => [...VEIL, 255 * DARKEST * (1 - share)];
const MEAN = "mean";

// ---- smooth shading
// Weights of cubic B-splines, which interpolate smoothly and are never negative: [samples][patches].
function splines(patches) {
  return Array.from({ length: patches * SAMPLES }, (_, sample) => {
    const at = (sample + 0.5) / SAMPLES - 0.5;
    const first = Math.floor(at);
    const t = at - first;
    const weights = [(1 - t) ** 3 / 6, (3 * t ** 3 - 6 * t ** 2 + 4) / 6, (-3 * t ** 3 + 3 * t ** 2 + 3 * t + 1) / 6,
      t ** 3 / 6];
    const row = new Float64Array(patches);
    weights.forEach((weight, step) => { row[Math.min(patches - 1, Math.max(0, first - 1 + step))] += weight; });
    return row;
  });
}
// The map with many samples per patch, divided by its largest value: [samples down][samples across].
function smooth(map) {
  const [down, across] = [splines(map.length), splines(map[0].length)];
  const dot = (one, other) => one.reduce((sum, weight, index) => sum + weight * other[index], 0);
  const rows = map.map((line) => across.map((weights) => dot(weights, line)));
  const all = down.map((weights) => across.map((_, column) =>
    weights.reduce((sum, weight, row) => sum + (weight ? weight * rows[row][column] : 0), 0)));
  const most = all.reduce((best, line) => Math.max(best, ...line), 1e-12);
  return all.map((line) => line.map((value) => value / most));
}
function drawVeil(canvas, map, paint) {
  const shares = smooth(map);
  [canvas.height, canvas.width] = [shares.length, shares[0].length];
  const pen = canvas.getContext("2d", { willReadFrequently: true }); // small: drawn without the GPU
  const image = pen.createImageData(canvas.width, canvas.height);
  shares.flat().forEach((share, index) => {
    image.data.set(paint(share).map(Math.round), 4 * index);
  });
  pen.putImageData(image, 0, 0);
}

// A picture that `shade(map)` paints over: by default, it is dark but for the places with large weights. Without a map it
// is shown as it is.
function shadedPicture(url, alt, paint = darken) {
  const veil = html("canvas", { class: "veil", "aria-hidden": "true", hidden: true });
  const node = html("div", { class: "shaded-picture" }, html("img", { src: url, alt, draggable: "false" }), veil);
  const shade = (map) => {
    veil.hidden = !map;
    if (map) drawVeil(veil, map, paint);
  };
  return { node, shade };
}

// ---- choice of a layer and a head
const mean = (lists) => lists[0].map((first, index) =>
  (Array.isArray(first) ? mean(lists.map((list) => list[index]))
    : lists.reduce((sum, list) => sum + list[index], 0) / lists.length));

// Calls `onChoose(maps)` with the maps of the words, [words][rows][columns], of the chosen layer and head.
function layerChoice({ maps, layers = [] }, onChoose) {
  const heads = html("div", {});
  function chooseLayer(layer) {
    if (!layer) {
      heads.replaceChildren();
      return onChoose(maps);
    }
    const options = [[MEAN, "mean"], ...layer.heads.map((_, head) => [head, `head ${head}`])];
    if (layer.heads.length > 1) heads.replaceChildren(choice("Head", options, MEAN, (head) =>
      onChoose(head === MEAN ? mean(layer.heads) : layer.heads[head])));
    else heads.replaceChildren();
    return onChoose(mean(layer.heads));
  }
  const select = html("select", {}, html("option", { value: "" }, "mean of all layers and heads"),
    layers.map(({ name }, index) => html("option", { value: index }, name)));
  select.addEventListener("change", () => chooseLayer(layers[select.value]));
  return layers.length > 0 && html("div", { class: "bar" }, html("label", { class: "field" }, "Layer ", select), heads);
}

// ---- the view

function describe(word, map) {
  const cells = map.flatMap((line, row) => line.map((weight, column) => ({ weight, row, column })));
  const most = cells.reduce((best, cell) => (cell.weight > best.weight ? cell : best));
  const sure = isNumber(word.probability) ? ` Its probability is ${percent(word.probability)}.` : "";
  return `“${word.text}” attends most to row ${most.row + 1}, column ${most.column + 1}, with weight `
    + `${figure(most.weight)}.${sure}`;
}

// A caption under its picture. Pointing at a word, or focusing it, shades the picture; pointing at a place in the
// picture shades the words that attended to it. `look`: { text, language, words, maps, layers }, where a word is
// { text, start, end, probability }; `isSmall`: without small multiples, sentences and the choice of a layer.
function lookingView(picture, look, { isSmall = false } = {}) {
  const { words = [], text = "" } = look;
  const hasMaps = look.maps?.length > 0 && words.length > 0;
  const large = shadedPicture(picture, text);
  const spot = html("i", { class: "spot", hidden: true });
  large.node.append(spot);
  const hint = hasMaps ? "Point at a word to see where the model looked, or at a place in the picture." : "";
  const says = html("p", { class: "says", role: "status" }, hint);
  const buttons = words.map((word) => html(hasMaps ? "button" : "span", { type: hasMaps && "button",
    class: "looked-word", title: isNumber(word.probability) && `probability ${percent(word.probability)}` }, word.text));
  // What is between two words, e.g. a space or a comma, is text that cannot be chosen.
  const caption = html("p", { class: "looked-text", lang: look.language || null, dir: "auto" },
    buttons.map((node, index) => [text.slice(words[index - 1]?.end ?? 0, words[index].start), node]),
    text.slice(words.at(-1)?.end ?? 0));
  const panels = hasMaps && !isSmall ? words.map((word) => ({ word, ...shadedPicture(picture, "") })) : [];
  const multiples = panels.map(({ word, node }) => html("figure", { class: "multiple" }, node,
    html("figcaption", {}, html("span", { lang: look.language || null }, word.text),
      isNumber(word.probability) && html("small", {}, percent(word.probability)))));
  let maps = look.maps ?? [];
  let chosen = null;

  function choose(index) {
    chosen = index;
    buttons.forEach((node, one) => node.classList.toggle("chosen", one === index));
    multiples.forEach((node, one) => node.classList.toggle("chosen", one === index));
    large.shade(index === null ? null : maps[index]);
    says.textContent = index === null ? hint : describe(words[index], maps[index]);
  }
  // Shades the words by their weight at one place.
  function at(row, column) {
    spot.hidden = row === null;
    const weights = maps.map((map) => (row === null ? 0 : map[row][column]));
    const most = Math.max(1e-12, ...weights);
    buttons.forEach((node, index) => node.style.setProperty("--strength", (weights[index] / most).toFixed(3)));
    if (row === null) return;
    choose(null);
    const [down, across] = [maps[0].length, maps[0][0].length];
    Object.assign(spot.style, { top: `${(100 * row) / down}%`, left: `${(100 * column) / across}%`,
      height: `${100 / down}%`, width: `${100 / across}%` });
    const index = weights.indexOf(Math.max(...weights));
    says.textContent = `“${words[index].text}” attends to this place more than the other words, with weight `
      + `${figure(weights[index])}.`;
  }
  function follow(event) {
    const box = large.node.getBoundingClientRect();
    const place = (offset, size, count) => Math.min(count - 1, Math.max(0, Math.floor((count * offset) / size)));
    at(place(event.clientY - box.top, box.height, maps[0].length),
      place(event.clientX - box.left, box.width, maps[0][0].length));
  }
  function show(chosenMaps) {
    maps = chosenMaps;
    panels.forEach(({ shade }, index) => shade(maps[index]));
    choose(chosen);
  }

  if (hasMaps) {
    [...buttons, ...multiples].forEach((node, index) => {
      node.addEventListener("pointerenter", () => choose(index % words.length));
      node.addEventListener("pointerleave", () => choose(null));
    });
    buttons.forEach((node, index) => {
      node.addEventListener("focus", () => choose(index));
      node.addEventListener("click", () => choose(index));
      node.addEventListener("blur", () => choose(null));
    });
    roving(caption, buttons);
    large.node.addEventListener("pointermove", follow);
    large.node.addEventListener("pointerleave", () => { at(null, null); choose(null); });
    show(maps);
  }
  return html("figure", { class: isSmall ? "looking small" : "looking" },
    hasMaps && !isSmall && layerChoice(look, show),
    html("div", { class: "looking-main" }, large.node, html("figcaption", {}, caption, !isSmall && says)),
    multiples.length > 0 && html("div", { class: "multiples", role: "group",
      "aria-label": `The picture for each of ${plural(words.length, "word")}` }, multiples));
}

// Pictures with the captions of a model, and references. Each is { picture, look, references }.
function galleryView(shown) {
  if (!shown?.length) return null;
  return html("div", { class: "gallery" }, shown.map(({ picture, look, references = [] }) =>
    html("div", {}, lookingView(picture, look, { isSmall: true }),
      references.includes(look.text) ? html("p", { class: "same" }, "same as a reference")
        : references.map((text) => html("p", { class: "reference", lang: look.language || null, dir: "auto" }, text)))));
}
function galleryMessage(shown) {
  if (!shown?.length) return "";
  const same = shown.filter(({ look, references }) => references?.includes(look.text)).length;
  const hint = shown.some(({ look }) => look.maps?.length) ? " Point at a word to see where the model looked." : "";
  return `${same} of the ${shown.length} captions shown here equal a reference; below the others are the references.${hint}`;
}

export { galleryMessage, galleryView, lookingView, shadedPicture };
