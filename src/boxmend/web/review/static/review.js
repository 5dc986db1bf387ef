"use strict";

/* The review: the shown fix, the verdicts on it, and the keys. */

(async () => {
  const ADDRESS_DELAY_MS = 150;
  const NUM_PRELOADED = 3;  // fixes whose pictures are loaded in advance
  const RENEW_AFTER = 10;  // verdicts until the most doubtful fixes are requested again
  const MIN_SAMPLE = 50;  // verdicts that give a meaningful precision
  const MAX_UNDO = 500;
  const $ = (id) => document.getElementById(id);
  const verdicts = new Map();  // by row: {answer, label, box, mode}
  const places = new Map();  // by image
  let view = { ...rows.PLAIN };
  let list = [];  // rows in order
  let checks = new Set();  // rows of the queue that are drawn at random
  let place = -1;  // in the list
  let edited = null;  // the box of the shown fix, if edited
  let others = null;  // whether other boxes are shown; null: only for missing and duplicate fixes
  let isEditing = false;
  let numSince = 0;  // verdicts since the last request for the most doubtful fixes
  let addressTimer = 0;
  let turn = 0;  // number of the shown fix: answers to older requests are dropped
  let ownVerdicts = memory.read();  // of this window, for undo

  const isGrid = () => view.mode === "patterns" && view.at === "";  // not one fix of a pattern
  const wire = wireOf(showNews, showError);
  let data;
  try {
    data = await wire.get("fixes");
  } catch (error) {
    showError(`The fixes could not be loaded: ${error.message}`);
    return;
  }
  data.p_now = data.p_fix;  // adjusted to the verdicts when patterns are shown
  const words = wordsOf(data);
  const keys = rows.sortKeys(data);
  const captions = captionsOf(data, words);
  const cutOf = (image, part, side) => `cut-${image}-${part.join("-")}-${side}.jpg`;
  const controls = controlsOf(data, words, setView);
  const stage = stageOf($("before"), $("after"), { cutOf, setEdited: (box) => { edited = box; showMeanings(); } });
  const classes = classesOf(data.labels, words, relabel);
  const patterns = patternsOf($("patterns"), {
    data, words, verdicts, placesOf, cutOf,
    decide: (group, answer) => decide(group, { answer }, "pattern"),
    open: (row) => setView({ at: String(row) }),
    go: (pattern) => setView({ pattern, at: "" }),
  });

  /* News and errors */

  function put({ row, answer, label = null, box = null, mode = "queue" }) {
    if (answer === null || answer === "undo") verdicts.delete(row);
    else verdicts.set(row, { answer, label, box, mode });
  }

  function showNews(news) {
    if (news.is_reset) verdicts.clear();
    news.verdicts.forEach(put);
    wire.pending().forEach(put);
    controls.showFigures(news.figures);
    patterns.setPrecision(news.figures.precision);
    if (place >= 0) showVerdict();
  }

  function showError(message, refused = []) {
    $("trouble").hidden = !message;
    if ($("trouble").textContent !== message) $("trouble").textContent = message;
    for (const { row } of refused) verdicts.delete(row);
  }

  function announce(text) {  // to screen readers
    $("announcement").textContent = text;
  }

  /* Images */

  async function placesOf(images) {
    const missing = [...new Set(images)].filter((image) => !places.has(image));
    for (let k = 0; k < missing.length; k += 100) {
      for (const where of await wire.get(`places-${missing.slice(k, k + 100).join("-")}`)) places.set(where.image, where);
    }
    return images.map((image) => places.get(image));
  }

  const imageOf = (row) => data.images[data.file[row]];
  /** Return the new box of a fix; of a duplicate this is the box that stays. */
  function newBox(row, where) {
    if (data.kind[row] !== 4) return data.new_box[row];
    const kept = where.rows.indexOf(data.kept[row]);
    return kept < 0 ? null : where.boxes[kept];
  }

  function othersOf(row, where) {
    const isShown = others ?? (data.kind[row] === 2 || data.kind[row] === 4);
    if (!isShown) return [];
    return where.boxes.map((box, k) => [box, words.label(where.labels[k]), where.rows[k]])
      .filter(([, , other]) => other !== data.row[row]);
  }

  /* The shown fix */

  const isDone = (row) => (view.mode === "sample"
    ? verdicts.get(row)?.mode === "sample" && !rows.isOpen(verdicts.get(row)) : !rows.isOpen(verdicts.get(row)));

  const showVerdict = () => captions.verdict(verdicts.get(list[place]));
  const showMeanings = () => captions.meanings(list[place], edited);

  /** Return the progress of a sample: first towards MIN_SAMPLE verdicts, then only their number. */
  function sampleProgress() {
    const number = list.filter(isDone).length;
    return number < MIN_SAMPLE ? `${number} of ${Math.min(MIN_SAMPLE, list.length)} judged` : `${words.many(number)} judged`;
  }

  function showWords(row) {
    const isBlind = view.mode === "sample";  // people judge a sample by its picture only
    captions.fix(row, isBlind);
    $("check").hidden = !checks.has(row);
    $("place").textContent = isBlind ? sampleProgress() : `${words.many(place + 1)} of ${words.many(list.length)}`;
    $("previous").disabled = place === 0;
    $("next").disabled = place === list.length - 1;
    showVerdict();
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
      showError(`The image could not be loaded: ${error.message}`);
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
    for (let k = place + 1; k < list.length && soon.length < NUM_PRELOADED; k += 1) if (!isDone(list[k])) soon.push(list[k]);
    if (!soon.length) return;
    const wheres = await placesOf(soon.map(imageOf)).catch(() => []);
    if (mine === turn) wheres.forEach((where, k) => stage.prepare(where, [data.old_box[soon[k]], newBox(soon[k], where)]));
  }

  function showEmpty() {
    place = -1;
    turn += 1;
    $("one").hidden = true;
    $("empty").hidden = false;
    stage.show(null);
    announce(captions.empty(list.length, view.mode, () => setView({ state: "skipped" })));
  }

  /** Show the next open fix from a place on, or else from the beginning. */
  function advance(from) {
    if (view.mode === "queue" && !["open", ""].includes(view.state)) {  // a list of decided fixes
      if (from < list.length) showRow(from);
      else showEmpty();
      return;
    }
    const isFresh = (row) => !isDone(row) && verdicts.get(row)?.answer !== "skip";
    let number = list.findIndex((row, k) => k >= from && !isDone(row) && (k > place || isFresh(row)));
    if (number < 0) number = list.findIndex(isFresh);
    if (number < 0) showEmpty();
    else showRow(number);
  }

  function step(by) {
    if (isGrid()) {
      patterns.step(by);
      return;
    }
    const number = place < 0 ? 0 : place + by;
    if (number >= 0 && number < list.length) showRow(number);
  }

  /* Verdicts */

  function decide(group, verdict, mode) {
    const answers = group.map((row) => ({ row, ...verdict, mode }));
    answers.forEach(put);
    ownVerdicts = [...ownVerdicts, { rows: group, ...verdict }].slice(-MAX_UNDO);
    memory.write(ownVerdicts);
    wire.send(answers);
    const verb = { accept: "Accepted", reject: "Rejected", skip: "Skipped" }[verdict.answer];
    const what = group.length === 1 ? words.plain(data.kind[group[0]], data.old[group[0]], data.new[group[0]]) : `${words.many(group.length)} fixes`;
    $("last").textContent = `${verb}: ${what}`;
    announce(`${verb}: ${what}`);
    if (mode === "pattern") {
      patterns.refresh();
      return;
    }
    numSince += 1;
    if (view.mode === "doubtful" && numSince >= RENEW_AFTER) renew();
    else advance(place + 1);
  }

  function answerAll(kind) {
    if (isGrid() && patterns.isOpen()) patterns.ask(kind);
  }

  function answer(kind) {
    if (isGrid() && patterns.isOpen()) announce("Shift+A accepts and Shift+R rejects the ticked fixes");
    if (isGrid() || place < 0) return;
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
    const last = ownVerdicts.at(-1);
    if (!last) {
      $("last").textContent = "Nothing to undo in this window";
      announce($("last").textContent);
      return;
    }
    ownVerdicts = ownVerdicts.slice(0, -1);
    memory.write(ownVerdicts);
    const mine = last.rows.filter((row) => verdicts.get(row)?.answer === last.answer);
    if (mine.length) {
      const answers = mine.map((row) => ({ row, answer: "undo", mode: modeOfVerdict() }));
      answers.forEach(put);
      wire.send(answers);
    }
    $("last").textContent = mine.length < last.rows.length ? "Another window has changed the verdict"
      : mine.length === 1 ? "Undone" : `Undone: ${words.many(mine.length)} fixes`;
    announce($("last").textContent);
    if (isGrid()) patterns.refresh();
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
      const doubtful = await wire.get("doubtful");
      const before = list.slice(0, place + 1);
      const old = new Set(before);
      list = [...before, ...doubtful.filter((row) => !old.has(row) && !isDone(row))];
      advance(place + 1);
    } catch (error) {
      showError(`The most doubtful fixes could not be loaded: ${error.message}`);
    }
  }

  async function updateProbabilities() {
    try {
      data.p_now = await wire.get("probabilities");
    } catch (error) {
      showError(`The probabilities could not be loaded: ${error.message}`);
    }
  }

  async function refresh() {
    $("patterns").hidden = !isGrid();
    captions.mode(view.mode);
    checks = new Set();
    if (isGrid()) {
      await updateProbabilities();
      if (!isGrid()) return;
      place = -1;
      turn += 1;
      $("one").hidden = true;
      $("empty").hidden = true;
      controls.show(view, 0);
      patterns.show(view.pattern);
      return;
    }
    const { mode } = view;
    if (mode === "queue") {
      list = rows.choose(data, keys, verdicts, view);
      checks = rows.checksOf(list, data, view);
    }
    else if (mode === "sample") list = [...data.sample];
    else if (mode === "doubtful") list = await wire.get("doubtful").catch(() => []);
    else list = (rows.patterns(data, verdicts).find(([pattern]) => pattern === view.pattern) ?? ["", []])[1].toSorted((a, b) => data.p_now[a] - data.p_now[b] || a - b);
    if (mode !== view.mode) return;
    numSince = 0;
    controls.show(view, list.length);
    place = -1;
    const at = view.at === "" ? -1 : list.indexOf(Number(view.at));
    if (at >= 0) showRow(at);
    else advance(0);
  }

  /** Write the view into the address after a delay, because browsers limit the number of calls. */
  function remember() {
    clearTimeout(addressTimer);
    addressTimer = setTimeout(() => {
      try {
        history.replaceState(null, "", `#${rows.format(view)}`);
      } catch { /* the view works without it */ }
    }, ADDRESS_DELAY_MS);
  }

  function setView(changes) {
    const isOther = Object.keys(changes).some((name) => name !== "at");
    view = { ...view, ...(isOther ? { at: "" } : {}), ...changes };
    remember();
    refresh();
  }

  /* Views of the picture, and keys */

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
    x: () => patterns.toggle(), A: () => answerAll("accept"), R: () => answerAll("reject"),
    t: () => { if (isGrid() && patterns.isOpen()) patterns.tickAll(); },
    "?": () => $("keys").showModal(),
    Escape: () => {
      if (isEditing || edited) endEditing();
      else if (view.mode === "patterns" && (view.at || view.pattern)) setView(view.at ? { at: "" } : { pattern: "", at: "" });
    },
  };

  function handleKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=checkbox]), select, textarea")) {
      if (event.key === "Escape") $("title").focus();
      return;
    }
    if (event.repeat && "arsucARt".includes(event.key)) return;  // a key that is held down decides only once
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
    document.addEventListener("keydown", handleKey);
    addEventListener("hashchange", () => {
      view = rows.parse(location.hash, controls.isAllowed);
      refresh();
    });
  }

  $("run").textContent = data.name;
  document.title = `${data.name} · boxmend review`;
  $("filter-box").open = !matchMedia("(max-width: 60rem)").matches;
  listen();
  await wire.ask();
  view = rows.parse(location.hash, controls.isAllowed);
  refresh();
})();
