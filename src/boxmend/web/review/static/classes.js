"use strict";

/* The list of classes from which another one is chosen, by typing a part of its name. */

const classesOf = (labels, words, chosen) => {
  const MOST = 200;  // names on the list at once
  const $ = (id) => document.getElementById(id);
  let found = [];
  let place = 0;

  function matching(text) {
    const wanted = text.trim().toLowerCase();
    const all = labels.map((name, label) => [name.toLowerCase().indexOf(wanted), label]);
    return all.filter(([at]) => at >= 0).sort((a, b) => Math.min(a[0], 1) - Math.min(b[0], 1) || a[1] - b[1])
      .map(([, label]) => label);
  }

  function option(label, number) {
    const item = words.make("li");
    item.id = `class-${number}`;
    item.setAttribute("role", "option");
    item.append(words.isolated(labels[label]));
    item.addEventListener("click", () => take(number));
    return item;
  }

  function mark() {
    [...$("class-list").children].forEach((item, number) => {
      item.setAttribute("aria-selected", number === place);
      if (number === place) item.scrollIntoView({ block: "nearest" });
    });
    if (found.length) $("class-query").setAttribute("aria-activedescendant", `class-${place}`);
    else $("class-query").removeAttribute("aria-activedescendant");
  }

  function filter() {
    found = matching($("class-query").value).slice(0, MOST);
    place = 0;
    const none = words.make("li", "none", "No class has this in its name");
    $("class-list").replaceChildren(...(found.length ? found.map(option) : [none]));
    if (found.length) mark();
  }

  /** The field lets go at once: left to the browser it would take the next keys until a frame is drawn. */
  function close() {
    $("class-query").blur();
    $("classes").close();
  }

  function take(number) {
    if (number < 0 || number >= found.length) return;
    close();
    chosen(found[number]);
  }

  function pressed(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (Object.hasOwn(steps, event.key)) {
      place = Math.max(0, Math.min(found.length - 1, place + steps[event.key]));
      mark();
    } else if (event.key === "Enter") {
      take(place);
    } else if (event.key === "Escape") {  // at once: the browser would only empty the field
      close();
    } else {
      return;
    }
    event.preventDefault();
  }

  $("class-query").addEventListener("input", filter);
  $("class-query").addEventListener("keydown", pressed);

  return {
    open() {
      $("class-query").value = "";
      $("classes").showModal();
      filter();
      $("class-query").focus();
    },
  };
};
