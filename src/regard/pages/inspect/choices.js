// What the reader has chosen, for all parts of a page that depend on it.
function make(values) {
  const listeners = [];
  return {
    values,
    listen: (listener) => listeners.push(listener),
    set(changes) {
      Object.assign(values, changes);
      listeners.forEach((listener) => listener(values, changes));
    },
  };
}
export { make };
