"use strict";
const sortAndFilter = (all) => {
  const body = all.tBodies[0], rows = [...body.rows];
  const cellValue = (row, at) => {
    const cell = row.cells[at];
    if (!("v" in cell.dataset)) return cell.textContent.trim().toLowerCase();
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  // A heading sorts by its column: up, then down. What has no value comes last both ways.
  [...all.tHead.rows[0].cells].forEach((heading, at) => {
    if (heading.textContent === "nights") return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of all.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row) => [cellValue(row, at), row]);
      const known = keyed.filter(([value]) => value !== null).sort(([a], [b]) => (down ? compare(b, a) : compare(a, b)));
      body.append(...known.map(([, row]) => row), ...keyed.filter(([value]) => value === null).map(([, row]) => row));
    });
  });

  const form = document.getElementById("filter");
  if (!form) return;
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const filter = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const status = form.elements.status.value;
    let shown = 0;
    rows.forEach((row, at) => {
      const fits = (!status || row.dataset.status === status) && words.every((word) => texts[at].includes(word));
      row.hidden = !fits;
      shown += fits;
    });
    form.querySelector("output").textContent = `${shown} of ${rows.length}`;
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
};

(() => {
  const all = document.getElementById("all");
  if (all) sortAndFilter(all);

  // A chart of nights tells the night below the pointer, or the one that the arrow keys have reached.
  const tip = document.getElementById("tip");
  const show = (chart, at) => {
    const { left, right, count } = chart.dataset, table = chart.closest("figure").querySelector("table.nights");
    const step = (right - left) / count, x = Number(left) + (at + 0.5) * step;
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const row = table.tBodies[0].rows["newestFirst" in table.dataset ? count - 1 - at : at];
    const values = [...row.cells].map((cell) => cell.textContent.trim());
    tip.textContent = values.map((value, n) => value && `${names[n]}: ${value.slice(0, 200)}`).filter(Boolean).join("\n");
    let cursor = chart.querySelector(".cursor");
    if (!cursor) {
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
      cursor.setAttribute("class", "cursor");
      cursor.setAttribute("y1", "22");
      cursor.setAttribute("y2", "278");
      chart.append(cursor);
    }
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    tip.hidden = false;
    const box = chart.getBoundingClientRect(), place = box.left + (x / chart.viewBox.baseVal.width) * box.width;
    const { offsetWidth: wide, offsetHeight: high } = tip;
    tip.style.left = `${Math.max(4, Math.min(place + 14, innerWidth - wide - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(box.top + 20, innerHeight - high - 4))}px`;
    chart.night = at;
  };
  const hide = (chart) => {
    tip.hidden = true;
    chart.querySelector(".cursor")?.remove();
  };
  for (const chart of document.querySelectorAll("svg.chart[data-count]")) {
    const last = chart.dataset.count - 1;
    const nearest = (event) => {
      const box = chart.getBoundingClientRect(), { left, right, count } = chart.dataset;
      const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      return Math.max(0, Math.min(last, Math.floor((x - left) / ((right - left) / count))));
    };
    chart.tabIndex = 0;
    chart.addEventListener("pointermove", (event) => show(chart, nearest(event)));
    chart.addEventListener("pointerdown", (event) => show(chart, nearest(event)));
    chart.addEventListener("pointerleave", () => hide(chart));
    chart.addEventListener("blur", () => hide(chart));
    chart.addEventListener("keydown", (event) => {
      const at = chart.night ?? last;
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide(chart);
      if (next === undefined) return;
      event.preventDefault();
      show(chart, Math.max(0, Math.min(last, next)));
    });
  }

  // Where a chart is wider than the screen, its newest nights are shown first.
  const arrived = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      target.scrollLeft = target.scrollWidth;
      arrived.unobserve(target);
    }
  });
  for (const chart of document.querySelectorAll("svg.chart[data-count]")) arrived.observe(chart.closest(".scroll"));

  // Of the cases that need someone what is folded is printed too, and every long text is printed whole.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".needed details:not([open]), details.long:not([open])")];
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
  });
})();
