// The choices of the reader, and the listeners that are called when a choice changes.
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
