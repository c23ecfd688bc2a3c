// The plane of words: similar words are close to each other. A word shows its neighbours under the pointer or in focus.
import { html, svg, isNumber, number, plural, responsive, textWidth } from "../common/draw.js";

const [MARGIN, SMALL, LARGE] = [24, 11, 17];
const isWord = ({ word, x, y }) => typeof word === "string" && isNumber(x) && isNumber(y);
const listed = (words) => (Array.isArray(words) ? words : []).filter(isWord);

function message(words) {
  const known = listed(words);
  return known.length ? [`The ${plural(known.length, "most frequent word")}, without those that occur everywhere, in two ` +
    "dimensions (t-SNE). Close words have similar vectors; large distances mean little.",
  "Point at a word to see the words with the most similar vectors."] : null;
}

// Larger text for more frequent words. A word whose text would cover an earlier one is a dot.
function layout(words, width, height) {
  const most = Math.max(...words.map(({ count }) => count || 1));
  const taken = [];
  return words.map((item) => {
    const size = SMALL + (LARGE - SMALL) * Math.sqrt((item.count || 1) / most);
    const half = textWidth(item.word, size, "--serif") / 2;
    const x = MARGIN + item.x * (width - 2 * MARGIN);
    const y = MARGIN + item.y * (height - 2 * MARGIN);
    const center = Math.min(Math.max(x, half + 2), width - half - 2);
    const box = [center - half - 2, y - size * 0.55, center + half + 2, y + size * 0.55];
    const free = !taken.some(([left, top, right, bottom]) =>
      box[0] < right && box[2] > left && box[1] < bottom && box[3] > top);
    if (free) taken.push(box);
    return { item, x: free ? center : x, y, size, free };
  });
}

function planeView(words) {
  const known = listed(words);
  if (!known.length) return null;
  const host = html("div", { class: "plot plane" });
  const readout = html("p", { class: "plane-readout", "aria-live": "polite" });
  const rest = () => readout.replaceChildren(html("span", { class: "notes" }, "No word is chosen."));

  function draw(width) {
    const height = Math.max(380, Math.min(720, width * 0.78));
    const places = layout(known, width, height);
    const nodes = new Map();
    const links = svg("g", { class: "plane-links" });
    function choose(place) {
      const near = place.item.neighbours.map(([word, value]) => [word, value, nodes.get(word)]);
      for (const node of nodes.values()) node.node.classList.remove("near", "here");
      nodes.get(place.item.word).node.classList.add("here");
      links.replaceChildren(...near.filter(([, , other]) => other).map(([, value, other]) => {
        other.node.classList.add("near");
        return svg("line", { x1: place.x, y1: place.y, x2: other.place.x, y2: other.place.y,
          "stroke-opacity": Math.max(0.15, value) });
      }));
      readout.replaceChildren(html("strong", {}, place.item.word),
        html("span", { class: "notes" }, ` ${plural(place.item.count, "time")} in the texts; nearest: `),
        ...near.flatMap(([word, value], index) => [index ? ", " : "", html("span", { class: "plane-word" }, word),
          html("span", { class: "notes" }, ` ${number(value, 2)}`)]));
    }
    function clear() {
      for (const { node } of nodes.values()) node.classList.remove("near", "here");
      links.replaceChildren();
      rest();
    }
    const drawn = places.map((place) => {
      const node = svg("g", { class: place.free ? "plane-item" : "plane-item hidden-word", tabindex: place.free ? "0" : "-1",
        role: "img", "aria-label": `${place.item.word}: ${place.item.neighbours.map(([word]) => word).join(", ")}` },
      svg("circle", { cx: place.x, cy: place.y, r: 5, class: "plane-target" }),
      !place.free && svg("circle", { cx: place.x, cy: place.y, r: 1.8, class: "plane-dot" }),
      svg("text", { x: place.x, y: place.y, "text-anchor": "middle", "dominant-baseline": "central",
        "font-size": place.size.toFixed(1) }, place.item.word));
      nodes.set(place.item.word, { node, place });
      node.addEventListener("pointerenter", () => choose(place));
      node.addEventListener("focus", () => choose(place));
      return node;
    });
    const shown = (free) => drawn.filter((_, index) => places[index].free === free);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}` }, links, shown(false), shown(true));
    picture.addEventListener("pointerleave", clear);
    host.replaceChildren(picture);
    rest();
  }
  responsive(host, draw);
  return html("figure", {}, host, readout);
}

export { message, planeView };
