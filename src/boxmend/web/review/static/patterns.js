"use strict";

/* Patterns: groups of fixes with the same kind and classes, as a list, and each as a grid of
   pictures with one confirmation for all. */

const patternsOf = (root, { data, words, verdicts, placesOf, cutOf, decide, open, go }) => {
  const SVG = "http://www.w3.org/2000/svg";
  const CHUNK = 40;  // pictures added at once
  const CONTEXT = 1.7, ASPECT = 4 / 3, SIDE = 320;
  let all = [];  // [key, rows, mean probability], the surest first
  let precision = 1;  // fixes below it are not ticked at first
  const $ = (id) => document.getElementById(id);
  let key = "";  // of the open pattern
  let list = [];  // its open fixes, the least probable first
  let left = new Set();  // those that stay open: their boxes are not ticked
  let numCards = 0;

  const meaning = (pattern) => pattern.split("_").map(Number);
  const openRows = (group) => group.filter((row) => rows.isOpen(verdicts.get(row)));

  /* The list */

  function line([pattern, group, mean]) {
    const rest = openRows(group);
    const item = words.make("tr");
    const button = words.make("button", "pattern");
    button.type = "button";
    button.append(words.title(...meaning(pattern)));
    button.addEventListener("click", () => go(pattern));
    const cells = [words.make("td"), words.make("td"), words.make("td", "amount"), words.make("td", "amount"), words.make("td", "amount")];
    cells[0].append(button);
    cells[1].append(words.make("span", words.kindBadge(group[0]).className, words.kindBadge(group[0]).text));
    cells[2].textContent = words.many(group.length);
    cells[3].textContent = rest.length ? words.many(rest.length) : "done";
    cells[4].textContent = mean < 0 ? "" : words.share(mean);
    item.append(...cells);
    return item;
  }

  function showList() {
    const table = words.make("table", "pattern-list");
    const head = words.make("tr");
    for (const [name, kind] of [["Pattern", ""], ["Kind", ""], ["Fixes", "amount"], ["Open", "amount"], ["Mean P(right)", "amount"]]) {
      const cell = words.make("th", kind, name);
      cell.scope = "col";
      head.append(cell);
    }
    const [top, body] = [words.make("thead"), words.make("tbody")];
    top.append(head);
    body.append(...all.slice(0, 500).map(line));
    table.append(top, body);
    const more = all.length > 500 ? [words.make("p", "note", `The 500 surest of ${words.many(all.length)} are listed.`)] : [];
    root.replaceChildren(words.make("h2", "part", "Patterns"),
      words.make("p", "mode-words", "Groups of fixes with the same change, the surest first. Open one to see its pictures and to decide on many at once. Such verdicts do not adjust the probabilities of other fixes."), table, ...more);
  }

  /* One pattern */

  const end = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) addCards();
  }, { rootMargin: "600px" });

  function window(place, row) {
    const known = [data.old_box[row], data.new_box[row]].filter(Boolean);
    if (!known.length) return [0, 0, place.width, place.height];
    const [x1, y1] = [0, 1].map((side) => Math.min(...known.map((sides) => sides[side])));
    const [x2, y2] = [2, 3].map((side) => Math.max(...known.map((sides) => sides[side])));
    const least = 0.12 * Math.max(place.width, place.height);
    let [w, h] = [Math.max((x2 - x1) * CONTEXT, least), Math.max((y2 - y1) * CONTEXT, least)];
    [w, h] = [Math.max(w, h * ASPECT), Math.max(h, w / ASPECT)];
    const span = (middle, length, limit) => {
      if (length >= limit) return [0, limit];
      const low = Math.max(0, Math.min(middle - length / 2, limit - length));
      return [Math.floor(low), Math.min(Math.ceil(low + length), limit)];
    };
    const [across, down] = [span((x1 + x2) / 2, w, place.width), span((y1 + y2) / 2, h, place.height)];
    return [across[0], down[0], across[1], down[1]];
  }

  function outline(svg, name, sides, [left0, top]) {
    if (!sides) return;
    for (const part of ["under", "over"]) {
      const rect = document.createElementNS(SVG, "rect");
      const place = { x: sides[0] - left0, y: sides[1] - top, width: Math.max(sides[2] - sides[0], 0), height: Math.max(sides[3] - sides[1], 0) };
      for (const [attribute, value] of Object.entries({ class: `${part} ${name}`, ...place })) rect.setAttribute(attribute, value);
      svg.append(rect);
    }
  }

  function fill(frame, row, place) {
    if (place.problem) {
      frame.replaceChildren(words.make("span", "no-picture", `No picture: ${place.problem}`));
      return;
    }
    const part = window(place, row);
    const image = new Image();
    image.alt = "";
    image.decoding = "async";
    image.addEventListener("error", () => frame.replaceChildren(words.make("span", "no-picture", "No picture: the server could not make it")));
    image.src = cutOf(place.image, part, SIDE);
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${part[2] - part[0]} ${part[3] - part[1]}`);
    svg.setAttribute("aria-hidden", "true");
    outline(svg, "annotated", data.old_box[row], part);
    if (data.kind[row] === 1 || data.kind[row] === 2) outline(svg, "final", data.new_box[row], part);
    frame.replaceChildren(image, svg);
  }

  function card(row, number) {
    const item = words.make("li", "card");
    item.dataset.row = row;
    item.setAttribute("aria-setsize", list.length);
    item.setAttribute("aria-posinset", number + 1);
    const button = words.make("button", "open");
    button.type = "button";
    const frame = words.make("span", "frame");
    const file = data.files[data.file[row]];
    button.append(frame, words.make("span", "hidden", `Open ${words.plain(...meaning(key))} in ${file}`));
    button.addEventListener("click", () => open(row));
    const choice = words.make("label", "choice");
    const box = words.make("input");
    box.type = "checkbox";
    box.checked = !left.has(row);
    box.addEventListener("change", () => {
      left[box.checked ? "delete" : "add"](row);
      item.classList.toggle("left", !box.checked);
      showNumbers();
    });
    item.classList.toggle("left", !box.checked);
    choice.append(box, words.make("span", "hidden", "Include "), words.make("span", "piece", words.share(data.p_now[row])), " ", words.bdi(file));
    choice.title = file;
    item.append(button, choice);
    return [item, frame];
  }

  async function addCards() {
    const part = list.slice(numCards, numCards + CHUNK);
    if (!part.length) return;
    const made = part.map((row, k) => card(row, numCards + k));
    numCards += part.length;
    $("cards").append(...made.map(([item]) => item));
    $("more").hidden = numCards >= list.length;
    const [pattern, places] = [key, await placesOf(part.map((row) => data.images[data.file[row]]))];
    if (pattern !== key) return;
    made.forEach(([, frame], k) => fill(frame, part[k], places[k]));
    end.unobserve($("more"));
    end.observe($("more"));  // if it is still in view, more cards follow at once
  }

  function showNumbers() {
    const number = list.length - left.size;
    const rest = left.size ? ` of ${words.many(list.length)}` : "";
    $("accept-all").querySelector("b").textContent = `Accept ${words.many(number)}${rest}`;
    $("reject-all").querySelector("b").textContent = `Reject ${words.many(number)}${rest}`;
    for (const id of ["accept-all", "reject-all"]) $(id).disabled = number === 0;
    $("tick-all").querySelector("b").textContent = left.size ? "Tick all" : "Tick none";
  }

  function actionButton(id, kind, letter) {
    const button = words.make("button", kind);
    button.type = "button";
    button.id = id;
    button.append(words.make("kbd", "", letter), " ", words.make("b"));
    button.addEventListener("click", () => ask(kind));
    return button;
  }

  function tickButton() {
    const button = words.make("button", "");
    button.type = "button";
    button.id = "tick-all";
    button.append(words.make("kbd", "", "t"), " ", words.make("b"));
    button.addEventListener("click", tickAll);
    return button;
  }

  /** Tick all fixes; if they are ticked, untick them. */
  function tickAll() {
    left = left.size ? new Set() : new Set(list);
    for (const item of root.querySelectorAll(".card")) {
      const isTicked = left.size === 0;
      item.querySelector("input").checked = isTicked;
      item.classList.toggle("left", !isTicked);
    }
    showNumbers();
  }

  function showPattern() {
    const group = all.find(([pattern]) => pattern === key)[1];
    list = openRows(group).sort((a, b) => data.p_now[a] - data.p_now[b] || a - b);
    left = new Set(list.filter((row) => data.p_now[row] < precision));
    numCards = 0;
    const back = words.make("button", "back", "← All patterns");
    back.type = "button";
    back.addEventListener("click", () => go(""));
    const title = words.make("h2", "part");
    title.append(`${words.many(group.length)} `, words.title(...meaning(key)));
    title.tabIndex = -1;
    const badge = words.make("span", words.kindBadge(group[0]).className, words.kindBadge(group[0]).text);
    const decided = group.length - list.length;
    const summary = list.length ? `${words.many(list.length)} open${decided ? `, ${words.many(decided)} decided` : ""}; the least probable come first. Ticked at first: those with a probability of at least ${precision}. Fixes that are not ticked stay open.`
      : "All of them are decided.";
    const actions = words.make("div", "actions both");
    actions.append(actionButton("accept-all", "accept", "A"), actionButton("reject-all", "reject", "R"), tickButton());
    const cards = words.make("ol", "cards");
    cards.id = "cards";
    cards.setAttribute("role", "list");
    cards.setAttribute("aria-label", "Fixes of this pattern");
    const more = words.make("button", "more", "Show more");
    more.type = "button";
    more.id = "more";
    more.addEventListener("click", addCards);
    const head = words.make("div", "pattern-head");
    head.append(back, title, badge);
    root.replaceChildren(head, words.make("p", "mode-words", summary), ...(list.length ? [actions] : []), cards, more);
    more.hidden = true;
    if (list.length) showNumbers();
    addCards();
    title.focus({ preventScroll: true });
  }

  function ask(kind) {
    const ticked = list.filter((row) => !left.has(row));
    if (!ticked.length) return;
    const verb = kind === "accept" ? "Accept" : "Reject";
    $("confirm-title").textContent = `${verb} ${words.many(ticked.length)}: ${words.plain(...meaning(key))}?`;
    const unseen = ticked.length - list.slice(0, numCards).filter((row) => !left.has(row)).length;
    $("confirm-words").textContent = unseen
      ? `${words.many(unseen)} of them have not been on the screen. Undo reverts all at once.`
      : "Undo reverts all at once.";
    $("confirm-yes").textContent = verb;
    $("confirm").returnValue = "";
    $("confirm").showModal();
    $("confirm-yes").focus();
    $("confirm").onclose = () => {
      if ($("confirm").returnValue === "yes") decide(ticked, kind);
    };
  }

  /** Move the focus through the list or the grid. */
  function step(by) {
    const all = [...root.querySelectorAll(".pattern, .card .open")];
    const now = all.indexOf(document.activeElement.closest?.(".card")?.querySelector(".open") ?? document.activeElement);
    all[now < 0 ? 0 : Math.max(0, Math.min(all.length - 1, now + by))]?.focus();
  }

  return {
    step,
    toggle() { document.activeElement.closest?.(".card")?.querySelector("input").click(); },
    tickAll,
    setPrecision(value) { precision = value; },
    show(pattern) {
      all = rows.patterns(data, verdicts);
      key = all.some(([known]) => known === pattern) ? pattern : "";
      if (key) showPattern();
      else showList();
    },
    refresh() {
      if (key) showPattern();
      else showList();
    },
    ask,
    isOpen: () => key !== "" && list.length > 0,
  };
};
