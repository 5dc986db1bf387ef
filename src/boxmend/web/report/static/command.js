"use strict";

/* The command that writes what the gallery shows, and the button that copies it. */

const commandOf = (settings) => {
  const { byId, many } = elements;
  const COPIED_MS = 2000;
  let timer = 0;

  /** Return what a command does with the rows shown, in sentences. */
  function describe({ made, left, beyond, stays, words, hint }) {
    const count = (number) => `${many(number)} ${words[number === 1 ? 0 : 1]}`;
    const parts = [];
    if (made === 0) {
      parts.push("No command applies anything of what is shown.");
    } else if (left + beyond === 0) {
      parts.push(`This command applies exactly what is shown: ${count(made)}.`);
    } else {
      const others = beyond ? `, and ${many(beyond)} that ${beyond === 1 ? "is" : "are"} not shown` : "";
      parts.push("No command applies exactly what is shown.");
      parts.push(`This one applies ${many(made)} of the ${count(made + left)} shown${others}.`);
    }
    if (stays) parts.push(`${many(stays)} of the annotations shown ${stays === 1 ? "stays" : "stay"} as annotated.`);
    if (hint) parts.push(hint);
    if (made && settings.replaced.length) {
      parts.push(`Replace ${settings.replaced.join(" and ")} by the path on your machine.`);
    }
    return parts.join(" ");
  }

  function show(choice, numShown) {
    byId("command").hidden = numShown === 0;
    document.querySelector(".command-line").hidden = Boolean(settings.why_none) || choice.made === 0;
    byId("command-text").textContent =
      `boxmend apply ${settings.folder}${choice.options}${settings.data} --out mended`;
    byId("command-note").textContent = settings.why_none || describe(choice);
  }

  function select() {
    const range = document.createRange();
    range.selectNodeContents(byId("command-text"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  }

  /** Copy the command; browsers that forbid it get it selected, so that one key copies it. */
  async function copy() {
    if (byId("command").hidden || document.querySelector(".command-line").hidden) return;
    let isCopied = true;
    try {
      await navigator.clipboard.writeText(byId("command-text").textContent);
    } catch {
      select();
      isCopied = document.execCommand("copy");
    }
    byId("copied").textContent = isCopied ? "Copied the command" : "The command is selected: copy it by a key";
    byId("copy").firstChild.textContent = isCopied ? "Copied" : "Selected";
    clearTimeout(timer);
    timer = setTimeout(() => {
      byId("copy").firstChild.textContent = "Copy";
      byId("copied").textContent = "";
    }, COPIED_MS);
  }

  return { show, copy };
};
