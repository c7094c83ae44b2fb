"""A pretrained autoencoder of diffusers: images to latents and back, and its identity.

    images x (n,3,H,W) in [-1, 1]   ->  q(z | x) = N(mean, std^2),  z (n,c,h,w)   ->  D(z) (n,3,H,W)
    H = f h  with the downsampling factor f = 2^(levels - 1)

AutoencoderKL has a posterior with std > 0 (Rombach et al. 2022, "High-Resolution Image Synthesis with Latent Diffusion
Models", section 3.1 and appendix G). VQModel's latents are its encoder's output before the codebook, std = 0, and its
decoder quantizes them first, as in LDM's VQ-f4.

The `scaling_factor` in a configuration belongs to a diffusion model and is not used here: latents are scaled to
variance 1 by `diffusion_lab.data.Latents`.

diffusers takes seconds to import, so only `encode` and `decode` import it; `identity` only reads the files.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import ReadPath, check_flag, check_integer

Batch = tuple[Tensor, ...]  # output of one call of a model
CLASSES = ("AutoencoderKL", "VQModel")
WEIGHTS = ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin")  # the first that exists
CONFIG = "config.json"
# Keys for a diffusion model on the latents, and unused ones: they do not change the autoencoder's map.
NOT_THE_MAP = ("scaling_factor", "shift_factor", "latents_mean", "latents_std", "sample_size", "force_upcast")
INSTALL = "run: python -m pip install 'diffusion-lab[latent]'"


class Posterior(NamedTuple):
    """q(z | x): mean and standard deviation, each (n,c,h,w) float32; the latter is 0 for VQModel."""

    mean: Tensor
    std: Tensor


class Autoencoder:
    """AutoencoderKL or VQModel, in evaluation mode and float32, on the device of its input.

    Args:
        weights: a folder with config.json and diffusion_pytorch_model.safetensors (or .bin), as `save_pretrained`
            writes it; or OWNER/NAME or OWNER/NAME/SUBFOLDER on the Hugging Face hub.
        download: whether to download it from the hub if it is not in the hub's cache on this machine.
        batch_size: images at a time, which limits the memory.

    Raises:
        ValueError: a batch size below 1; on use: the files are damaged or of another kind.
        FileNotFoundError: on use: diffusers is not installed, or the folder does not exist and is not in the hub's
            cache.
    """

    def __init__(self, weights: ReadPath, download: bool = False, batch_size: int = 16) -> None:
        self.weights = str(weights)
        self.download = check_flag("download", download, "use true to fetch it from the hub")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 16")

    @functools.cached_property
    def folder(self) -> Path:
        """Folder of the files on this machine."""
        for package in ("diffusers", "safetensors"):
            if importlib.util.find_spec(package) is None:
                fault = f"weights={self.weights} must be read with {package}, which is missing"
                raise FileNotFoundError(f"{fault}; {INSTALL}")
        own = Path(self.weights).expanduser()
        folder = own if own.is_dir() else _from_hub(self.weights, self.download)
        if not (folder / CONFIG).is_file():
            raise FileNotFoundError(
                f"weights={self.weights} must be a folder with {CONFIG}, as diffusers' save_pretrained writes it; "
                f"there is none in {folder.absolute()}"
            )
        return folder

    @property
    def place(self) -> str:
        """`weights`, as an absolute path if it is a folder."""
        own = Path(self.weights).expanduser()
        return str(own.absolute()) if own.is_dir() else self.weights

    @property
    def loaded_from(self) -> tuple[str, str]:
        """The first argument of diffusers' `from_pretrained`, and its `subfolder`."""
        if Path(self.weights).expanduser().is_dir() or not _is_on_hub(self.weights):
            return self.place, ""
        owner, name, *subfolder = self.weights.split("/")
        return f"{owner}/{name}", "/".join(subfolder)

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The architecture: config.json without the keys that do not change latents or images."""
        content = _read_config(self.folder / CONFIG, self.weights)
        if content.get("_class_name") not in CLASSES:
            raise ValueError(
                f"weights={self.weights} must be one of {', '.join(CLASSES)}, and is {content.get('_class_name')}; "
                "give the folder of the autoencoder, not of the whole pipeline"
            )
        return {key: value for key, value in sorted(content.items()) if key[0] != "_" and key not in NOT_THE_MAP}

    @property
    def image_channels(self) -> int:
        """Channels of the images, 3 for RGB."""
        return self.config["in_channels"]

    @property
    def channels(self) -> int:
        """c, channels of a latent."""
        return self.config["latent_channels"]

    @property
    def factor(self) -> int:
        """f, image pixels per latent pixel along a side."""
        return 2 ** (len(self.config["block_out_channels"]) - 1)

    def identity(self) -> dict[str, Any]:
        """Class, configuration and SHA-256 of all weights (by name, type, shape and bits): equal for equal maps.

        The tensors are hashed, not the file, so a copy that was saved again has the same identity.
        """
        config = self.config
        return {
            "class": _read_config(self.folder / CONFIG, self.weights)["_class_name"],
            "config": config,
            "weights_sha256": _weights_sha256(self._weights_file(), self.weights),
            "latent_channels": self.channels,
            "factor": self.factor,
        }

    def encode(self, images: Tensor) -> Posterior:
        """(n,3,H,W) float in [-1, 1] -> mean and std (n,c,H/f,W/f), on the images' device."""
        return Posterior(*(torch.cat(parts) for parts in zip(*self._batches(images, _encode), strict=True)))

    def decode(self, latents: Tensor) -> Tensor:
        """(n,c,h,w) -> (n,3,fh,fw) float32, images in [-1, 1]; the decoder may slightly exceed this range."""
        return torch.cat([image for (image,) in self._batches(latents, _decode)])

    def _batches(self, x: Tensor, function: Callable[[Any, Tensor], Batch]) -> Iterator[Batch]:
        model = self._model.to(x.device)
        # Always float32: diffusers' autoencoders overflow in float16 (`force_upcast`).
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            for part in x.split(self.batch_size):
                yield function(model, part.to(torch.float32))

    @functools.cached_property
    def _model(self) -> nn.Module:
        name = self.identity()["class"]
        import diffusers

        # Building the model draws from the global generator, on which the dropout of a run depends.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            kind = getattr(diffusers, name)
            model = kind.from_pretrained(self.folder, torch_dtype=torch.float32, low_cpu_mem_usage=False)
        return model.eval().requires_grad_(False)

    def _weights_file(self) -> Path:
        for name in WEIGHTS:
            if (self.folder / name).is_file():
                return self.folder / name
        raise FileNotFoundError(
            f"weights={self.weights} must hold {' or '.join(WEIGHTS)}; {self.folder.absolute()} has neither"
        )


