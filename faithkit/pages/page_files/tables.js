"use strict";
// Tables that a click on a column's head sorts. A cell is a text, a number, null, or a metric [value, low, high].

const TINY = 0.0005;
const pValue = (p) => (p === null || p === undefined ? null : { text: p < TINY ? "<0.001" : p.toFixed(3), by: p });
const whole = (value) => ({ text: value.toLocaleString("en"), by: value });

function metricCell(cell, [value, low, high], digits = 3) {
  const told = (one) => one.toFixed(digits).replace(/^-(?=[0.]+$)/, "");
  cell.append(make("b", "", told(value)));
  if (low !== null && low !== undefined) cell.append(make("span", "interval", ` ${told(low)} to ${told(high)}`));
}

const sortValue = (cell) => (Array.isArray(cell) ? cell[0] : cell !== null && typeof cell === "object" ? cell.by : cell);

// Missing values stay at the end, whichever way a column is sorted.
function compareCells(first, second, way) {
  const [a, b] = [sortValue(first), sortValue(second)];
  if (a === null || a === undefined || a === "–") return b === null || b === undefined || b === "–" ? 0 : 1;
  if (b === null || b === undefined || b === "–") return -1;
  if (typeof a === "number" && typeof b === "number") return way * (a - b);
  return way * String(a).localeCompare(String(b), "en", { numeric: true });
}

function fillCell(cell, value) {
  if (value === null || value === undefined) cell.append("–");
  else if (Array.isArray(value)) metricCell(cell, value);
  else if (typeof value === "object") addText(cell, value.text);
  else addText(cell, String(value));
}

// Puts a table into a box. `heads` are [text, what it means]; a column is of numbers where any of its cells is one.
function table(box, heads, rows, { sort = null, way = 1, pick = null } = {}) {
  const isNumber = (value) => Array.isArray(value) || typeof value === "number" || (value !== null && typeof value === "object");
  const numbers = heads.map((_, column) => rows.some((row) => isNumber(row[column])));
  const state = { sort, way };
  const body = make("tbody", "");
  const cells = heads.map(([text, title], column) => {
    const button = addText(make("button", ""), text);
    button.type = "button";
    if (title) button.title = title;
    button.addEventListener("click", () => {
      state.way = state.sort === column ? -state.way : numbers[column] ? -1 : 1;
      state.sort = column;
      fill();
    });
    const head = make("th", numbers[column] ? "number" : "", button);
    head.scope = "col";
    return head;
  });
  function fill() {
    const order = [...rows];
    if (state.sort !== null) order.sort((a, b) => compareCells(a[state.sort], b[state.sort], state.way));
    cells.forEach((head, column) => head.setAttribute("aria-sort", column !== state.sort ? "none" : state.way > 0 ? "ascending" : "descending"));
    body.replaceChildren(...order.map((row) => {
      const line = make("tr", "");
      heads.forEach((_, column) => {
        const cell = make(column ? "td" : "th", numbers[column] ? "number" : "");
        if (!column) cell.scope = "row";
        fillCell(cell, row[column]);
        line.append(cell);
      });
      if (pick) {
        const button = make("button", "", "look");
        button.type = "button";
        button.addEventListener("click", () => pick(row));
        line.append(make("td", "", button));
      }
      return line;
    }));
  }
  fill();
  const line = make("tr", "", ...cells);
  if (pick) line.append(make("td", ""));
  box.replaceChildren(make("table", "sortable", make("thead", "", line), body));
}

// Fills a select with choices and calls back with the place of the one that is chosen; hidden where there is one.
function chooser(name, texts, then) {
  const select = document.getElementById(name);
  select.replaceChildren(...texts.map((text, place) => new Option(addText(make("span", ""), text).textContent, String(place))));
  select.closest("label").hidden = texts.length < 2;
  select.addEventListener("change", () => then(Number(select.value)));
  return select;
}
