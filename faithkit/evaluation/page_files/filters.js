// Filters, order and pages. The state is the address behind #, so that what is seen can be linked to.

const SIZE = 50;
const read = (name) => JSON.parse(document.getElementById(name).textContent);
const rows = read("rows");
let contexts = null;
const context = (place) => (contexts ??= read("contexts"))[place];

const labels = (row) => [...new Set([...row.gold_spans, ...row.called_spans].map((span) => span[0]))];
const FACETS = {
  task: { all: "all tasks", of: (row) => [row.task] },
  model: { all: "all generators", of: (row) => [row.model] },
  outcome: { all: "any way", of: (row) => [row.outcome], order: ["missed", "false alarm", "right hallucinated", "right faithful", "unparsed", "not judged"] },
  spans: { all: "any", of: (row) => row.kinds, order: ["missed span", "false alarm span", "found span", "no span, rightly", "not marked"] },
  type: { all: "all types", of: labels },
};
const error = (row) => (row.score === null || row.gold === null ? -1 : Math.abs(row.score - (row.gold === "hallucinated" ? 1 : 0)));
const SORTS = {
  error: ["surest mistakes first", (a, b) => error(b) - error(a)],
  high: ["highest probability first", (a, b) => (b.score ?? -1) - (a.score ?? -1)],
  low: ["lowest probability first", (a, b) => (a.score ?? 2) - (b.score ?? 2)],
  file: ["as in the file", () => 0],
};

const form = document.getElementById("filters");
let state = {};
let shown = [];

for (const facet of Object.values(FACETS)) {
  const values = new Set(rows.flatMap(facet.of));
  facet.values = facet.order ? facet.order.filter((value) => values.has(value)) : [...values].sort();
}
for (const [name, [text]] of Object.entries(SORTS)) form.elements.sort.append(new Option(text, name));

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  state = { sort: given.get("sort") in SORTS ? given.get("sort") : "error", q: given.get("q") ?? "", id: given.get("id") };
  for (const [name, facet] of Object.entries(FACETS)) state[name] = facet.values.includes(given.get(name)) ? given.get(name) : null;
  state.page = Math.max(1, Number.parseInt(given.get("page"), 10) || 1);
}

function writeState() {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== null && value !== "" && !(name === "page" && value === 1) && !(name === "sort" && value === "error")) given.set(name, value);
  }
  history.replaceState(null, "", `#${given}`);
}

const matches = (row, name) => state[name] === null || FACETS[name].of(row).includes(state[name]);

function searched() {
  if (state.id !== null) return rows.filter((row) => row.id === state.id);
  if (!state.q.trim()) return rows;
  const pattern = new RegExp(state.q.trim().replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "iu");
  return rows.filter((row) => pattern.test(answerText(row)) || pattern.test(row.id) || row.turns.some((turn) => pattern.test(turn[1])));
}

