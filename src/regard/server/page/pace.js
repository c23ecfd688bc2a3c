// Delays calls until the user pauses, and aborts outdated requests.

// Returns a function that calls `act` when it has not been called again for so many milliseconds.
function afterPause(milliseconds, act) {
  let timer = null;
  const call = () => { clearTimeout(timer); timer = setTimeout(act, milliseconds); };
  call.cancel = () => clearTimeout(timer);
  return call;
}
// Requests of which only the newest is needed: `begin` aborts the previous one and returns a signal for the next.
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
