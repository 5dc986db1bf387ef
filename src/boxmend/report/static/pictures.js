"use strict";

/* The picture of a row with its boxes drawn over it. Lines of boxes differ in their dashes as well
   as in their colours; all dark ones lie below all others, so that boxes in the same place show. */

const picturesOf = (data, layers) => {
  const SVG = "http://www.w3.org/2000/svg";

  function shape(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  function outline(row, part, name, window) {
    const sides = data.boxes[name].slice(4 * row, 4 * row + 4);
    if (sides.includes(null)) return [];
    const place = {
      x: sides[0] - window[0], y: sides[1] - window[1],
      width: Math.max(sides[2] - sides[0], 0), height: Math.max(sides[3] - sides[1], 0),
    };
    return [shape("rect", { class: `${part} ${name}`, ...place })];
  }

  function overlay(row, window) {
    const viewBox = `0 0 ${window[2] - window[0]} ${window[3] - window[1]}`;
    const svg = shape("svg", { viewBox, "aria-hidden": "true" });
    for (const part of ["under", "over"]) {
      for (const name of layers) svg.append(...outline(row, part, name, window));
    }
    return svg;
  }

  function source(row) {
    const name = data.pictures[row];
    if (name === null) return null;
    return data.folder === null ? `data:image/jpeg;base64,${name}` : `${data.folder}/${name}`;
  }

  /** Put the picture of a row into a frame, or why there is none. */
  function fill(frame, row, alt) {
    const src = source(row);
    if (src === null) {
      const why = document.createElement("span");
      why.className = "no-picture";
      why.textContent = `No picture: ${data.problems[data.problem[row]]}`;
      frame.replaceChildren(why);
      return;
    }
    const image = new Image();
    image.alt = alt;
    image.decoding = "async";
    image.src = src;
    frame.replaceChildren(image, overlay(row, data.windows.slice(4 * row, 4 * row + 4)));
  }

  /** A piece of the line by which the boxes of a layer are drawn. */
  function swatch() {
    const svg = shape("svg", { class: "swatch", viewBox: "0 0 36 14", "aria-hidden": "true" });
    svg.append(shape("line", { x1: 4, y1: 7, x2: 32, y2: 7 }));
    return svg;
  }

  return { fill, swatch };
};
