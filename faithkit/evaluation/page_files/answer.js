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

const spell = (label) => label.replaceAll("_", " ");
const percent = (share) => `${Math.round(100 * share)}%`;
const number = (value) => (value === null ? "–" : value.toFixed(2));
const answerText = (row) => row.pieces.map((piece) => (typeof piece === "string" ? piece : piece[0])).join("");
const spanText = (row, side, place) =>
  row.pieces.map((piece) => (typeof piece !== "string" && piece[side].includes(place) ? piece[0] : "")).join("");

function describe(row, gold, called) {
  const parts = gold.map((place) => `gold: ${spell(row.gold_spans[place][0])}`);
  for (const place of called) {
    const [label, score] = row.called_spans[place];
    parts.push(`predicted: ${spell(label)}${score === null ? "" : `, probability ${number(score)}`}`);
  }
  return parts.join("\n");
}

function answer(row) {
  const paragraph = make("p", "answer");
  paragraph.dir = "auto";
  for (const piece of row.pieces) {
    if (typeof piece === "string") {
      addText(paragraph, piece);
      continue;
    }
    const [text, gold, called] = piece;
    const mark = addText(make("mark", [gold.length ? "gold" : "", called.length ? "called" : ""].join(" ").trim()), text);
    mark.tabIndex = 0;
    mark.dataset.tip = describe(row, gold, called);
    mark.setAttribute("aria-description", mark.dataset.tip.replaceAll("\n", "; "));
    mark.dataset.spans = [...gold.map((place) => `g${place}`), ...called.map((place) => `c${place}`)].join(" ");
    paragraph.append(mark);
  }
  if (!row.pieces.length) paragraph.append(make("em", "", "(an empty answer)"));
  return paragraph;
}

function spanLine(row, side, place, label, facts) {
  const mark = make("mark", side === 1 ? "gold" : "called", side === 1 ? "gold" : "predicted");
  const quote = addText(make("q", ""), spanText(row, side, place));
  quote.dir = "auto";
  const line = make("li", "", mark, " ", make("b", "", spell(label)), ` ${facts} `, quote);
  line.dataset.span = `${side === 1 ? "g" : "c"}${place}`;
  return line;
}

function spanList(row) {
  const list = make("ul", "spans");
  row.gold_spans.forEach(([label, found], place) => {
    list.append(spanLine(row, 1, place, label, found > 0 ? `✓ found ${percent(found)}` : "✗ missed"));
  });
  row.called_spans.forEach(([label, score, right], place) => {
    const facts = [];
    if (score !== null) facts.push(number(score));
    if (right !== null) facts.push(right > 0 ? `✓ right ${percent(right)}` : "✗ false alarm");
    list.append(spanLine(row, 2, place, label, facts.join(" · ")));
  });
  return list;
}

function sources(row, context) {
  const details = make("details", "");
  const last = row.turns.at(-1);
  const summary = make("summary", "", last ? "Context and question: " : "Context");
  if (last) addText(summary, last[1].length > 120 ? `${last[1].slice(0, 120)}…` : last[1]);
  details.append(summary);
  // Long contexts are put in when they are asked for.
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    for (const [speaker, text] of row.turns) {
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

function verdict(row) {
  const line = make("p", "verdict");
  const kind = row.outcome.startsWith("right") ? "right" : row.outcome === "missed" || row.outcome === "false alarm" ? "wrong" : "open";
  line.append(make("span", `badge ${kind}`, MARKS[row.outcome]));
  const meter = make("span", "meter", make("span", ""));
  meter.setAttribute("aria-hidden", "true");
  meter.firstChild.style.width = percent(row.score ?? 0);
  line.append(" P(hallucinated) ", make("b", "", number(row.score)), " ", meter);
  line.append(` gold ${row.gold ?? "–"}, called ${row.called}`);
  return line;
}

function card(row, context) {
  const article = make("article", "");
  const id = make("a", "id");
  addText(id, `#${row.id}`);
  id.href = `#${new URLSearchParams({ id: row.id })}`;
  id.title = "A link to this answer alone";
  const facts = make("span", "facts", id);
  for (const fact of [row.task, row.model]) if (fact) facts.append(" · ", addText(make("span", ""), fact));
  article.append(make("h2", "", facts), verdict(row), answer(row));
  if (row.gold_spans.length || row.called_spans.length) article.append(spanList(row));
  article.append(sources(row, context));
  return article;
}
