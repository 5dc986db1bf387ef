"use strict";

/* What is said of a fix. Whatever comes from the dataset is put in as text, never as markup. */

const wordsOf = (data) => {
  const KIND_BADGES = ["relabelled", "moved", "good", "discarded", "discarded"];

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const isolated = (text) => make("bdi", "", text);
  const label = (number) => (number < 0 ? "none" : data.labels[number]);
  const many = (number) => number.toLocaleString("en");
  const share = (value) => (value > 0.995 && value < 1 ? ">0.99" : value.toFixed(2));

  function changed(before, after) {
    const line = make("span", "labels");
    const old = make("s");
    old.append(isolated(before));
    const arrow = make("span", "arrow", " → ");
    arrow.setAttribute("aria-hidden", "true");
    const now = make("strong");
    now.append(isolated(after));
    line.append(old, arrow, make("span", "hidden", " becomes "), now);
    return line;
  }

  /** A fix in a few words with marks: "truck → car", or the one class it is about. */
  function title(kind, old, now) {
    if (kind === 0) return changed(label(old), label(now));
    const line = make("span", "labels");
    line.append(isolated(label(kind === 2 ? now : old)));
    return line;
  }

  /** The same as plain text, for those who listen and for questions. */
  function plain(kind, old, now) {
    if (kind === 0) return `${label(old)} to ${label(now)}`;
    return `${rows.KINDS[kind]} ${label(kind === 2 ? now : old)}`;
  }

  /** What accepting and rejecting a fix would mean. */
  function meanings(row) {
    const [old, now] = [label(data.old[row]), label(data.new[row])];
    return [
      [`it is ${now}`, `it stays ${old}`], ["take the new box", "keep the old box"],
      [`add ${now}`, "nothing is missing"], ["remove it", "keep it"], ["remove it", "keep both"],
    ][data.kind[row]];
  }

  function kindBadge(row) {
    return { text: rows.KINDS[data.kind[row]], className: `badge ${KIND_BADGES[data.kind[row]]}` };
  }

  /** What was said of a fix already, for a badge; null where nothing was. */
  function standingBadge(verdict) {
    const state = rows.stateOf(verdict);
    if (state === "open") return null;
    const kind = { accepted: "good", changed: "good", rejected: "bad", skipped: "discarded" }[state];
    const details = [];
    if (verdict.label !== null) details.push(label(verdict.label));
    if (verdict.box !== null) details.push("edited box");
    const text = state === "changed" ? `accepted as ${details.join(", ")}` : state;
    return { text, className: `badge ${kind}` };
  }

  return { make, isolated, label, many, share, title, plain, meanings, kindBadge, standingBadge };
};
