"""Tasks for lm-evaluation-harness: a language model judges the responses of the four papers' benchmarks.

TASKS=$(python -m faithkit_workflows.adapters.lm_eval)
lm_eval --model hf --model_args pretrained=MODEL --tasks faithkit_ragtruth --include_path $TASKS \
    --metadata '{"ragtruth": "DIR"}'
"""
