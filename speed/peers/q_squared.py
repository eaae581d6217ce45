"""Runs the q-squared scripts themselves, unchanged, in the environment that their README asks for.

Their models are not at hand, so the names that they load lead to others: `flan-t5-small` writes questions, `minilm`
with a trained head reads answers and is BERTScore's encoder. The spaCy pipeline's entities, chunks and parses, and the
NLI labels, are asked of the process that started this one: a line with a question out, a line with the answer in.

q_squared.py SCRIPTS FOLDER [TEMPLATE]

FOLDER has pairs.csv and, in folders of their own, the models questions, answers and encoder. TEMPLATE is how the
question writer at hand wants {answer} and {context}; the scripts' own is taken apart for it. Without a TEMPLATE the
other process also writes the questions and reads the answers.
"""

import base64
import contextlib
import importlib
import json
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

SCRIPTS, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
TEMPLATE = sys.argv[3] if len(sys.argv) > 3 else ""
LINES = sys.stdout  # the scripts print to stdout
BASELINE = 0.4  # of the encoder: any number shows the rescaling


def load(name: str) -> Any:
    """Imports a module of this environment, which no type checker knows."""
    return importlib.import_module(name)


def ask(*request):
    print(json.dumps(request), file=LINES, flush=True)
    return json.loads(sys.stdin.readline())


class Token:
    def __init__(self, text, dep_):
        self.text, self.dep_ = text, dep_


class Parsed:
    """A text as the other process's pipeline sees it."""

    def __init__(self, text):
        found = ask("parse", text)
        self.ents = [Token(one, None) for one in found["entities"]]
        self.noun_chunks = [Token(one, None) for one in found["chunks"]]
        self.tokens = [Token(one, dep) for one, dep in found["tokens"]]

    def __iter__(self):
        return iter(self.tokens)


class Predictor:
    @staticmethod
    def from_path(path, predictor_name):
        return Predictor()

    def predict(self, premise, hypothesis):
        return {"label": ask("entailment", premise, hypothesis)}


class Templated:
    """A tokenizer that writes the scripts' prompts in another template."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, texts, **options):
        parts = [re.findall("^answer: (.*)  context: (.*) </s>$", text, re.DOTALL) for text in texts]
        return self.tokenizer([TEMPLATE.format(answer=a, context=c) + " </s>" for [(a, c)] in parts], **options)

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


def recorded(module, name, calls):
    """Keeps what a function of two texts returned."""
    plain = getattr(module, name)

    def function(first, second):
        found = plain(first, second)
        calls.append([first, second, found])
        return found

    setattr(module, name, function)


def write_sentencepiece(folder):
    """Writes the model file that this version's T5 tokenizer reads, from the one that later versions read."""
    pb = load("sentencepiece.sentencepiece_model_pb2")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = pb.ModelProto()
    kinds = {"<pad>": 3, "</s>": 3, "<unk>": 2}
    for piece, score in tokenizer["model"]["vocab"]:
        if not piece.startswith("<extra_id"):
            model.pieces.add(piece=piece, score=score, type=kinds.get(piece, 1))
    ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
    model.trainer_spec.model_type = 1
    model.trainer_spec.unk_id, model.trainer_spec.eos_id = ids["<unk>"], ids["</s>"]
    model.trainer_spec.pad_id, model.trainer_spec.bos_id = ids["<pad>"], -1
    for one in tokenizer["normalizer"]["normalizers"]:
        if one["type"] == "Precompiled":
            model.normalizer_spec.precompiled_charsmap = base64.b64decode(one["precompiled_charsmap"])
    (folder / "spiece.model").write_bytes(model.SerializeToString())


