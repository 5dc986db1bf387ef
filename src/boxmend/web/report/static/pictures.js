"use strict";

/* The picture of a row with its boxes. The lines of boxes differ in dashes and colours; all dark
   lines are below all coloured ones, so that boxes in the same place are visible. */

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

  function source(name) {
    return data.folder === null ? `data:image/jpeg;base64,${name}` : `${data.folder}/${name}`;
  }

  function photograph(name, alt) {
    const image = new Image();
    image.alt = alt;
    image.decoding = "async";
    image.src = source(name);
    return image;
  }

  /** Put the picture of a row into a frame, or the reason why there is none. */
  function fill(frame, row, alt) {
    if (data.pictures[row] === null) {
      const why = document.createElement("span");
      why.className = "no-picture";
      why.textContent = `No picture: ${data.problems[data.problem[row]]}`;
      frame.replaceChildren(why);
      return;
    }
    const window = data.windows.slice(4 * row, 4 * row + 4);
    frame.replaceChildren(photograph(data.pictures[row], alt), overlay(row, window));
  }

  /** Put the whole image of a row into a frame and mark the window of its picture; hide the frame
      if the picture shows the whole image. */
  function fillWhole(frame, row) {
    const file = data.file[row];
    const [x1, y1, x2, y2] = data.windows.slice(4 * row, 4 * row + 4);
    const [width, height] = data.sizes.slice(2 * file, 2 * file + 2);
    frame.hidden = data.whole[file] === null || (x2 - x1 === width && y2 - y1 === height);
    if (frame.hidden) {
      frame.replaceChildren();
      return;
    }
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const part of ["under", "over"]) {
      svg.append(shape("rect", { class: `${part} place`, x: x1, y: y1, width: x2 - x1, height: y2 - y1 }));
    }
    const alt = `The whole image ${data.files[file]}; a box marks the picture`;
    frame.replaceChildren(photograph(data.whole[file], alt), svg);
  }

  /** Return a sample of the line of a layer's boxes. */
  function swatch() {
    const svg = shape("svg", { class: "swatch", viewBox: "0 0 36 14", "aria-hidden": "true" });
    svg.append(shape("line", { x1: 4, y1: 7, x2: 32, y2: 7 }));
    return svg;
  }

  return { fill, fillWhole, swatch };
};
