"use strict";

/* Texts about a fix. All values of the dataset are inserted as text, never as markup. */

const wordsOf = (data) => {
  const KIND_BADGES = ["relabelled", "moved", "good", "discarded", "discarded"];

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const bdi = (text) => make("bdi", "", text);
  const label = (number) => (number < 0 ? "none" : data.labels[number]);
  const many = (number) => number.toLocaleString("en");
  const share = (value) => (value > 0.995 && value < 1 ? ">0.99" : value.toFixed(2));

  function labelChange(before, after) {
    const line = make("span", "labels");
    const old = make("s");
    old.append(bdi(before));
    const arrow = make("span", "arrow", " → ");
    arrow.setAttribute("aria-hidden", "true");
    const now = make("strong");
    now.append(bdi(after));
    line.append(old, arrow, make("span", "hidden", " becomes "), now);
    return line;
  }

  /** Return a short title with markup: "truck → car", or the class of the fix. */
  function title(kind, old, now) {
    if (kind === 0) return labelChange(label(old), label(now));
    const line = make("span", "labels");
    line.append(bdi(label(kind === 2 ? now : old)));
    return line;
  }

  /** Return the title as plain text, for screen readers and questions. */
  function plain(kind, old, now) {
    if (kind === 0) return `${label(old)} to ${label(now)}`;
    return `${rows.KINDS[kind]} ${label(kind === 2 ? now : old)}`;
  }

  /** Return what accepting and rejecting a fix means. */
  function meanings(row) {
    const [old, now] = [label(data.old[row]), label(data.new[row])];
    return [
      [`it is ${now}`, `it stays ${old}`], ["use the new box", "keep the old box"],
      [`add ${now}`, "nothing is missing"], ["remove it", "keep it"], ["remove it", "keep both"],
    ][data.kind[row]];
  }

  function kindBadge(row) {
    return { text: rows.KINDS[data.kind[row]], className: `badge ${KIND_BADGES[data.kind[row]]}` };
  }

  /** Return a badge with the current verdict on a fix; null if there is none. */
  function verdictBadge(verdict) {
    const state = rows.stateOf(verdict);
    if (state === "open") return null;
    const kind = { accepted: "good", changed: "good", rejected: "bad", skipped: "discarded" }[state];
    const details = [];
    if (verdict.label !== null) details.push(label(verdict.label));
    if (verdict.box !== null) details.push("edited box");
    const text = state === "changed" ? `accepted as ${details.join(", ")}` : state;
    return { text, className: `badge ${kind}` };
  }

  return { make, bdi, label, many, share, title, plain, meanings, kindBadge, verdictBadge };
};
