// Filters, order and pages. The state is the address behind #, so that what is seen can be linked to.

const SIZE = 50;
const UNTOLD = ["split", "history", "knowledge"]; // facts that say nothing above an answer
const sets = read("sets");
const form = document.getElementById("filters");
const DISAGREE = "they disagree";
const VERDICTS = ["hallucinated", "faithful", "no verdict"];
const BETWEEN = [DISAGREE, "only the first is right", "only the second is right", "both right", "both wrong", "they agree"];
let opened = null; // the rows of one test set, with what is worked out from them once
let state = {};
let shown = [];

function open(place) {
  if (opened?.place === place) return;
  const own = sets[place];
  const rows = read(`rows-${place}`);
  let contexts = null, calls = null;
  const call = (at) => (calls ??= read(`calls-${place}`))[at];
  for (const row of rows) {
    row.has_text = row.context !== null;
    row.calls = () => (row.turn?.[2] ?? []).map(call);
  }
  orderTurns(rows);
  opened = {
    ...own, place, rows, hasTurns: rows.some((row) => row.turn), hasGold: rows.some((row) => row.gold !== null),
    context: (at) => (at === null ? "" : (contexts ??= read(`contexts-${place}`))[at]),
  };
  opened.facets = facetsOf(own, opened.hasGold);
  buildForm();
}

// Orders conversations by the highest probability of their answers, and the answers of each by their turn.
function orderTurns(rows) {
  const worst = new Map();
  const key = (row) => row.turn?.[0] ?? `\n${row.id}`;
  for (const row of rows) worst.set(key(row), Math.max(worst.get(key(row)) ?? -1, score(row, 0) ?? -1));
  const names = sorted([...worst.keys()], (name) => -worst.get(name));
  const places = new Map(names.map((name, place) => [name, place]));
  const placed = [...rows].sort((a, b) => places.get(key(a)) - places.get(key(b)) || (a.turn?.[1] ?? 0) - (b.turn?.[1] ?? 0));
  placed.forEach((row, place) => { row.order = place; });
}

// The choices of what depends on the systems that are compared, worked out again when these change.
function findChoices() {
  const pair = `${state.a} ${state.b}`;
  if (opened.pair === pair) return;
  opened.pair = pair;
  const { facets } = opened;
  const found = facets.map(() => new Set());
  for (const row of opened.rows) {
    row.values = facets.map((facet) => facet.of(row));
    row.values.forEach((values, place) => { for (const value of values) found[place].add(value); });
  }
  facets.forEach((facet, place) => {
    facet.values = facet.order ? facet.order.filter((value) => found[place].has(value)) : [...found[place]].sort();
  });
}

// What rows can be chosen by: how two systems compare, the outcome of the first, and the facts of the data.
function facetsOf(own, hasGold) {
  const first = (row) => row.said[state.a];
  const two = own.systems.length > 1;
  const facets = two ? [{ name: "between", title: `The two ${own.noun}s`, all: "all rows", of: between, order: BETWEEN }] : [];
  const whose = two ? " (first)" : "";
  const verdicts = (row) => (!first(row) || isGenerated(first(row)) ? [] : [VERDICTS.includes(called(first(row))) ? called(first(row)) : "no verdict"]);
  facets.push({ name: "verdict", title: `Verdict${whose}`, all: "all", of: verdicts, order: VERDICTS });
  if (hasGold) facets.push(
    { name: "outcome", title: `Outcome${whose}`, all: "any way", of: (row) => (first(row) ? [OUTCOMES[first(row)[OUTCOME]]] : []), order: OUTCOMES },
    { name: "spans", title: `Spans${whose}`, all: "any", of: (row) => KINDS.filter((_, bit) => (first(row)?.[KIND] ?? 0) & (1 << bit)), order: KINDS },
  );
  facets.push({ name: "type", title: "Type of span", all: "all types", of: labels });
  own.facts.forEach(({ name, title, values }, place) => {
    const of = (row) => (row.facts[place] === null ? [] : [values[row.facts[place]]]);
    facets.push({ name, title, all: "all", of, order: values });
  });
  return facets;
}

function labels(row) {
  const spans = [...goldSpans(row), ...spansOf(row, state.a), ...(state.b === null ? [] : spansOf(row, state.b))];
  return [...new Set(spans.flatMap((span) => span[0]))];
}

function between(row) {
  const first = row.said[state.a], second = row.said[state.b];
  if (!first || !second) return [];
  const kinds = [first[CALLED] === second[CALLED] ? "they agree" : DISAGREE];
  if (row.gold === null) return kinds;
  const right = [first, second].map((said) => said[CALLED] === row.gold);
  kinds.push(right[0] === right[1] ? (right[0] ? "both right" : "both wrong") : `only the ${right[0] ? "first" : "second"} is right`);
  return kinds;
}

