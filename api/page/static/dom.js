// Makes elements. Text from outside only ever becomes text nodes and attribute values, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("p", {class: "note", onclick: f}, "text", child). Null and undefined children are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = tag === "svg" || tag === "path" ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Puts other children in the place of an element's. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Text of unknown length and direction that stays in its place and can be read whole as a tooltip. */
export function name(text, attributes = {}) {
  return h("bdi", { class: "name", title: text, ...attributes }, text);
}

/** A labelled figure. */
export function figure(label, value, note, attributes = {}) {
  return h("div", { class: "figure", ...attributes }, h("dt", {}, label), h("dd", {}, value, note ? h("small", {}, note) : null));
}

/** Says something to people who hear the page instead of seeing it. */
export function announce(text) {
  const region = document.getElementById("announcer");
  if (region.textContent !== text) region.textContent = text;
}

/** A dialog that is gone once it is closed; its `returnValue` is what its buttons say. */
export function openDialog(title, ...children) {
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), ...children);
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener && opener.isConnected) opener.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
