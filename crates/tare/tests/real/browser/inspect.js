// Returns what a person would complain about: anything cut, overlapping, unlabelled or too faint.
const complaints = [];
const shown = (element) => element.getClientRects().length > 0;
const name = (text) => JSON.stringify(text.slice(0, 60));

if (document.documentElement.scrollWidth > innerWidth) {
  complaints.push(`the page is ${document.documentElement.scrollWidth} wide in ${innerWidth}`);
}

// Text that leaves its box.
for (const element of document.querySelectorAll("h1, h2, p, li, td, th, dd, dt, figcaption, summary, caption")) {
  if (!shown(element)) continue;
  const box = element.getBoundingClientRect();
  if (box.right > innerWidth + 1 || box.left < -1) complaints.push(`cut: ${name(element.textContent)}`);
  if (element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0) {
    complaints.push(`wider than its box: ${name(element.textContent)}`);
  }
}

// Contrast of text on what is behind it.
const colour = (text) => (text.match(/[\d.]+/g) || []).map(Number);
const luminance = ([r, g, b]) => {
  const part = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const found = colour(getComputedStyle(at).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
for (const element of document.querySelectorAll("h1, h2, p, li, td, th, dd, dt, summary, .note, .badge, code, button")) {
  if (!shown(element)) continue;
  const ratio = contrast(colour(getComputedStyle(element).color), behind(element));
  if (ratio < 4.5) complaints.push(`contrast ${ratio.toFixed(2)}: ${name(element.textContent)}`);
}

// Pictures: labelled, their texts within them and apart from each other, their colours to be seen.
const svgs = [...document.querySelectorAll("svg")].filter(shown);
for (const svg of svgs) {
  const label = svg.getAttribute("aria-label") || "";
  if (svg.getAttribute("role") !== "img" || label.length < 10) complaints.push(`unlabelled picture ${label}`);
  const figure = svg.closest("figure");
  if (!figure || !figure.querySelector("figcaption")) complaints.push(`no caption: ${label}`);
  if (!figure || !figure.querySelector("table")) complaints.push(`no table behind: ${label}`);
  const frame = svg.getBoundingClientRect();
  const ground = behind(svg.parentElement);
  const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent.trim(), text.getBoundingClientRect(), text]);
  for (const [text, box, element] of texts) {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
      complaints.push(`cut at the picture's edge: ${name(text)} in ${name(label)}`);
    }
    const ratio = contrast(colour(getComputedStyle(element).fill), ground);
    if (ratio < 4.5) complaints.push(`contrast ${ratio.toFixed(2)} in a picture: ${name(text)}`);
    if (parseFloat(getComputedStyle(element).fontSize) * frame.width / svg.viewBox.baseVal.width < 9) {
      complaints.push(`too small: ${name(text)}`);
    }
  }
  texts.forEach(([a, x], at) => texts.slice(at + 1).forEach(([b, y]) => {
    const wide = Math.min(x.right, y.right) - Math.max(x.left, y.left);
    const tall = Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top);
    // Boxes of lines are taller than their letters.
    if (wide > 1 && tall > 5) complaints.push(`overlapping: ${name(a)} and ${name(b)} in ${name(label)}`);
  }));
  for (const mark of svg.querySelectorAll("circle, polyline[fill=none]")) {
    const style = getComputedStyle(mark);
    const own = colour(style.fill === "none" ? style.stroke : style.fill);
    if (own.length >= 3 && contrast(own, ground) < 1.2) complaints.push(`a mark nobody sees in ${name(label)}`);
  }
  if (!svg.querySelector("circle, polyline, polygon, rect, line")) complaints.push(`empty: ${label}`);
}
return { complaints: [...new Set(complaints)].slice(0, 40), pictures: svgs.length };
