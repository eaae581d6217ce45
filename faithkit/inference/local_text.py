"""Runs a local causal language model: messages in, text or probabilities of choices out."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from faithkit import arguments
from faithkit.fast import place_model
from faithkit.inference.messages import MessageTokens
from faithkit.inference.text import (
    VLLM,
    Completion,
    Decoding,
    Engine,
    Form,
    LocalOptions,
    Prompt,
    Reply,
    Request,
    check_unique_ids,
)
from faithkit.weights.adapters import check_base, load_adapters, stored_adapters
from faithkit.weights.load import (
    check_end_token,
    check_places,
    check_vocabulary,
    filler_token,
    load_config,
    load_model,
    load_tokenizer,
)
from faithkit.weights.resolve import hash_weights, hub_adapters, is_hub_name, loading


class LocalTextEngine:
    """Asks a model that an engine of tokens runs.

    It ignores the form (`Form`); `weigh` restricts replies to choices.

    Args:
        window: Tokens of prompt and answer together. A request that needs more gets a reply with that problem.
        identity: As `TextEngine.identity`.
    """

    def __init__(self, engine: Engine, tokens: MessageTokens, *, window: int, identity: str):
        self.engine, self.tokens, self.window, self.identity = engine, tokens, window, identity

    def generate(self, requests: Sequence[Request], decoding: Decoding, form: Form | None = None) -> Iterator[Reply]:
        """Yields a reply to each request once all of its samples have ended."""
        prompts, replies = self._prompts(requests, decoding.max_new_tokens)
        yield from replies
        sizes = {prompt.id: len(prompt.ids) for prompt in prompts}
        samples: defaultdict[str, list[Completion]] = defaultdict(list)
        for completion in self.engine.generate(prompts, decoding):
            samples[completion.id].append(completion)
            if len(samples[completion.id]) == decoding.num_samples:
                written = sorted(samples.pop(completion.id), key=lambda one: one.sample)
                yield Reply(
                    id=completion.id,
                    texts=tuple(self.tokens.decode(one.ids) for one in written),
                    finished=tuple(one.finished for one in written),
                    prompt_tokens=sizes[completion.id],
                    new_tokens=sum(len(one.ids) for one in written),
                )

    def weigh(self, requests: Sequence[Request], choices: Sequence[str]) -> Iterator[Reply]:
        """Yields the probabilities of the choices' first distinctive tokens, in one pass without writing."""
        begin, distinctive = self.tokens.choices(choices)
        prompts, replies = self._prompts(requests, len(begin) + 1)
        yield from replies
        sizes = {prompt.id: len(prompt.ids) for prompt in prompts}
        begun = [Prompt(prompt.id, np.append(prompt.ids, begin).astype(np.int32)) for prompt in prompts]
        for id_, shares in self.engine.next_probabilities(begun, distinctive):
            probabilities = dict(zip(choices, shares.tolist(), strict=True))
            yield Reply(id=id_, probabilities=probabilities, prompt_tokens=sizes[id_])

    def _prompts(self, requests: Sequence[Request], new_tokens: int) -> tuple[list[Prompt], list[Reply]]:
        """Encodes requests; returns replies with a problem for those that are too long."""
        check_unique_ids("requests", requests)
        prompts, replies = [], []
        encoded = self.tokens.prompts([one.messages for one in requests], [one.template for one in requests])
        for request, ids in zip(requests, encoded, strict=True):
            if len(ids) + new_tokens <= self.window:
                prompts.append(Prompt(request.id, ids))
            else:
                problem = f"too long: {len(ids)} tokens and {new_tokens} to write, and the model reads {self.window}"
                replies.append(Reply(id=request.id, problem=problem, prompt_tokens=len(ids)))
        return prompts, replies


def load_local(model: str, options: LocalOptions | None = None) -> LocalTextEngine:
    """Loads a causal language model: a folder, a local name or a hub name.

    Of LoRA adapters, a folder or on the hub, their base is loaded, and they are put on it unmerged.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    options = options or LocalOptions()
    if is_hub_name(model):
        model = str(hub_adapters(model) or model)
    adapters = stored_adapters(model)
    name = adapters.base if adapters else model
    with loading(name) as source:
        if adapters:
            check_base(adapters, source)
        tokenizer = load_tokenizer(source)
        check_end_token(tokenizer, name)
        window = check_places(load_config(AutoConfig, source), source, options.max_length)
        engine: Engine
        if options.engine == VLLM:
            from faithkit.inference.vllm_engine import VllmEngine

            limits = {"eos_id": tokenizer.eos_token_id, "max_length": window}
            engine = VllmEngine(source, options, **limits, relative=True, adapters=adapters)
            used = engine.precision
        else:
            network = load_model(AutoModelForCausalLM, source)
            check_vocabulary(network, tokenizer, source)
            network = load_adapters(network, adapters) if adapters else network
            engine, used = start_transformers(network, tokenizer, options)
    # The hashes of the weights: a folder with other weights is another model.
    template = hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest()[:8]
    identity = f"{options.engine} {used} {hash_weights(source) or source} {template}"
    if adapters:
        identity = f"{identity} {hash_weights(model)}"
    return LocalTextEngine(engine, MessageTokens(tokenizer), window=window, identity=identity)


def start_transformers(
    network: Any, tokenizer: Any, options: LocalOptions, *, decoder_prefix: Sequence[int] = ()
) -> tuple[Engine, str]:
    """Places a loaded model on its device, and builds our engine; returns it with the precision used."""
    from faithkit.inference.transformers_engine import TransformersEngine

    network, used = place_model(network, arguments.read_device(options.device), options.precision)
    pad_id, batch_size = filler_token(tokenizer), options.batch_size
    given: dict[str, Any] = {"pad_id": pad_id, "decoder_prefix": decoder_prefix, "batch_size": batch_size}
    return TransformersEngine(network, eos_id=tokenizer.eos_token_id, **given), used
