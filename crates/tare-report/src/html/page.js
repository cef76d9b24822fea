"use strict";
// Everything here is an extra: the page is whole without it.
(() => {
  const tip = document.getElementById("tip");
  const header = document.querySelector("header");

  const button = document.createElement("button");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : prefersDark.matches;
  };
  const label = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
  button.type = "button";
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  prefersDark.addEventListener("change", label);
  label();
  header.append(button);

  // Where the numbers of a picture stand beside it they are shown.
  if (matchMedia("(min-width: 1300px)").matches) {
    for (const numbers of document.querySelectorAll("figure > details")) numbers.open = true;
  }

  // A plot's points are in its picture's own pixels.
  const within = 28;
  const show = (svg, hit) => {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    tip.textContent = hit[2];
    tip.hidden = false;
    const x = box.left + hit[0] * scale, y = box.top + hit[1] * scale;
    const left = Math.min(Math.max(x + 12, 4), innerWidth - tip.offsetWidth - 4);
    const above = y - tip.offsetHeight - 10;
    tip.style.left = left + "px";
    tip.style.top = (above < 4 ? y + 14 : above) + "px";
  };
  for (const plot of document.querySelectorAll(".plot")) {
    const svg = plot.querySelector("svg");
    const hits = JSON.parse(plot.querySelector("script").textContent);
    if (!hits.length) continue;
    let at = -1;
    plot.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      let best = -1, least = within * within;
      hits.forEach((hit, index) => {
        const far = (hit[0] - x) ** 2 + (hit[1] - y) ** 2;
        if (far < least) { least = far; best = index; }
      });
      at = best;
      if (best < 0) tip.hidden = true; else show(svg, hits[best]);
    });
    plot.addEventListener("pointerleave", () => { tip.hidden = true; });
    plot.addEventListener("blur", () => { tip.hidden = true; });
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") tip.hidden = true;
      if (!step) return;
      event.preventDefault();
      at = (at + step + hits.length) % hits.length;
      show(svg, hits[at]);
    });
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
