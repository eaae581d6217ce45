"""The keys of export.py."""

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from faithkit.detector import CRITIC, GENERATOR, JUDGE, TAGGER
from faithkit.errors import UserError
from faithkit.settings.types import Hint, OneOf, PathText, Switch
from faithkit.weights.publish import REPOSITORY, has_token
from faithkit_workflows.settings import no_effect
from faithkit_workflows.settings import preflight as around
from faithkit_workflows.settings.common import Common, Folder

PLAIN, GRAPH, INT8_GRAPH = FORMATS = ("transformers", "onnx", "onnx_int8")
ENCODERS, OTHERS = (CRITIC, TAGGER), (GENERATOR, JUDGE)
Repository = Annotated[str, Field(pattern=f"^{REPOSITORY}$", max_length=96)]


class ExportSettings(Common):
    """All of them."""

    checkpoint: PathText
    output_dir: Folder
    format: Annotated[str, OneOf(FORMATS)]
    push_to: Annotated[Repository | None, Hint("use OWNER/NAME, or null")]
    private: Switch
    dry_run: Switch

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if self.output_dir is None and self.push_to is None and self.format == PLAIN:
            raise UserError("output_dir is not set", hint="set output_dir=DIR, or push_to=OWNER/NAME, or format=onnx")
        if self.dry_run and self.push_to is None:
            raise UserError("dry_run shows what a push would do, and push_to is not set", hint="set push_to=OWNER/NAME")
        return self

    def surroundings(self) -> Iterator[UserError]:
        problems = list(around.checkpoint_problems("checkpoint", self.checkpoint, *ENCODERS, *OTHERS))
        yield from problems
        yield from around.run_dir_problems(self.output_dir, "output_dir")
        if self.format != PLAIN:
            here = Path(self.checkpoint).expanduser().exists() and not problems
            if here and (kind := around.kind_of(self.checkpoint)) in OTHERS:
                problem = f"format={self.format} is for encoders, and this is a {kind}"
                yield UserError(problem, place=self.checkpoint, hint="leave format out")
            for package in ("onnx", "onnxscript", "onnxruntime"):
                yield from around.package_problems(f"format={self.format}", package, "onnx")
        if self.push_to is not None and not self.dry_run and not has_token():
            problem = "push_to needs a token of the hub: HF_TOKEN is not set, and `hf auth login` was never run"
            yield UserError(problem, hint="dry_run=true needs none")

    def notes(self, given: Set[str]) -> Iterator[str]:
        if self.push_to is None:
            yield from no_effect.without_effect(given, ["private"], "without push_to")
