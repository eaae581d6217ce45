"""Write a run's best model as a Hugging Face folder that needs no code of ours (but for DoHA), and prove it.

python export.py checkpoint=runs/... output_dir=DIR     weights, tokenizer, model card, faithkit.json
python export.py checkpoint=runs/.../adapter output_dir=DIR   a judge's adapters, merged into their base
python export.py checkpoint=runs/... output_dir=DIR && huggingface-cli upload NAME DIR
python -c "from transformers import pipeline; print(pipeline('text-classification', 'DIR'))"
"""

from typing import Any

from faithkit.cli import run_script


def main(cfg: Any) -> None:
    """Copies, describes, reloads in plain transformers and compares."""
    from critic.export import export as export_detector
    from faithkit.files.model_folder import GENERATOR, JUDGE, find_folder, read_sidecar
    from generation.export import export as export_generator
    from judge.export import export as export_judge

    sidecar = read_sidecar(find_folder(cfg.checkpoint))
    exports = {GENERATOR: export_generator, JUDGE: export_judge}
    export = exports.get(sidecar.kind, export_detector) if sidecar else export_detector
    report = export(cfg.checkpoint, cfg.output_dir)
    largest = f"largest difference of {report.num_logits} logits {report.difference:.1e}"
    print(f"reloaded in {report.reloaded_in}: {largest}")
    print(report.folder)


def run() -> None:
    """The command line."""
    run_script(main, "export", __doc__ or "", (), "workflows.settings.scripts:ExportSettings")


if __name__ == "__main__":
    run()
