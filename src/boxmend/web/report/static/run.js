"use strict";

/* What the page of a training run shows: a row is an annotation. */

const subjectOf = (data) => {
  const { make, bdi, fixed, percent, many, change, pieces, tally } = elements;
  const VERDICTS = ["kept", "relabelled", "discarded", "unjudged"];
  const VERDICT_WORDS = ["label kept", "relabelled", "unsure", "not judged"];
  const MARKS = ["", "mended", "harmed", "still-wrong", "missed", "doubted-rightly", "doubted-wrongly"];
  const MARK_WORDS = [
    "", "correctly relabelled", "right label replaced", "still wrong", "wrong, missed",
    "unsure, was wrong", "unsure, was right",
  ];
  const MARK_BADGES = ["", "✓ right", "✗ harm", "✗ still wrong", "✗ missed", "✓ was wrong", "✗ was right"];
  const MARK_KINDS = ["", "good", "bad", "bad", "bad", "good", "bad"];
  const SAME_IOU = 0.01;  // a smaller change of IoU counts as no change
  const RELABELLED = VERDICTS.indexOf("relabelled");
  const label = (number) => (number < 0 ? "none" : data.labels[number]);

  const sortKeys = {
    loss: rows.numbers(data.loss),
    moved: rows.numbers(data.iou, (value) => 1 - value),
    confidence: rows.numbers(data.confidence),
    file: rows.filePlaces(data),
  };

  function isOfMark(mark) {
    const gain = (row) => (data.after[row] === null ? 0 : data.after[row] - data.before[row]);
    if (mark === "closer") return (row) => gain(row) > SAME_IOU;
    if (mark === "further") return (row) => gain(row) < -SAME_IOU;
    const code = MARKS.indexOf(mark);
    return (row) => data.mark[row] === code;
  }

  function tests(view) {
    const passes = [];
    if (view.from !== "") passes.push((row) => data.old[row] === Number(view.from));
    if (view.pair !== "") passes.push(rows.isPair(data, view.pair));
    if (view.verdict !== "") {
      const code = VERDICTS.indexOf(view.verdict);
      passes.push((row) => data.verdict[row] === code);
    }
    if (view.moved !== "") passes.push((row) => data.moved[row] === (view.moved === "yes" ? 1 : 0));
    if (view.mark !== "" && data.mark) passes.push(isOfMark(view.mark));
    if (view.query !== "") passes.push(rows.contains(data.files, data.file, view.query));
    return passes;
  }

  function options() {
    const [olds, verdicts, moves] = [data.old, data.verdict, data.moved].map(tally);
    const used = [...new Set(data.old)].sort((a, b) => (label(a) < label(b) ? -1 : 1));
    const lists = {
      from: used.map((number) => [number, `${label(number)} (${olds(number)})`]),
      pair: rows.pairs(data).map(([pair, number]) => {
        const [from, to] = pair.split("-").map(Number);
        return [pair, `${label(from)} → ${label(to)} (${many(number)})`];
      }),
      verdict: VERDICTS.map((name, code) => [name, `${VERDICT_WORDS[code]} (${verdicts(code)})`])
        .filter(([, text]) => !text.endsWith("(0)")),
      moved: [["yes", `moved (${moves(1)})`], ["no", `as annotated (${moves(0)})`]],
      mark: [],
    };
    if (data.mark) {
      const number = tally(data.mark);
      const marks = MARKS.map((name, code) => [name, `${MARK_WORDS[code]} (${number(code)})`]);
      lists.mark = [...marks.slice(1).filter(([, text]) => !text.endsWith("(0)")),
        ["closer", "box closer to the truth"], ["further", "box further from the truth"]];
    }
    return lists;
  }

  function describe(row) {
    const labels = data.old[row] === data.new[row] ? label(data.old[row])
      : `${label(data.old[row])}, now ${label(data.new[row])},`;
    return `${labels} in ${data.files[data.file[row]]}`;
  }

  function title(row) {
    const isSame = data.old[row] === data.new[row];
    return change(bdi(label(data.old[row])), isSame ? null : bdi(label(data.new[row])));
  }

  function badges(row) {
    const list = make("span", "badges");
    const verdict = VERDICTS[data.verdict[row]];
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

  const figures = (row) => pieces([`loss ${lossWords(row)}`,
    `confidence ${percent(data.confidence[row])}`, `IoU ${fixed(data.iou[row], 2)}`]);

  function facts(row, fact) {
    fact("Verdict", VERDICT_WORDS[data.verdict[row]]);
    if (data.mark) {
      fact("True label", bdi(data.truth[row] < 0 ? "none of these labels" : label(data.truth[row])),
        data.mark[row] ? `: ${MARK_WORDS[data.mark[row]]}` : "");
      if (data.before[row] !== null) {
        fact("IoU with the true box", `${fixed(data.before[row], 2)} → ${fixed(data.after[row], 2)}`);
      }
    }
    fact("Loss and threshold", lossWords(row));
    fact("Confidence", percent(data.confidence[row]));
    fact("Box", data.moved[row] ? `moved; IoU with the old box ${fixed(data.iou[row], 2)}` : "as annotated");
    const reason = data.reasons[data.reason[row]];
    if (reason) fact("Reason", bdi(reason));
    fact("File", bdi(data.files[data.file[row]]));
    fact("Annotation", bdi(data.id[row]));
  }

  /* The command: a row has up to two changes, of its label and of its box. */

  const hasLabel = (row) => data.verdict[row] === RELABELLED;
  const hasBox = (row) => data.moved[row] === 1;
  const CHOICES = [
    { options: "", label: true, box: true },
    { options: " --only labels", label: true, box: false },
    { options: " --only boxes", label: false, box: true },
  ];

  /** Return the command that comes closest to making the changes of the rows shown. */
  function command(shown) {
    const isShown = new Uint8Array(data.id.length);
    for (const row of shown) isShown[row] = 1;
    let best = null;
    for (const choice of CHOICES) {
      let made = 0, left = 0, beyond = 0;
      for (let row = 0; row < data.id.length; row += 1) {
        for (const [isChange, isMade] of [[hasLabel(row), choice.label], [hasBox(row), choice.box]]) {
          if (isChange && isShown[row]) isMade ? made += 1 : left += 1;
          else if (isChange && isMade) beyond += 1;
        }
      }
      if (best === null || left + beyond < best.left + best.beyond) {
        best = { options: choice.options, made, left, beyond };
      }
    }
    const stays = shown.filter((row) => !hasLabel(row) && !hasBox(row)).length;
    return { ...best, stays, words: ["change", "changes"], hint: "" };
  }

  return {
    layers: { annotated: "annotated", matched: "matched", final: "final", true: "truth" },
    plain: {
      from: "", pair: "", verdict: "", moved: "", mark: "", query: "",
      sort: "loss", direction: "descending", hidden: "", open: "",
    },
    sorts: [["loss", "loss"], ["moved", "box movement"], ["confidence", "confidence"], ["file", "file name"]],
    words: ["annotation", "annotations"],
    keys: data.id,
    sortKeys, tests, options, describe, title, badges, figures, facts, command,
  };
};
