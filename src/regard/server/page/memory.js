// A cache of answers by model and sentence. If it has more than `most` answers, the oldest are removed.
function memory(most) {
  const found = new Map();
  const keyOf = (model, text) => `${model.id}\n${text}`;
  return {
    get: (model, text) => found.get(keyOf(model, text)),
    set(model, text, value) {
      found.delete(keyOf(model, text));
      found.set(keyOf(model, text), value);
      if (found.size > most) found.delete(found.keys().next().value);
    },
  };
}

export { memory };