const isPair = () => sets[state.set].systems.length > 1;
const score = (row, system) => row.said[system]?.[SCORE] ?? null;
const error = (row) => (score(row, state.a) === null || row.gold === null ? -1 : Math.abs(score(row, state.a) - row.gold));
const apart = (row) => {
  const [first, second] = [score(row, state.a), score(row, state.b)];
  return first === null || second === null ? -1 : Math.abs(first - second);
};
const SORTS = {
  conversation: ["by conversation", (row) => row.order],
  apart: ["furthest apart first", (row) => -apart(row)],
  error: ["surest mistakes first", (row) => -error(row)],
  high: ["highest probability first", (row) => -(score(row, state.a) ?? -1)],
  low: ["lowest probability first", (row) => score(row, state.a) ?? 2],
  file: ["as in the file", () => 0],
};

// Sorts rows by a number that is worked out once for each.
function sorted(rows, key) {
  return rows.map((row) => [key(row), row]).sort((a, b) => a[0] - b[0]).map(([, row]) => row);
}

const usual = () => ({ sort: isPair() ? "apart" : opened.hasTurns ? "conversation" : opened.hasGold ? "error" : "high", between: isPair() ? DISAGREE : null });

function buildForm() {
  const box = document.getElementById("facets");
  const select = (name, title) => {
    const found = make("select", "");
    found.name = name;
    return make("label", "", `${title} `, found);
  };
  box.replaceChildren();
  if (sets.length > 1) box.append(select("set", "Test set"));
  if (isPair()) box.append(select("a", `First ${opened.noun}`), select("b", `Second ${opened.noun}`));
  for (const facet of opened.facets) box.append(select(facet.name, facet.title));
  if (sets.length > 1) form.elements.set.append(...sets.map((set, place) => choice(set.name, String(place))));
  for (const name of isPair() ? ["a", "b"] : []) form.elements[name].append(...opened.systems.map((system, place) => choice(system, String(place))));
  const sorts = Object.entries(SORTS).filter(([name]) => (name !== "apart" || isPair()) && (name !== "error" || opened.hasGold) && (name !== "conversation" || opened.hasTurns));
  form.elements.sort.replaceChildren(...sorts.map(([name, [text]]) => new Option(text, name)));
}

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  const place = (name, length, other) => {
    const found = Number.parseInt(given.get(name), 10);
    return found >= 0 && found < length ? found : other;
  };
  const set = place("set", sets.length, 0);
  const { length } = sets[set].systems;
  state = { set, a: place("a", length, 0), b: length > 1 ? place("b", length, 1) : null };
  open(set);
  findChoices();
  const { sort, between: other } = usual();
  Object.assign(state, { sort: given.get("sort") in SORTS ? given.get("sort") : sort, q: given.get("q") ?? "", id: given.get("id") });
  for (const facet of opened.facets) {
    const wanted = given.get(facet.name);
    const missing = wanted === null && facet.name === "between" && facet.values.includes(other) ? other : null;
    state[facet.name] = facet.values.includes(wanted) ? wanted : missing;
  }
  state.page = Math.max(1, Number.parseInt(given.get("page"), 10) || 1);
}

function writeState() {
  const given = new URLSearchParams();
  const plain = { set: 0, a: 0, b: isPair() ? 1 : null, page: 1, q: "", id: null, ...usual() };
  for (const [name, value] of Object.entries(state)) {
    if (value !== (plain[name] ?? null)) given.set(name, value ?? "");
  }
  history.replaceState(null, "", `#${given}`);
}

// The text of a row that a search looks in, put together when the first search needs it.
function searchable(row) {
  row.search ??= [row.id, answerText(row), ...row.turns.map((turn) => turn[1]), ...row.said.map((said) => said?.[TEXT] ?? "")].join("\n");
  return row.search;
}

function searched() {
  if (state.id !== null) return opened.rows.filter((row) => row.id === state.id);
  if (!state.q.trim()) return opened.rows;
  const pattern = new RegExp(state.q.trim().replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "iu");
  return opened.rows.filter((row) => pattern.test(searchable(row)));
}

