"use strict";

/* The fixes in columns: which of them a view shows and in which order, and the view as part of the
   page's address. This file does not change the page. */

const rows = (() => {
  const KINDS = ["wrong label", "bad box", "missing", "spurious", "duplicate"];
  const STATES = ["open", "accepted", "changed", "rejected", "skipped"];
  const MODES = ["queue", "doubtful", "sample", "patterns"];
  const PLAIN = {
    mode: "queue", kind: "", state: "open", from: "", to: "", query: "",
    sort: "p_wrong", direction: "descending", pattern: "", at: "",
  };
  const FILTERS = ["kind", "state", "from", "to", "query", "sort", "direction"];

  /** Return the state of a fix, one of STATES, by its latest verdict. */
  function stateOf(verdict) {
    if (!verdict) return "open";
    if (verdict.answer === "skip") return "skipped";
    if (verdict.answer === "reject") return "rejected";
    return verdict.label !== null || verdict.box !== null ? "changed" : "accepted";
  }

  const isOpen = (verdict) => !verdict || verdict.answer === "skip";

  /** Return a number per row for each sort order. */
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

  /** Return the tests that a row must pass. */
  function tests(data, verdicts, view) {
    const passes = [];
    for (const [name, column] of [["kind", data.kind], ["from", data.old], ["to", data.new]]) {
      if (view[name] !== "") {
        const value = Number(view[name]);
        passes.push((row) => column[row] === value);
      }
    }
    if (view.state === "open") passes.push((row) => isOpen(verdicts.get(row)));
    else if (view.state !== "") passes.push((row) => stateOf(verdicts.get(row)) === view.state);
    if (view.query !== "") {
      const text = view.query.toLowerCase();
      const found = data.files.map((name) => name.toLowerCase().includes(text));
      passes.push((row) => found[data.file[row]]);
    }
    return passes;
  }

  /** Return the rows that a view shows, in its order. */
  function choose(data, keys, verdicts, view) {
    const passes = tests(data, verdicts, view);
    const key = keys[view.sort];
    const found = [];
    for (let row = 0; row < data.kind.length; row += 1) {
      if (passes.every((pass) => pass(row))) found.push(row);
    }
    const sign = view.direction === "ascending" ? 1 : -1;
    found.sort((a, b) => sign * (key[a] - key[b]) || a - b);
    return hasChecks(view) ? mixInChecks(found, data.checks, data.check_every) : found;
  }

  /** Return whether a queue has random checks: the first open fixes alone say little about the rest. */
  const hasChecks = (view) => view.mode === "queue" && view.state === "open" && view.sort !== "file";

  /** Return a queue in which every n-th fix comes from `checks`, a random order. */
  function mixInChecks(queue, checks, every) {
    const queued = new Set(queue);
    const [ordered, drawn] = [[queue, 0], [checks.filter((row) => queued.has(row)), 0]];
    const used = new Set();
    const next = (source) => {
      while (source[1] < source[0].length && used.has(source[0][source[1]])) source[1] += 1;
      return source[0][source[1]];
    };
    return queue.map((_, k) => {
      const isCheck = (k + 1) % every === 0;
      const row = next(isCheck ? drawn : ordered) ?? next(isCheck ? ordered : drawn);
      used.add(row);
      return row;
    });
  }

  /** Return the rows of a queue that are random checks. */
  function checksOf(queue, data, view) {
    const likely = new Set(hasChecks(view) ? data.checks : []);
    return new Set(queue.filter((row, k) => (k + 1) % data.check_every === 0 && likely.has(row)));
  }

  /** Return groups of fixes with the same kind and classes, by key, with the mean probability of the
   *  open ones in hundredths; the surest first, large ones first, those without open fixes last. */
  function patterns(data, verdicts) {
    const groups = new Map();
    for (let row = 0; row < data.kind.length; row += 1) {
      const key = `${data.kind[row]}_${data.old[row]}_${data.new[row]}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    const mean = (group) => {
      const open = group.filter((row) => isOpen(verdicts.get(row)));
      return open.length ? open.reduce((sum, row) => sum + data.p_now[row], 0) / open.length : -0.01;
    };
    return [...groups].map(([key, group]) => [key, group, Math.round(100 * mean(group)) / 100])
      .sort((a, b) => b[2] - a[2] || b[1].length - a[1].length);
  }

  /** Read a view from a fragment; missing and invalid values are the defaults. */
  function parse(fragment, allowed) {
    const view = { ...PLAIN };
    for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
      if (Object.hasOwn(PLAIN, name) && allowed(name, value)) view[name] = value;
    }
    return view;
  }

  /** Return a view as a fragment, without default values. */
  function format(view) {
    return new URLSearchParams(Object.entries(view).filter(([name, value]) => value !== PLAIN[name])).toString();
  }

  return { KINDS, STATES, MODES, PLAIN, FILTERS, stateOf, isOpen, sortKeys, choose, checksOf, patterns, parse, format };
})();
