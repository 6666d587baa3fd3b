// Makes elements. Text from outside only ever becomes text nodes and attribute values, never markup.

const SVG = "http://www.w3.org/2000/svg";
const FOCUSABLE = "a[href], button, input, select, summary, [tabindex]";

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

/** Puts other children in the place of an element's. What had the focus has it afterwards too, if it is there again. */
export function fill(element, ...children) {
  const focused = document.activeElement;
  const sign = focused !== null && focused !== element && element.contains(focused) ? signOf(focused) : null;
  element.replaceChildren();
  append(element, children);
  if (sign !== null) {
    const again = [...element.querySelectorAll(FOCUSABLE)].find((found) => signOf(found) === sign);
    again?.focus({ preventScroll: true });
  }
  return element;
}

function signOf(element) {
  return `${element.tagName} ${element.id || element.getAttribute("aria-label") || element.textContent}`;
}

/** Text of unknown length and direction that stays in its place and can be read whole as a tooltip. */
export function name(text, attributes = {}) {
  return h("bdi", { class: "name", title: text, ...attributes }, text);
}

/** A labelled figure; `about` explains the label. */
export function figure(label, value, note, about = null) {
  return h("div", { class: "figure", title: about }, h("dt", {}, label), h("dd", {}, value, note ? h("small", {}, note) : null));
}

/** A table whose rows become cards on narrow screens. Rows are {cells, className}; the first cell names its row. */
export function table(label, columns, rows) {
  // Roles are spelled out, since browsers forget them where a style sheet lays a table out in another way.
  return h("table", { role: "table", "aria-label": label, class: "cards-when-narrow" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((text) => h("th", { scope: "col", role: "columnheader" }, text)))),
    h("tbody", { role: "rowgroup" }, rows.map(({ cells, className }) => h("tr", { role: "row", class: className ?? null },
      cells.map((cell, n) => h(n ? "td" : "th", { role: n ? "cell" : "rowheader", scope: n ? null : "row", "data-label": columns[n] }, cell))))));
}

/** A card of which narrow screens show only the heading and a button, until that is pressed. */
export function unfolding(what, heading, ...children) {
  const card = h("section", { class: `card ${what}-card`, "aria-label": what }, heading);
  const button = h("button", { type: "button", class: "unfold", "aria-expanded": "false", onclick: () => {
    const isOpen = card.classList.toggle("open");
    button.setAttribute("aria-expanded", String(isOpen));
    fill(button, `${isOpen ? "Hide" : "Show"} ${what}`);
  } }, `Show ${what}`);
  append(card, [button, ...children]);
  return card;
}

/** Says something to people who hear the page instead of seeing it. */
export function announce(text) {
  const region = document.getElementById("announcer");
  if (region.textContent !== text) region.textContent = text;
}

/** A dialog that is gone once it is closed. */
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
