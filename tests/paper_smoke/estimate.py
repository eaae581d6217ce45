"""The GPUs and hours that a recipe takes in earnest, by arithmetic: no GPU was measured."""

from typing import NamedTuple

from tests.paper_smoke.architectures import ARCHITECTURES, num_parameters
from tests.paper_smoke.recipes import Recipe

CHIPS = {"H100": 989e12, "A100": 312e12}  # dense BF16 FLOP/s, by the vendor's data sheets
SHARE = 0.4  # of them
MEMORY = 80 * 2**30  # bytes of either
USABLE = 0.9
FROZEN = 4  # bytes of a parameter that is only read
STATE = 16  # bytes of a parameter: fp32 weights, gradients and AdamW's two moments
ACTIVATIONS = (
    34  # bytes of a token and dimension in each layer, attention's scores not stored (Korthikanti et al. 2022)
)

ASSUMED = (
    "6 N FLOP a token (N: all parameters, embeddings too; 4 N with adapters), every row as long as the recipe reads, "
    f"{SHARE:.0%} of the peak ({', '.join(f'{name} {rate / 1e12:.0f}' for name, rate in CHIPS.items())} TFLOP/s, dense "
    f"BF16), all epochs. Memory: {STATE} bytes a parameter ({FROZEN} below adapters), and {ACTIVATIONS} bytes a token, "
    "dimension and layer of one GPU's share of the batch; as many GPUs of 80 GiB as hold the parameters in shards, and "
    "their shares of a batch."
)


class Estimate(NamedTuple):
    """The cost of a recipe: work, memory, hours."""

    flop: float
    gib: float  # on a single GPU
    gpus: int
    hours: dict[str, float]  # of so many GPUs, by their kind


def estimate(recipe: Recipe, batch_size: int) -> Estimate:
    """Estimates a recipe with its own batch size."""
    changed = {} if recipe.layers is None else {"num_hidden_layers": recipe.layers}
    count = num_parameters(recipe.weights, **changed)
    # Below adapters no gradients of weights are computed.
    flop = (4.0 if recipe.adapters else 6.0) * count * recipe.tokens * recipe.num_rows * recipe.num_epochs
    hidden, layers = width_and_depth(recipe)
    state, activations = (
        (FROZEN if recipe.adapters else STATE) * count,
        ACTIVATIONS * recipe.tokens * batch_size * hidden * layers,
    )
    gpus = 1
    while state / gpus + activations / gpus > USABLE * MEMORY:
        gpus *= 2
    hours = {name: flop / (gpus * rate * SHARE) / 3600 for name, rate in CHIPS.items()}
    return Estimate(flop, (state + activations) / 2**30, gpus, hours)


def width_and_depth(recipe: Recipe) -> tuple[int, int]:
    """The hidden size and the layers, of encoder and decoder together."""
    import transformers

    architecture = ARCHITECTURES[recipe.weights]
    config = getattr(transformers, architecture.model_class).config_class(**architecture.config)
    decoder = getattr(config, "num_decoder_layers", None) or getattr(config, "decoder_layers", 0)
    layers = recipe.layers or config.num_hidden_layers
    return config.hidden_size, layers + (decoder if config.is_encoder_decoder else 0)
