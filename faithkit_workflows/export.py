"""Export a run's best model as a Hugging Face folder that works without faithkit (except DoHA), and verify it.

faithkit export checkpoint=runs/... output_dir=DIR      weights, tokenizer, model card, faithkit.json
faithkit export checkpoint=runs/... format=onnx         an ONNX graph into the run's hf/ (critic, tagger); or onnx_int8
faithkit export checkpoint=runs/... format=one_logit output_dir=DIR     a critic of one logit, for servers
faithkit export checkpoint=runs/.../adapter output_dir=DIR   a judge's adapters, merged into their base
faithkit export checkpoint=runs/... push_to=OWNER/NAME dry_run=true     show what would be pushed to the hub
python -c "from transformers import pipeline; print(pipeline('text-classification', 'DIR'))"
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from faithkit.cli import run_script


def main(cfg: Any) -> None:
    """Copies and describes the model, reloads it in plain transformers, compares logits; pushes it if requested."""
    from faithkit.weights.resolve import check_available
    from faithkit_workflows.settings.reporting import GRAPH, INT8_GRAPH, ONE_LOGIT

    check_available(cfg.checkpoint)
    from critic.export import add_graph, describe_graph
    from critic.export import export as export_detector
    from faithkit.detector import GENERATOR, JUDGE
    from faithkit.files.model_folder import find_folder, read_sidecar
    from faithkit.files.run_folder import RunFolder
    from faithkit.weights.publish import check_private, describe, push, shorten_paths
    from generation.export import export as export_generator
    from judge.export import export as export_judge

    graph, int8 = cfg.format in (GRAPH, INT8_GRAPH), cfg.format == INT8_GRAPH
    if cfg.output_dir is None and cfg.push_to is None:
        folder = add_graph(cfg.checkpoint, int8=int8)
        print(*describe_graph(folder), folder, sep="\n")
        return
    with ExitStack() as stack:
        if cfg.output_dir is None:
            from tempfile import TemporaryDirectory

            output_dir = str(Path(stack.enter_context(TemporaryDirectory()), "hf"))
        else:
            output_dir = cfg.output_dir
        sidecar = read_sidecar(find_folder(cfg.checkpoint))
        if sidecar and sidecar.kind in (GENERATOR, JUDGE):
            report: Any = (export_generator if sidecar.kind == GENERATOR else export_judge)(cfg.checkpoint, output_dir)
        else:
            formats = {"graph": graph, "int8": int8, "one_logit": cfg.format == ONE_LOGIT}
            report = export_detector(cfg.checkpoint, output_dir, **formats)
        largest = f"largest difference of {report.num_logits} logits {report.difference:.1e}"
        print(f"reloaded in {report.reloaded_in}: {largest}", *describe_graph(report.folder), sep="\n")
        if cfg.push_to is not None:
            if shortened := shorten_paths(report.folder):
                more = f" and {len(shortened) - 3} more" if len(shortened) > 3 else ""
                print(f"local paths, shortened to their last part: {', '.join(shortened[:3])}{more}")
            num_texts = check_private(report.folder)
            print(f"no token and no local path in {num_texts} texts")
            if cfg.dry_run:
                run = RunFolder(cfg.checkpoint)
                of_run = run.path if run.hf.exists() else None
                print(*describe(report.folder, cfg.push_to, private=cfg.private, run=of_run), sep="\n")
            else:
                print(push(report.folder, cfg.push_to, private=cfg.private))
        if cfg.output_dir is not None:
            print(report.folder)


def run() -> None:
    """Runs the command line."""
    run_script(main, "export", __doc__ or "", (), "faithkit_workflows.settings.reporting:ExportSettings")


if __name__ == "__main__":
    run()
