"""LMvLM (Cohen et al. 2023): one language model examines another about a response, then decides.

The examiner sees the response and the conversation, but not the knowledge. It writes questions; the examinee, which
sees knowledge and conversation but not the response, answers them. After several turns the examiner decides from the
answers whether the response is hallucinated. The prompts are not those of the paper.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from faithkit.arguments import read_examples
from faithkit.inference.prompts import read_text_prompt
from faithkit.inference.text import Decoding, TextEngine
from faithkit.records import Example, Prediction
from judge.baselines.baseline_options import ExaminerOptions
from judge.judge import Judge
from judge.options import AskOptions
from judge.prompt import OPTIONAL_FIELDS, read_prompt
from judge.questions import CHUNK_SIZE, ask, messages_about

QUESTIONS, ANSWERS, DECISION = "examiner_questions", "examiner_answers", "examiner_decision"
NUMBERING = "0123456789.-*) \t"  # before a question in a list


class Examiner:
    """Detects hallucinations by cross-examination.

    Args:
        engine: The examiner.
        examinee: Answers the questions.
        prompts: A folder with other prompts; None takes the built-in prompts.

    Attributes:
        num_unasked: Examples without any question, which were judged without answers.
    """

    def __init__(self, engine: TextEngine, examinee: TextEngine, options: ExaminerOptions, prompts: str | None = None):
        self.engine, self.examinee, self.options = engine, examinee, options
        read = partial(read_text_prompt, "judge", folder=prompts, optional=OPTIONAL_FIELDS)
        self._questions = read(QUESTIONS, "response", "exchange")
        self._answers = read(ANSWERS, "questions")
        self._judge = Judge(engine, AskOptions(), template=read_prompt(DECISION, prompts))
        self.num_unasked = 0

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example, in their order; `text` contains the questions and answers."""
        examples = read_examples(examples)
        for begin in range(0, len(examples), CHUNK_SIZE):
            chunk = examples[begin : begin + CHUNK_SIZE]
            exchanges = [""] * len(chunk)  # the questions and answers of each example
            decoding = Decoding(max_new_tokens=self.options.max_new_tokens)
            open_examples = list(range(len(chunk)))  # one without further questions is finished
            for _ in range(self.options.turns or 1):
                prompts = [
                    messages_about(self._questions, chunk[i], response=chunk[i].response, exchange=exchanges[i])
                    for i in open_examples
                ]
                asked = ask(self.engine, prompts, decoding)
                questioned = []
                for i, reply in zip(open_examples, asked, strict=True):
                    # One question per line, without those that were asked before.
                    lines = (reply.texts[0] if reply.texts else "").splitlines()
                    written = (line.strip().lstrip(NUMBERING) for line in lines if line.rstrip().endswith("?"))
                    known = exchanges[i].splitlines()
                    questions = [one for one in dict.fromkeys(written) if one not in known]
                    if questions := questions[: self.options.num_questions]:
                        questioned.append((i, questions))
                prompts = [
                    messages_about(self._answers, chunk[i], questions="\n".join(questions))
                    for i, questions in questioned
                ]
                replies = ask(self.examinee, prompts, decoding)
                for (i, questions), reply in zip(questioned, replies, strict=True):
                    answer = reply.texts[0].strip() if reply.texts else ""
                    exchanges[i] = "\n\n".join(filter(None, [exchanges[i], *questions, answer or "(no answer)"]))
                open_examples = [i for i, _ in questioned]
            self.num_unasked += exchanges.count("")
            # The judge reads the answers in place of the knowledge.
            rows = [replace(example, knowledge=exchange) for example, exchange in zip(chunk, exchanges, strict=True)]
            found = self._judge.predict_examples(rows, progress=progress)
            for prediction, exchange in zip(found, exchanges, strict=True):
                yield replace(prediction, text=prediction.text or exchange)