// How many answers each choice would show, the other filters staying as they are.
function fillFacets(found) {
  for (const [name, facet] of Object.entries(FACETS)) {
    const others = Object.keys(FACETS).filter((other) => other !== name);
    const counts = new Map();
    let total = 0;
    for (const row of found) {
      if (!others.every((other) => matches(row, other))) continue;
      total += 1;
      for (const value of facet.of(row)) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const select = form.elements[name];
    select.replaceChildren(choice(`${facet.all} (${total.toLocaleString("en")})`, ""));
    for (const value of facet.values) {
      select.append(choice(`${spell(value) || "(not told)"} (${(counts.get(value) ?? 0).toLocaleString("en")})`, `=${value}`));
    }
    select.value = state[name] === null ? "" : `=${state[name]}`;
    select.closest("label").hidden = facet.values.length < 2;
  }
}

// An <option> shows no elements, so escapes are put into its text.
function choice(text, value) {
  return new Option(addText(make("span", ""), text).textContent, value);
}

function update() {
  const found = searched();
  fillFacets(found);
  form.elements.sort.value = state.sort;
  if (form.elements.q !== document.activeElement) form.elements.q.value = state.q;
  shown = found.filter((row) => Object.keys(FACETS).every((name) => matches(row, name))).sort(SORTS[state.sort][1]);
  const pages = Math.max(1, Math.ceil(shown.length / SIZE));
  state.page = Math.min(state.page, pages);
  const start = (state.page - 1) * SIZE;
  document.getElementById("list").replaceChildren(...shown.slice(start, start + SIZE).map((row) => card(row, context)));
  const count = (value) => value.toLocaleString("en");
  const of = shown.length === rows.length ? "" : ` of ${count(rows.length)}`;
  document.getElementById("count").textContent = `${count(shown.length)}${of} answers`;
  document.getElementById("place").textContent = `Page ${count(state.page)} of ${count(pages)}`;
  document.getElementById("previous").disabled = state.page === 1;
  document.getElementById("next").disabled = state.page === pages;
  document.getElementById("pages").hidden = pages === 1;
  document.getElementById("tip").hidden = true;
}

function change(values) {
  Object.assign(state, { page: 1, id: null }, values);
  update();
  writeState();
}

function turn(step) {
  change({ page: state.page + step, id: state.id });
  document.getElementById("answers").focus({ preventScroll: true });
  document.getElementById("answers").scrollIntoView();
}

function showMetrics() {
  const box = document.getElementById("metrics");
  const scores = read("scores");
  const main = scores.filter(([name]) => !name.includes("/"));
  const others = scores.filter(([name]) => name.includes("/"));
  const table = (metrics) => {
    const body = make("tbody", "");
    for (const [name, value, low, high] of metrics) {
      const cell = make("td", "", make("b", "", value.toFixed(3)));
      if (low !== null && high !== null) cell.append(make("span", "interval", ` ${low.toFixed(3)} to ${high.toFixed(3)}`));
      body.append(make("tr", "", addText(make("th", ""), spell(name)), cell));
      body.lastChild.firstChild.scope = "row";
    }
    return make("table", "", body);
  };
  if (main.length) box.append(table(main));
  if (others.length) box.append(make("details", "", make("summary", "", "By task, generator and type"), table(others)));
}

// The tip beside a mark, on hover and on keyboard focus; Escape closes it.
function showTip(mark) {
  const tip = document.getElementById("tip");
  tip.replaceChildren();
  addText(tip, mark.dataset.tip);
  tip.hidden = false;
  const [first] = mark.getClientRects();
  const left = Math.min(first.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const above = first.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${(above > 0 ? above : first.bottom + 6) + scrollY}px`;
}

function light(article, names) {
  for (const element of article.querySelectorAll("[data-spans], [data-span]")) {
    const own = (element.dataset.spans ?? element.dataset.span).split(" ");
    element.classList.toggle("lit", names.some((name) => own.includes(name)));
  }
}

function point(event) {
  const element = event.target.closest?.("[data-spans], [data-span]");
  document.getElementById("tip").hidden = true;
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  if (!element) return;
  if (element.dataset.tip) showTip(element);
  light(element.closest("article"), (element.dataset.spans ?? element.dataset.span).split(" "));
}

form.addEventListener("change", (event) => {
  const { name, value } = event.target;
  if (name in FACETS) change({ [name]: value === "" ? null : value.slice(1) });
  else if (name === "sort") change({ sort: value });
});
let waiting = 0;
form.elements.q.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => change({ q: form.elements.q.value }), 150);
});
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", (event) => {
  event.preventDefault();
  form.elements.q.value = "";
  change({ task: null, model: null, outcome: null, spans: null, type: null, q: "", sort: "error" });
});
document.getElementById("previous").addEventListener("click", () => turn(-1));
document.getElementById("next").addEventListener("click", () => turn(1));
document.addEventListener("mouseover", point);
document.addEventListener("focusin", point);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.getElementById("tip").hidden = true;
});
addEventListener("hashchange", () => {
  readState();
  update();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its # would be read as a filter
  document.getElementById("answers").focus();
});

showMetrics();
readState();
update();
