"use strict";

/* What the page says of the fix that is shown, and what a window remembers of its own verdicts. */

const tellingOf = (data, words) => {
  const MODE_WORDS = {
    doubtful: "Fixes nearest to the decision, where a verdict repairs most; chosen anew as you go.",
    sample: "A random sample of what would be taken without you. Judge by the picture alone; a change counts as wrong.",
  };
  const $ = (id) => document.getElementById(id);

  /** Say what a way through the fixes is for, where that needs words. */
  function mode(name) {
    $("mode-words").hidden = !MODE_WORDS[name];
    $("mode-words").textContent = MODE_WORDS[name] ?? "";
    $("desk").classList.toggle("with-words", Boolean(MODE_WORDS[name]));
  }

  function standing(verdict) {
    const badge = words.standingBadge(verdict);
    $("standing").hidden = !badge;
    if (badge) Object.assign($("standing"), { textContent: badge.text, className: badge.className });
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
      pieces.push(fact("wrong", words.share(data.p_wrong[row])), fact("fix right", words.share(data.p_fix[row])));
      if (data.kind[row] === 1) pieces.push(fact("gains", `${data.gain[row].toFixed(2)} IoU`));
    }
    const file = words.make("span", "file-name");
    file.append(words.isolated(data.files[data.file[row]]));
    if (data.id[row]) file.append(" · ", words.isolated(data.id[row]));
    file.title = data.files[data.file[row]];
    $("facts").replaceChildren(...pieces, file);
    $("reason").textContent = isBlind ? "" : data.reasons[data.reason[row]];
  }

  /** Say what a fix is; how probable it is remains unsaid where that could sway the answer. */
  function fix(row, isBlind) {
    const kind = data.kind[row];
    const badge = words.kindBadge(row);
    Object.assign($("kind"), { textContent: badge.text, className: badge.className });
    $("title").replaceChildren(words.title(kind, data.old[row], data.new[row]));
    $("before-words").textContent = kind === 2 ? "no annotation" : words.label(data.old[row]);
    $("after-words").textContent = kind === 3 ? "removed"
      : kind === 4 ? "removed; the other stays" : words.label(data.new[row]);
    facts(row, isBlind);
  }

  /** Say that there is nothing to decide, and offer what was skipped; returns the words. */
  function empty(number, showSkipped) {
    const text = !data.kind.length ? "The audit proposed no fixes: there is nothing to review."
      : number ? "All fixes here are decided or skipped." : "No fix is like this; loosen a filter.";
    const lines = [words.make("p", "lead", text)];
    if (number && showSkipped) {
      const again = words.make("button", "", "Show what was skipped");
      again.type = "button";
      again.addEventListener("click", showSkipped);
      lines.push(again);
    }
    $("empty").replaceChildren(...lines);
    return text;
  }

  return { mode, standing, meanings, fix, empty };
};

const memory = (() => {
  const KEPT_AS = `boxmend-review-${location.pathname}`;

  function isAnswer(one) {
    return Array.isArray(one?.rows) && one.rows.every(Number.isInteger) && typeof one.answer === "string";
  }

  return {
    read() {
      try {
        const kept = JSON.parse(sessionStorage.getItem(KEPT_AS) ?? "[]");
        return Array.isArray(kept) ? kept.filter(isAnswer) : [];
      } catch {
        return [];
      }
    },
    write(given) {
      try {
        sessionStorage.setItem(KEPT_AS, JSON.stringify(given));
      } catch { /* undo then ends with the page */ }
    },
  };
})();
