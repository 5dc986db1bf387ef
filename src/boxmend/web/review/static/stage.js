"use strict";

/* The two pictures of a fix, before and after, with the same view of the image: zoom, pan, boxes. */

const stageOf = (before, after, { cutOf, setEdited }) => {
  const SVG = "http://www.w3.org/2000/svg";
  const CONTEXT = 2.4;  // sides of the first view, relative to those of the boxes
  const NARROW_CONTEXT = 1.7;  // the same in narrow panels
  const NARROW_PANEL = 260;  // pixels of the screen
  const MIN_VIEW_SHARE = 0.16;  // of the image's long side, for the context of tiny objects
  const MIN_VIEW_WIDTH = 12;  // pixels of the image
  const SHARPEN_DELAY_MS = 160;
  let shown = null;  // {place, old, now, others}: boxes of four numbers, or null
  let box = null;  // the new box, with the edits
  let view = { x: 0, y: 0, w: 1, h: 1 };  // in pixels of the image
  let first = view;
  let isWhole = false;
  let isEditing = false;
  let timer = 0;
  const panels = [before, after].map(panel);
  const handles = handlesOf(after, {
    size: () => [shown.place.width, shown.place.height],
    toImage: (x, y) => toImage(after, x, y),
    toScreen: (x, y) => [(x - view.x) / view.w * after.clientWidth, (y - view.y) / view.h * after.clientHeight],
  }, (next) => { box = next; drawBoxes(); setEdited(box); });

  function shape(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  function panel(well) {
    const svg = shape("svg", { "aria-hidden": "true", preserveAspectRatio: "none" });
    const parts = {
      base: shape("image", { preserveAspectRatio: "none" }), sharp: shape("image", { preserveAspectRatio: "none" }),
      others: shape("g", { class: "others" }), boxes: shape("g", { class: "boxes" }),
    };
    svg.append(...Object.values(parts));
    const why = document.createElement("p");
    why.className = "no-picture";
    why.hidden = true;
    well.append(svg, why);
    gestures(well);
    return { well, svg, why, ...parts };
  }

  /* Geometry */

  function toImage(well, x, y) {
    const frame = well.getBoundingClientRect();
    return [view.x + (x - frame.left) / frame.width * view.w, view.y + (y - frame.top) / frame.height * view.h];
  }

  const aspect = () => Math.max(after.clientWidth, 1) / Math.max(after.clientHeight, 1);

  /** Return a view around a middle with the aspect ratio of the panels, within the image if it fits. */
  function around(x, y, width, height, { width: wide, height: high } = shown.place) {
    const w = Math.max(width, height * aspect());
    const h = w / aspect();
    const inside = (middle, length, limit) => (length >= limit ? (limit - length) / 2
      : Math.max(0, Math.min(middle - length / 2, limit - length)));
    return { x: inside(x, w, wide), y: inside(y, h, high), w, h };
  }

  function firstView(place, boxes) {
    const known = boxes.filter(Boolean);
    if (!known.length) return around(place.width / 2, place.height / 2, place.width, place.height, place);
    const [x1, y1] = [0, 1].map((side) => Math.min(...known.map((sides) => sides[side])));
    const [x2, y2] = [2, 3].map((side) => Math.max(...known.map((sides) => sides[side])));
    const least = MIN_VIEW_SHARE * Math.max(place.width, place.height);
    const context = after.clientWidth < NARROW_PANEL ? NARROW_CONTEXT : CONTEXT;
    const [w, h] = [Math.max((x2 - x1) * context, least), Math.max((y2 - y1) * context, least)];
    return around((x1 + x2) / 2, (y1 + y2) / 2, Math.min(w, place.width), Math.min(h, place.height), place);
  }

  /** Return the address and place of the picture of a view. */
  function cut(place, region) {
    const x1 = Math.max(0, Math.floor(region.x)), y1 = Math.max(0, Math.floor(region.y));
    const x2 = Math.min(place.width, Math.ceil(region.x + region.w)), y2 = Math.min(place.height, Math.ceil(region.y + region.h));
    const pixels = Math.max(after.clientWidth, after.clientHeight) * Math.min(devicePixelRatio || 1, 2);
    const side = Math.min(1600, Math.max(200, Math.ceil(pixels / 200) * 200));
    return { href: cutOf(place.image, [x1, y1, x2, y2], side), x: x1, y: y1, width: x2 - x1, height: y2 - y1 };
  }

  /* Drawing */

  function put(image, attributes) {
    for (const [name, value] of Object.entries(attributes)) image.setAttribute(name, value);
  }

  /** Load a picture and put it into both panels, unless another fix is shown by then. */
  function load(part, attributes, fix) {
    const picture = new Image();
    picture.addEventListener("load", () => {
      if (fix !== shown) return;
      for (const each of panels) put(each[part], attributes);
    });
    picture.addEventListener("error", () => { if (fix === shown) showProblem("the picture could not be made"); });
    picture.src = attributes.href;
  }

  function showProblem(why) {
    for (const each of panels) {
      each.why.hidden = !why;
      each.why.textContent = why ? `No picture: ${why}` : "";
    }
  }

  function outlines(part, name, sides) {
    if (!sides) return [];
    const place = { x: sides[0], y: sides[1], width: Math.max(sides[2] - sides[0], 0), height: Math.max(sides[3] - sides[1], 0) };
    return ["under", "over"].map((layer) => [layer, shape("rect", { class: `${layer} ${name}`, ...place })])
      .filter(([layer]) => layer === part).map(([, rect]) => rect);
  }

  function drawBoxes() {
    const layers = [[["annotated", shown.old]], [["annotated ghost", box ? shown.old : null], ["final", box]]];
    panels.forEach((each, k) => {
      each.boxes.replaceChildren(...["under", "over"].flatMap((part) =>
        layers[k].flatMap(([name, sides]) => outlines(part, name, sides))));
    });
    const from = box ?? (isEditing ? shown.old : null);  // a box to remove can be edited instead
    handles.put(shown.canEdit ? from : null);
  }

  function drawOthers() {
    const size = 12 / Math.max(after.clientWidth, 1) * view.w;
    for (const each of panels) {
      each.others.replaceChildren(...shown.others.flatMap(([sides, name]) => {
        const text = shape("text", { x: sides[0] + size / 4, y: sides[1] + size, "font-size": size });
        text.textContent = name;
        return [...outlines("over", "other", sides), text];
      }));
    }
  }

  function draw() {
    for (const each of panels) each.svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    drawBoxes();
    drawOthers();
  }

  function sharpen() {
    clearTimeout(timer);
    if (!shown || shown.place.problem) return;
    load("sharp", cut(shown.place, view), shown);
  }

  function look(next) {
    view = next;
    draw();
    const { place } = shown;
    if (!place.problem && !panels[0].base.hasAttribute("href")) {
      load("base", { ...cut(place, { x: 0, y: 0, w: place.width, h: place.height }) }, shown);
    }
    clearTimeout(timer);
    timer = setTimeout(sharpen, SHARPEN_DELAY_MS);
  }

  /* Zoom and pan */

  function zoom(factor, at = null) {
    if (!shown) return;
    const { width, height } = shown.place;
    const most = Math.max(width, height * aspect());
    const w = Math.max(Math.min(MIN_VIEW_WIDTH, most), Math.min(view.w * factor, most));
    const [x, y] = at ?? [view.x + view.w / 2, view.y + view.h / 2];
    const share = w / view.w;
    const middle = [x + (view.x + view.w / 2 - x) * share, y + (view.y + view.h / 2 - y) * share];
    isWhole = false;
    look(around(...middle, w, w / aspect()));
  }

  function toggleWhole(is = !isWhole) {
    if (!shown) return isWhole;
    isWhole = is;
    const { width, height } = shown.place;
    look(isWhole ? around(width / 2, height / 2, width, height) : first);
    return isWhole;
  }

  function gestures(well) {
    const fingers = new Map();
    let grip = null;
    const spread = () => {
      const [a, b] = [...fingers.values()];
      return Math.hypot(a[0] - b[0], a[1] - b[1]);
    };
    well.addEventListener("wheel", (event) => {
      if (!shown || event.ctrlKey && !event.deltaY) return;
      event.preventDefault();
      zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), toImage(well, event.clientX, event.clientY));
    }, { passive: false });
    well.addEventListener("pointerdown", (event) => {
      if (!shown || event.button !== 0) return;
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      well.setPointerCapture(event.pointerId);
      grip = fingers.size === 2 ? { spread: spread() } : { x: event.clientX, y: event.clientY, view };
    });
    well.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId) || !grip) return;
      fingers.set(event.pointerId, [event.clientX, event.clientY]);
      if (fingers.size === 2) {
        const now = spread(), [a, b] = [...fingers.values()];
        zoom(grip.spread / Math.max(now, 1), toImage(well, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2));
        grip.spread = Math.max(now, 1);
      } else if (grip.view) {
        const scale = grip.view.w / well.clientWidth;
        look(around(grip.view.x + grip.view.w / 2 - (event.clientX - grip.x) * scale,
          grip.view.y + grip.view.h / 2 - (event.clientY - grip.y) * scale, view.w, view.h));
      }
    });
    for (const end of ["pointerup", "pointercancel"]) {
      well.addEventListener(end, (event) => { fingers.delete(event.pointerId); grip = null; });
    }
    well.addEventListener("dblclick", () => toggleWhole());
  }

  /* Interface */

  /** Show a fix; null clears the pictures. */
  function show(next) {
    shown = next;
    box = next ? next.now : null;
    for (const each of panels) for (const part of ["base", "sharp"]) each[part].removeAttribute("href");
    showProblem("");
    setEditing(false);
    if (!next) {
      handles.put(null);
      for (const each of panels) for (const part of ["others", "boxes"]) each[part].replaceChildren();
      return;
    }
    first = firstView(next.place, [next.old, next.now]);
    view = first;
    isWhole = false;
    draw();
    if (next.place.problem) showProblem(next.place.problem);
    else sharpen();
  }

  /** Load the picture of a fix that the page will show soon. */
  function prepare(place, boxes) {
    if (!place.problem) new Image().src = cut(place, firstView(place, boxes)).href;
  }

  /** Make the edges movable by keys; return whether there are any. */
  function setEditing(is) {
    isEditing = is && Boolean(shown?.canEdit);
    if (shown) drawBoxes();
    handles.setEditing(isEditing);
    return isEditing;
  }

  function reset() {
    if (!shown) return;
    box = shown.now;
    drawBoxes();
    setEdited(null);
  }

  new ResizeObserver(() => {
    if (!shown) return;
    first = firstView(shown.place, [shown.old, shown.now]);
    if (isWhole) toggleWhole(true);
    else look(first);
  }).observe(after);

  return {
    show, prepare, reset, zoom, toggleWhole, setEditing,
    back: () => { if (shown) toggleWhole(false); },
    setOthers: (others) => { if (shown) { shown.others = others; drawOthers(); } },
  };
};
