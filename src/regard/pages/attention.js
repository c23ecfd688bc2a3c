"use strict";
// The attention of one sentence: choose a layer and a head; one cursor serves the map and the facing sentences.
const attention = (() => {
  const { html, figure, responsive, choice } = draw;
  const AVERAGE = "average";
  const NOWHERE = { row: null, column: null };
  // A longer sentence gives its map the whole width, and the facing sentences go below.
  const MOST_BESIDE = 18;
  const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  // Whose words stand at the rows and the columns: cross-attention looks from the target to the source.
  function sidesOf(name) {
    if (!/\bself\b/.test(name)) return { rows: "target", columns: "source" };
    return name.startsWith("encoder") ? { rows: "source", columns: "source" } : { rows: "target", columns: "target" };
  }
  // Words for `count` positions; a map longer than its sentence (by an end mark, say) goes on in dots.
  const wordsFor = (words, count) => Array.from({ length: count }, (_, index) => words?.[index] ?? "·");
  const averageOf = (heads) => heads[0].map((line, row) => line.map((_, column) =>
    heads.reduce((sum, head) => sum + (head[row]?.[column] ?? 0), 0) / heads.length));
  const top = (list) => list.reduce((best, weight, index) => (weight > list[best] ? index : best), 0);

  function viewOf(data, map, head) {
    const matrix = head === AVERAGE ? averageOf(map.heads) : map.heads[head];
    const sides = sidesOf(map.name);
    const rows = wordsFor(data[sides.rows], matrix.length);
    const columns = wordsFor(data[sides.columns], matrix[0].length);
    const which = head === AVERAGE ? `average of ${map.heads.length} heads` : `head ${head}`;
    const pairs = matrix.map((line, row) => `${rows[row]} to ${columns[top(line)]}`).slice(0, 12);
    const label = `Attention of ${map.name}, ${which}. Strongest: ${pairs.join(", ")}.`;
    return { matrix, sides, rows, columns, label };
  }

  // The weights at the cursor, in words.
  function describe({ matrix, rows, columns }, { row, column }) {
    if (row !== null && column !== null) {
      return `“${rows[row]}” looks at “${columns[column]}” with weight ${figure(matrix[row][column] ?? 0)}.`;
    }
    if (row !== null) {
      const most = top(matrix[row]);
      return `“${rows[row]}” looks most at “${columns[most]}”, with weight ${figure(matrix[row][most] ?? 0)}.`;
    }
    if (column !== null) {
      const most = top(matrix.map((line) => line[column]));
      const weight = figure(matrix[most][column] ?? 0);
      return `“${columns[column]}” is looked at most by “${rows[most]}”, with weight ${weight}.`;
    }
    return "Point at a word or a cell, or move with the arrow keys, to read its weight.";
  }

  function headChoice(heads, onChoose) {
    const named = (name, matrix) => [weights.thumbnail(matrix), html("span", {}, name)];
    const options = heads.map((matrix, head) => [head, named(`head ${head}`, matrix)]);
    if (heads.length > 1) options.unshift([AVERAGE, named("average of all heads", averageOf(heads))]);
    onChoose(options[0][0]);
    return choice("Head", options, options[0][0], onChoose);
  }

  function attentionView(data) {
    const maps = (data?.maps ?? []).filter((map) => map.heads?.[0]?.[0]?.length);
    if (!maps.length) return null;
    const mapHost = html("div", { class: "map-host", tabindex: 0, role: "group",
      "aria-label": "Attention weights; arrow keys move the cursor" });
    const facingHost = html("div", { class: "facing-host" });
    const views = html("div", { class: "attention-views" }, mapHost, facingHost);
    const parts = [{ host: mapHost, make: weights.map }, { host: facingHost, make: weights.facing }];
    const says = html("p", { class: "says", role: "status" });
    const scale = html("span", { class: "scale" });
    const heads = html("div", { class: "heads" });
    let [view, cursor] = [null, NOWHERE];

    function point(to) {
      cursor = to;
      parts.forEach((part) => part.drawing?.mark(cursor));
      says.textContent = describe(view, cursor);
    }
    function put(part) {
      if (!part.host.clientWidth) return;
      part.drawing = part.make(view, part.host.clientWidth);
      part.host.replaceChildren(part.drawing.node);
      part.drawing.mark(cursor);
    }
    function chooseLayer(map) {
      heads.replaceChildren(headChoice(map.heads, (head) => {
        view = viewOf(data, map, head);
        scale.replaceChildren("0", html("i", {}), figure(weights.strongest(view.matrix)));
        views.classList.toggle("wide", view.columns.length > MOST_BESIDE);
        point(NOWHERE);
        parts.forEach(put);
      }));
    }
    for (const part of parts) {
      responsive(part.host, () => put(part));
      part.host.addEventListener("pointermove", (event) => point(part.drawing.locate(event)));
      part.host.addEventListener("pointerleave", () => point(NOWHERE));
    }
    mapHost.addEventListener("keydown", (event) => {
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      const go = (at, by, count) => (at === null ? 0 : Math.min(count - 1, Math.max(0, at + by)));
      const row = go(cursor.row, move[0], view.rows.length);
      point({ row, column: go(cursor.column, move[1], view.columns.length) });
      mapHost.querySelector(".cell-box").scrollIntoView({ block: "nearest", inline: "nearest" });
    });

    // The last layer first: what it looks at is nearest to the word that comes out.
    chooseLayer(maps.at(-1));
    const select = html("select", {}, maps.map((map, index) =>
      html("option", { value: index, selected: index === maps.length - 1 }, map.name)));
    select.addEventListener("change", () => chooseLayer(maps[Number(select.value)]));
    const layer = html(maps.length > 1 ? "label" : "span", { class: "field" }, "Layer ",
      maps.length > 1 ? select : html("code", {}, maps[0].name));
    return html("figure", { class: "attention" }, html("div", { class: "bar" }, layer, heads, scale), says, views);
  }

  return { attentionView };
})();
