"use strict";
// The learning curve: loss above, score below, one x axis for both, a crosshair through them, its values in figures.
const curve = (() => {
  const { html, svg, isNumber, number, figure, round, plural, linear, ticks, line, spread, responsive, choice } = draw;
  const MOST_POINTS = 300;
  const MARGIN = { left: 34, right: 108, top: 30, bottom: 40 };
  const HEIGHT = { loss: 200, score: 170 };
  const GAP = 46;
  const SERIES = [
    { panel: "loss", from: "updates", key: "loss", name: "training", kind: "training" },
    { panel: "loss", from: "validations", key: "loss", name: "validation", kind: "validation" },
    { panel: "score", from: "validations", key: "bleu", name: "BLEU", kind: "bleu" },
    { panel: "score", from: "validations", key: "chrf", name: "chrF", kind: "chrf" },
  ];
  const TITLES = { loss: "Loss", score: "Score on validation sentences" };

  // Some thousands of updates become a few hundred: the mean of each stretch, with its lowest and highest loss.
  function thin(updates) {
    const size = Math.max(1, Math.ceil(updates.length / MOST_POINTS));
    return Array.from({ length: Math.ceil(updates.length / size) }, (_, index) => {
      const stretch = updates.slice(index * size, (index + 1) * size);
      const losses = stretch.map((update) => update.loss).filter(isNumber);
      const middle = stretch[stretch.length >> 1];
      if (!losses.length) return { ...middle, loss: null };
      const mean = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
      return { ...middle, loss: mean, low: Math.min(...losses), high: Math.max(...losses) };
    });
  }

  const readable = (records) => (records ?? []).filter((record) => isNumber(record.step));
  const best = (validations) => readable(validations).filter((validation) => validation.best).at(-1);
  const headline = (validation) =>
    isNumber(validation?.bleu) ? `BLEU ${figure(validation.bleu)}` :
    isNumber(validation?.chrf) ? `chrF ${figure(validation.chrf)}` :
    isNumber(validation?.loss) ? `loss ${figure(validation.loss)}` : "";

  // What the figure says, in words.
  function message(data) {
    const losses = readable(data.updates).filter((update) => isNumber(update.loss));
    const top = best(data.validations);
    const parts = [];
    if (losses.length > 1) {
      const [first, last] = [losses[0], losses.at(-1)];
      const went = last.loss <= first.loss ? "fell" : "rose";
      parts.push(`Training loss ${went} from ${figure(first.loss)} to ${figure(last.loss)} in ${plural(last.step, "update")}.`);
    }
    if (headline(top)) parts.push(`The best validation, ${headline(top)}, came at update ${number(top.step)}.`);
    return parts.join(" ");
  }

  // The two ways to lay out time. Without seconds on every record, updates are the only one.
  function axesOf(records) {
    const axes = { updates: { title: "updates", of: (record) => record.step } };
    if (records.every((record) => isNumber(record.seconds))) {
      const isLong = Math.max(...records.map((record) => record.seconds)) > 3 * 3600;
      const unit = isLong ? 3600 : 60;
      axes.minutes = { title: isLong ? "hours" : "minutes", of: (record) => record.seconds / unit };
    }
    return axes;
  }

  const has = (record, key) => isNumber(record[key]);
  // The last of `records` (in order of step) that knows `key` at `step`.
  const latest = (records, key, step) => records.filter((record) => has(record, key) && record.step <= step).at(-1);

  function panelsOf(series, x, width) {
    let top = MARGIN.top;
    return ["loss", "score"].filter((name) => series.some((one) => one.panel === name)).map((name) => {
      const own = series.filter((one) => one.panel === name);
      const highest = Math.max(...own.flatMap((one) => one.records.map((record) => record[one.key])));
      const marks = ticks(0, highest || 1, 4);
      const y = linear([0, marks.at(-1)], [top + HEIGHT[name], top]);
      const panel = { name, own, marks, y, top, bottom: top + HEIGHT[name], right: width - MARGIN.right };
      top = panel.bottom + GAP;
      return { ...panel, node: panelNode(panel, x) };
    });
  }

  function panelNode({ name, own, marks, y, top, bottom, right }, x) {
    const labels = spread(own.map((one) => {
      const last = one.records.at(-1);
      return { one, y: y(last[one.key]), text: `${one.name} ${figure(last[one.key])}` };
    }), 17, bottom);
    return svg("g", {},
      svg("text", { class: "panel-title", x: 0, y: top - 14 }, TITLES[name]),
      marks.map((mark) => svg("g", {},
        svg("line", { class: mark ? "grid" : "base", x1: MARGIN.left, x2: right, y1: y(mark), y2: y(mark) }),
        svg("text", { class: "tick", x: MARGIN.left - 8, y: y(mark) + 4, "text-anchor": "end" }, round(mark)))),
      own.map((one) => seriesNode(one, x, y)),
      labels.map((label) => svg("text", { class: `series-label ${label.one.kind}`, x: right + 10, y: label.y + 4 }, label.text)));
  }

  function seriesNode({ records, key, kind, from }, x, y) {
    const points = records.map((record) => [x(record), y(record[key])]);
    const isThinned = records.some((record) => record.high > record.low);
    const band = isThinned && [
      ...records.map((record) => [x(record), y(record.high)]),
      ...records.map((record) => [x(record), y(record.low)]).reverse(),
    ];
    return svg("g", { class: `series ${kind}` },
      band && svg("path", { class: "band", d: `${line(band)}Z` }),
      svg("path", { class: "line", d: line(points) }),
      from === "validations" && points.length <= 60 && points.map(([cx, cy]) => svg("circle", { class: "dot", cx, cy, r: 2.4 })));
  }

  function axisNode(axis, scale, marks, width, bottom) {
    const right = width - MARGIN.right;
    return svg("g", {},
      marks.filter((mark) => scale(mark) <= right + 1).map((mark) =>
        svg("text", { class: "tick", x: scale(mark), y: bottom + 20, "text-anchor": "middle" }, round(mark))),
      svg("text", { class: "tick axis-title", x: right + 10, y: bottom + 20 }, axis.title));
  }

  function bestNode(top, x, panels) {
    const at = x(top);
    const isRight = at > (panels[0].right + MARGIN.left) / 2;
    const rings = panels.flatMap(({ own, y }) => own
      .filter((one) => one.from === "validations" && has(top, one.key))
      .map((one) => svg("circle", { class: `ring ${one.kind}`, cx: at, cy: y(top[one.key]), r: 5 })));
    return svg("g", {},
      svg("line", { class: "best-line", x1: at, x2: at, y1: MARGIN.top - 8, y2: panels.at(-1).bottom }),
      svg("text", { class: "best-label", x: at + (isRight ? -6 : 6), y: MARGIN.top, "text-anchor": isRight ? "end" : "start" },
        `best: update ${number(top.step)}`),
      rings);
  }

  // The crosshair at one stop, and the figures beside it.
  function crosshairNodes(stop, x, panels) {
    const at = x(stop);
    const dots = panels.flatMap(({ own, y }) => own.map((one) => {
      const record = latest(one.records, one.key, stop.step);
      return record && svg("circle", { class: `dot-here ${one.kind}`, cx: x(record), cy: y(record[one.key]), r: 4 });
    }));
    return [svg("line", { class: "crosshair", x1: at, x2: at, y1: MARGIN.top, y2: panels.at(-1).bottom }), dots];
  }

  function readoutNodes(stop, data, series) {
    const update = (key) => latest(data.updates, key, stop.step)?.[key];
    const of = (one) => latest(one.records, one.key, stop.step)?.[one.key];
    const values = [
      ["update", number(stop.step), ""],
      ["minutes", isNumber(stop.seconds) ? number(stop.seconds / 60, 1) : null, ""],
      ...series.map((one) => [one.panel === "loss" ? `${one.name} loss` : one.name, of(one), one.kind]),
      ["learning rate", update("rate"), ""],
      ["tokens a second", isNumber(update("tokens_per_second")) ? number(update("tokens_per_second")) : null, ""],
    ];
    return values.filter(([, value]) => value !== null && value !== undefined).map(([label, value, kind]) =>
      html("div", {}, html("dt", {}, label), html("dd", { class: kind }, isNumber(value) ? figure(value) : value)));
  }

  function learningCurve(raw) {
    const data = { updates: thin(readable(raw.updates)), validations: readable(raw.validations) };
    const stops = [...data.updates, ...data.validations].sort((one, other) => one.step - other.step);
    const series = SERIES
      .map((one) => ({ ...one, records: data[one.from].filter((record) => has(record, one.key)) }))
      .filter((one) => one.records.length);
    if (!series.length) return null;

    const axes = axesOf(stops);
    const top = best(data.validations);
    const host = html("div", { class: "plot", tabindex: 0, role: "group", "aria-label": "Learning curve: arrow keys move through the updates" });
    const readout = html("dl", { class: "readout", role: "status", "aria-label": "Values at the crosshair" });
    let axis = axes.updates;
    let here = top ? stops.indexOf(top) : stops.length - 1;
    let view = null;

    function show(index) {
      here = Math.min(Math.max(index, 0), stops.length - 1);
      readout.replaceChildren(...readoutNodes(stops[here], data, series));
      view?.crosshair.replaceChildren(...crosshairNodes(stops[here], view.x, view.panels).flat());
    }

    function render(width) {
      const last = Math.max(...stops.map(axis.of));
      const marks = ticks(0, last, width < 500 ? 3 : 6);
      const scale = linear([0, last], [MARGIN.left, width - MARGIN.right]);
      const x = (record) => scale(axis.of(record));
      const panels = panelsOf(series, x, width);
      const bottom = panels.at(-1).bottom;
      const crosshair = svg("g", { class: "crosshair-layer" });
      view = { x, panels, crosshair };
      host.replaceChildren(svg("svg", { role: "img", "aria-label": message(raw), viewBox: `0 0 ${width} ${bottom + MARGIN.bottom}` },
        panels.map((panel) => panel.node), axisNode(axis, scale, marks, width, bottom),
        top && bestNode(top, x, panels), crosshair));
      show(here);
    }

    host.addEventListener("pointermove", (event) => {
      const at = event.clientX - host.getBoundingClientRect().left;
      const distance = (stop) => Math.abs(view.x(stop) - at);
      show(stops.reduce((nearest, stop, index) => (distance(stop) < distance(stops[nearest]) ? index : nearest), 0));
    });
    host.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: stops.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(to);
    });
    const toggle = axes.minutes && choice("axis", "Horizontal axis", [["updates", "updates"], ["minutes", axes.minutes.title]], "updates",
      (name) => { axis = axes[name]; render(Math.floor(host.clientWidth)); });
    return html("figure", { class: "curve" }, html("div", { class: "bar" }, toggle), responsive(host, render), readout);
  }

  return { learningCurve, message };
})();
