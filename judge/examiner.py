"""LMvLM (Cohen et al. 2023): one language model examines another about a response, then decides.

The examiner has the response and the conversation, not the knowledge. It writes questions; the examinee, which has
what the responder had, answers them without seeing the response; so for several turns. Then the examiner says whether
the response is hallucinated, by the answers. Prompts are ours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from faithkit.arguments import read_examples
from faithkit.inference.decoding import Decoding
from faithkit.inference.text import Message, Reply, TextEngine
from faithkit.records import Example, Prediction
from judge.asking import AskOptions
from judge.examiner_options import ExaminerOptions
from judge.judge import AT_A_TIME, Judge
from judge.prompt import read_prompt, write_history
from judge.questions import ask, read_text_prompt

QUESTIONS, ANSWERS, DECISION = "examiner_questions", "examiner_answers", "examiner_decision"
NUMBERING = "0123456789.-*) \t"  # what may stand before a question in a list


class Examiner:
    """A detector that questions.

    Args:
        engine: The examiner.
        examinee: Who answers.
        prompts: A folder with prompts of one's own; None takes ours.

    Attributes:
        num_unasked: Examples that the examiner had no question about: it decided by nothing.
    """

    def __init__(self, engine: TextEngine, examinee: TextEngine, options: ExaminerOptions, prompts: str | None = None):
        self.engine, self.examinee, self.options = engine, examinee, options
        self._questions = read_text_prompt(QUESTIONS, "response", "history", "exchange", folder=prompts)
        self._answers = read_text_prompt(ANSWERS, "knowledge", "history", "questions", folder=prompts)
        self._judge = Judge(engine, AskOptions(), template=read_prompt(DECISION, prompts))
        self.num_unasked = 0

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """One prediction for each example, in their order; `text` holds the questions and answers."""
        examples = read_examples(examples)
        for begin in range(0, len(examples), AT_A_TIME):
            portion = examples[begin : begin + AT_A_TIME]
            exchanges = self._examine(portion)
            # To the judge the answers are what the response is measured by.
            heard = [replace(e, knowledge=said) for e, said in zip(portion, exchanges, strict=True)]
            found = self._judge.predict_examples(heard, progress=progress)
            for prediction, said in zip(found, exchanges, strict=True):
                yield replace(prediction, text=prediction.text or said)

    def _examine(self, examples: Sequence[Example]) -> list[str]:
        """Questions and answers on each example; one that nothing more is asked about stays as it is."""
        exchanges = [""] * len(examples)
        decoding = Decoding(max_new_tokens=self.options.max_new_tokens)
        places = list(range(len(examples)))
        for _ in range(self.options.turns or 1):
            asked = ask(self.engine, [self._asking(examples[i], exchanges[i]) for i in places], decoding)
            listed = [self._read_questions(reply, exchanges[i]) for i, reply in zip(places, asked, strict=True)]
            kept = [(i, own) for i, own in zip(places, listed, strict=True) if own]
            heard = ask(self.examinee, [self._answering(examples[i], own) for i, own in kept], decoding)
            for (i, own), reply in zip(kept, heard, strict=True):
                answered = reply.texts[0].strip() if reply.texts else ""
                exchanges[i] = "\n\n".join(filter(None, [exchanges[i], *own, answered or "(no answer)"]))
            places = [i for i, _ in kept]
        self.num_unasked += exchanges.count("")
        return exchanges

    def _asking(self, example: Example, exchange: str) -> tuple[Message, ...]:
        history = write_history(example.history)
        return self._questions.messages(response=example.response, history=history, exchange=exchange)

    def _answering(self, example: Example, questions: Sequence[str]) -> tuple[Message, ...]:
        history = write_history(example.history)
        return self._answers.messages(knowledge=example.knowledge, history=history, questions="\n".join(questions))

    def _read_questions(self, reply: Reply, known: str) -> list[str]:
        """Reads the questions of a reply, one a line; those that were asked before are none."""
        lines = (reply.texts[0] if reply.texts else "").splitlines()
        found = dict.fromkeys(line.strip().lstrip(NUMBERING) for line in lines if line.rstrip().endswith("?"))
        return [question for question in found if question not in known.splitlines()][: self.options.num_questions]