def _encode(model: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    out = model.encode(images)
    if hasattr(out, "latent_dist"):  # AutoencoderKL
        return out.latent_dist.mean, out.latent_dist.std
    return out.latents, torch.zeros_like(out.latents)


def _decode(model: Any, latents: Tensor) -> tuple[Tensor]:
    return (model.decode(latents).sample,)


def _is_on_hub(weights: str) -> bool:
    """Whether it reads OWNER/NAME[/SUBFOLDER]."""
    words = weights.split("/")
    return len(words) >= 2 and all(words) and weights[0] not in "./~"


def _from_hub(weights: str, download: bool) -> Path:
    """The folder of OWNER/NAME[/SUBFOLDER] in the hub's cache; without `download` the network is not used."""
    words = weights.split("/")
    if not _is_on_hub(weights):
        raise FileNotFoundError(
            f"weights={weights} must be an existing folder, or OWNER/NAME of the Hugging Face hub; there is no folder "
            f"{Path(weights).expanduser().absolute()}"
        )
    from huggingface_hub import snapshot_download

    name, subfolder = "/".join(words[:2]), "/".join(words[2:])
    files = ["/".join(filter(None, (subfolder, file))) for file in (CONFIG, *WEIGHTS)]
    with suppress(Exception):  # not in the cache, or not a valid name on the hub
        folder = Path(snapshot_download(name, allow_patterns=files, local_files_only=True)) / subfolder
        # The cache has a folder of the repository as soon as it has any file of it.
        if (folder / CONFIG).is_file() and any((folder / file).is_file() for file in WEIGHTS):
            return folder
    if not download:
        raise FileNotFoundError(
            f"weights={weights} must be an existing folder or lie in the Hugging Face cache, and is neither on this "
            "machine; set download=true to fetch it, or give the folder of a copy"
        )
    try:
        return Path(snapshot_download(name, allow_patterns=files, etag_timeout=5)) / subfolder
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileNotFoundError(
            f"weights={weights} must be fetched from the Hugging Face hub, which failed ({reason}); copy its folder to "
            "this machine and give its path"
        ) from error


def _read_config(path: Path, weights: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"weights={weights} must have a readable {path.name} ({error}); copy it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"weights={weights} must have a {path.name} with one dictionary; copy it again")
    return content


def _weights_sha256(path: Path, weights: str) -> str:
    status = path.stat()
    try:
        return _hash_tensors(path, status.st_mtime_ns, status.st_size)
    except Exception as error:  # safetensors and torch raise many classes of errors for damaged files
        reason = " ".join(str(error).split())
        raise ValueError(f"weights={weights} must hold an undamaged {path.name} ({reason}); copy it again") from error


@functools.lru_cache
def _hash_tensors(path: Path, mtime_ns: int, size: int) -> str:
    """SHA-256 of the tensors of a file, cached while the file does not change."""
    digest = hashlib.sha256()
    with torch.device("cpu"):  # some callers build objects under torch.device("meta")
        for name, tensor in _tensors(path):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a file on the CPU, by name."""
    if path.suffix == ".bin":
        state = torch.load(path, map_location="cpu", weights_only=True)
        yield from sorted(state.items())
        return
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in sorted(file.keys()):
            yield name, file.get_tensor(name)
