// Keyboard navigation: the tab key stops once for all `nodes`; arrow keys move between them, in a grid of `across`
// columns also up and down.
function roving(host, nodes, across = 0) {
  const stop = (at) => nodes.forEach((node, index) => node.setAttribute("tabindex", index === at ? 0 : -1));
  stop(0);
  host.addEventListener("focusin", ({ target }) => { if (nodes.includes(target)) stop(nodes.indexOf(target)); });
  host.addEventListener("keydown", (event) => {
    const at = nodes.indexOf(event.target);
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: nodes.length - 1 };
    const to = nodes[{ ...moves, ...(across && { ArrowUp: at - across, ArrowDown: at + across }) }[event.key]];
    if (at < 0 || !to) return;
    event.preventDefault();
    to.focus();
  });
  return host;
}

export { roving };
