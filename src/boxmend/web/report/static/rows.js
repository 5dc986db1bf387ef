"use strict";

/* The rows of the gallery: which of them a view shows and in which order, and the view as part of
   the page's address. This file does not change the page. */

const rows = (() => {
  const VERDICTS = ["kept", "relabelled", "discarded", "unjudged"];
  const MARKS = ["", "mended", "harmed", "still-wrong", "missed", "doubted-rightly", "doubted-wrongly"];
  const SAME_IOU = 0.01;  // a smaller change of IoU counts as no change
  const PLAIN = {
    from: "", pair: "", verdict: "", moved: "", mark: "", query: "",
    sort: "loss", direction: "descending", hidden: "", open: "",
  };

  /** Return a number per row for each sort order; unknown values (null) come last in both ways. */
  function sortKeys(data) {
    const numbers = (values, key) => Float64Array.from(values, (value) => (value === null ? NaN : key(value)));
    const order = data.files.map((name, place) => [name, place])
      .sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]));
    const place = new Float64Array(data.files.length);
    order.forEach(([, file], k) => { place[file] = k; });
    return {
      loss: numbers(data.loss, (value) => value),
      moved: numbers(data.iou, (value) => 1 - value),
      confidence: numbers(data.confidence, (value) => value),
      file: Float64Array.from(data.file, (file) => place[file]),
    };
  }

  function isOfMark(data, mark) {
    const gain = (row) => (data.after[row] === null ? 0 : data.after[row] - data.before[row]);
    if (mark === "closer") return (row) => gain(row) > SAME_IOU;
    if (mark === "further") return (row) => gain(row) < -SAME_IOU;
    const code = MARKS.indexOf(mark);
    return (row) => data.mark[row] === code;
  }

  /** Return the tests that a row must pass. */
  function tests(data, view) {
    const passes = [];
    if (view.from !== "") passes.push((row) => data.old[row] === Number(view.from));
    if (view.pair !== "") {
      const [from, to] = view.pair.split("-").map(Number);
      passes.push((row) => data.old[row] === from && data.new[row] === to);
    }
    if (view.verdict !== "") {
      const code = VERDICTS.indexOf(view.verdict);
      passes.push((row) => data.verdict[row] === code);
    }
    if (view.moved !== "") passes.push((row) => data.moved[row] === (view.moved === "yes" ? 1 : 0));
    if (view.mark !== "" && data.mark) passes.push(isOfMark(data, view.mark));
    if (view.query !== "") {
      const text = view.query.toLowerCase();
      const isMatch = data.files.map((name) => name.toLowerCase().includes(text));
      passes.push((row) => isMatch[data.file[row]]);
    }
    return passes;
  }

  /** Return the rows that a view shows, in its order. */
  function choose(data, keys, view) {
    const passes = tests(data, view);
    const key = keys[view.sort];
    const known = [], unknown = [];
    for (let row = 0; row < data.id.length; row += 1) {
      if (passes.every((pass) => pass(row))) (Number.isNaN(key[row]) ? unknown : known).push(row);
    }
    const sign = view.direction === "ascending" ? 1 : -1;
    known.sort((a, b) => sign * (key[a] - key[b]) || a - b);
    return known.concat(unknown);
  }

  /** Count the changes from one label to another, the most frequent first. */
  function pairs(data) {
    const numbers = new Map();
    data.old.forEach((from, row) => {
      if (from !== data.new[row]) {
        const pair = `${from}-${data.new[row]}`;
        numbers.set(pair, (numbers.get(pair) || 0) + 1);
      }
    });
    return [...numbers].sort((a, b) => b[1] - a[1]);
  }

  /** Read a view from a fragment; missing and invalid values are the defaults. */
  function parse(fragment, isAllowed) {
    const view = { ...PLAIN };
    let isEmpty = true;
    for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
      if (Object.hasOwn(PLAIN, name) && isAllowed(name, value)) {
        view[name] = value;
        isEmpty = false;
      }
    }
    return { view, isEmpty };
  }

  /** Return a view as a fragment, without default values. */
  function format(view) {
    const changes = Object.entries(view).filter(([name, value]) => value !== PLAIN[name]);
    return new URLSearchParams(changes).toString();
  }

  return { VERDICTS, MARKS, PLAIN, sortKeys, choose, pairs, parse, format };
})();
