// Colours by what they stand for. Okabe and Ito's palette, told apart with every kind of colour vision; never the only sign.

export const KIND_COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7"];
export const KIND_NAMES = ["F forward", "I input gradient", "W weight gradient", "B fused backward"];

/** What a theme needs beside them, read from the style sheet, so that both draw alike. */
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    ground: value("--chart"), idle: value("--idle"), sync: value("--sync"), ink: value("--ink"), soft: value("--soft"),
    line: value("--line"), down: value("--down"), slow: value("--slow"), pick: value("--pick"), tried: value("--tried"),
    low: value("--load-low"), high: value("--load-high"), unknown: value("--unknown"), heatLow: value("--heat-low"), heatHigh: value("--heat-high"),
  };
}

export function rgb(text) {
  const number = Number.parseInt(text.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

/** A colour between two, `share` of the way. */
export function between(from, to, share) {
  const [a, b] = [rgb(from), rgb(to)];
  return `rgb(${a.map((value, n) => Math.round(value + (b[n] - value) * Math.min(1, Math.max(0, share)))).join(",")})`;
}
