"use strict";

/* The gallery of the page: filters, cards, the large view and keys. All values of the dataset
   are inserted as text, never as markup. */

(() => {
  const CHUNK = 48;  // cards added at once
  const ADDRESS_DELAY_MS = 150;
  const { byId: $, make, bdi, many } = elements;
  const data = JSON.parse($("data").textContent);
  const subject = subjectOf(data);
  const command = commandOf(data.command);
  const layers = Object.keys(subject.layers).filter((name) => name in data.boxes);
  const pictures = picturesOf(data, layers);
  const length = subject.keys.length;
  let view = { ...subject.plain };
  let shown = [];  // rows in order
  let numCards = 0;  // cards on the page
  let addressTimer = 0;
  let place = -1;  // of the open row in `shown`

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
    button.append(frame, subject.title(row), name);
    const file = make("p", "file");
    file.append(bdi(data.files[data.file[row]]));
    if (data.id[row]) file.append(" · ", bdi(data.id[row]));
    file.title = file.textContent;
    item.append(button, subject.badges(row), subject.figures(row), file);
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
    shown = rows.choose(length, subject.tests(view), subject.sortKeys[view.sort], view.direction);
    numCards = 0;
    $("cards").replaceChildren();
    addCards();
    const all = `${many(length)} ${subject.words[length === 1 ? 0 : 1]}`;
    $("count").textContent = shown.length === length ? all
      : shown.length === 0 ? `None of ${all}; change a filter` : `${many(shown.length)} of ${all}`;
    command.show(subject.command(shown, view), shown.length);
  }

  /** Write the view into the address after a delay, because browsers limit the number of calls. */
  function remember() {
    clearTimeout(addressTimer);
    addressTimer = setTimeout(() => {
      try {
        history.replaceState(null, "", `#${rows.format(view, subject.plain) || "gallery"}`);
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

  function fillControls() {
    for (const [id, options] of Object.entries(subject.options())) {
      fillSelect(id, [["", "any"], ...options]);
      $(id).closest("label").hidden = options.length === 0;
    }
    fillSelect("sort", subject.sorts);
    for (const id of ["layers", "detail-layers"]) $(id).append(...layers.map(layerButton));
  }

  function layerButton(name, number) {
    const button = make("button", `layer ${name}`);
    button.type = "button";
    button.dataset.layer = number + 1;
    button.append(pictures.swatch(), subject.layers[name]);
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

  const SELECTS = [...document.querySelectorAll("#filters select")].map((select) => select.id);

  function showControls() {
    for (const id of SELECTS) $(id).value = view[id];
    if ($("query").value !== view.query) $("query").value = view.query;
    const isUp = view.direction === "ascending";
    $("direction").textContent = isUp ? "↑" : "↓";
    $("direction").setAttribute("aria-label", `${isUp ? "Ascending" : "Descending"}; reverse the order`);
    $("direction").title = isUp ? "Ascending" : "Descending";
    $("reset").hidden = rows.format({ ...view, hidden: "", open: "" }, subject.plain) === "";
    showLayers();
  }

  function isAllowed(name, value) {
    if (name === "hidden") return /^[1-4]*$/.test(value);
    if (name === "direction") return value === "ascending" || value === "descending";
    if (SELECTS.includes(name)) return [...$(name).options].some((option) => option.value === value);
    return true;
  }

  /* The large view */

  function facts(row) {
    const list = [];
    subject.facts(row, (name, ...content) => {
      const value = make("dd");
      value.append(...content);
      list.push(make("dt", "", name), value);
    });
    return list;
  }

  function showDetail(number) {
    if (number < 0 || number >= shown.length) return;
    place = number;
    const row = shown[place];
    $("detail-title").replaceChildren(subject.title(row));
    pictures.fill($("detail-picture"), row, subject.describe(row));
    pictures.fillWhole($("detail-whole"), row);
    $("detail-facts").replaceChildren(...facts(row));
    $("place").replaceChildren(make("span", "hidden", `${subject.describe(row)}, `),
      `${many(place + 1)} of ${many(shown.length)}`);
    setEnd("previous", place === 0);
    setEnd("next", place === shown.length - 1);
    if (!$("detail").open) {
      $("detail").showModal();
      $("detail-title").focus();
    }
    view.open = subject.keys[row];
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
    c: () => { if (!$("detail").open) command.copy(); },
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
    const { view: newView, isEmpty } = rows.parse(location.hash, subject.plain, isAllowed);
    if (isEmpty) return;
    view = newView;
    showControls();
    refresh();
    const number = view.open ? shown.findIndex((row) => subject.keys[row] === view.open) : -1;
    if (number >= 0) showDetail(number);
    else $("gallery").scrollIntoView();
  }

  function listen() {
    for (const id of SELECTS) $(id).addEventListener("change", () => setView({ [id]: $(id).value }));
    $("query").addEventListener("input", () => setView({ query: $("query").value }));
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("filters").addEventListener("reset", (event) => {
      event.preventDefault();
      setView({ ...subject.plain, hidden: view.hidden });
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
    $("copy").addEventListener("click", command.copy);
    $("help").addEventListener("click", () => $("keys").showModal());
    document.addEventListener("keydown", handleKey);
    window.addEventListener("hashchange", readAddress);
  }

  if (length) {
    fillControls();
    listen();
    showControls();
    refresh();
    $("filter-box").open = !matchMedia("(max-width: 40rem)").matches;
    readAddress();
  }
})();
