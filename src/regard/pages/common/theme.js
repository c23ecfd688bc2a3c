"use strict";
// Light or dark colours: those of the system, until the reader chooses. Runs before anything is painted.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  // A browser may forbid storage to a file opened from disk; the choice then lasts as long as the page.
  const remember = (theme) => { try { localStorage.setItem("regard-theme", theme); } catch { /* not stored */ } };
  const remembered = () => { try { return localStorage.getItem("regard-theme"); } catch { return null; } };

  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.ariaLabel = `${button.textContent} colours`;
    };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    label();
  });
})();
