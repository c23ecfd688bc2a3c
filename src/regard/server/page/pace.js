// When things happen: after a pause, or once for many calls.

// Calls `act` when nobody has called for so many milliseconds.
function afterPause(milliseconds, act) {
  let timer = null;
  const call = () => { clearTimeout(timer); timer = setTimeout(act, milliseconds); };
  call.cancel = () => clearTimeout(timer);
  return call;
}
// Work of which only the newest matters: to begin anew gives up what was begun before.
function newest() {
  let controller = null;
  return {
    begin() {
      controller?.abort();
      controller = new AbortController();
      return controller.signal;
    },
    stop: () => controller?.abort(),
  };
}

export { afterPause, newest };
