"use strict";

/* The rows of the gallery: which of them a view shows and in which order, and the view as part of
   the page's address. This file does not change the page. */

const rows = (() => {
  /** Return a number per row of a column; unknown values (null) are NaN. */
  const numbers = (values, key = (value) => value) =>
    Float64Array.from(values, (value) => (value === null ? NaN : key(value)));

  /** Return a number per row that sorts by file name. */
  function filePlaces(data) {
    const order = data.files.map((name, place) => [name, place])
      .sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]));
    const place = new Float64Array(data.files.length);
    order.forEach(([, file], k) => { place[file] = k; });
    return Float64Array.from(data.file, (file) => place[file]);
  }

  /** Return a test for the rows whose text in a list contains the query. */
  function contains(texts, column, query) {
    const text = query.toLowerCase();
    const isMatch = texts.map((name) => name.toLowerCase().includes(text));
    return (row) => isMatch[column[row]];
  }

  /** Return the rows of `length` that pass all tests, sorted; unknown values come last both ways. */
  function choose(length, passes, key, direction) {
    const known = [], unknown = [];
    for (let row = 0; row < length; row += 1) {
      if (passes.every((pass) => pass(row))) (Number.isNaN(key[row]) ? unknown : known).push(row);
    }
    const sign = direction === "ascending" ? 1 : -1;
    known.sort((a, b) => sign * (key[a] - key[b]) || a - b);
    return known.concat(unknown);
  }

  /** Count the changes from one label to another, the most frequent first. */
  function pairs(data) {
    const counts = new Map();
    data.old.forEach((from, row) => {
      const to = data.new[row];
      if (from !== to && from >= 0 && to >= 0) {
        counts.set(`${from}-${to}`, (counts.get(`${from}-${to}`) || 0) + 1);
      }
    });
    return [...counts].sort((a, b) => b[1] - a[1]);
  }

  /** Return a test for the rows that change one label of a pair to the other. */
  function isPair(data, pair) {
    const [from, to] = pair.split("-").map(Number);
    return (row) => data.old[row] === from && data.new[row] === to;
  }

  /** Read a view from a fragment; missing and invalid values are those of the plain view. */
  function parse(fragment, plain, isAllowed) {
    const view = { ...plain };
    let isEmpty = true;
    for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
      if (Object.hasOwn(plain, name) && isAllowed(name, value)) {
        view[name] = value;
        isEmpty = false;
      }
    }
    return { view, isEmpty };
  }

  /** Return a view as a fragment, without the values of the plain view. */
  function format(view, plain) {
    const changes = Object.entries(view).filter(([name, value]) => value !== plain[name]);
    return new URLSearchParams(changes).toString();
  }

  return { numbers, filePlaces, contains, choose, pairs, isPair, parse, format };
})();
