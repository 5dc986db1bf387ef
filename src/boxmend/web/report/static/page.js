"use strict";

/* The gallery of the page: filters, cards, the large view and keys. All values of the dataset
   are inserted as text, never as markup. */

(() => {
  const CHUNK = 48;  // cards added at once
  const ADDRESS_DELAY_MS = 150;
  const LAYERS = ["annotated", "matched", "final", "true"];
  const VERDICT_WORDS = ["label kept", "relabelled", "unsure", "not judged"];
  const MARK_WORDS = [
    "", "correctly relabelled", "right label replaced", "still wrong", "wrong, missed",
    "unsure, was wrong", "unsure, was right",
  ];
  const MARK_BADGES = ["", "✓ right", "✗ harm", "✗ still wrong", "✗ missed", "✓ was wrong", "✗ was right"];
  const MARK_KINDS = ["", "good", "bad", "bad", "bad", "good", "bad"];

  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const layers = LAYERS.filter((name) => name in data.boxes);
  const keys = rows.sortKeys(data);
  const pictures = picturesOf(data, layers);
  let view = { ...rows.PLAIN };
  let shown = [];  // rows in order
  let numCards = 0;  // cards on the page
  let addressTimer = 0;
  let place = -1;  // of the open row in `shown`

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function bdi(text) {
    return make("bdi", "", text);
  }

  const fixed = (value, digits) => (value === null ? "–" : value.toFixed(digits));
  const percent = (value) => (value === null ? "–"
    : value > 0.995 && value < 1 ? ">99\u00a0%" : `${(100 * value).toFixed(0)}\u00a0%`);
  const label = (number) => (number < 0 ? "none" : data.labels[number]);
  const many = (number) => number.toLocaleString("en");

  /* Texts about a row */

  function describe(row) {
    const labels = data.old[row] === data.new[row] ? label(data.old[row])
      : `${label(data.old[row])}, now ${label(data.new[row])},`;
    return `${labels} in ${data.files[data.file[row]]}`;
  }

  function labelLine(row) {
    const line = make("span", "labels");
    const old = bdi(label(data.old[row]));
    if (data.old[row] === data.new[row]) {
      line.append(old);
    } else {
      const arrow = make("span", "arrow", " → ");
      arrow.setAttribute("aria-hidden", "true");
      const before = make("s");
      before.append(old);
      const after = make("strong");
      after.append(bdi(label(data.new[row])));
      line.append(before, arrow, make("span", "hidden", " now "), after);
    }
    return line;
  }

  function badges(row) {
    const list = make("span", "badges");
    const verdict = rows.VERDICTS[data.verdict[row]];
    if (verdict !== "kept") list.append(make("span", `badge ${verdict}`, VERDICT_WORDS[data.verdict[row]]), " ");
    if (data.moved[row]) list.append(make("span", "badge moved", "moved"), " ");
    if (data.mark && data.mark[row]) {
      const mark = data.mark[row];
      list.append(make("span", `badge ${MARK_KINDS[mark]}`, MARK_BADGES[mark]));
    }
    return list;
  }

  function lossWords(row) {
    const loss = data.loss[row], threshold = data.threshold[row];
    if (loss === null) return "–";
    const short = (value) => fixed(value, value < 10 ? 2 : 1);
    if (threshold === null) return short(loss);
    return `${short(loss)} ${loss > threshold ? ">" : "≤"} ${short(threshold)}`;
  }

  function card(row, number) {
    const item = make("li", "card");
    item.setAttribute("aria-setsize", shown.length);
    item.setAttribute("aria-posinset", number + 1);
    const button = make("button", "open");
    button.type = "button";
    button.dataset.number = number;
    const frame = make("span", "frame");
    pictures.fill(frame, row, "");
    const name = make("span", "hidden", ` in ${data.files[data.file[row]]}, open`);
    button.append(frame, labelLine(row), name);
    const figures = make("p", "figures-line");
    const pieces = [`loss ${lossWords(row)}`, `confidence ${percent(data.confidence[row])}`,
      `IoU ${fixed(data.iou[row], 2)}`].map((words) => make("span", "piece", words));
    figures.append(pieces[0], " · ", pieces[1], " · ", pieces[2]);
    const file = make("p", "file");
    file.append(bdi(data.files[data.file[row]]), " · ", bdi(data.id[row]));
    file.title = `${data.files[data.file[row]]} · ${data.id[row]}`;
    item.append(button, badges(row), figures, file);
    return item;
  }

  /* The list */

  const end = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) addCards();
  }, { rootMargin: "1200px" });

  function addCards(least = 0) {
    const target = Math.min(Math.max(numCards + CHUNK, least), shown.length);
    const items = [];
    for (; numCards < target; numCards += 1) items.push(card(shown[numCards], numCards));
    $("cards").append(...items);
    $("more").hidden = numCards >= shown.length;
    end.unobserve($("more"));
    end.observe($("more"));  // if it is still in view, more cards follow at once
  }

  function refresh() {
    shown = rows.choose(data, keys, view);
    numCards = 0;
    $("cards").replaceChildren();
    addCards();
    const all = `${many(data.id.length)} annotation${data.id.length === 1 ? "" : "s"}`;
    $("count").textContent = shown.length === data.id.length ? all
      : shown.length === 0 ? `None of ${all}; change a filter` : `${many(shown.length)} of ${all}`;
  }

  /** Write the view into the address after a delay, because browsers limit the number of calls. */
  function remember() {
    clearTimeout(addressTimer);
    addressTimer = setTimeout(() => {
      try {
        history.replaceState(null, "", `#${rows.format(view) || "gallery"}`);
      } catch { /* the view works without it */ }
    }, ADDRESS_DELAY_MS);
  }

  function setView(changes) {
    view = { ...view, ...changes };
    showControls();
    refresh();
    remember();
  }

  /* Controls */

  function fillSelect(id, options) {
    $(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  }

  /** Return a function from a value to the number of rows of a column that have it. */
  function tally(column) {
    const numbers = new Map();
    for (const value of column) numbers.set(value, (numbers.get(value) || 0) + 1);
    return (value) => many(numbers.get(value) || 0);
  }

  function fillControls() {
    const [olds, verdicts, moves] = [data.old, data.verdict, data.moved].map(tally);
    const used = [...new Set(data.old)].sort((a, b) => (label(a) < label(b) ? -1 : 1));
    fillSelect("from", [["", "any"], ...used.map((number) =>
      [number, `${label(number)} (${olds(number)})`])]);
    fillSelect("pair", [["", "any"], ...rows.pairs(data).map(([pair, number]) => {
      const [from, to] = pair.split("-").map(Number);
      return [pair, `${label(from)} → ${label(to)} (${many(number)})`];
    })]);
    fillSelect("verdict", [["", "any"], ...rows.VERDICTS
      .map((name, code) => [name, `${VERDICT_WORDS[code]} (${verdicts(code)})`])
      .filter(([, text]) => !text.endsWith("(0)"))]);
    fillSelect("moved", [["", "any"], ["yes", `moved (${moves(1)})`],
      ["no", `as annotated (${moves(0)})`]]);
    fillSelect("sort", [["loss", "loss"], ["moved", "box movement"],
      ["confidence", "confidence"], ["file", "file name"]]);
    $("mark-label").hidden = !data.mark;
    if (data.mark) {
      const number = tally(data.mark);
      const marks = rows.MARKS.map((name, code) => [name, `${MARK_WORDS[code]} (${number(code)})`]);
      fillSelect("mark", [["", "any"], ...marks.slice(1).filter(([, text]) => !text.endsWith("(0)")),
        ["closer", "box closer to the truth"], ["further", "box further from the truth"]]);
    }
    for (const id of ["layers", "detail-layers"]) $(id).append(...layers.map(layerButton));
  }

  function layerButton(name, number) {
    const button = make("button", `layer ${name}`);
    button.type = "button";
    button.dataset.layer = number + 1;
    button.append(pictures.swatch(), name === "true" ? "truth" : name);
    button.title = `Key ${number + 1}`;
    button.addEventListener("click", () => toggleLayer(number + 1));
    return button;
  }

  function toggleLayer(number) {
    if (number > layers.length) return;
    const hidden = new Set(view.hidden);
    if (!hidden.delete(String(number))) hidden.add(String(number));
    view.hidden = [...hidden].sort().join("");
    showLayers();
    remember();
  }

  function showLayers() {
    layers.forEach((name, k) => document.body.classList.toggle(`no-${name}`, view.hidden.includes(k + 1)));
    for (const button of document.querySelectorAll(".layer")) {
      button.setAttribute("aria-pressed", !view.hidden.includes(button.dataset.layer));
    }
  }

  const SELECTS = ["from", "pair", "verdict", "moved", "mark", "sort"];

  function showControls() {
    for (const id of SELECTS) $(id).value = view[id];
    if ($("query").value !== view.query) $("query").value = view.query;
    const isUp = view.direction === "ascending";
    $("direction").textContent = isUp ? "↑" : "↓";
    $("direction").setAttribute("aria-label", `${isUp ? "Ascending" : "Descending"}; reverse the order`);
    $("direction").title = isUp ? "Ascending" : "Descending";
    $("reset").hidden = rows.format({ ...view, hidden: "", open: "" }) === "";
    showLayers();
  }

  function isAllowed(name, value) {
    if (name === "hidden") return /^[1-4]*$/.test(value);
    if (name === "direction") return value === "ascending" || value === "descending";
    if (SELECTS.includes(name)) return [...$(name).options].some((option) => option.value === value);
    return true;
  }

  /* The large view */

  function fact(list, name, ...content) {
    const value = make("dd");
    value.append(...content);
    list.push(make("dt", "", name), value);
  }

  function facts(row) {
    const list = [];
    fact(list, "Verdict", VERDICT_WORDS[data.verdict[row]]);
    if (data.mark) {
      fact(list, "True label", bdi(data.truth[row] < 0 ? "none of these labels" : label(data.truth[row])),
        data.mark[row] ? `: ${MARK_WORDS[data.mark[row]]}` : "");
      if (data.before[row] !== null) {
        fact(list, "IoU with the true box", `${fixed(data.before[row], 2)} → ${fixed(data.after[row], 2)}`);
      }
    }
    fact(list, "Loss and threshold", lossWords(row));
    fact(list, "Confidence", percent(data.confidence[row]));
    fact(list, "Box", data.moved[row] ? `moved; IoU with the old box ${fixed(data.iou[row], 2)}` : "as annotated");
    const reason = data.reasons[data.reason[row]];
    if (reason) fact(list, "Reason", bdi(reason));
    fact(list, "File", bdi(data.files[data.file[row]]));
    fact(list, "Annotation", bdi(data.id[row]));
    return list;
  }

  function showDetail(number) {
    if (number < 0 || number >= shown.length) return;
    place = number;
    const row = shown[place];
    $("detail-title").replaceChildren(labelLine(row));
    pictures.fill($("detail-picture"), row, describe(row));
    pictures.fillWhole($("detail-whole"), row);
    $("detail-facts").replaceChildren(...facts(row));
    $("place").replaceChildren(make("span", "hidden", `${describe(row)}, `),
      `${many(place + 1)} of ${many(shown.length)}`);
    setEnd("previous", place === 0);
    setEnd("next", place === shown.length - 1);
    if (!$("detail").open) {
      $("detail").showModal();
      $("detail-title").focus();
    }
    view.open = data.id[row];
    remember();
  }

  /** Disable a button at the end of the list; move the focus away from it before. */
  function setEnd(id, isEnd) {
    if (isEnd && document.activeElement === $(id)) $("detail-title").focus();
    $(id).disabled = isEnd;
  }

  function closeDetail() {
    view.open = "";
    remember();
    focusCard(place);
  }

  function focusCard(number) {
    if (number < 0 || number >= shown.length) return;
    if (number >= numCards) addCards(number + CHUNK);
    $("cards").children[number].firstElementChild.focus();
  }

  /* Keys */

  function step(by) {
    if ($("detail").open) {
      showDetail(place + by);
      return;
    }
    const now = document.activeElement.closest?.(".card .open");
    focusCard(now ? Number(now.dataset.number) + by : 0);
  }

  const ACTIONS = {
    j: () => step(1), ArrowRight: () => step(1), k: () => step(-1), ArrowLeft: () => step(-1),
    1: () => toggleLayer(1), 2: () => toggleLayer(2), 3: () => toggleLayer(3), 4: () => toggleLayer(4),
    f: () => { if (!$("detail").open) $("query").focus(); },
    "?": () => { if (!$("detail").open) $("keys").showModal(); },
  };

  function handleKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || $("keys").open) return;
    if (event.target.closest?.("input, select, textarea")) return;
    const isArrow = event.key.startsWith("Arrow");
    if (isArrow && !$("detail").open && !event.target.closest?.(".card")) return;
    if (!Object.hasOwn(ACTIONS, event.key)) return;
    event.preventDefault();
    ACTIONS[event.key]();
  }

  /* Start */

  function readAddress() {
    const { view: newView, isEmpty } = rows.parse(location.hash, isAllowed);
    if (isEmpty) return;
    view = newView;
    showControls();
    refresh();
    const number = view.open ? shown.findIndex((row) => data.id[row] === view.open) : -1;
    if (number >= 0) showDetail(number);
    else $("gallery").scrollIntoView();
  }

  function listen() {
    for (const id of SELECTS) $(id).addEventListener("change", () => setView({ [id]: $(id).value }));
    $("query").addEventListener("input", () => setView({ query: $("query").value }));
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("filters").addEventListener("reset", (event) => {
      event.preventDefault();
      setView({ ...rows.PLAIN, hidden: view.hidden });
    });
    $("direction").addEventListener("click", () =>
      setView({ direction: view.direction === "ascending" ? "descending" : "ascending" }));
    $("cards").addEventListener("click", (event) => {
      const button = event.target.closest(".open");
      if (button) showDetail(Number(button.dataset.number));
    });
    $("more").addEventListener("click", () => { const first = numCards; addCards(); focusCard(first); });
    $("previous").addEventListener("click", () => step(-1));
    $("next").addEventListener("click", () => step(1));
    $("close").addEventListener("click", () => $("detail").close());
    $("detail").addEventListener("close", closeDetail);
    $("help").addEventListener("click", () => $("keys").showModal());
    document.addEventListener("keydown", handleKey);
    window.addEventListener("hashchange", readAddress);
  }

  if (data.id.length) {
    fillControls();
    listen();
    showControls();
    refresh();
    $("filter-box").open = !matchMedia("(max-width: 40rem)").matches;
    readAddress();
  }
})();
