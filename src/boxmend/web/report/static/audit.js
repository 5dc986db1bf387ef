"use strict";

/* What the page of an audit shows: a row is a fix. */

const subjectOf = (data) => {
  const { make, bdi, fixed, percent, many, change, pieces, tally } = elements;
  const KIND_BADGES = ["relabelled", "moved", "good", "discarded", "discarded"];
  const MISSING = 2;
  const SURE = [0.95, 0.9, 0.8, 0.7, 0.5];
  const DEFAULT_LEVEL = 0;
  const NEVER = "none";
  const ANSWERS = ["open", "accepted", "rejected", "changed"];
  const ANSWER_WORDS = ["no verdict", "accepted", "rejected", "accepted with changes"];
  const MARKS = ["uncounted", "right", "wrong"];
  const MARK_WORDS = ["counts as neither", "right fix", "wrong fix"];
  const MARK_BADGES = ["", "✓ right", "✗ wrong"];
  const MARK_KINDS = ["", "good", "bad"];
  const label = (number) => (number < 0 ? "none" : data.labels[number]);
  const labelOf = (row) => (data.kind[row] === MISSING ? data.new[row] : data.old[row]);
  const isRemoval = (row) => data.kind[row] > MISSING;

  const sortKeys = {
    sure: rows.numbers(data.p_fix),
    error: rows.numbers(data.p_wrong),
    gain: rows.numbers(data.gain),
    file: rows.filePlaces(data),
  };

  /** Return a test for the fixes that a precision applies, of one kind alone or of all. */
  function isApplied(level, kind) {
    const levels = kind === "" ? data.level : data.own_level;
    return (row) => levels[row] <= level && (kind === "" || data.kind[row] === Number(kind));
  }

  const levelOf = (precision) => data.precisions.indexOf(Number(precision));

  function tests(view) {
    const passes = [];
    if (view.kind !== "") passes.push((row) => data.kind[row] === Number(view.kind));
    if (view.precision === NEVER) {
      const applied = isApplied(data.precisions.length - 1, view.kind);
      passes.push((row) => !applied(row));
    } else if (view.precision !== "") {
      passes.push(isApplied(levelOf(view.precision), view.kind));
    }
    if (view.from !== "") passes.push((row) => labelOf(row) === Number(view.from));
    if (view.pair !== "") passes.push(rows.isPair(data, view.pair));
    if (view.sure === "less") passes.push((row) => data.p_fix[row] < SURE.at(-1));
    else if (view.sure !== "") passes.push((row) => data.p_fix[row] >= Number(view.sure));
    if (view.answer !== "") passes.push((row) => data.answer[row] === ANSWERS.indexOf(view.answer));
    if (view.mark !== "" && data.mark) passes.push((row) => data.mark[row] === MARKS.indexOf(view.mark));
    if (view.query !== "") {
      const inFile = rows.contains(data.files, data.file, view.query);
      const inReason = rows.contains(data.reasons, data.reason, view.query);
      passes.push((row) => inFile(row) || inReason(row));
    }
    return passes;
  }

  function options() {
    const own = data.kind.map((_, row) => labelOf(row));
    const [kinds, labels, answers] = [data.kind, own, data.answer].map(tally);
    const used = [...new Set(own)].sort((a, b) => (label(a) < label(b) ? -1 : 1));
    const marks = tally(data.mark || []);
    const isUsed = ([, text]) => !text.endsWith("(0)");
    return {
      kind: data.kinds.map((words, code) => [code, `${words} (${kinds(code)})`]).filter(isUsed),
      precision: [...data.precisions.map((precision) => [precision, `${precision}`]),
        [NEVER, `not at ${data.precisions.at(-1)}`]],
      from: used.map((number) => [number, `${label(number)} (${labels(number)})`]),
      pair: rows.pairs(data).map(([pair, number]) => {
        const [from, to] = pair.split("-").map(Number);
        return [pair, `${label(from)} → ${label(to)} (${many(number)})`];
      }),
      sure: [...SURE.map((least) => [least, `at least ${least}`]), ["less", `below ${SURE.at(-1)}`]],
      answer: data.answer.some((answer) => answer > 0)
        ? ANSWERS.map((name, code) => [name, `${ANSWER_WORDS[code]} (${answers(code)})`]).filter(isUsed)
        : [],
      mark: data.mark
        ? MARKS.map((name, code) => [name, `${MARK_WORDS[code]} (${marks(code)})`]).filter(isUsed)
        : [],
    };
  }

  /** Return the fix in words, without the label names. */
  function describe(row) {
    const where = ` in ${data.files[data.file[row]]}`;
    if (data.kind[row] === MISSING) return `Add ${label(data.new[row])}${where}`;
    const old = `${data.kinds[data.kind[row]]}: ${label(data.old[row])}`;
    if (isRemoval(row)) return `${old}, to be removed,${where}`;
    return data.old[row] === data.new[row] ? `${old}${where}`
      : `${old}, rather ${label(data.new[row])},${where}`;
  }

  function title(row) {
    const action = (words) => make("span", "action", words);
    if (data.kind[row] === MISSING) {
      const line = change(null, action("add "));
      line.append(bdi(label(data.new[row])));
      return line;
    }
    if (isRemoval(row)) return change(bdi(label(data.old[row])), action("remove"));
    const isSame = data.old[row] === data.new[row];
    return change(bdi(label(data.old[row])), isSame ? null : bdi(label(data.new[row])));
  }

  function badges(row) {
    const list = make("span", "badges");
    const kind = data.kind[row], answer = data.answer[row];
    list.append(make("span", `badge ${KIND_BADGES[kind]}`, data.kinds[kind]), " ");
    if (answer) {
      list.append(make("span", `badge ${ANSWERS[answer] === "rejected" ? "bad" : "good"}`, ANSWER_WORDS[answer]), " ");
    }
    if (data.mark && data.mark[row]) {
      list.append(make("span", `badge ${MARK_KINDS[data.mark[row]]}`, MARK_BADGES[data.mark[row]]));
    }
    return list;
  }

  function figures(row) {
    const words = [`error ${percent(data.p_wrong[row])}`, `fix right ${percent(data.p_fix[row])}`];
    if (data.gain[row] !== null) words.push(`IoU +${fixed(data.gain[row], 2)}`);
    return pieces(words);
  }

  function appliedWords(level) {
    return level < data.precisions.length ? `at precision ${data.precisions[level]} and below`
      : `not at ${data.precisions.at(-1)} or above`;
  }

  function facts(row, fact) {
    fact("Kind", data.kinds[data.kind[row]]);
    fact("Reason", bdi(data.reasons[data.reason[row]]));
    fact("Error", `probability ${percent(data.p_wrong[row])}`);
    fact("Fix right", `probability ${percent(data.p_fix[row])}`);
    if (data.gain[row] !== null) fact("Expected gain", `${fixed(data.gain[row], 2)} in IoU with the true box`);
    fact("Applied", appliedWords(data.level[row]));
    if (data.answer[row]) fact("Verdict", ANSWER_WORDS[data.answer[row]]);
    if (data.mark) {
      const truth = data.truth[row];
      if (data.kind[row] !== MISSING) fact("True label", bdi(truth < 0 ? "none of these labels" : label(truth)));
      fact("Compared with the truth", MARK_WORDS[data.mark[row]]);
    }
    fact("File", bdi(data.files[data.file[row]]));
    if (data.id[row]) fact("Annotation", bdi(data.id[row]));
    if (data.kept[row]) fact("Stays", "annotation ", bdi(data.kept[row]));
  }

  /* The command: it chooses fixes by a precision and by kind. */

  function compare(shown, level, kind) {
    const applied = isApplied(level, kind);
    const made = shown.filter(applied).length;
    let all = 0;
    for (let row = 0; row < data.fix.length; row += 1) all += applied(row) ? 1 : 0;
    const only = kind === "" ? "" : ` --only ${data.options[Number(kind)]}`;
    return {
      options: ` --precision ${data.precisions[level]}${only}`,
      made, left: shown.length - made, beyond: all - made, stays: 0, words: ["fix", "fixes"],
    };
  }

  /** Return the command that applies exactly the fixes shown. If there is none, return that of the
      precision and kind in the filters, or the first one that applies any fix shown. */
  function command(shown, view) {
    const wanted = levelOf(view.precision || data.precisions[DEFAULT_LEVEL]);
    const levels = [wanted < 0 ? DEFAULT_LEVEL : wanted, ...data.precisions.keys()];
    const choices = levels.map((level) => compare(shown, level, view.kind));
    const exact = choices.find(({ made, left, beyond }) => made > 0 && left + beyond === 0);
    const choice = exact || choices.find(({ made }) => made > 0) || choices[0];
    const hint = exact || view.precision ? "" : "Choose a precision in the filters to see what it applies.";
    return { ...choice, hint };
  }

  return {
    layers: { annotated: "annotated", matched: "kept", final: "proposed", true: "truth" },
    plain: {
      kind: "", precision: "", from: "", pair: "", sure: "", answer: "", mark: "", query: "",
      sort: "sure", direction: "descending", hidden: "", open: "",
    },
    sorts: [["sure", "fix right"], ["error", "error"], ["gain", "gain of a box"], ["file", "file name"]],
    words: ["fix", "fixes"],
    keys: data.fix,
    sortKeys, tests, options, describe, title, badges, figures, facts, command,
  };
};
