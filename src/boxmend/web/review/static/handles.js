"use strict";

/* Handles on the edges and corners of a box, for mouse, touch and keyboard. The functions of
   `geometry` convert between pixels of the image and of the screen. */

const handlesOf = (well, geometry, setBox) => {
  const SIDES = {
    left: [0], top: [1], right: [2], bottom: [3],
    "top left": [0, 1], "top right": [2, 1], "bottom right": [2, 3], "bottom left": [0, 3],
    "whole box": [0, 1, 2, 3],
  };
  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const MIN_SIDE = 1;  // pixels of the image
  const SHIFT_STEP = 10;  // pixels of the image
  let box = null;
  const group = document.createElement("div");
  group.className = "handles";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "Edges of the new box");
  const buttons = new Map(Object.entries(SIDES).map(([name, sides]) => [name, handle(name, sides)]));
  group.append(...buttons.values());
  well.append(group);

  /** Return the box with some sides moved, within the image and at least MIN_SIDE large. */
  function move(from, sides, by) {
    const limits = geometry.size();
    const next = [...from];
    if (sides.length === 4) {
      for (const axis of [0, 1]) {
        const low = -from[axis], high = limits[axis] - from[axis + 2];
        const way = Math.max(Math.min(by[axis], Math.max(high, 0)), Math.min(low, 0));
        next[axis] += way;
        next[axis + 2] += way;
      }
      return next;
    }
    for (const side of sides) {
      const axis = side % 2;
      const value = from[side] + by[axis];
      next[side] = side < 2 ? Math.max(0, Math.min(value, from[side + 2] - MIN_SIDE))
        : Math.min(limits[axis], Math.max(value, from[side - 2] + MIN_SIDE));
    }
    return next.map((side) => Math.round(side * 100) / 100);
  }

  function handle(name, sides) {
    const button = document.createElement("div");
    button.className = `handle at-${name.replace(" ", "-")}`;
    button.tabIndex = -1;
    const isEdge = sides.length === 1;
    button.setAttribute("role", isEdge ? "slider" : "button");
    if (isEdge) button.setAttribute("aria-orientation", sides[0] % 2 ? "vertical" : "horizontal");
    button.setAttribute("aria-label", isEdge ? `${name} edge` : name);
    button.title = isEdge ? `${name} edge` : name;
    let grip = null;
    button.addEventListener("pointerdown", (event) => {
      if (!box || event.button !== 0) return;
      event.preventDefault();
      event.stopPropagation();
      button.setPointerCapture(event.pointerId);
      grip = { from: [...box], at: geometry.toImage(event.clientX, event.clientY) };
    });
    button.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const now = geometry.toImage(event.clientX, event.clientY);
      setBox(move(grip.from, sides, [now[0] - grip.at[0], now[1] - grip.at[1]]));
    });
    for (const end of ["pointerup", "pointercancel"]) button.addEventListener(end, () => { grip = null; });
    button.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step || !box || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      const far = event.shiftKey ? SHIFT_STEP : 1;
      setBox(move(box, sides, [step[0] * far, step[1] * far]));
    });
    return button;
  }

  /** Put the handles on a box; null hides them. */
  function put(next) {
    box = next;
    group.hidden = !box;
    if (!box) return;
    const [x1, y1] = geometry.toScreen(box[0], box[1]);
    const [x2, y2] = geometry.toScreen(box[2], box[3]);
    const middle = [(x1 + x2) / 2, (y1 + y2) / 2];
    const limits = geometry.size();
    for (const [name, sides] of Object.entries(SIDES)) {
      const at = [...middle];
      if (sides.length < 4) {
        for (const side of sides) at[side % 2] = [x1, y1, x2, y2][side];
      }
      const button = buttons.get(name);
      button.style.left = `${at[0].toFixed(1)}px`;
      button.style.top = `${at[1].toFixed(1)}px`;
      if (sides.length === 1) {
        button.setAttribute("aria-valuemin", 0);
        button.setAttribute("aria-valuemax", Math.round(limits[sides[0] % 2]));
        button.setAttribute("aria-valuenow", Math.round(box[sides[0]]));
        button.setAttribute("aria-valuetext", `${box[sides[0]].toFixed(1)} pixels`);
      }
    }
    group.classList.toggle("tight", x2 - x1 < 56 || y2 - y1 < 56);
  }

  /** Make the edges reachable by keyboard, or not. */
  function setEditing(is) {
    for (const name of ["left", "top", "right", "bottom", "whole box"]) buttons.get(name).tabIndex = is ? 0 : -1;
    well.classList.toggle("editing", is);
    if (is) buttons.get("left").focus();
  }

  return { put, setEditing };
};
