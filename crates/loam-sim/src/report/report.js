"use strict";
// A click on a legend's entry hides what it names; the pointer shows values. Without this script the <title>s show them.
(() => {
  const units = {
    Number: [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]],
    Bytes: [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [1024, " KiB"], [1, " B"]],
    Ns: [[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]],
    Share: [[0.01, "%"]],
    Times: [[1, "×"]],
  };
  const written = (value, unit) => {
    if (value === 0) return "0";
    const table = units[unit];
    const [size, name] = table.find(([size]) => Math.abs(value) >= size) || table[table.length - 1];
    return Number((value / size).toPrecision(3)) + name;
  };
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  const show = (event, text) => {
    tip.textContent = text;
    tip.style.display = text ? "block" : "none";
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
  };
  const ruler = (text) => {
    const [kind, low, high, from, to, unit] = text.split(",").map((part, at) => (at % 5 ? Number(part) : part));
    const part = (px) => (px - from) / (to - from);
    const value = (px) => (kind === "lin" ? low + part(px) * (high - low) : low * (high / low) ** part(px));
    return { text: (px) => written(value(px), unit), from, to };
  };
  // The corners of a path of M, L, H and V, all absolute.
  const corners = (d) => {
    const points = [];
    for (const [, op, rest] of d.matchAll(/([MLHV])([^MLHV]*)/g)) {
      const numbers = rest.trim().split(/[ ,]+/).map(Number);
      const last = points[points.length - 1];
      points.push(op === "H" ? [numbers[0], last[1]] : op === "V" ? [last[0], numbers[0]] : numbers);
    }
    return points;
  };
  const nearest = (points, x) => {
    let [low, high] = [0, points.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= x) low = middle; else high = middle;
    }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  };

  for (const svg of document.querySelectorAll("svg.loam-fig")) {
    for (const title of svg.querySelectorAll("g title")) {
      const parent = title.parentNode;
      if (parent.classList.contains("key")) continue;
      parent.dataset.tip = title.textContent;
      title.remove(); // The browser would show it beside ours.
    }
    for (const key of svg.querySelectorAll(".key")) {
      key.classList.add("live");
      key.addEventListener("click", () => {
        const hidden = key.classList.toggle("hidden");
        for (const mark of svg.querySelectorAll(`[data-mark="${key.dataset.key}"]`)) mark.classList.toggle("off", hidden);
      });
    }
    const plot = svg.querySelector(".plot");
    const rulers = plot && { x: ruler(plot.dataset.x), y: ruler(plot.dataset.y) };
    const lines = plot ? [...plot.querySelectorAll("[data-mark] > path[fill=none]")].map((path) => ({
      mark: path.parentNode,
      points: corners(path.getAttribute("d")),
    })) : [];
    for (const line of lines) line.sorted = line.points.every((point, at, all) => !at || all[at - 1][0] <= point[0]);
    svg.addEventListener("pointermove", (event) => {
      const own = event.target.closest("[data-tip]");
      if (own) return show(event, own.dataset.tip);
      if (!rulers) return show(event, "");
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const { x, y } = rulers;
      if (at.x < x.from || at.x > x.to || at.y < y.to || at.y > y.from) return show(event, "");
      const values = lines.filter((line) => line.sorted && !line.mark.classList.contains("off")).map((line) => {
        const point = nearest(line.points, at.x);
        return `${line.mark.dataset.name}: ${y.text(point[1])} at ${x.text(point[0])}`;
      });
      show(event, values.slice(0, 16).join("\n"));
    });
    svg.addEventListener("pointerleave", (event) => show(event, ""));
  }
})();
