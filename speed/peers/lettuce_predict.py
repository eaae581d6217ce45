"""A worker that predicts with LettuceDetect's own detector.

PEER_PYTHON lettuce_predict.py --model FOLDER --rows ROWS

`WAY START STOP` on a line of the input predicts the spans of these rows and answers {"cpu_seconds", "num_spans"}:
`batch` through predict_prompt_batch, `prompt` through predict_prompt row by row, `single` through predict row by row,
with the context as its one passage. `spans START STOP` answers the spans themselves. `--once` predicts the first row
through `single`, says so and ends: the cold start.
"""

import argparse
from typing import Any

from lettuce_worker import cpu_seconds, read_rows, serve


def main() -> None:
    """Loads, then waits for work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--max-length", type=int, default=4096)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()

    from lettucedetect import HallucinationDetector  # after the parser, as a program of a user has it

    rows = read_rows(options.rows)
    detector = HallucinationDetector(method="transformer", model_path=options.model, max_length=options.max_length)

    def predict(way: str, part: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        if way == "batch":
            prompts, answers = [row["prompt"] for row in part], [row["answer"] for row in part]
            return detector.predict_prompt_batch(prompts, answers, output_format="spans")
        if way == "prompt":
            return [detector.predict_prompt(r["prompt"], r["answer"], output_format="spans") for r in part]
        return [detector.predict([r["prompt"]], r["answer"], output_format="spans") for r in part]

    if options.once:
        print(len(predict("single", rows[:1])[0]), "spans")
        return

    def run(way: str, start: str, stop: str) -> Any:
        if way == "spans":
            found = predict("batch", rows[int(start) : int(stop)])
            return [[(span["start"], span["end"]) for span in spans] for spans in found]
        begin = cpu_seconds()
        found = predict(way, rows[int(start) : int(stop)])
        return {"cpu_seconds": cpu_seconds() - begin, "num_spans": sum(map(len, found))}

    serve(run)


if __name__ == "__main__":
    main()
