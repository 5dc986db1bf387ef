"use strict";

/* The rows of the gallery: which of them a view shows, in which order, and how a view is written
   into the address of the page. Nothing here touches the page itself. */

const rows = (() => {
  const VERDICTS = ["kept", "relabelled", "discarded", "unjudged"];
  const MARKS = ["", "mended", "harmed", "still-wrong", "missed", "doubted-rightly", "doubted-wrongly"];
  const SAME_IOU = 0.01;  // a box whose IoU changes by no more is as good as before
  const PLAIN = {
    from: "", pair: "", verdict: "", moved: "", mark: "", query: "",
    sort: "loss", direction: "descending", hidden: "", open: "",
  };

  /** Give each way to sort a number per row; null, which is not known, comes last both ways. */
  function sortKeys(data) {
    const numbers = (values, of) => Float64Array.from(values, (one) => (one === null ? NaN : of(one)));
    const order = data.files.map((name, place) => [name, place])
      .sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]));
    const place = new Float64Array(data.files.length);
    order.forEach(([, file], k) => { place[file] = k; });
    return {
      loss: numbers(data.loss, (one) => one),
      moved: numbers(data.iou, (one) => 1 - one),
      confidence: numbers(data.confidence, (one) => one),
      file: Float64Array.from(data.file, (file) => place[file]),
    };
  }

  function isOfMark(data, mark) {
    const gain = (row) => (data.after[row] === null ? 0 : data.after[row] - data.before[row]);
    if (mark === "closer") return (row) => gain(row) > SAME_IOU;
    if (mark === "further") return (row) => gain(row) < -SAME_IOU;
    const wanted = MARKS.indexOf(mark);
    return (row) => data.mark[row] === wanted;
  }

  /** List the tests that a row has to pass. */
  function tests(data, view) {
    const passes = [];
    if (view.from !== "") passes.push((row) => data.old[row] === Number(view.from));
    if (view.pair !== "") {
      const [from, to] = view.pair.split("-").map(Number);
      passes.push((row) => data.old[row] === from && data.new[row] === to);
    }
    if (view.verdict !== "") {
      const wanted = VERDICTS.indexOf(view.verdict);
      passes.push((row) => data.verdict[row] === wanted);
    }
    if (view.moved !== "") passes.push((row) => data.moved[row] === (view.moved === "yes" ? 1 : 0));
    if (view.mark !== "" && data.mark) passes.push(isOfMark(data, view.mark));
    if (view.query !== "") {
      const text = view.query.toLowerCase();
      const found = data.files.map((name) => name.toLowerCase().includes(text));
      passes.push((row) => found[data.file[row]]);
    }
    return passes;
  }

  /** The rows that a view shows, in its order. */
  function chosen(data, keys, view) {
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

  /** Read a view from a fragment; what it does not say, or says wrongly, is as plain. */
  function parsed(fragment, allowed) {
    const view = { ...PLAIN };
    let said = false;
    for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
      if (Object.hasOwn(PLAIN, name) && allowed(name, value)) {
        view[name] = value;
        said = true;
      }
    }
    return { view, said };
  }

  /** Write a view as a fragment that says what is not plain. */
  function written(view) {
    const said = Object.entries(view).filter(([name, value]) => value !== PLAIN[name]);
    return new URLSearchParams(said).toString();
  }

  return { VERDICTS, MARKS, PLAIN, sortKeys, chosen, pairs, parsed, written };
})();