def prepare_models():
    """Lets this version of transformers load a T5 of version 1.1, and find every model by the scripts' names."""
    torch, transformers = load("torch"), load("transformers")
    t5 = load("transformers.modeling_t5")

    class Gated(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self, config):
            super().__init__()
            self.wi_0 = torch.nn.Linear(config.d_model, config.d_ff, bias=False)
            self.wi_1 = torch.nn.Linear(config.d_model, config.d_ff, bias=False)
            self.wo = torch.nn.Linear(config.d_ff, config.d_model, bias=False)

        def forward(self, states):
            gate = self.wi_0(states)
            gate = 0.5 * gate * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (gate + 0.044715 * gate**3)))
            return self.wo(gate * self.wi_1(states))

    t5.T5DenseReluDense = Gated
    t5.T5PreTrainedModel._init_weights = lambda self, module: None  # knows no such layer; all weights are loaded
    folder = FOLDER / "questions"
    write_sentencepiece(folder)
    config = transformers.T5Config.from_pretrained(str(folder))
    config.tie_word_embeddings = False
    asker = transformers.T5ForConditionalGeneration(config).eval()
    state = torch.load(folder / "pytorch_model.bin")
    # This version divides by sqrt(d_model) before the last product; and its cross-attention has a bias that none has.
    state["lm_head.weight"] = state["lm_head.weight"] * config.d_model**0.5
    cross = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    state[cross] = torch.zeros_like(asker.state_dict()[cross])
    lacking, unknown = asker.load_state_dict(state, strict=False)
    assert not unknown, unknown
    assert all("position_ids" in name for name in lacking), lacking
    reader = FOLDER / "answers"
    tokenizers = {"t5": Templated(transformers.T5Tokenizer.from_pretrained(str(folder)))}
    tokenizers["albert"] = transformers.BertTokenizer.from_pretrained(str(reader))
    answerer = transformers.BertForQuestionAnswering.from_pretrained(str(reader)).eval()

    def kind(name):
        return "t5" if "t5" in name else "albert"

    class Tokenizers:
        from_pretrained = staticmethod(lambda name, **options: tokenizers[kind(name)])

    transformers.AutoTokenizer = Tokenizers
    transformers.AutoModelWithLMHead = types.SimpleNamespace(from_pretrained=lambda name: asker)
    transformers.AutoModelForQuestionAnswering = types.SimpleNamespace(from_pretrained=lambda name: answerer)


def leave_out_models():
    """Lets the scripts load nothing."""
    transformers = load("transformers")
    nothing = types.SimpleNamespace(from_pretrained=lambda name: None)
    for name in ("AutoTokenizer", "AutoModelWithLMHead", "AutoModelForQuestionAnswering"):
        setattr(transformers, name, nothing)


def prepare_bert_score():
    """Gives BERTScore another encoder, with a baseline of its own."""
    bert_score, transformers = load("bert_score"), load("transformers")

    encoder = FOLDER / "encoder"
    layers = transformers.BertConfig.from_pretrained(str(encoder)).num_hidden_layers
    path = FOLDER / "baseline.tsv"
    rows = [f"{layer},{BASELINE},{BASELINE},{BASELINE}" for layer in range(layers + 1)]
    path.write_text("\n".join(["LAYER,P,R,F", *rows]) + "\n")
    plain = bert_score.score

    def score(candidates, references, lang, verbose, rescale_with_baseline):
        return plain(
            candidates,
            references,
            model_type=str(encoder),
            num_layers=layers,
            lang=lang,
            verbose=verbose,
            rescale_with_baseline=rescale_with_baseline,
            baseline_path=str(path),
            batch_size=1,
        )

    bert_score.score = score


def main():
    pd, spacy = load("pandas"), load("spacy")
    prepare_bert_score()
    spacy.load = lambda name: spacy.blank("en")  # the baselines need its tokenizer alone
    sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "pipeline")]
    baselines = load("baselines")
    prepare_models() if TEMPLATE else leave_out_models()
    spacy.load = lambda name: Parsed
    for name in ("allennlp", "allennlp.predictors", "allennlp.predictors.predictor"):
        sys.modules[name] = types.ModuleType(name)
    load("allennlp.predictors.predictor").Predictor = Predictor
    for name in ("allennlp_models", "allennlp_models.pair_classification"):
        sys.modules[name] = types.ModuleType(name)
    pipeline, nli = load("run_pipeline"), load("run_nli")

    if not TEMPLATE:
        pipeline.qg.get_questions_beam = lambda answer, context: ask("questions", answer, context)
        pipeline.qa.get_answer = lambda question, text: ask("answers", question, text)
    questions: list[Any] = []
    answers: list[Any] = []
    recorded(pipeline.qg, "get_questions_beam", questions)
    recorded(pipeline.qa, "get_answer", answers)
    pairs = FOLDER / "pairs.csv"
    table = baselines.add_baselines(pd.read_csv(pairs))
    steps = str(FOLDER / "steps")
    pipeline.calc_scores(pairs, "beam", True, True, out_path=steps, save_steps=True)
    q2 = FOLDER / "q2.csv"
    nli.aggregate_per_response(nli.scores_with_nli(steps + ".steps.csv"), str(q2))
    by_id = {int(row["id"]): row for _, row in pd.read_csv(q2).iterrows()}
    rows = []
    for i, row in table.iterrows():
        found = {"official_f1": row["overlap"], "official_bleu": row["bleu"], "official_bertscore": row["bertscore"]}
        found.update({"official_q2_f1": by_id[i]["Q2_no_nli"], "official_q2_nli": by_id[i]["Q2"]})
        values = {name: float(value) for name, value in found.items()}
        rows.append({"response": row["response"], "knowledge": row["knowledge"], **values})
    ask("done", {"baseline": BASELINE, "pairs": rows, "questions": questions, "answers": answers})


with contextlib.redirect_stdout(sys.stderr):
    main()
