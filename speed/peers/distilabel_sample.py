"""Samples a reply to each of some rows with distilabel's pipeline; one process from the beginning to the end.

Arguments: the server's address, how many rows, rows in a batch, the folder of the cache, the file to write. The rows
are read from standard input, as JSON lines.
"""

import json
import sys
from pathlib import Path

from distilabel.models.llms import OpenAILLM
from distilabel.pipeline import Pipeline
from distilabel.steps import LoadDataFromDicts
from distilabel.steps.tasks import TextGeneration


def main() -> None:
    """Runs the pipeline, from its cache where there is one."""
    url, number, batch, cache, output = sys.argv[1:]
    rows = [json.loads(line) for line in sys.stdin][: int(number)]
    with Pipeline(name="speed", cache_dir=cache) as pipeline:
        load = LoadDataFromDicts(data=rows, batch_size=int(batch))
        settings = {"temperature": 1.0, "max_new_tokens": 64}
        model = OpenAILLM(model="m", base_url=url, api_key="none", generation_kwargs=settings, max_retries=1)
        load >> TextGeneration(llm=model, input_batch_size=int(batch))
    done = pipeline.run(use_cache=True)
    with Path(output).open("w", encoding="utf-8") as file:
        for row in done["default"]["train"]:
            print(json.dumps({"id": row["id"], "said": row["generation"]}), file=file)


if __name__ == "__main__":
    main()
