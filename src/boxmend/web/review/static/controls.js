"use strict";

/* The filters of the queue, and the figures next to it. */

const controlsOf = (data, words, setView) => {
  const SELECTS = { kind: "kind-filter", state: "state", from: "from", to: "to", sort: "sort" };
  const SORTS = [["p_wrong", "P(wrong)"], ["p_fix", "P(fix right)"], ["doubt", "doubt"], ["file", "file name"]];
  const STATE_WORDS = { open: "open", accepted: "accepted", changed: "accepted, changed", rejected: "rejected", skipped: "skipped" };
  const $ = (id) => document.getElementById(id);
  let isByPointer = false;

  function fill(id, options) {
    $(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  }

  function tally(column) {
    const numbers = new Map();
    for (const value of column) numbers.set(value, (numbers.get(value) || 0) + 1);
    return numbers;
  }

  function classOptions(column) {
    const numbers = tally(column);
    const used = [...numbers.keys()].sort((a, b) => (words.label(a) < words.label(b) ? -1 : 1));
    return [["", "any"], ...used.map((label) => [label, `${words.label(label)} (${words.many(numbers.get(label))})`])];
  }

  function fillAll() {
    const kinds = tally(data.kind);
    fill("kind-filter", [["", "any"], ...rows.KINDS.map((name, kind) => [kind, `${name} (${words.many(kinds.get(kind) || 0)})`])
      .filter(([kind]) => kinds.has(kind))]);
    fill("state", [["", "any"], ...rows.STATES.map((name) => [name, STATE_WORDS[name]])]);
    fill("from", classOptions(data.old));
    fill("to", classOptions(data.new));
    fill("sort", SORTS);
  }

  function show(view, number) {
    for (const [name, id] of Object.entries(SELECTS)) $(id).value = view[name];
    if ($("query").value !== view.query) $("query").value = view.query;
    const isUp = view.direction === "ascending";
    $("direction").textContent = isUp ? "↑" : "↓";
    $("direction").setAttribute("aria-label", `${isUp ? "Ascending" : "Descending"}; reverse the order`);
    $("direction").title = isUp ? "Ascending" : "Descending";
    $("reset").hidden = rows.FILTERS.every((name) => view[name] === rows.PLAIN[name]);
    $("count").textContent = `${words.many(number)} of ${words.many(data.kind.length)} fixes`;
    $("filter-box").hidden = view.mode !== "queue";
    for (const button of $("modes").children) {
      if (button.dataset.mode === view.mode) button.setAttribute("aria-current", "page");
      else button.removeAttribute("aria-current");
    }
  }

  function interval(numbers) {
    const [right, number, low, high] = numbers;
    return `${(right / number).toFixed(2)}, ${low.toFixed(2)} to ${high.toFixed(2)}, on ${words.many(number)}`;
  }

  /** Show the errors that are expected to remain, and whether more verdicts are worth the effort. */
  function showRemaining({ remaining, worthwhile, min_gain: least }) {
    const [left, made] = [Math.round(remaining.left), Math.round(remaining.made)];
    const number = left + made;
    $("remaining").textContent = `about ${words.many(number)} ${number === 1 ? "error" : "errors"}`;
    $("remaining-note").textContent = `if you apply now: ${words.many(left)} listed errors are left, ${words.many(made)} changes are wrong`;
    $("stop").textContent = worthwhile
      ? `${words.many(worthwhile)} more ${worthwhile === 1 ? "verdict is" : "verdicts are"} worth it: each corrects the result with a probability of ${least} or more`
      : `Reasonable to stop: no verdict corrects the result with a probability of ${least} or more`;
  }

  function showFigures(figures) {
    const { decided, number, accepted, changed, rejected, measured } = figures;
    $("decided").textContent = `${words.many(decided)} of ${words.many(number)} decided`;
    $("bar").max = Math.max(number, 1);
    $("bar").value = decided;
    $("answers").textContent = `${words.many(accepted)} accepted, ${words.many(changed)} changed, ${words.many(rejected)} rejected`;
    $("at").textContent = figures.precision;
    $("taken").textContent = `${words.many(figures.taken)} ${figures.taken === 1 ? "fix" : "fixes"}`;
    const left = `${words.many(figures.likely)} of the others are more likely wrong than not, ${words.many(figures.left - figures.likely)} less likely`;
    $("taken-note").textContent = figures.expected === null ? left : `expected precision ${figures.expected.toFixed(3)}; ${left}`;
    showRemaining(figures);
    const all = measured.all;
    $("measured").textContent = all[1] ? interval(all) : data.sample.length ? "not yet" : "nothing to measure";
    const kinds = Object.entries(measured).filter(([name]) => name !== "all");
    $("measured-note").textContent = !all[1] ? (data.sample.length ? "Measure shows a random sample to judge" : "apply would take no fix without a review")
      : kinds.length > 1 ? kinds.map(([name, [right, of]]) => `${name} ${right} of ${of}`).join(", ") : "95 % interval, from a random sample";
  }

  function listen() {
    addEventListener("pointerdown", () => { isByPointer = true; }, true);
    addEventListener("keydown", () => { isByPointer = false; }, true);
    for (const [name, id] of Object.entries(SELECTS)) {
      $(id).addEventListener("change", () => {
        setView({ [name]: $(id).value });
        if (isByPointer) $(id).blur();  // otherwise the next key would act on this control
      });
    }
    let timer = 0;
    $("query").addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => setView({ query: $("query").value }), 120);
    });
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("filters").addEventListener("reset", (event) => {
      event.preventDefault();
      setView(Object.fromEntries(rows.FILTERS.map((name) => [name, rows.PLAIN[name]])));
    });
    $("direction").addEventListener("click", () =>
      setView({ direction: $("direction").textContent === "↑" ? "descending" : "ascending" }));
    for (const button of $("modes").children) {
      button.addEventListener("click", () => setView({ mode: button.dataset.mode, pattern: "", at: "" }));
    }
  }

  function isAllowed(name, value) {
    if (name === "mode") return rows.MODES.includes(value);
    if (name === "direction") return value === "ascending" || value === "descending";
    if (name === "at") return /^\d{1,9}$/.test(value) && Number(value) < data.kind.length;
    if (name === "pattern") return /^\d_-?\d+_-?\d+$/.test(value);
    if (Object.hasOwn(SELECTS, name)) return [...$(SELECTS[name]).options].some((option) => option.value === value);
    return true;
  }

  fillAll();
  listen();
  return { show, showFigures, isAllowed };
};
