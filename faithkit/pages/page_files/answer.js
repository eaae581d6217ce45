"use strict";
// One answer as elements. Text from data enters only by textContent, so none of it is ever read as markup.

// Control, hidden and reordering characters are spelt out; letters of living scripts and emoji need the two joiners.
const HIDDEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const MARKS = {
  "missed": "✗ missed",
  "false alarm": "✗ false alarm",
  "right hallucinated": "✓ right: hallucinated",
  "right faithful": "✓ right: faithful",
  "unparsed": "? unparsed",
  "not judged": "– not judged",
};
const LABELS = ["faithful", "hallucinated", "unparsed"];
const OUTCOMES = Object.keys(MARKS);
const KINDS = ["missed span", "false alarm span", "found span", "no span, rightly", "not marked"];
// What a system says of a row: its place in these lists, of the kinds a bit each, and its spans with what it wrote.
const CALLED = 0, SCORE = 1, OUTCOME = 2, KIND = 3, SPANS = 4, TEXT = 5;

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

// Appends text, with what would hide or reorder it shown as an escape.
function addText(element, text) {
  let last = 0;
  for (const match of text.matchAll(HIDDEN)) {
    const code = match[0].codePointAt(0).toString(16);
    element.append(text.slice(last, match.index));
    const shown = make("span", "escape", code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`);
    shown.title = `the character U+${code.toUpperCase().padStart(4, "0")}`;
    element.append(shown);
    last = match.index + match[0].length;
  }
  element.append(text.slice(last));
  return element;
}

const read = (name) => JSON.parse(document.getElementById(name).textContent);
const spell = (label) => label.replaceAll("_", " ");
const percent = (share) => `${Math.round(100 * share)}%`;
const number = (value) => (value === null ? "–" : value.toFixed(2));
const answerText = (row) => row.pieces.map((piece) => (typeof piece === "string" ? piece : piece[0])).join("");
const spansOf = (row, system) => row.said[system]?.[SPANS] ?? [];
const goldSpans = (row) => row.gold_spans ?? [];
// Of a piece that spans cover: its text, the places of the gold spans, and for each system those of its own.
const covering = (piece, system) => (typeof piece === "string" ? [] : (piece[2 + system] ?? []));
const spanText = (row, covers) => row.pieces.map((piece) => (covers(piece) ? piece[0] : "")).join("");

function describe(row, system, gold, called) {
  const parts = gold.map((place) => `gold: ${spell(row.gold_spans[place][0].join(", "))}`);
  for (const place of called) {
    const [names, score] = spansOf(row, system)[place];
    parts.push(`predicted: ${spell(names.join(", "))}${score === null ? "" : `, probability ${number(score)}`}`);
  }
  return parts.join("\n");
}

// The answer with the gold marks and those of one system; pieces that other systems cut are one again.
function answer(row, system) {
  const paragraph = make("p", "answer");
  paragraph.dir = "auto";
  const joined = [];
  for (const piece of row.pieces) {
    const text = typeof piece === "string" ? piece : piece[0];
    const covers = [typeof piece === "string" ? [] : piece[1], covering(piece, system)];
    const last = joined.at(-1);
    if (last && String(last[1]) === String(covers[0]) && String(last[2]) === String(covers[1])) last[0] += text;
    else joined.push([text, ...covers]);
  }
  for (const [text, gold, called] of joined) {
    if (!gold.length && !called.length) {
      addText(paragraph, text);
      continue;
    }
    const mark = addText(make("mark", [gold.length ? "gold" : "", called.length ? "called" : ""].join(" ").trim()), text);
    mark.tabIndex = 0;
    mark.dataset.tip = describe(row, system, gold, called);
    mark.setAttribute("aria-description", mark.dataset.tip.replaceAll("\n", "; "));
    mark.dataset.spans = [...gold.map((place) => `g${place}`), ...called.map((place) => `c${place}`)].join(" ");
    paragraph.append(mark);
  }
  if (!joined.length) paragraph.append(make("em", "", row.has_text ? "(an empty answer)" : "(the file has no text)"));
  return paragraph;
}

function spanLine(row, kind, place, names, facts, covers) {
  const quote = addText(make("q", ""), spanText(row, covers));
  quote.dir = "auto";
  const shown = make("mark", kind, kind === "gold" ? "gold" : "predicted");
  const line = make("li", "", shown, " ", make("b", "", spell(names.join(", "))), ` ${facts} `, quote);
  line.dataset.span = `${kind[0]}${place}`;
  return line;
}

function spanList(row, system) {
  const list = make("ul", "spans");
  goldSpans(row).forEach(([names, shares], place) => {
    const found = shares[system];
    const facts = found === null ? "" : found > 0 ? `✓ found ${percent(found)}` : "✗ missed";
    const covers = (piece) => typeof piece !== "string" && piece[1].includes(place);
    list.append(spanLine(row, "gold", place, names, facts, covers));
  });
  spansOf(row, system).forEach(([names, score, right, reason, sentence, tool], place) => {
    const facts = [];
    if (score !== null) facts.push(number(score));
    if (right !== null) facts.push(right > 0 ? `✓ right ${percent(right)}` : "✗ false alarm");
    const line = spanLine(row, "called", place, names, facts.join(" · "), (piece) => covering(piece, system).includes(place));
    if (reason) addText(line, ` ${reason}`);
    if (tool) line.append(" · ", addText(make("code", ""), tool));
    if (sentence) addText(line, `: “${sentence}”`); // of the context, that it was compared with
    list.append(line);
  });
  return list;
}

function sources(row, context) {
  const details = make("details", "");
  const last = row.turn ? null : row.turns.at(-1);
  const summary = make("summary", "", row.turn ? "The context that the answer was compared with" : last ? "Context and question: " : "Context");
  if (last) addText(summary, last[1].length > 120 ? `${last[1].slice(0, 120)}…` : last[1]);
  details.append(summary);
  // Long contexts are put in when they are asked for.
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    for (const [speaker, text] of row.turn ? [] : row.turns) {
      const turn = addText(make("p", "turn", make("b", "", addText(make("span", ""), speaker), ": ")), text);
      turn.dir = "auto";
      details.append(turn);
    }
    const box = addText(make("div", "context"), context(row.context));
    box.dir = "auto";
    box.tabIndex = 0;
    details.append(box);
  });
  return details;
}

// What the user asked before an answer, and what the tools returned.
function before(row) {
  const parts = [];
  const last = row.turns.at(-1);
  if (last?.[1]) {
    const question = addText(make("p", "question", make("b", "", "User "), ""), last[1]);
    question.dir = "auto";
    parts.push(question);
  }
  const calls = row.calls();
  if (!calls.length) return parts;
  const names = [...new Set(calls.map(([name]) => name))].join(", ");
  const summary = addText(make("summary", "", `${calls.length} ${calls.length > 1 ? "calls" : "call"} before the answer: `), names.slice(0, 120));
  const details = make("details", "calls", summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    for (const [name, given, failed, result] of calls) {
      const call = make("p", "call", addText(make("code", ""), name), " ", addText(make("code", "given"), given));
      if (failed) call.append(" ", make("span", "badge wrong", "failed"));
      const box = addText(make("div", "context"), result || "(no result)");
      box.dir = "auto";
      box.tabIndex = 0;
      details.append(call, box);
    }
  });
  return [...parts, details];
}

// The answers of one conversation, in order.
function conversation(rows, cards, system) {
  const name = addText(make("h2", ""), rows[0].turn[0]);
  const wrong = rows.filter((row) => row.said[system]?.[CALLED] === LABELS.indexOf("hallucinated")).length;
  const facts = make("p", "facts", `${rows.length} ${rows.length > 1 ? "answers" : "answer"}, ${wrong} called hallucinated`);
  const section = make("section", "conversation", name, facts, ...cards);
  section.setAttribute("aria-label", name.textContent);
  return section;
}

const called = (said) => (said[CALLED] === null ? "no verdict" : LABELS[said[CALLED]]);
const isGenerated = (said) => said[CALLED] === null && said[SCORE] === null;

function verdict(row, system, name) {
  const line = make("p", "verdict");
  const said = row.said[system];
  if (name) line.append(addText(make("b", "system"), name), " ");
  if (!said) {
    line.append("has no prediction of this row");
    return line;
  }
  if (isGenerated(said)) return line; // and not judged
  const outcome = OUTCOMES[said[OUTCOME]];
  const kind = outcome.startsWith("right") ? "right" : outcome === "missed" || outcome === "false alarm" ? "wrong" : "open";
  line.append(make("span", `badge ${kind}`, row.gold === null ? called(said) : MARKS[outcome]));
  if (said[SCORE] !== null) {
    const meter = make("span", "meter", make("span", ""));
    meter.setAttribute("aria-hidden", "true");
    meter.firstChild.style.width = percent(said[SCORE]);
    line.append(" P(hallucinated) ", make("b", "", number(said[SCORE])), " ", meter);
  }
  if (row.gold !== null) line.append(` gold ${LABELS[row.gold]}, called ${called(said)}`);
  return line;
}

// What a judge wrote beside its verdict, or a generator as its answer.
function words(text) {
  const box = addText(make("p", "said"), text);
  box.dir = "auto";
  return box;
}

// A row with what one or two systems say of it.
function card(row, context, systems, names, facts) {
  const article = make("article", "");
  const id = make("a", "id");
  addText(id, `#${row.id}`);
  id.href = `#${new URLSearchParams({ id: row.id })}`;
  id.title = "A link to this answer alone";
  const head = make("span", "facts", id);
  if (row.turn?.[1]) head.append(` · turn ${row.turn[1]}`);
  for (const fact of facts) head.append(" · ", addText(make("span", ""), fact));
  article.append(make(row.turn ? "h3" : "h2", "", head), ...(row.turn ? before(row) : []));
  const each = systems.some((system) => spansOf(row, system).length); // else one answer with the gold marks is enough
  systems.forEach((system, place) => {
    article.append(verdict(row, system, names.length > 1 ? names[place] : ""));
    if (row.said[system]?.[TEXT]) article.append(words(row.said[system][TEXT]));
    if (!each && place < systems.length - 1) return;
    if (systems.every((one) => !row.said[one] || isGenerated(row.said[one]))) article.append(make("p", "verdict", "reference"));
    article.append(answer(row, system));
    if (spansOf(row, system).length || goldSpans(row).length) article.append(spanList(row, system));
  });
  article.append(sources(row, context));
  return article;
}
