"""Compares the HTTP service with LettuceDetect's server: the same random tagger, the same rows, all cores.

Needs: the `serve` and `openai` extras, and FAITHKIT_LETTUCE_PYTHON (peers/README.md), an environment that also has
fastapi, uvicorn and pydantic-settings.

python -m speed.serve_peer_speed --seconds 15
"""

import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from data_modules.encoding.tokens import load_tokenizer
from speed.measure import Ratio, require, table, write_results
from speed.samples import make_tagged, write_modernbert
from speed.servers import SERVE, run_server, send, wait_for, write_bodies
from speed.tagger_speed import LettuceParser, lettuce_python, write_random_tagger

NUM_CLIENTS = (1, 16, 64)
ROUTE = "/v1/lettucedetect/spans"
LETTUCE = """import sys, uvicorn
import lettucedetect_api.server as server
server.settings.lettucedetect_model = sys.argv[1]
uvicorn.run(server.app, port=int(sys.argv[2]), log_level="warning")"""
THEIRS, FP32, BF16 = 8473, 8472, 8474  # ports


def main() -> None:
    """Measures the servers in turns."""
    parser = LettuceParser(__doc__, rounds=3, examples=96)
    parser.add_argument("--seconds", type=int, default=15, help="of each server in each round")
    options = parser.parse()
    require("fastapi", "uvicorn", "aiohttp", hint="pip install -e '.[serve,openai]'")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = write_modernbert(folder / "encoder", hidden_size=options.hidden_size, num_layers=options.layers)
        examples = make_tagged(load_tokenizer(weights), options.examples)
        model = write_random_tagger(weights, examples, folder / "tagger")
        bodies = [{"contexts": [one.knowledge], "question": "", "answer": one.response} for one in examples]
        rows = write_bodies(folder / "rows.jsonl", [(body, 1) for body in bodies])
        with ExitStack() as servers:
            for port in (THEIRS, FP32, BF16):
                precision = [f"precision={'bf16' if port == BF16 else '32-true'}"]
                ours = [*SERVE, f"checkpoint='lettucedetect-base:{model}'", f"port={port}", *precision]
                theirs = [lettuce_python(), "-c", LETTUCE, model, str(port)]
                process = servers.enter_context(run_server(theirs if port == THEIRS else ours, folder / str(port)))
                path = "openapi.json" if port == THEIRS else "health/ready"
                wait_for(f"http://127.0.0.1:{port}/{path}", process)
            lines = [measure(rows, clients, options.rounds, options.seconds) for clients in NUM_CLIENTS]
    about = (
        f"Requests a second; a random ModernBERT, {options.layers} layers of {options.hidden_size}; each server with "
    )
    about += f"all cores, one at a time. LettuceDetect's ({options.versions}) runs in fp32."
    head = ["clients", "LettuceDetect", "faithkit, fp32", "faithkit, bf16", "fp32 against it", "bf16 against it"]
    write_results("HTTP service against LettuceDetect's", about, table(head, lines), quick=options.quick)


def measure(rows: Path, clients: int, num_rounds: int, seconds: int) -> list[object]:
    """Measures requests a second of each server in turns, and returns a line of the table."""
    rates: dict[int, list[float]] = {THEIRS: [], FP32: [], BF16: []}
    for number in range(num_rounds):
        for port in list(rates) if number % 2 else list(rates)[::-1]:
            found = send(f"http://127.0.0.1:{port}{ROUTE}", rows, clients, seconds)
            if set(found["statuses"]) != {"200"}:
                sys.exit(f"error: {port} answered {found['statuses']}")
            rates[port].append(found["rate"])
    middle = [f"{statistics.median(rates[port]):.1f}" for port in rates]
    return [clients, *middle, *(str(Ratio.of(rates[port], rates[THEIRS])) for port in (FP32, BF16))]


if __name__ == "__main__":
    main()
