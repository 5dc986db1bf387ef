"use strict";

/* The fixes in columns: which of them a view shows, in which order, and how a view is written into
   the address of the page. Nothing here touches the page itself. */

const rows = (() => {
  const KINDS = ["wrong label", "bad box", "missing", "spurious", "duplicate"];
  const STATES = ["open", "accepted", "changed", "rejected", "skipped"];
  const MODES = ["queue", "doubtful", "sample", "patterns"];
  const PLAIN = {
    mode: "queue", kind: "", state: "open", from: "", to: "", query: "",
    sort: "p_wrong", direction: "descending", pattern: "", at: "",
  };
  const FILTERS = ["kind", "state", "from", "to", "query", "sort", "direction"];

  /** What became of a fix: one of STATES, by the verdict that stands. */
  function stateOf(verdict) {
    if (!verdict) return "open";
    if (verdict.answer === "skip") return "skipped";
    if (verdict.answer === "reject") return "rejected";
    return verdict.label !== null || verdict.box !== null ? "changed" : "accepted";
  }

  const isOpen = (verdict) => !verdict || verdict.answer === "skip";

  /** Give each way to sort a number per row. */
  function sortKeys(data) {
    const order = data.files.map((name, place) => [name, place])
      .sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]));
    const place = new Float64Array(data.files.length);
    order.forEach(([, file], k) => { place[file] = k; });
    return {
      p_wrong: data.p_wrong,
      p_fix: data.p_fix,
      doubt: data.p_fix.map((one) => -Math.abs(one - 0.5)),
      file: data.file.map((one) => place[one]),
    };
  }

  /** List the tests that a row has to pass. */
  function tests(data, standing, view) {
    const passes = [];
    for (const [name, column] of [["kind", data.kind], ["from", data.old], ["to", data.new]]) {
      if (view[name] !== "") {
        const wanted = Number(view[name]);
        passes.push((row) => column[row] === wanted);
      }
    }
    if (view.state === "open") passes.push((row) => isOpen(standing.get(row)));
    else if (view.state !== "") passes.push((row) => stateOf(standing.get(row)) === view.state);
    if (view.query !== "") {
      const text = view.query.toLowerCase();
      const found = data.files.map((name) => name.toLowerCase().includes(text));
      passes.push((row) => found[data.file[row]]);
    }
    return passes;
  }

  /** The rows that a view shows, in its order. */
  function chosen(data, keys, standing, view) {
    const passes = tests(data, standing, view);
    const key = keys[view.sort];
    const found = [];
    for (let row = 0; row < data.kind.length; row += 1) {
      if (passes.every((pass) => pass(row))) found.push(row);
    }
    const sign = view.direction === "ascending" ? 1 : -1;
    return found.sort((a, b) => sign * (key[a] - key[b]) || a - b);
  }

  /** Fixes that say the same of the same classes, by their key; the largest first. */
  function patterns(data) {
    const found = new Map();
    for (let row = 0; row < data.kind.length; row += 1) {
      const key = `${data.kind[row]}_${data.old[row]}_${data.new[row]}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    return [...found].sort((a, b) => b[1].length - a[1].length);
  }

  /** Read a view from a fragment; what it does not say, or says wrongly, is as plain. */
  function parsed(fragment, allowed) {
    const view = { ...PLAIN };
    for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
      if (Object.hasOwn(PLAIN, name) && allowed(name, value)) view[name] = value;
    }
    return view;
  }

  /** Write a view as a fragment that says what is not plain. */
  function written(view) {
    return new URLSearchParams(Object.entries(view).filter(([name, value]) => value !== PLAIN[name])).toString();
  }

  return { KINDS, STATES, MODES, PLAIN, FILTERS, stateOf, isOpen, sortKeys, chosen, patterns, parsed, written };
})();
