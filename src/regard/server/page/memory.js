// Answers by model and sentence, so that only what is new is asked for; beyond `most` the oldest go.
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
