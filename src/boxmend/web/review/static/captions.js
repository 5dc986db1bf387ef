"use strict";

/* The texts of the page about the shown fix, and the memory of a window's own verdicts. */

const captionsOf = (data, words) => {
  const MODE_WORDS = {
    doubtful: "Fixes whose probability is closest to the threshold: a verdict on them helps most. The choice is updated as you decide.",
    sample: "A random sample of the fixes that would be applied without a review, and of no others. Judge by the picture alone; a changed fix counts as wrong.",
  };
  const $ = (id) => document.getElementById(id);

  /** Show what a mode is for, if it needs an explanation. */
  function mode(name) {
    $("mode-words").hidden = !MODE_WORDS[name];
    $("mode-words").textContent = MODE_WORDS[name] ?? "";
    $("fix").classList.toggle("with-words", Boolean(MODE_WORDS[name]));
  }

  function verdict(latest) {
    const badge = words.verdictBadge(latest);
    $("verdict").hidden = !badge;
    if (badge) Object.assign($("verdict"), { textContent: badge.text, className: badge.className });
  }

  function meanings(row, edited) {
    const [yes, no] = words.meanings(row);
    $("accept-words").textContent = edited ? "the edited box" : yes;
    $("reject-words").textContent = no;
  }

  function fact(name, value) {
    const piece = words.make("span", "piece");
    piece.append(`${name} `, words.make("b", "", value));
    return piece;
  }

  function facts(row, isBlind) {
    const pieces = [];
    if (!isBlind) {
      pieces.push(fact("P(wrong)", words.share(data.p_wrong[row])), fact("P(fix right)", words.share(data.p_fix[row])));
      if (data.kind[row] === 1) pieces.push(fact("IoU gain", data.gain[row].toFixed(2)));
    }
    const file = words.make("span", "file-name");
    file.append(words.bdi(data.files[data.file[row]]));
    if (data.id[row]) file.append(" · ", words.bdi(data.id[row]));
    file.title = data.files[data.file[row]];
    $("facts").replaceChildren(...pieces, file);
    $("reason").textContent = isBlind ? "" : data.reasons[data.reason[row]];
  }

  /** Show what a fix is; a blind view hides its probabilities, which could bias the answer. */
  function fix(row, isBlind) {
    const kind = data.kind[row];
    const badge = words.kindBadge(row);
    Object.assign($("kind"), { textContent: badge.text, className: badge.className });
    $("title").replaceChildren(words.title(kind, data.old[row], data.new[row]));
    $("before-words").textContent = kind === 2 ? "no annotation" : words.label(data.old[row]);
    $("after-words").textContent = kind === 3 ? "removed"
      : kind === 4 ? "removed; the other box stays" : words.label(data.new[row]);
    facts(row, isBlind);
  }

  function emptyText(number, mode) {
    if (!data.kind.length) return "The audit proposed no fixes: there is nothing to review.";
    if (number) return "All fixes here are decided or skipped.";
    if (mode === "sample") return "Nothing to measure: without a review, apply would take no fix at this precision. Decide in another mode.";
    return "No fix matches the filters; change one.";
  }

  /** Show that there is nothing to decide, and offer the skipped fixes of a queue; return the text. */
  function empty(number, mode, showSkipped) {
    const text = emptyText(number, mode);
    const lines = [words.make("p", "lead", text)];
    if (number && mode === "queue") {
      const again = words.make("button", "", "Show skipped fixes");
      again.type = "button";
      again.addEventListener("click", showSkipped);
      lines.push(again);
    }
    $("empty").replaceChildren(...lines);
    return text;
  }

  return { mode, verdict, meanings, fix, empty };
};

const memory = (() => {
  const STORAGE_KEY = `boxmend-review-${location.pathname}`;

  function isAnswer(value) {
    return Array.isArray(value?.rows) && value.rows.every(Number.isInteger) && typeof value.answer === "string";
  }

  return {
    read() {
      try {
        const stored = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "[]");
        return Array.isArray(stored) ? stored.filter(isAnswer) : [];
      } catch {
        return [];
      }
    },
    write(answers) {
      try {
        sessionStorage.setItem(STORAGE_KEY, JSON.stringify(answers));
      } catch { /* undo then does not survive a reload */ }
    },
  };
})();
