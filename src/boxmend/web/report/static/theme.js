"use strict";

/* The button that chooses between the system's colours, light ones and dark ones. */

(() => {
  const THEMES = ["auto", "light", "dark"];
  const KEPT_AS = "boxmend-theme";
  const button = document.getElementById("theme");

  function set(name) {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    button.dataset.name = name;
  }

  function remembered() {
    try {
      const name = localStorage.getItem(KEPT_AS);
      return THEMES.includes(name) ? name : "auto";
    } catch {
      return "auto";
    }
  }

  button.addEventListener("click", () => {
    set(THEMES[(THEMES.indexOf(button.dataset.name) + 1) % THEMES.length]);
    try {
      localStorage.setItem(KEPT_AS, button.dataset.name);
    } catch { /* a page from disk may not be allowed to remember */ }
  });
  set(remembered());
})();
