"use strict";

/* The button that chooses the system's, light or dark colours. */

(() => {
  const THEMES = ["auto", "light", "dark"];
  const STORAGE_KEY = "boxmend-theme";
  const button = document.getElementById("theme");

  function set(name) {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    button.dataset.name = name;
  }

  function storedTheme() {
    try {
      const name = localStorage.getItem(STORAGE_KEY);
      return THEMES.includes(name) ? name : "auto";
    } catch {
      return "auto";
    }
  }

  button.addEventListener("click", () => {
    set(THEMES[(THEMES.indexOf(button.dataset.name) + 1) % THEMES.length]);
    try {
      localStorage.setItem(STORAGE_KEY, button.dataset.name);
    } catch { /* browsers may forbid storage for pages from disk */ }
  });
  set(storedTheme());
})();
