"use strict";

/* The dialog in which people choose a class by typing a part of its name. */

const classesOf = (labels, words, choose) => {
  const MAX_NAMES = 200;  // on the list at once
  const $ = (id) => document.getElementById(id);
  let matches = [];
  let place = 0;

  function search(text) {
    const part = text.trim().toLowerCase();
    const all = labels.map((name, label) => [name.toLowerCase().indexOf(part), label]);
    return all.filter(([at]) => at >= 0).sort((a, b) => Math.min(a[0], 1) - Math.min(b[0], 1) || a[1] - b[1])
      .map(([, label]) => label);
  }

  function option(label, number) {
    const item = words.make("li");
    item.id = `class-${number}`;
    item.setAttribute("role", "option");
    item.append(words.bdi(labels[label]));
    item.addEventListener("click", () => take(number));
    return item;
  }

  function mark() {
    [...$("class-list").children].forEach((item, number) => {
      item.setAttribute("aria-selected", number === place);
      if (number === place) item.scrollIntoView({ block: "nearest" });
    });
    if (matches.length) $("class-query").setAttribute("aria-activedescendant", `class-${place}`);
    else $("class-query").removeAttribute("aria-activedescendant");
  }

  function filter() {
    matches = search($("class-query").value).slice(0, MAX_NAMES);
    place = 0;
    const none = words.make("li", "none", "No class name contains this text");
    $("class-list").replaceChildren(...(matches.length ? matches.map(option) : [none]));
    if (matches.length) mark();
  }

  /** Remove the focus at once; otherwise the field would receive keys until the next frame. */
  function close() {
    $("class-query").blur();
    $("classes").close();
  }

  function take(number) {
    if (number < 0 || number >= matches.length) return;
    close();
    choose(matches[number]);
  }

  function handleKey(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (Object.hasOwn(steps, event.key)) {
      place = Math.max(0, Math.min(matches.length - 1, place + steps[event.key]));
      mark();
    } else if (event.key === "Enter") {
      take(place);
    } else if (event.key === "Escape") {  // the browser would only clear the field
      close();
    } else {
      return;
    }
    event.preventDefault();
  }

  $("class-query").addEventListener("input", filter);
  $("class-query").addEventListener("keydown", handleKey);

  return {
    open() {
      $("class-query").value = "";
      $("classes").showModal();
      filter();
      $("class-query").focus();
    },
  };
};