// Finds the rows that fit every filter, and how many each choice would show, the other filters staying as they are.
function fit(rows) {
  const { facets } = opened;
  const counts = facets.map(() => new Map());
  const totals = facets.map(() => 0);
  const chosen = facets.flatMap(({ name }, place) => (state[name] === null ? [] : [[place, state[name]]]));
  const found = [];
  const count = (row, place) => {
    totals[place] += 1;
    for (const value of row.values[place]) counts[place].set(value, (counts[place].get(value) ?? 0) + 1);
  };
  for (const row of rows) {
    const wrong = chosen.filter(([place, value]) => !row.values[place].includes(value));
    if (wrong.length === 1) count(row, wrong[0][0]);
    if (wrong.length) continue;
    found.push(row);
    for (let place = 0; place < facets.length; place += 1) count(row, place);
  }
  facets.forEach((facet, place) => fillFacet(facet, counts[place], totals[place]));
  return found;
}

function fillFacet(facet, counts, total) {
  const select = form.elements[facet.name];
  const count = (value) => value.toLocaleString("en");
  select.replaceChildren(choice(`${facet.all} (${count(total)})`, ""));
  for (const value of facet.values) select.append(choice(`${spell(value)} (${count(counts.get(value) ?? 0)})`, `=${value}`));
  select.value = state[facet.name] === null ? "" : `=${state[facet.name]}`;
  select.closest("label").hidden = facet.values.length < 2;
}

// An <option> shows no elements, so escapes are put into its text.
function choice(text, value) {
  return new Option(addText(make("span", ""), text).textContent, value);
}

function update() {
  open(state.set);
  findChoices();
  const found = fit(searched());
  for (const name of ["set", "a", "b", "sort"]) if (form.elements[name]) form.elements[name].value = String(state[name]);
  if (form.elements.q !== document.activeElement) form.elements.q.value = state.q;
  shown = sorted(found, SORTS[state.sort][1]);
  const pages = Math.max(1, Math.ceil(shown.length / SIZE));
  state.page = Math.min(state.page, pages);
  const start = (state.page - 1) * SIZE;
  const systems = isPair() ? [state.a, state.b] : [state.a];
  const names = systems.map((system) => opened.systems[system]);
  const facts = (row) => opened.facts.flatMap(({ name, values }, place) => (row.facts[place] === null || UNTOLD.includes(name) ? [] : [values[row.facts[place]]]));
  const groups = []; // answers of a conversation, or one answer
  for (const row of shown.slice(start, start + SIZE)) {
    const made = card(row, opened.context, systems, names, facts(row));
    const last = groups.at(-1);
    if (state.sort === "conversation" && row.turn && last?.rows[0].turn?.[0] === row.turn[0]) {
      last.rows.push(row);
      last.cards.push(made);
    } else groups.push({ rows: [row], cards: [made] });
  }
  const isGrouped = state.sort === "conversation" && opened.hasTurns;
  const listed = groups.map(({ rows, cards }) => (isGrouped && rows[0].turn ? conversation(rows, cards, state.a) : cards[0]));
  document.getElementById("list").replaceChildren(...listed);
  const count = (value) => value.toLocaleString("en");
  const of = shown.length === opened.rows.length ? "" : ` of ${count(opened.rows.length)}`;
  document.getElementById("count").textContent = `${count(shown.length)}${of} answers`;
  document.getElementById("place").textContent = `Page ${count(state.page)} of ${count(pages)}`;
  const chosen = opened.facets.filter(({ name }) => state[name] !== null).length;
  document.getElementById("fold").textContent = chosen ? `Filters (${chosen})` : "Filters";
  document.getElementById("previous").disabled = state.page === 1;
  document.getElementById("next").disabled = state.page === pages;
  document.getElementById("pages").hidden = pages === 1;
  document.getElementById("tip").hidden = true;
  document.dispatchEvent(new Event("chosen"));
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

// Chooses two systems of a test set; what else was chosen is of another comparison.
function choose(set, a, b) {
  state = { set, a, b };
  open(set);
  findChoices();
  for (const facet of opened.facets) state[facet.name] = null;
  const { sort, between: other } = usual();
  change({ sort, q: "", between: opened.facets[0].values.includes(other) ? other : null });
}

form.addEventListener("change", (event) => {
  const { name, value } = event.target;
  if (name === "set") choose(Number(value), 0, sets[value].systems.length > 1 ? 1 : null);
  else if (name === "a" || name === "b") change({ [name]: Number(value) });
  else if (name === "sort") change({ sort: value });
  else if (name !== "q") change({ [name]: value === "" ? null : value.slice(1) });
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
  choose(state.set, state.a, state.b);
});
// On a small screen all but the search is folded away until it is asked for.
document.getElementById("fold").addEventListener("click", ({ currentTarget }) => {
  currentTarget.setAttribute("aria-expanded", String(form.classList.toggle("open")));
});
document.getElementById("previous").addEventListener("click", () => turn(-1));
document.getElementById("next").addEventListener("click", () => turn(1));
addEventListener("hashchange", () => {
  readState();
  update();
});
readState();
update();
