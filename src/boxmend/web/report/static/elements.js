"use strict";

/* Elements and words of the page. All values of the dataset are inserted as text, never as markup. */

const elements = (() => {
  const byId = (id) => document.getElementById(id);

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const bdi = (text) => make("bdi", "", text);
  const fixed = (value, digits) => (value === null ? "–" : value.toFixed(digits));
  const percent = (value) => (value === null ? "–"
    : value > 0.995 && value < 1 ? ">99\u00a0%" : `${(100 * value).toFixed(0)}\u00a0%`);
  const many = (number) => number.toLocaleString("en");

  /** Return a line with the old label struck out and the new one after it; either may be null. */
  function change(before, after) {
    const line = make("span", "labels");
    if (before !== null && after !== null) {
      const arrow = make("span", "arrow", " → ");
      arrow.setAttribute("aria-hidden", "true");
      const old = make("s");
      old.append(before);
      const now = make("strong");
      now.append(after);
      line.append(old, arrow, make("span", "hidden", " now "), now);
    } else {
      line.append(before === null ? after : before);
    }
    return line;
  }

  /** Return a line of short pieces, each of which stays on one line. */
  function pieces(words) {
    const line = make("p", "figures-line");
    words.forEach((text, k) => line.append(k ? " · " : "", make("span", "piece", text)));
    return line;
  }

  /** Return a function from a value to the number of rows of a column that have it. */
  function tally(column) {
    const numbers = new Map();
    for (const value of column) numbers.set(value, (numbers.get(value) || 0) + 1);
    return (value) => many(numbers.get(value) || 0);
  }

  return { byId, make, bdi, fixed, percent, many, change, pieces, tally };
})();
