"use strict";

/* The review: which fix is shown, what is decided about it, and keys. */

(async () => {
  const PATIENCE = 150;  // milliseconds until the address follows
  const AHEAD = 3;  // fixes whose pictures are loaded before they are wanted
  const RENEWED = 10;  // verdicts after which the most doubtful are chosen anew
  const SAMPLE = 50;  // fixes of a sample that say something
  const MOST_UNDO = 500;
  const $ = (id) => document.getElementById(id);
  const standing = new Map();  // by row: {answer, label, box, mode}
  const places = new Map();  // by image
  let view = { ...rows.PLAIN };
  let list = [];  // rows in order
  let place = -1;  // in the list
  let edited = null;  // the box of the shown fix, where it was changed by hand
  let others = null;  // whether other boxes are shown; null: where they help
  let isEditing = false;
  let numSince = 0;  // verdicts since the most doubtful were chosen
  let waiting = 0;  // timer of the address
  let turn = 0;  // of what is being shown: answers to older questions are dropped
  let given = memory.read();  // verdicts of this window, for undo

  const wire = wireOf(told, failed);
  let data;
  try {
    data = await wire.get("fixes");
  } catch (error) {
    failed(`The fixes could not be loaded: ${error.message}`);
    return;
  }
  const words = wordsOf(data);
  const keys = rows.sortKeys(data);
  const telling = tellingOf(data, words);
  const cutOf = (image, part, side) => `cut-${image}-${part.join("-")}-${side}.jpg`;
  const controls = controlsOf(data, words, setView);
  const stage = stageOf($("before"), $("after"), { cutOf, edited: (box) => { edited = box; showMeanings(); } });
  const classes = classesOf(data.labels, words, relabel);
  const patterns = patternsOf($("patterns"), {
    data, words, standing, placesOf, cutOf,
    decide: (found, answer) => decide(found, { answer }, "pattern"),
    open: (row) => setView({ at: String(row) }),
    go: (pattern) => setView({ pattern, at: "" }),
  });

  /* News and trouble */

  function put({ row, answer, label = null, box = null, mode = "queue" }) {
    if (answer === null || answer === "undo") standing.delete(row);
    else standing.set(row, { answer, label, box, mode });
  }

  function told(news) {
    if (news.is_reset) standing.clear();
    news.verdicts.forEach(put);
    wire.pending().forEach(put);
    controls.showFigures(news.figures);
    if (place >= 0) showStanding();
  }

  function failed(message, refused = []) {
    $("trouble").hidden = !message;
    if ($("trouble").textContent !== message) $("trouble").textContent = message;
    for (const { row } of refused) standing.delete(row);
  }

  function say(text) {
    $("said").textContent = text;
  }

  /* Images */

  async function placesOf(images) {
    const wanted = [...new Set(images)].filter((one) => !places.has(one));
    for (let k = 0; k < wanted.length; k += 100) {
      for (const one of await wire.get(`places-${wanted.slice(k, k + 100).join("-")}`)) places.set(one.image, one);
    }
    return images.map((one) => places.get(one));
  }

  const imageOf = (row) => data.images[data.file[row]];
  /** The box that stays of a duplicate is the new one to be seen; a class changes no box. */
  function newBox(row, where) {
    if (data.kind[row] !== 4) return data.new_box[row];
    const kept = where.rows.indexOf(data.kept[row]);
    return kept < 0 ? null : where.boxes[kept];
  }

  function othersOf(row, where) {
    const isWanted = others ?? (data.kind[row] === 2 || data.kind[row] === 4);
    if (!isWanted) return [];
    return where.boxes.map((box, k) => [box, words.label(where.labels[k]), where.rows[k]])
      .filter(([, , one]) => one !== data.row[row]);
  }

  /* The shown fix */

  const isDone = (row) => (view.mode === "sample"
    ? standing.get(row)?.mode === "sample" && !rows.isOpen(standing.get(row)) : !rows.isOpen(standing.get(row)));

  const showStanding = () => telling.standing(standing.get(list[place]));
  const showMeanings = () => telling.meanings(list[place], edited);

  /** How far a sample is: fifty verdicts say something, more say it more precisely. */
  function sampleWords() {
    const number = list.filter(isDone).length;
    return number < SAMPLE ? `${number} of ${Math.min(SAMPLE, list.length)} judged` : `${words.many(number)} judged`;
  }

  function showWords(row) {
    const isBlind = view.mode === "sample";  // a sample is judged by its picture
    telling.fix(row, isBlind);
    $("place").textContent = isBlind ? sampleWords() : `${words.many(place + 1)} of ${words.many(list.length)}`;
    $("previous").disabled = place === 0;
    $("next").disabled = place === list.length - 1;
    showStanding();
    showMeanings();
  }

  async function showRow(number) {
    place = number;
    edited = null;
    setEditing(false);
    const row = list[place], mine = turn += 1;
    view.at = String(row);
    remember();
    $("one").hidden = false;
    $("empty").hidden = true;
    showWords(row);
    $("whole").setAttribute("aria-pressed", "false");
    stage.show(null);
    let where;
    try {
      [where] = await placesOf([imageOf(row)]);
    } catch (error) {
      failed(`The image could not be asked for: ${error.message}`);
      return;
    }
    if (mine !== turn) return;
    const around = othersOf(row, where);
    stage.show({ place: where, old: data.old_box[row], now: newBox(row, where), others: around, canEdit: data.kind[row] !== 4 });
    $("others").setAttribute("aria-pressed", around.length > 0);
    prepare(mine);
  }

  async function prepare(mine) {
    const soon = [];
    for (let k = place + 1; k < list.length && soon.length < AHEAD; k += 1) if (!isDone(list[k])) soon.push(list[k]);
    if (!soon.length) return;
    const found = await placesOf(soon.map(imageOf)).catch(() => []);
    if (mine === turn) found.forEach((where, k) => stage.prepare(where, [data.old_box[soon[k]], newBox(soon[k], where)]));
  }

  function showEmpty() {
    place = -1;
    turn += 1;
    $("one").hidden = true;
    $("empty").hidden = false;
    stage.show(null);
    say(telling.empty(list.length, view.mode === "queue" ? () => setView({ state: "skipped" }) : null));
  }

  /** Go to the next fix that is open, from a place on, or from the beginning if there is none. */
  function advance(from) {
    if (view.mode === "queue" && !["open", ""].includes(view.state)) {  // decided ones, looked at again
      if (from < list.length) showRow(from);
      else showEmpty();
      return;
    }
    const isFresh = (row) => !isDone(row) && standing.get(row)?.answer !== "skip";
    let number = list.findIndex((row, k) => k >= from && !isDone(row) && (k > place || isFresh(row)));
    if (number < 0) number = list.findIndex(isFresh);
    if (number < 0) showEmpty();
    else showRow(number);
  }

  function step(by) {
    if (view.mode === "patterns" && view.at === "") {
      patterns.step(by);
      return;
    }
    const number = place < 0 ? 0 : place + by;
    if (number >= 0 && number < list.length) showRow(number);
  }

  /* Verdicts */

  function decide(found, verdict, mode) {
    const sent = found.map((row) => ({ row, ...verdict, mode }));
    sent.forEach(put);
    given = [...given, { rows: found, ...verdict }].slice(-MOST_UNDO);
    memory.write(given);
    wire.send(sent);
    const verb = { accept: "Accepted", reject: "Rejected", skip: "Skipped" }[verdict.answer];
    const what = found.length === 1 ? words.plain(data.kind[found[0]], data.old[found[0]], data.new[found[0]]) : `${words.many(found.length)} fixes`;
    $("last").textContent = `${verb}: ${what}`;
    say(`${verb}: ${what}`);
    if (mode === "pattern") {
      patterns.refresh();
      return;
    }
    numSince += 1;
    if (view.mode === "doubtful" && numSince >= RENEWED) renew();
    else advance(place + 1);
  }

  function answer(kind) {
    if (view.mode === "patterns" && view.at === "") {
      if (patterns.isOpen() && kind !== "skip") patterns.ask(kind);
      return;
    }
    if (place < 0) return;
    const verdict = { answer: kind };
    if (kind === "accept" && edited) verdict.box = edited;
    decide([list[place]], verdict, modeOfVerdict());
  }

  const modeOfVerdict = () => (view.mode === "patterns" ? "queue" : view.mode);

  function relabel(label) {
    const row = list[place];
    const verdict = { answer: "accept" };
    if (edited) verdict.box = edited;
    if (label !== data.new[row] || data.kind[row] >= 3) verdict.label = label;
    if (label === data.old[row] && !edited && data.kind[row] === 0) decide([row], { answer: "reject" }, modeOfVerdict());
    else decide([row], verdict, modeOfVerdict());
  }

  function undo() {
    const last = given.at(-1);
    if (!last) {
      $("last").textContent = "Nothing to undo in this window";
      say($("last").textContent);
      return;
    }
    given = given.slice(0, -1);
    memory.write(given);
    const mine = last.rows.filter((row) => standing.get(row)?.answer === last.answer);
    if (mine.length) {
      const sent = mine.map((row) => ({ row, answer: "undo", mode: modeOfVerdict() }));
      sent.forEach(put);
      wire.send(sent);
    }
    $("last").textContent = mine.length < last.rows.length ? "Another window has decided otherwise meanwhile"
      : mine.length === 1 ? "Undone" : `Undone: ${words.many(mine.length)} fixes`;
    say($("last").textContent);
    if (view.mode === "patterns" && view.at === "") patterns.refresh();
    else if (mine.length === 1) showAgain(mine[0]);
  }

  function showAgain(row) {
    if (!list.includes(row)) list.splice(Math.max(place, 0), 0, row);
    showRow(list.indexOf(row));
  }

  /* Views */

  async function renew() {
    numSince = 0;
    try {
      const found = await wire.get("doubtful");
      const before = list.slice(0, place + 1);
      const old = new Set(before);
      list = [...before, ...found.filter((row) => !old.has(row) && !isDone(row))];
      advance(place + 1);
    } catch (error) {
      failed(`The most doubtful could not be asked for: ${error.message}`);
    }
  }

  async function refresh() {
    const isGrid = view.mode === "patterns" && view.at === "";
    $("patterns").hidden = !isGrid;
    telling.mode(view.mode);
    if (isGrid) {
      place = -1;
      turn += 1;
      $("one").hidden = true;
      $("empty").hidden = true;
      controls.show(view, 0);
      patterns.show(view.pattern);
      return;
    }
    const wanted = view.mode;
    if (wanted === "queue") list = rows.chosen(data, keys, standing, view);
    else if (wanted === "sample") list = [...data.sample];
    else if (wanted === "doubtful") list = await wire.get("doubtful").catch(() => []);
    else list = (rows.patterns(data).find(([one]) => one === view.pattern) ?? ["", []])[1].toSorted((a, b) => data.p_fix[a] - data.p_fix[b] || a - b);
    if (wanted !== view.mode) return;
    numSince = 0;
    controls.show(view, list.length);
    place = -1;
    const at = view.at === "" ? -1 : list.indexOf(Number(view.at));
    if (at >= 0) showRow(at);
    else advance(0);
  }

  /** Write the view into the address, a moment later: browsers count such calls, and refuse. */
  function remember() {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      try {
        history.replaceState(null, "", `#${rows.written(view)}`);
      } catch { /* the view is there all the same */ }
    }, PATIENCE);
  }

  function setView(changes) {
    const isOther = Object.keys(changes).some((name) => name !== "at");
    view = { ...view, ...(isOther ? { at: "" } : {}), ...changes };
    remember();
    refresh();
  }

  /* Looks and keys */

  function setEditing(is) {
    isEditing = stage.setEditing(is && place >= 0);
    $("edit").setAttribute("aria-pressed", isEditing);
    if (is && !isEditing) $("last").textContent = "There is no box to edit";
  }

  function endEditing() {
    if (edited) stage.reset();
    if (isEditing) {
      setEditing(false);
      $("title").focus();
    }
  }

  function toggleWhole() {
    if (place >= 0) $("whole").setAttribute("aria-pressed", stage.toggleWhole());
  }

  function toggleOthers() {
    if (place < 0) return;
    const row = list[place];
    others = $("others").getAttribute("aria-pressed") !== "true";
    $("others").setAttribute("aria-pressed", others);
    if (places.has(imageOf(row))) stage.setOthers(othersOf(row, places.get(imageOf(row))));
  }

  function look(factor) {
    if (place < 0) return;
    if (factor) stage.zoom(factor);
    else stage.back();
    $("whole").setAttribute("aria-pressed", "false");
  }

  const toMode = (mode) => () => setView({ mode, pattern: "", at: "" });
  const ACTIONS = {
    a: () => answer("accept"), r: () => answer("reject"), s: () => answer("skip"), u: undo,
    c: () => { if (place >= 0) classes.open(); }, e: () => (isEditing ? endEditing() : setEditing(true)),
    j: () => step(1), ArrowRight: () => step(1), k: () => step(-1), ArrowLeft: () => step(-1),
    z: toggleWhole, o: toggleOthers, h: () => $("panels").classList.toggle("bare"),
    "+": () => look(0.7), "=": () => look(0.7), "-": () => look(1.4), 0: () => look(0),
    q: toMode("queue"), d: toMode("doubtful"), m: toMode("sample"), p: toMode("patterns"),
    f: () => { if (view.mode === "queue") { $("filter-box").open = true; $("query").focus(); } },
    x: () => patterns.toggle(),
    "?": () => $("keys").showModal(),
    Escape: () => {
      if (isEditing || edited) endEditing();
      else if (view.mode === "patterns" && (view.at || view.pattern)) setView(view.at ? { at: "" } : { pattern: "", at: "" });
    },
  };

  function pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") $("title").focus();
      return;
    }
    if (event.repeat && "arsuc".includes(event.key)) return;  // a key that is held decides once
    if (!Object.hasOwn(ACTIONS, event.key)) return;
    event.preventDefault();
    ACTIONS[event.key]();
  }

  function listen() {
    const buttons = {
      accept: "a", reject: "r", skip: "s", undo: "u", relabel: "c", edit: "e", previous: "k", next: "j",
      whole: "z", others: "o", "zoom-in": "+", "zoom-out": "-", help: "?",
    };
    for (const [id, key] of Object.entries(buttons)) $(id).addEventListener("click", ACTIONS[key]);
    document.addEventListener("keydown", pressed);
    addEventListener("hashchange", () => {
      view = rows.parsed(location.hash, controls.isAllowed);
      refresh();
    });
  }

  $("run").textContent = data.name;
  document.title = `${data.name} · boxmend review`;
  $("filter-box").open = !matchMedia("(max-width: 60rem)").matches;
  listen();
  await wire.ask();
  view = rows.parsed(location.hash, controls.isAllowed);
  refresh();
})();
