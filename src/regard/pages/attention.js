"use strict";
// Attention, twice: a map of weights with words on both sides, and the two sentences face to face with links between.
// One choice (layer, head) and one cursor (row, column) serve both views.
const attention = (() => {
  const { html, svg, isNumber, figure, textWidth, shorten, responsive, choice } = draw;
  const LEVELS = 24;
  const CELL = { least: 15, most: 34, slanted: 24 };
  const LABEL = { size: 13, most: 120 };
  const AVERAGE = "average";

  // Whose words stand at the rows and columns of a map: cross-attention looks from target to source.
  function sidesOf(name) {
    if (/\bself\b/.test(name)) return /^encoder/.test(name) ? ["source", "source"] : ["target", "target"];
    return ["target", "source"];
  }
  // Words for `count` positions; a map longer than its sentence (an end mark, say) goes on in dots.
  const wordsFor = (words, count) => Array.from({ length: count }, (_, index) => words?.[index] ?? "·");

  function averageOf(heads) {
    return heads[0].map((row, target) => row.map((_, source) =>
      heads.reduce((sum, head) => sum + (head[target]?.[source] ?? 0), 0) / heads.length));
  }
  const maximum = (weights) => Math.max(1e-9, ...weights.map((row) => Math.max(...row.filter(isNumber))));

  // Cells of like weight are one path, so a long sentence costs two dozen nodes and not thousands.
  function cells(weights, size, gap) {
    const most = maximum(weights);
    const paths = Array.from({ length: LEVELS + 1 }, () => []);
    weights.forEach((row, y) => row.forEach((weight, x) => {
      const level = Math.round((LEVELS * (weight ?? 0)) / most);
      if (level > 0) paths[level].push(`M${x * size} ${y * size}h${size - gap}v${size - gap}h${gap - size}z`);
    }));
    return svg("g", { class: "cells" }, paths.map((path, level) =>
      path.length > 0 && svg("path", { d: path.join(""), "fill-opacity": (level / LEVELS).toFixed(3) })));
  }

  const thumbnail = (weights) => {
    const [wide, high] = [weights[0].length, weights.length];
    return svg("svg", { class: "thumbnail", viewBox: `0 0 ${wide * 4} ${high * 4}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      cells(weights, 4, 0));
  };

  // Slanted labels where there is room for them, upright ones where there is not; neither ever overlap.
  function layOut(view, width) {
    const rowRoom = 10 + Math.min(LABEL.most, Math.max(...view.rows.map((word) => textWidth(word, LABEL.size, "--serif"))));
    const columnRoom = Math.min(LABEL.most, Math.max(...view.columns.map((word) => textWidth(word, LABEL.size, "--serif"))));
    const fit = (room) => Math.floor(Math.min(CELL.most, Math.max(CELL.least, room / view.columns.length)));
    const overhang = Math.ceil(columnRoom * Math.SQRT1_2);
    const slanted = fit(width - rowRoom - overhang);
    const isSlanted = slanted >= CELL.slanted;
    const size = isSlanted ? slanted : fit(width - rowRoom - 2);
    const top = 12 + (isSlanted ? overhang + 6 : Math.ceil(columnRoom));
    return { size, rowRoom, top, isSlanted, columnRoom, width: rowRoom + size * view.columns.length + (isSlanted ? overhang : 2),
      height: top + size * view.rows.length + 2 };
  }

  function mapNode(view, width) {
    const plan = layOut(view, width);
    const { size, rowRoom, top } = plan;
    const [wide, high] = [size * view.columns.length, size * view.rows.length];
    const font = Math.min(LABEL.size, size - 2);
    const rowLabels = view.rows.map((word, row) => svg("text", {
      class: `word ${view.sides[0]}`, x: rowRoom - 8, y: top + (row + 0.5) * size + font * 0.34, "text-anchor": "end", "font-size": font,
    }, shorten(word, rowRoom - 8, font, "--serif")));
    const columnLabels = view.columns.map((word, column) => {
      const [x, y] = [rowRoom + (column + 0.5) * size, top - 6];
      return svg("text", {
        class: `word ${view.sides[1]}`, "font-size": font,
        transform: plan.isSlanted ? `translate(${x - 3} ${y}) rotate(-45)` : `translate(${x + font * 0.34} ${y}) rotate(-90)`,
      }, shorten(word, plan.columnRoom, font, "--serif"));
    });
    const cursor = svg("g", { class: "cursor" });
    const node = svg("svg", { class: "map", width: plan.width, height: plan.height, role: "img", "aria-label": view.label },
      svg("rect", { class: "ground", x: rowRoom, y: top, width: wide - 1, height: high - 1 }),
      svg("g", { transform: `translate(${rowRoom} ${top})` }, cells(view.weights, size, 1), cursor), rowLabels, columnLabels);

    function mark({ row, column }) {
      rowLabels.forEach((label, index) => label.classList.toggle("chosen", index === row));
      columnLabels.forEach((label, index) => label.classList.toggle("chosen", index === column));
      const box = (x, y, width, height, kind) => svg("rect", { class: kind, x: x - 0.5, y: y - 0.5, width, height });
      cursor.replaceChildren(...[
        row !== null && box(0, row * size, wide, size, "line-box"),
        column !== null && box(column * size, 0, size, high, "line-box"),
        row !== null && column !== null && box(column * size, row * size, size, size, "cell-box"),
      ].filter(Boolean));
    }
    // Where the pointer is: a cell, a word at the edge (a whole row or column), or nothing.
    function locate(event) {
      const frame = node.getBoundingClientRect();
      const within = (at, count) => (at >= 0 && at < count * size ? Math.floor(at / size) : null);
      const row = within(event.clientY - frame.top - top, view.rows.length);
      const column = within(event.clientX - frame.left - rowRoom, view.columns.length);
      if (row !== null && event.clientX - frame.left < rowRoom) return { row, column: null };
      return row !== null && column === null ? { row: null, column: null } : { row, column };
    }
    return { node, mark, locate };
  }

  function facingNode(view, width) {
    const count = Math.max(view.rows.length, view.columns.length);
    const pitch = count > 24 ? 21 : count > 14 ? 25 : 30;
    const font = Math.min(17, pitch - 5);
    const height = count * pitch;
    const room = Math.min(width * 0.36, 8 + Math.max(...[...view.rows, ...view.columns].map((word) => textWidth(word, font, "--serif"))));
    const [from, to] = [room, width - room];
    const y = (index, length) => ((index + 0.5) * height) / length;
    const most = maximum(view.weights);
    const bend = (to - from) * 0.45;
    const links = view.weights.flatMap((row, target) => row.map((weight, source) => ({ weight, target, source })))
      .filter(({ weight }) => weight > most * 0.06)
      .map((link) => {
        const [start, end] = [y(link.source, view.columns.length), y(link.target, view.rows.length)];
        return { ...link, node: svg("path", {
          class: "link", "stroke-opacity": (link.weight / most).toFixed(3), "stroke-width": (0.8 + (2.4 * link.weight) / most).toFixed(2),
          d: `M${from + 6} ${start}C${from + bend} ${start} ${to - bend} ${end} ${to - 6} ${end}`,
        }) };
      });
    const label = (side, words, x, anchor) => words.map((word, index) => svg("text", {
      class: `word ${side}`, x, y: y(index, words.length) + font * 0.34, "text-anchor": anchor, "font-size": font,
    }, shorten(word, room - 2, font, "--serif")));
    const columns = label(view.sides[1], view.columns, from, "end");
    const rows = label(view.sides[0], view.rows, to, "start");
    const stop = (offset, side) => svg("stop", { offset, class: `stop-${side}` });
    const node = svg("svg", { class: "facing", width, height, role: "img", "aria-label": view.label },
      svg("defs", {}, svg("linearGradient", { id: "across", gradientUnits: "userSpaceOnUse", x1: from, x2: to, y1: 0, y2: 0 },
        stop(0.1, view.sides[1]), stop(0.9, view.sides[0]))),
      links.map((link) => link.node), columns, rows);

    function mark({ row, column }) {
      const isAny = row !== null || column !== null;
      const isOn = (link) => (row !== null ? link.target === row : link.source === column);
      links.forEach((link) => link.node.classList.toggle("dim", isAny && !isOn(link)));
      const lit = new Set(links.filter((link) => isAny && isOn(link)).map((link) => (row !== null ? link.source : link.target)));
      rows.forEach((text, index) => text.classList.toggle("dim", isAny && (row !== null ? index !== row : !lit.has(index))));
      columns.forEach((text, index) => text.classList.toggle("dim", isAny && (row !== null ? !lit.has(index) : index !== column)));
    }
    function locate(event) {
      const frame = node.getBoundingClientRect();
      const [x, at] = [event.clientX - frame.left, (event.clientY - frame.top) / height];
      const index = (words) => Math.min(words.length - 1, Math.max(0, Math.floor(at * words.length)));
      return x < width / 2 ? { row: null, column: index(view.columns) } : { row: index(view.rows), column: null };
    }
    return { node, mark, locate };
  }

  // The weights at the cursor, in words.
  function describe(view, { row, column }) {
    const quote = (word) => `“${word}”`;
    const strongest = (weights) => weights.reduce((top, weight, index) => (weight > weights[top] ? index : top), 0);
    if (row !== null && column !== null) {
      return `${quote(view.rows[row])} looks at ${quote(view.columns[column])} with weight ${figure(view.weights[row][column] ?? 0)}`;
    }
    if (row !== null) {
      const top = strongest(view.weights[row]);
      return `${quote(view.rows[row])} looks most at ${quote(view.columns[top])}: ${figure(view.weights[row][top] ?? 0)}`;
    }
    if (column !== null) {
      const weights = view.weights.map((line) => line[column]);
      const top = strongest(weights);
      return `${quote(view.columns[column])} is looked at most by ${quote(view.rows[top])}: ${figure(weights[top] ?? 0)}`;
    }
    return `Darkest cell: ${figure(maximum(view.weights))}. Point at a word or a cell, or use the arrow keys.`;
  }

  function viewOf(data, map, head) {
    const weights = head === AVERAGE ? averageOf(map.heads) : map.heads[head];
    const sides = sidesOf(map.name);
    const rows = wordsFor(data[sides[0]], weights.length);
    const columns = wordsFor(data[sides[1]], weights[0].length);
    const which = head === AVERAGE ? `average of ${map.heads.length} heads` : `head ${head}`;
    const pairs = weights.slice(0, 12).map((line, row) => `${rows[row]} to ${columns[line.indexOf(Math.max(...line))]}`);
    return { weights, sides, rows, columns, label: `Attention of ${map.name}, ${which}. Strongest: ${pairs.join(", ")}.` };
  }

  function attentionView(data) {
    const maps = (data?.maps ?? []).filter((map) => map.heads?.[0]?.[0]?.length);
    if (!maps.length) return null;
    // The last layer first: what it looks at is nearest to the word that comes out.
    const state = { map: maps.at(-1), head: AVERAGE, cursor: { row: null, column: null } };
    const [mapHost, facingHost, heads] = ["map-host", "facing-host", "heads"].map((name) => html("div", { class: name }));
    const says = html("p", { class: "says", role: "status" });
    const keys = html("div", { class: "attention-views", tabindex: 0, role: "group", "aria-label": "Attention weights: arrow keys move the cursor" }, mapHost, facingHost);
    const drawn = {};
    let view = null;

    function point(cursor) {
      state.cursor = cursor;
      Object.values(drawn).forEach((part) => part.mark(cursor));
      says.textContent = describe(view, cursor);
    }
    function put(host, make) {
      if (!host.clientWidth) return;
      drawn[host.className] = make(view, host.clientWidth);
      host.replaceChildren(drawn[host.className].node);
      point(state.cursor);
    }
    const parts = [[mapHost, mapNode], [facingHost, facingNode]];
    function choose(change) {
      Object.assign(state, change, { cursor: { row: null, column: null } });
      view = viewOf(data, state.map, state.head);
      parts.forEach(([host, make]) => put(host, make));
    }
    function offerHeads() {
      const named = (name, weights) => [thumbnail(weights), html("span", {}, name)];
      const single = state.map.heads.map((weights, head) => [head, named(`head ${head}`, weights)]);
      const options = single.length > 1 ? [[AVERAGE, named("average of all heads", averageOf(state.map.heads))], ...single] : single;
      const first = options[0][0];
      heads.replaceChildren(choice("head", "Head", options, first, (head) => choose({ head })));
      choose({ head: first });
    }

    for (const [host, make] of parts) {
      responsive(host, () => put(host, make));
      host.addEventListener("pointermove", (event) => point(drawn[host.className].locate(event)));
      host.addEventListener("pointerleave", () => point({ row: null, column: null }));
    }
    keys.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!move) return;
      event.preventDefault();
      const go = (at, by, count) => (at === null ? 0 : Math.min(count - 1, Math.max(0, at + by)));
      const { row, column } = state.cursor;
      point({ row: go(row, move[0], view.rows.length), column: go(column, move[1], view.columns.length) });
    });

    const select = html("select", {}, maps.map((map, index) => html("option", { value: index, selected: map === state.map }, map.name)));
    select.addEventListener("change", () => { state.map = maps[Number(select.value)]; offerHeads(); });
    offerHeads();
    return html("figure", { class: "attention" },
      html("div", { class: "bar" }, html("label", { class: "field" }, "Layer ", maps.length > 1 ? select : html("code", {}, maps[0].name)), heads),
      says, keys);
  }

  return { attentionView };
})();
