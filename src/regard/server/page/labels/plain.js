// The view of tasks without a view of their own: a text on the left, all fields of the server's result on the right.
import * as api from "../api.js";
import { html } from "../common/draw.js";
import { readingView } from "./reading.js";

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const draw = (result) => [html("dl", { class: "fields" }, Object.entries(result).flatMap(([name, value]) =>
  [html("dt", { class: "tag" }, name), html("dd", { class: "running", dir: "auto" }, shown(value))]))];
const tell = (result) => Object.keys(result).join(", ");

// Makes a view for a task: `name` is its route, `help` says what the task does.
const plainView = ({ name, help }) => (app, all) => {
  const words = {
    title: name, field: "Text", placeholder: "Type or paste a text", given: "Text", found: "Result",
    nothing: "The result appears here", welcome: `Write a text to see the result (${help}).`,
  };
  const ask = async (model, text, options) => (await api.answer(name, { model, q: text }, options))[0];
  return readingView(all, words, { ask, draw, tell });
};

export { plainView };
